"""A service in closed loop, second by second: demand, pods, a registry, a source with a lag, the adapter and an HPA.

Pods and samples are not those of a replay on purpose: what both got wrong would hide. Deterministic and cheap: it
assesses only after changes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from adapter.load.assess import assess
from adapter.load.assessment import Assessment, AssessmentInputs, Decision
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Container, Pod, PodCondition
from adapter.load.quantity import NANO
from adapter.load.roster import Instance, Roster
from adapter.load.samples import Point, QuerySamples, Samples
from adapter.load.spec import Metric, Policy, Query, Scale, Strategy, Target
from tests.load.kit import NOW, TARGET, cpu, policy
from tests.simulation.sources import Kind, LoadHistory, Measured, Source
from tests.simulation.stock_hpa import StockHpa

MILLI = NANO // 1000
ANSWERS = 5
"""The polling interval of the registry (seconds)."""
EVERY = 5
"""Seconds between two moments of a loop's history."""
NEVER = 10**9
APPLICATION = (Container("app", running=True),)
CRASHING = (Container("app", running=False, crash_looping=True),)

Demand = Callable[[int], int]
"""The load at a second (milli-units)."""


class Step(NamedTuple):
    """A change of the count, by the HPA or by a person."""

    at: int
    before: int
    after: int
    by_hpa: bool = True


class Moment(NamedTuple):
    """The count, the pods that serve and the average load of each (milli), and the latest decision."""

    at: int
    replicas: int
    in_traffic: int
    load: float
    decision: Decision
    assessment: Assessment


@dataclass(slots=True)
class LoopPod:
    """A pod. Times are seconds since the beginning, or NEVER; `serves_at` is when it gets its share of the load.

    It is pulled out by annotation (`is_out`), `disabled` in the registry, or `deregistered`.
    """

    measured: Measured
    ready_at: int
    serves_at: int
    ip: str
    deleted: int | None = None
    unready_since: int | None = None
    is_out: bool = False
    disabled: bool = False
    deregistered: bool = False
    shown: Pod | None = None

    def ready(self, now: int) -> bool:
        return self.ready_at <= now and self.unready_since is None and self.deleted is None

    def registered(self, now: int) -> bool:
        return self.serves_at <= now and self.ready(now) and not self.is_out and not self.deregistered

    def serves(self, now: int) -> bool:
        return self.registered(now) and not self.disabled

    def api_pod(self, now: int) -> Pod:
        """The pod as the API shows it; returns the same object while it does not change."""
        ready = self.ready_at <= now and self.unready_since is None
        deleting = self.deleted is not None
        containers = CRASHING if self.ready_at == NEVER and now - self.measured.created > 30 else APPLICATION
        shown, state = self.shown, (ready, deleting, self.is_out, containers)
        if shown is not None and state == (
            shown.is_ready, shown.deleting, shown.pulled_out_annotation, shown.containers
        ):  # fmt: skip
            return shown
        created = self.measured.created
        since = self.ready_at if ready else self.unready_since if self.unready_since is not None else created
        self.shown = Pod(
            namespace="shop",
            name=self.measured.name,
            uid=f"uid-{self.measured.name}",
            created_at=NOW + created,
            started_at=NOW + created,
            deleting=deleting,
            pulled_out_annotation=self.is_out,
            ready=PodCondition(ready, NOW + since),
            containers_ready=ready,
            ips=(self.ip,),
            containers=containers,
        )
        return self.shown


@dataclass(frozen=True, kw_only=True)
class Habits:
    """The life of pods: seconds until Ready, from Ready until they get load, and from deletion until their removal;
    the weight of each new pod, its usage while starting (milli), and the order of deletion.
    """

    starts: int = 30
    registers: int = 0
    leaves: int = 5
    weights: tuple[int, ...] = (1,)
    burn: int = 0
    oldest_first: bool = False


def rule_of(source: Kind, high: int, low: int, **changes: object) -> Policy:
    """A policy with one metric of this kind, its watermarks in milli-units."""
    metric = cpu(f"{high}m", f"{low}m")
    if source is not Kind.RESOURCE:
        metric = replace(metric, name="load", resource=None, query=Query(name="load"))
    return policy(metric, **changes)  # type: ignore[arg-type]


