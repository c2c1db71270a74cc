"""A small service in closed loop: demand, pods that come and go, a registry, metrics, and the stock HPA at tolerance 0.

Pure and deterministic: time advances by ticks of 5 s, independent of the clock.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from adapter.load.assess import assess
from adapter.load.assessment import Assessment, AssessmentInputs, Decision
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Container, Pod, PodCondition
from adapter.load.roster import Instance, Roster
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Bounds, Policy, Scale, Target
from tests.load.kit import NOW, REGISTRY, TARGET, cpu, policy

TICK = 5
SYNC = 15
SCRAPE = 15
ANSWERS = 10
STARTUP = 30
REGISTERS = 10
GRACEFUL = 10
HIGH, LOW = 1200, 400
MILLI = 10**6
POLICY = policy(cpu(f"{HIGH}m", f"{LOW}m"), registry=REGISTRY, replace_after=60.0)

MINUTE = 60
LONG = 40 * MINUTE
"""Longer than any time limit of the adapter: evidence of a silent registry expires after 30 minutes."""

Demand = Callable[[int], int]


@dataclass
class SimPod:
    """A pod of the service. Times are seconds since the simulation began; `ready_at` None: it never becomes Ready."""

    name: str
    created: int
    ready_at: int | None
    disabled: bool = False
    deregistered: bool = False
    deleted: int | None = None
    unready_since: int | None = None

    def ready(self, now: int) -> bool:
        return self.ready_at is not None and self.ready_at <= now and self.unready_since is None

    def registered(self, now: int) -> bool:
        up = self.ready_at is not None and self.ready_at + REGISTERS <= now
        return up and self.ready(now) and not self.deregistered and self.deleted is None

    def in_traffic(self, now: int) -> bool:
        return self.registered(now) and not self.disabled

    def api_pod(self, ip: str, now: int) -> Pod:
        """The pod as the API shows it."""
        came_up = self.ready_at is not None and self.ready_at <= now
        since = self.unready_since if self.unready_since is not None else self.ready_at if came_up else self.created
        crashing = self.ready_at is None and now - self.created > STARTUP
        return Pod(
            namespace="shop",
            name=self.name,
            uid=f"uid-{self.name}",
            created_at=NOW + self.created,
            started_at=NOW + self.created + 1,
            deleting=self.deleted is not None,
            ready=PodCondition(self.ready(now), NOW + (since or 0)),
            containers_ready=self.ready(now),
            ips=(ip,),
            containers=(Container("app", running=not crashing, crash_looping=crashing),),
        )


@dataclass
class Registry:
    """The registry's answers: `mode` is ok, silent (no new answer), or empty; `alive` is its liveness."""

    mode: str = "ok"
    alive: bool = False
    reconnected: int | None = None
    forgotten: set[str] = field(default_factory=set)
    last: Roster | None = None

    def ask(self, pods: Sequence[SimPod], ips: dict[str, str], now: int) -> None:
        if self.mode == "silent":
            return
        listed = [p for p in pods if p.registered(now) and p.name not in self.forgotten] if self.mode == "ok" else []
        self.last = Roster(
            at=NOW + now,
            alive=self.alive,
            reconnected_at=None if self.reconnected is None else NOW + self.reconnected,
            instances=tuple(Instance(ip=ips[p.name], port=8080, enabled=not p.disabled) for p in listed),
        )


