"""Values that read fewer scrape targets than in the last hour: some may be down, and their load is not seen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import HeldBy
from adapter.load.explanation import explain
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.samples import UNCOUNTED, Point, QuerySamples, Samples
from tests.load.kit import BOUNDS, NOW, assess_and_decide, nano, pod, policy, queue, same

BROKERS = {"broker-0": 1, "broker-1": 1}
QUEUE, LOAD = policy(queue("1200m", "400m")), policy(replace(queue("1200m", "400m"), name="load"))
ONE_TO_TEN = st.integers(1, 10)


class Service:
    """A service that is looked at again and again."""

    def __init__(self, count: int, *, minimum: int = 1) -> None:
        self.pods = same(count, None)[0]
        self.bounds = replace(BOUNDS, minimum=minimum)
        self.memory = Memory()
        self.lines: list[str] = []

    def decides(self, samples: QuerySamples, later: float = 0.0) -> tuple[int | None, HeldBy | None]:
        now = NOW + later
        rule = QUEUE if samples.total is not None else LOAD
        name = "queue" if samples.total is not None else "load"
        assessment, decision = assess_and_decide(
            rule, self.pods, Samples(queries={name: samples}), memory=self.memory, bounds=self.bounds, now=now
        )
        self.memory = assessment.memory
        self.lines = list(explain(assessment, decision, self.bounds, now))
        return decision.desired, decision.held_by


def total(value: str, targets: dict[str, int], later: float = 0.0) -> QuerySamples:
    return QuerySamples(total=Point(NOW + later - 5, nano(value)), targets=targets)


def by_pod(pods: list[Pod], value: str, targets: dict[str, int], later: float = 0.0) -> QuerySamples:
    return QuerySamples(
        pods={one.name: Point(NOW + later - 5, nano(value)) for one in pods}, targets=targets, by_pod=True
    )


@pytest.mark.parametrize(("minimum", "left"), [(1, "2.4"), (0, "0")])
def test_a_total_that_lost_a_target_keeps_the_count_for_an_hour(minimum: int, left: str) -> None:
    service = Service(8, minimum=minimum)
    assert service.decides(total("4.8", BROKERS)) == (8, None)
    for later in (30.0, 3500.0):
        assert service.decides(total(left, {"broker-0": 1}, later), later) == (8, HeldBy.MISSING)
        assert "1 scrape target fewer than in the last hour" in "\n".join(service.lines)
    assert service.decides(total(left, {"broker-0": 1}, 3700), 3700)[0] == (6 if minimum else 0)


def test_a_number_of_targets_that_was_seen_lately_outlives_a_larger_one() -> None:
    service = Service(8)
    service.decides(total("4.8", {**BROKERS, "broker-2": 1}))
    service.decides(total("4.8", BROKERS, 3000), 3000)
    assert service.decides(total("2.4", {"broker-0": 1}, 3700), 3700) == (8, HeldBy.MISSING)


@pytest.mark.parametrize("are_named", [True, False])
def test_own_pods_that_leave_are_no_lost_targets(are_named: bool) -> None:
    """Prometheus keeps their series for a while; without a pod label their targets are known by address."""
    service = Service(0)
    service.pods = [pod(f"web-{index}", ip=f"10.0.0.{index}") for index in range(8)]
    own = {one.name if are_named else one.ips[0]: 1 for one in service.pods}
    assert service.decides(total("2.4", BROKERS | own)) == (6, None)
    service.pods = service.pods[:6]
    service.decides(total("1.2", BROKERS | own, 30), 30)
    left = dict(list(own.items())[:6])
    assert service.decides(total("1.2", BROKERS | left, 1000), 1000) == (3, None)


def test_a_total_over_two_targets_of_each_own_pod_holds_while_one_is_lost() -> None:
    service = Service(8)
    own = {one.name: 2 for one in service.pods}
    service.decides(total("4.8", own))
    assert service.decides(total("2.4", own | {"web-3": 1}, 30), 30) == (8, HeldBy.MISSING)


def test_a_total_that_reads_one_pod_after_several_holds_and_a_leader_does_not() -> None:
    several, leader = Service(6), Service(6)
    own = {one.name: 1 for one in several.pods}
    several.decides(total("2.7", own))
    leader.decides(total("2.7", {"web-0": 1}))
    assert several.decides(total("1.2", {"web-0": 1}, 30), 30) == (6, HeldBy.MISSING)
    assert leader.decides(total("1.2", {"web-0": 1}, 30), 30) == (3, None)
    assert several.decides(total("1.2", own, 60), 60) == (3, None)


class Uncounted(Service):
    """Six pods with a query whose windows (20 s, 10 s) nobody can count, asked every 5 s."""

    def __init__(self, *, is_total: bool) -> None:
        super().__init__(6)
        self.is_total = is_total

    def answers(self, load: str, at: float, later: float) -> tuple[int | None, HeldBy | None]:
        """What follows where a pod's load, or a sixth of the total, has this value and this date."""
        point = Point(NOW + at, nano(load) * (6 if self.is_total else 1), UNCOUNTED)
        pods = {} if self.is_total else {one.name: point for one in self.pods}
        times = {"window": 20.0, "shortest": 10.0, "interval": 5.0, "fetched_at": NOW + later}
        samples = QuerySamples(total=point if self.is_total else None, pods=pods, by_pod=not self.is_total, **times)  # type: ignore[arg-type]
        return self.decides(samples, later)