@dataclass
class Registry:
    """The registry's answers: `mode` is ok, silent (no new answer), or empty; it does not know the `forgotten` pods."""

    mode: str = "ok"
    alive: bool = False
    forgotten: set[str] = field(default_factory=set)
    last: Roster | None = None

    def ask(self, pods: Iterable[LoopPod], now: int) -> bool:
        """Polls it; returns whether its instances have changed."""
        if self.mode == "silent":
            return False
        listed = [pod for pod in pods if pod.registered(now) and pod.measured.name not in self.forgotten]
        before = self.last.instances if self.last is not None else None
        self.last = Roster(
            at=NOW + now,
            alive=self.alive,
            instances=tuple(Instance(ip=pod.ip, port=8080, enabled=not pod.disabled) for pod in listed)
            if self.mode == "ok"
            else (),
        )
        return before != self.last.instances


@dataclass
class ClosedLoop:
    """The loop. With `eager` the adapter assesses at each change, with `restless` every second, otherwise at an HPA
    sync if something has changed or `reassess_seconds` have passed.

    `events` are called at their second. The ReplicaSet wants `surge` pods more than the count; at most `quota` exist.
    `restarts` maps the memory before each assessment. With a
    `companion`, a faster source, the count is raised between two syncs (`fastScaleUp`). `plan` is the total of a floor
    of that name (milli-units) at a time, None while its query fails.
    """

    replicas: int
    demand: Demand
    rule: Policy
    source: Source
    hpa: StockHpa = field(default_factory=StockHpa)
    habits: Habits = field(default_factory=Habits)
    eager: bool = False
    restless: bool = False
    reassess_seconds: int = 15
    registry: Registry = field(default_factory=Registry)
    target: Target = TARGET
    plan: Callable[[int], int | None] | None = None
    surge: int = 0
    quota: int = 10**6
    events: dict[int, Callable[["ClosedLoop"], None]] = field(default_factory=dict)
    restarts: Callable[[Memory], Memory] | None = None
    companion: Source | None = None
    now: int = 0
    memory: Memory = field(default_factory=Memory)
    pods: list[LoopPod] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    fate: Callable[[LoopPod], None] = lambda _: None
    assessment: Assessment | None = None
    _companion_memory: Memory = field(default_factory=Memory)
    _load: LoadHistory = field(init=False)
    _made: int = 0
    _weight: int = 0
    _changes: set[int] = field(default_factory=set)
    _assessed: int = -(10**9)

    def __post_init__(self) -> None:
        for _ in range(self.replicas):
            self._create(-3600)
        self._weigh()
        self._load = LoadHistory(self.demand(0) * MILLI, self._weight)

    @property
    def living(self) -> list[LoopPod]:
        return [pod for pod in self.pods if pod.deleted is None]

    @property
    def metric(self) -> Metric:
        return self.rule.metrics[0]

    def originals(self) -> list[LoopPod]:
        return [pod for pod in self.living if pod.measured.created < 0]

    def run(self, seconds: int) -> list[Moment]:
        """Advances; returns the moments."""
        begin = len(self.moments)
        for _ in range(seconds):
            self._second()
        return self.moments[begin:]

    def scale(self, replicas: int, *, by_hpa: bool = False) -> None:
        """Sets the count, as a user does."""
        if replicas == self.replicas:
            return
        self.steps.append(Step(self.now, self.replicas, replicas, by_hpa))
        self.replicas = replicas
        if by_hpa:
            self.hpa.bounds = replace(self.hpa.bounds, last_scale=NOW + self.now)
        self._changes.add(self.now)

    def _second(self) -> None:
        now = self.now
        if now in self.events:
            self.events[now](self)
        self.asked.append(self.demand(now))
        changed = not self._changes.isdisjoint((now, now - 1))  # those of the last second came after its assessment
        if changed:
            self._changes -= {now, now - 1}
            self._control()
            self._weigh()
        new_answer = self.source.advance(self._measured(), self._load, now)
        if self.rule.registry is not None and now % ANSWERS == 0:
            changed |= self.registry.ask(self.pods, now)
        syncs = now % self.hpa.sync == 0
        if self.companion is not None and (self.companion.advance(self._measured(), self._load, now) or changed):
            changed |= self._raise(self.companion)
        if changed or new_answer:
            self._assessed = -(10**9)
        due = syncs and now - self._assessed >= self.reassess_seconds
        if due or self.restless or (self.eager and (changed or new_answer)):
            self._assess()
        if syncs:
            self._sync()
        if now % EVERY == 0 and self.assessment is not None and self.decisions:
            busy = sum(pod.serves(now) for pod in self.pods)
            load = self.asked[now] / busy if busy else 0.0
            self.moments.append(Moment(now, self.replicas, busy, load, self.decisions[-1][1], self.assessment))
        self._load.add(self.asked[now] * MILLI, self._weight)
        self.now += 1

    def _sync(self) -> None:
        if self.assessment is None:
            return
        decision = decide(self.assessment, self.scale_object(), self.hpa.bounds, NOW + self.now)
        self.decisions.append((self.now, decision))
        self.scale(self.hpa.desired(decision, self.now), by_hpa=True)

    def _measured(self) -> Iterable[Measured]:
        return (pod.measured for pod in self.pods if pod.deleted is None)

    def _assess(self) -> None:
        memory = self.restarts(self.memory) if self.restarts is not None else self.memory
        self.assessment = assess(self.inputs(self.source, memory))
        self.memory = self.assessment.memory
        self._assessed = self.now

    def inputs(self, source: Source, memory: Memory) -> AssessmentInputs:
        """What the adapter assesses now, with this source and memory."""
        return AssessmentInputs(
            policy=self.rule, pods=[pod.api_pod(self.now) for pod in self.pods],
            samples=self._samples(source), roster=self.registry.last,
            scale=self.scale_object(), bounds=self.hpa.bounds, target=self.target, memory=memory, now=NOW + self.now,
        )  # fmt: skip

    def _samples(self, source: Source) -> Samples:
        samples = source.samples()
        if self.plan is None:
            return samples
        total, at = self.plan(self.now), NOW + self.now
        failed = QuerySamples(error="it failed")
        plan = failed if total is None else QuerySamples(total=Point(at, total * MILLI), fetched_at=at)
        return replace(samples, queries={**samples.queries, "plan": plan})

    def _raise(self, companion: Source) -> bool:
        """Raises the count to the need in the companion's own samples; returns whether it was raised."""
        found = assess(self.inputs(companion, self._companion_memory))
        self._companion_memory = found.memory
        desired = decide(found, self.scale_object(), self.hpa.bounds, NOW + self.now).desired
        if desired is None or desired <= self.replicas:
            return False
        self.scale(desired)
        return True

    def scale_object(self) -> Scale:
        return Scale(replicas=self.replicas, status_replicas=len(self.living), selector="app=web")

    def _control(self) -> None:
        """The ReplicaSet controller: creates and deletes pods; drops removed ones."""
        self.pods = [pod for pod in self.pods if pod.deleted is None or self.now < pod.deleted + self.habits.leaves]
        wanted = self.replicas + self.surge
        for _ in range(min(wanted, self.quota) - len(self.living)):
            self._create(self.now)
        surplus = len(self.living) - wanted
        by_age = self.living if self.habits.oldest_first else self.living[::-1]
        order = sorted(by_age, key=lambda pod: pod.ready(self.now))
        for pod in order[: max(0, surplus)]:
            self.delete(pod)

    def delete(self, pod: LoopPod) -> None:
        """Begins to delete a pod; it stops serving."""
        pod.deleted = self.now
        self._changes |= {self.now, self.now + self.habits.leaves}

    def ail(self, pod: LoopPod, seconds: int) -> None:
        """Makes a pod unready for a time; its load goes to the others."""

        def recover(_: ClosedLoop) -> None:
            pod.unready_since, pod.ready_at = None, self.now
            self.touch()

        pod.unready_since = self.now
        self.at(self.now + seconds, recover)
        self.touch()

    def pull_out(self, pod: LoopPod, seconds: int) -> None:
        """Pulls a pod out by hand for a time; its load goes to the others."""

        def put_back(_: ClosedLoop) -> None:
            pod.is_out = False
            self.touch()

        pod.is_out = True
        self.at(self.now + seconds, put_back)
        self.touch()

    def at(self, second: int, event: Callable[["ClosedLoop"], None]) -> None:
        """Adds an event to those of that second."""
        before = self.events.get(second)

        def both(loop: ClosedLoop) -> None:
            if before is not None:
                before(loop)
            event(loop)

        self.events[second] = both

    def assess_anew(self) -> None:
        """Discards the assessment, so that the next second assesses anew."""
        self.assessment, self._assessed = None, -(10**9)

    def touch(self) -> None:
        """Marks the pods as changed, so that this second assesses anew."""
        self._changes.add(self.now)

    def _create(self, at: int) -> None:
        habits, index = self.habits, self._made
        self._made += 1
        weight = habits.weights[index % len(habits.weights)]
        measured = Measured(f"web-{index:04}", weight, at, NEVER, NEVER, habits.burn * MILLI)
        pod = LoopPod(measured, NEVER, NEVER, f"10.0.{index // 250}.{index % 250}")
        self.start(pod, at + habits.starts)
        if at >= 0:
            self.fate(pod)
        self.pods.append(pod)

    def start(self, pod: LoopPod, ready_at: int) -> None:
        """Lets a pod become Ready at this second, and serve once it is registered."""
        pod.ready_at = pod.measured.ready = ready_at
        pod.serves_at = pod.measured.since = ready_at + self.habits.registers
        self._changes |= {pod.ready_at, pod.serves_at}

    def _weigh(self) -> None:
        """Sums the weights of the pods that serve, and notes when the others cease to."""
        self._weight = 0
        for pod in self.pods:
            away = pod.measured.away
            is_away = bool(away) and away[-1][1] == NEVER
            if pod.serves(self.now):
                self._weight += int(pod.measured.weight)
                if is_away:
                    away[-1] = (away[-1][0], self.now)
            elif not is_away and pod.serves_at <= self.now:
                away.append((self.now, NEVER))