@dataclass
class Hpa:
    """The stock HPA at tolerance 0 without rate limits: the largest of the recent recommendations on the way down."""

    bounds: Bounds = field(default_factory=lambda: Bounds(minimum=2, maximum=500))
    down_window: int = 60
    recommended: list[tuple[int, int]] = field(default_factory=list)

    def sync(self, decision: Decision, now: int) -> int:
        if decision.served is None:
            return decision.current
        proposal = -(-decision.served // 1000)
        self.recommended = [(at, count) for at, count in self.recommended if now - at < self.down_window]
        self.recommended.append((now, proposal))
        stable = max(count for _, count in self.recommended)
        wanted = proposal if proposal >= decision.current else min(decision.current, stable)
        return max(self.bounds.minimum, min(self.bounds.maximum, wanted))


@dataclass(frozen=True)
class Moment:
    """One tick: the count, the pods in traffic, their average load (milli), and the decision."""

    at: int
    replicas: int
    in_traffic: int
    load: float
    decision: Decision
    assessment: Assessment


@dataclass
class Service:
    """The loop. `fate` returns for each pod created after the beginning when it becomes Ready (None: never)."""

    replicas: int
    demand: Demand
    rule: Policy = POLICY
    fate: Callable[[SimPod], None] = lambda _: None
    target: Target = TARGET
    registry: Registry = field(default_factory=Registry)
    hpa: Hpa = field(default_factory=Hpa)
    surge: int = 0
    metrics: bool = True
    now: int = 0
    memory: Memory = field(default_factory=Memory)
    pods: list[SimPod] = field(default_factory=list)
    history: list[Moment] = field(default_factory=list)
    samples: dict[str, PodUsage] = field(default_factory=dict)
    inputs: list[AssessmentInputs] = field(default_factory=list)
    lost_samples: set[str] = field(default_factory=set)
    plan: Callable[[int], int | None] | None = None
    """The total of a floor named plan (milli-units) at a time; None while its query fails."""
    _made: int = 0

    def __post_init__(self) -> None:
        self.pods = [self._new(created=-3600) for _ in range(self.replicas)]

    def _new(self, created: int) -> SimPod:
        self._made += 1
        return SimPod(f"web-{self._made:03}", created, created + STARTUP)

    @property
    def living(self) -> list[SimPod]:
        return [p for p in self.pods if p.deleted is None]

    def originals(self) -> list[SimPod]:
        return [p for p in self.living if p.created < 0]

    def run(self, seconds: int) -> list[Moment]:
        """Advances; returns the moments."""
        begin = len(self.history)
        for _ in range(seconds // TICK):
            self.history.append(self._tick())
            self.now += TICK
        return self.history[begin:]

    def _tick(self) -> Moment:
        self._control()
        busy = [p for p in self.pods if p.in_traffic(self.now)]
        load = self.demand(self.now) / len(busy) if busy else 0.0
        if self.now % SCRAPE == 0 and self.metrics:
            self._scrape(busy)
        ips = {p.name: f"10.0.{index // 250}.{index % 250}" for index, p in enumerate(self.pods)}
        if self.now % ANSWERS == 0:
            self.registry.ask(self.pods, ips, self.now)
        assessment = self._assess(ips)
        decision = decide(assessment, self._scale(), self.hpa.bounds, NOW + self.now)
        if self.now % SYNC == 0:
            self._sync(decision)
        return Moment(self.now, self.replicas, len(busy), load, decision, assessment)

    def _sync(self, decision: Decision) -> None:
        wanted = self.hpa.sync(decision, self.now)
        if wanted != self.replicas:
            self.hpa.bounds = replace(self.hpa.bounds, last_scale=NOW + self.now)
        self.replicas = wanted

    def _control(self) -> None:
        """The ReplicaSet controller: creates pods, or deletes them, unready and youngest ones first."""
        self.pods = [p for p in self.pods if p.deleted is None or self.now - p.deleted < GRACEFUL]
        wanted = self.replicas + self.surge
        for _ in range(wanted - len(self.living)):
            made = self._new(self.now)
            self.fate(made)
            self.pods.append(made)
        order = sorted(self.living, key=lambda p: (p.ready(self.now), -p.created))
        for victim in order[: max(0, len(self.living) - wanted)]:
            victim.deleted = self.now

    def _scrape(self, busy: Sequence[SimPod]) -> None:
        demand = self.demand(self.now)
        share = {p.name: demand * MILLI // len(busy) for p in busy} if busy else {}
        self.samples = {
            p.name: PodUsage(NOW + self.now, float(SCRAPE), {"app": {"cpu": share.get(p.name, 0)}})
            for p in self.living
            if p.ready(self.now) and p.name not in self.lost_samples
        }

    def _plan(self) -> dict[str, QuerySamples]:
        if self.plan is None:
            return {}
        total = self.plan(self.now)
        if total is None:
            return {"plan": QuerySamples(error="it failed")}
        return {"plan": QuerySamples(total=Point(NOW + self.now, total * MILLI), fetched_at=NOW + self.now)}

    def _scale(self) -> Scale:
        return Scale(replicas=self.replicas, status_replicas=len(self.living), selector="app=web")

    def _assess(self, ips: dict[str, str]) -> Assessment:
        pods = [p.api_pod(ips[p.name], self.now) for p in self.pods]
        samples = Samples(ResourceSamples(pods=self.samples, fetched_at=NOW + self.now), self._plan())
        inputs = AssessmentInputs(
            policy=self.rule, pods=pods, samples=samples, roster=self.registry.last, scale=self._scale(),
            bounds=self.hpa.bounds, target=self.target, memory=self.memory, now=NOW + self.now,
        )  # fmt: skip
        self.inputs.append(inputs)
        assessment = assess(inputs)
        self.memory = assessment.memory
        return assessment

    def rolling(self, reason: str) -> None:
        self.target = replace(self.target, progressing=reason)


def constant(millis: int) -> Demand:
    return lambda _: millis


def counts(moments: Sequence[Moment]) -> list[int]:
    return [moment.replicas for moment in moments]


def changes(moments: Sequence[Moment]) -> list[int]:
    """The steps of the count, +n and -n."""
    seen = counts(moments)
    return [after - before for before, after in pairwise(seen) if after != before]


def turns(moments: Sequence[Moment]) -> int:
    """The number of changes of direction of the count."""
    signs = [step > 0 for step in changes(moments)]
    return sum(1 for before, after in pairwise(signs) if before is not after)


def needed(demand: int) -> int:
    return -(-demand // HIGH)


def replay(inputs: Sequence[AssessmentInputs], memory: Memory, begin: int = 0) -> Iterator[Assessment]:
    """Assesses the same inputs again, each with the memory of the previous assessment, starting with `memory`."""
    for given in inputs[begin:]:
        assessment = assess(replace(given, memory=memory))
        memory = assessment.memory
        yield assessment


def settled(moments: Sequence[Moment]) -> bool:
    """Whether the count was constant for the last ten minutes, with no pod above high and its tolerance."""
    last = moments[-120:]
    return len(set(counts(last))) == 1 and all(moment.load <= HIGH * 1.01 for moment in last)