@pytest.mark.parametrize("is_total", [True, False], ids=["total", "by pod"])
def test_uncounted_windows_hold_in_a_gap_and_for_a_window_after_it(is_total: bool) -> None:
    service = Uncounted(is_total=is_total)
    for later in range(0, 60, 5):
        service.answers("450m", later - 2, later)
    for at, later in ((55, 70), (55, 75), (77, 78), (82, 83), (87, 88), (92, 93)):  # two answers in the gap
        assert service.answers("200m", at, later) == (6, HeldBy.MISSING), later
    assert service.answers("200m", 97, 98) == (3, None)


@pytest.mark.parametrize("is_total", [True, False], ids=["total", "by pod"])
def test_uncounted_windows_hold_for_a_window_after_a_gap_in_which_the_process_started(is_total: bool) -> None:
    service = Uncounted(is_total=is_total)
    service.memory = Memory(started_at=NOW)
    for at, later in ((-2, 0), (-2, 5), (-2, 10), (14, 15), (19, 20), (24, 25), (29, 30), (33, 34)):
        assert service.answers("200m", at, later)[0] == 6, later
    assert service.answers("200m", 34.5, 35) == (3, None)


@pytest.mark.parametrize("is_total", [True, False], ids=["total", "by pod"])
def test_uncounted_windows_that_drain_before_a_gap_shows_shrink_nothing(is_total: bool) -> None:
    service = Uncounted(is_total=is_total)
    service.answers("410m", -2, 0)
    for silent in range(10):  # until two polls have brought nothing new, it may be a late one
        assert service.answers(f"{41 * (10 - silent)}m", 0, silent)[0] == 6, silent
    assert service.answers("240m", 10, 12)[0] == 4, "two of ten seconds may be missing: 300m"


def test_pods_that_lost_one_of_two_targets_count_as_full_on_the_way_down() -> None:
    service = Service(8)
    both = {one.name: 2 for one in service.pods}
    assert service.decides(by_pod(service.pods, "600m", both)) == (8, None)
    assert service.decides(by_pod(service.pods, "300m", {}, 30), 30) == (8, HeldBy.MISSING)
    assert "8 scrape targets fewer than in the last hour" in "\n".join(service.lines)
    assert service.decides(by_pod(service.pods, "1500m", {}, 60), 60)[0] == 10
    assert service.decides(by_pod(service.pods, "300m", both, 90), 90) == (6, None)


@given(count=ONE_TO_TEN, loads=st.lists(st.integers(0, 3000), min_size=2, max_size=5), data=st.data())
def test_a_total_without_some_targets_never_asks_for_fewer(count: int, loads: list[int], data: st.DataObject) -> None:
    service = Service(count, minimum=0)
    names = [f"broker-{index}" for index in range(len(loads))]
    whole, _ = service.decides(total(f"{sum(loads)}m", dict.fromkeys(names, 1)))
    left = data.draw(st.lists(st.sampled_from(names), max_size=len(names) - 1, unique=True))
    value = sum(load for name, load in zip(names, loads, strict=True) if name in left)
    desired, _ = service.decides(total(f"{value}m", dict.fromkeys(left, 1), 30), 30)
    assert desired is not None
    assert whole is not None
    assert desired >= min(whole, count)