class Truth(NamedTuple):
    """The need of the present load by the policy's strategy: fewest and most pods."""

    fewest: int
    most: int


def truth(loop: ClosedLoop, at: int, known: Iterable[int] = (0,)) -> Truth:
    """The need of the loads that decisions at this second may be based on: of `known` seconds ago."""
    loads = [loop.asked[max(0, at - ago)] * MILLI for ago in known]
    least = 1 if min(loads) or loop.hpa.bounds.minimum else 0
    limits, target = loop.rule.limits_of(loop.metric), loop.metric.target
    assert limits.high is not None
    assert limits.low is not None
    if target is None:
        return Truth(max(least, int(min(loads) // limits.low)), max(least, -int(-max(loads) // limits.high)))
    carried_at, more = (limits.high, loop.rule.step.up) if loop.rule.strategy is Strategy.STEP else (target, 0)
    return Truth(max(least, -int(-min(loads) // carried_at)), max(least, -int(-max(loads) // target)) + more)


def below_the_truth(loop: ClosedLoop) -> int:
    """The largest number of pods by which a step of the HPA was below the need of every load behind its samples."""
    return max((_lack(loop, step) for step in loop.steps if step.by_hpa and step.after < step.before), default=0)


def beyond_the_truth(loop: ClosedLoop) -> int:
    """The largest number of pods by which a step of the HPA was above the need of any load behind its samples."""
    rises = [step for step in loop.steps if step.by_hpa and step.after > step.before]
    return max((step.after - max(step.before, truth(loop, step.at, _known(loop)).most) for step in rises), default=0)


def assert_never_below_the_truth(loop: ClosedLoop) -> None:
    """Asserts that no count is below the true need."""
    wrong = [step for step in loop.steps if step.by_hpa and step.after < step.before and _lack(loop, step) > 0]
    assert not wrong, f"{wrong[0]} though {truth(loop, wrong[0].at, _known(loop)).fewest} pods are needed"


def _lack(loop: ClosedLoop, step: Step) -> int:
    least = min(step.before, truth(loop, step.at, _known(loop)).fewest)
    return least - step.after


def _known(loop: ClosedLoop) -> range:
    return range(loop.source.lag + loop.hpa.sync + loop.reassess_seconds)


def down_to_the_truth(loop: ClosedLoop) -> bool:
    """Whether the present load leaves no reason to shrink: no pod is below low and its tolerance."""
    (high, low), count = _acts_beyond(loop), loop.replicas
    load = loop.asked[-1] * MILLI
    if count <= max(1, loop.hpa.bounds.minimum) or load >= count * low:
        return True
    match loop.rule.strategy:
        case Strategy.WATERMARK:
            return False
        case Strategy.RATIO:
            assert loop.metric.target is not None
            return load > (count - 1) * loop.metric.target
        case Strategy.STEP:
            step = loop.rule.step
            fewer = min(count, max(1, step.min_pods, count - step.down))
            return fewer == count or load > fewer * high


def up_to_the_truth(loop: ClosedLoop) -> bool:
    """Whether the present load leaves no reason to grow."""
    load = loop.asked[-1] * MILLI
    return loop.replicas >= loop.hpa.bounds.maximum or load <= loop.replicas * _acts_beyond(loop).high


class ActsBeyond(NamedTuple):
    """The usage above and below which the policy acts."""

    high: Fraction
    low: Fraction


def _acts_beyond(loop: ClosedLoop) -> ActsBeyond:
    limits, tolerance = loop.rule.limits_of(loop.metric), loop.rule.tolerance_of(loop.metric)
    assert limits.high is not None
    assert limits.low is not None
    if loop.metric.target is not None:
        return ActsBeyond(limits.high, limits.low)
    return ActsBeyond(limits.high * (1 + tolerance), limits.low * (1 - tolerance))
