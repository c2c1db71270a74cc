"""Services drawn by hypothesis: pods in every state with any load, under every kind of policy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

from hypothesis import strategies as st

from adapter.load.assessment import Assessment, Decision
from adapter.load.memory import Beyond, LastSample, Memory, PodMemory
from adapter.load.pods import Pod, PodCondition
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Average, Bounds, Capacity, Converge, Metric, Policy, Query, ResourceMetric
from tests.load.kit import BOUNDS, NOW, REGISTRY, assess_and_decide, cpu, last_samples, pod, policy, roster

MILLI = 10**6


class SeenAs(Enum):
    """What a pod is seen as."""

    SERVING = "serving"
    OUT = "out"
    DOUBT = "doubt"
    OLD_DOUBT = "old doubt"
    STARTING = "starting"
    UNREADY_YOUNG = "unready, young"
    UNREADY = "unready"


DOUBTS = {SeenAs.DOUBT, SeenAs.OLD_DOUBT}


@dataclass(frozen=True)
class DrawnPod:
    """A pod: its state, its load and its last usage (milli-units; None: no sample), and its limit (units)."""

    kind: SeenAs = SeenAs.SERVING
    load: int | None = 0
    last: int | None = None
    limit: int = 1


@dataclass(frozen=True)
class DrawnService:
    """A service: its pods, its policy, and how far the count is from the number of pods.

    `total` (milli-units) and `plan` (units) are service totals.
    """

    pods: tuple[DrawnPod, ...]
    rule: Policy
    beyond: int = 0
    bounds: Bounds = BOUNDS
    total: int | None = None
    plan: int | None = None

    @property
    def current(self) -> int:
        return max(1, len(self.pods) + self.beyond)

    def with_pod(self, index: int, **changes: object) -> "DrawnService":
        pods = list(self.pods)
        pods[index] = replace(pods[index], **changes)  # type: ignore[arg-type]
        return replace(self, pods=tuple(pods))

    def seen(self, kinds: Mapping[int, SeenAs]) -> "DrawnService":
        """The scenario with some pods seen otherwise."""
        return replace(self, pods=tuple(replace(one, kind=kinds.get(i, one.kind)) for i, one in enumerate(self.pods)))

    def decided(self, beyond: Mapping[str, Beyond] | None = None) -> tuple[Assessment, Decision]:
        pods = [_pod(index, one) for index, one in enumerate(self.pods)]
        listed = roster(*(pod.ips[0] for pod, one in zip(pods, self.pods, strict=True) if one.kind not in DOUBTS))
        return assess_and_decide(
            self.rule, pods, self._samples(), current=self.current, listed=listed,
            memory=replace(self._memory(), beyond=beyond or {}), bounds=self.bounds,
        )  # fmt: skip

    def desired(self) -> int:
        """The count asked for; an error leaves the HPA where it is."""
        _, decision = self.decided()
        return self.current if decision.desired is None else decision.desired

    def _samples(self) -> Samples:
        loads = {f"p{i:02}": one.load * MILLI for i, one in enumerate(self.pods) if one.load is not None}
        usage = {name: PodUsage(NOW - 10, 15.0, {"app": {"cpu": load}}) for name, load in loads.items()}
        queries = {}
        if self.total is not None:
            queries = {"queue": QuerySamples(total=Point(NOW - 10, self.total * MILLI), fetched_at=NOW)}
        if self.plan is not None:
            queries["plan"] = QuerySamples(total=Point(NOW - 10, self.plan * 1000 * MILLI), fetched_at=NOW)
        return Samples(ResourceSamples(pods=usage, fetched_at=NOW), queries)

    def _memory(self) -> Memory:
        used = {
            f"uid-p{i:02}": {m.name: LastSample(at=NOW - 60, value=one.last * MILLI) for m in self.rule.metrics}
            for i, one in enumerate(self.pods)
            if one.last is not None
        }
        return Memory(
            ever_in_roster=True,
            pods={f"uid-p{i:02}": self._remembered(one) for i, one in enumerate(self.pods)},
            samples=last_samples(used),
        )

    def _remembered(self, one: DrawnPod) -> PodMemory:
        return PodMemory(
            doubt_since=NOW - 400 if one.kind is SeenAs.OLD_DOUBT else None,
            out_since=NOW - 400 if one.kind is SeenAs.OUT else None,
        )


def _pod(index: int, one: DrawnPod) -> Pod:
    made = pod(f"p{index:02}", ip=f"10.0.{index}.1", limits={"cpu": str(one.limit)})
    if one.kind is SeenAs.OUT:
        return replace(made, pulled_out_annotation=True)
    if one.kind is SeenAs.STARTING:
        return replace(made, ready=PodCondition(False, NOW - 60), created_at=NOW - 60, started_at=NOW - 60)
    if one.kind is SeenAs.UNREADY_YOUNG:
        return replace(made, ready=PodCondition(False, NOW - 60))
    if one.kind is SeenAs.UNREADY:
        return replace(made, ready=PodCondition(False, NOW - 900))
    return made


@dataclass(frozen=True)
class Choices:
    """What a strategy may draw."""

    kinds: tuple[SeenAs, ...] = tuple(SeenAs)
    missing: bool = True
    of: bool = False
    limits: tuple[int, ...] = (1,)
    most: int = 8
    lightest: int = 0
    replaces: tuple[bool, ...] = (True, False)
    averages: tuple[Average, ...] = (Average.PER_POD,)
    converge: tuple[Converge | None, ...] = (None,)
    multiples: tuple[int, ...] = (1,)
    min_serving: tuple[int, ...] = (0, 50)
    totals: bool = False
    one_sided: bool = True


HIGH, LOW = 1200, 400
_TELLING = (0, 1, 100, 395, 396, 400, 404, 800, 1200, 1212, 1213, 1500, 5000)
"""Loads at which something may change."""


def loads(lightest: int = 0) -> st.SearchStrategy[int]:
    return st.sampled_from([load for load in _TELLING if load >= lightest]) | st.integers(lightest, 6000)


def drawn_pods(draw_from: Choices) -> st.SearchStrategy[DrawnPod]:
    load: st.SearchStrategy[int | None] = loads(draw_from.lightest)
    return st.builds(
        DrawnPod,
        kind=st.sampled_from(draw_from.kinds),
        load=load | st.none() if draw_from.missing else load,
        last=st.none() | st.integers(0, 30_000),
        limit=st.sampled_from(draw_from.limits),
    )


@st.composite
def scenarios(draw: st.DrawFn, draw_from: Choices = Choices()) -> DrawnService:
    pods = draw(st.lists(drawn_pods(draw_from), min_size=1, max_size=draw_from.most))
    return DrawnService(
        pods=tuple(pods),
        rule=draw(policies(draw_from)),
        beyond=draw(st.sampled_from([0, 0, 0, 1, 3, -1, -3])),
        total=draw(loads()) if draw_from.totals else None,
    )


@st.composite
def policies(draw: st.DrawFn, draw_from: Choices) -> Policy:
    high, low = draw(st.sampled_from([(HIGH, LOW)] * 3 + [(HIGH, None), (None, LOW)] * draw_from.one_sided))
    return policy(
        _metric(draw_from, high, low),
        replaces=draw(st.sampled_from(draw_from.replaces)),
        registry=REGISTRY,
        tolerance=draw(st.sampled_from([Fraction(0), Fraction(1, 100), Fraction(1, 10)])),
        average=draw(st.sampled_from(draw_from.averages)),
        converge_towards=draw(st.sampled_from(draw_from.converge)),
        multiple_of=draw(st.sampled_from(draw_from.multiples)),
        min_serving_percent=draw(st.sampled_from(draw_from.min_serving)),
        tolerate_zero=draw(st.sampled_from([None, True])),
    )


def _metric(draw_from: Choices, high: int | None, low: int | None) -> Metric:
    metric = cpu(None if high is None else f"{high}m", None if low is None else f"{low}m")
    if draw_from.totals:
        return replace(metric, name="queue", resource=None, query=Query(name="queue"))
    if draw_from.of:
        return replace(metric, resource=ResourceMetric(name="cpu", of=Capacity.LIMIT))
    return metric


def subsets(members: Iterable[int]) -> Iterable[frozenset[int]]:
    members = list(members)
    for mask in range(1 << len(members)):
        yield frozenset(member for bit, member in enumerate(members) if mask >> bit & 1)
