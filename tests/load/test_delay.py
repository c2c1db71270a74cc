"""Delays: usage must be beyond a watermark for so long, by the times of samples, before a metric moves the count."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision, HeldBy, Verdict
from adapter.load.explanation import explain
from adapter.load.memory import Beyond, Memory, Side
from adapter.load.samples import Samples
from adapter.load.spec import Delay, Metric, Policy
from adapter.policy import status_memory
from tests.load.kit import (
    BOUNDS,
    NOW,
    assess_and_decide,
    cpu,
    policy,
    queue,
    same,
    total,
    usage,
)
from tests.load.scenarios import Choices, DrawnService, scenarios

UP = cpu("1200m", "400m", delay=Delay(up=60))
DOWN = cpu("1200m", "400m", delay=Delay(down=60))
BOTH = cpu("1200m", "400m", delay=Delay(up=60, down=60))


class Service:
    """Five pods under a policy; it remembers from one look to the next."""

    def __init__(self, metric: Metric = BOTH, count: int = 5, **changes: object) -> None:
        self.rule = policy(metric, **changes)
        self.pods, _ = same(count, "0")
        self.memory = Memory()

    def look(self, load: str | None, after: float, *, age: float = 0.0, **more: object) -> Decision:
        """The decision `after` so many seconds, with samples that are `age` seconds old then."""
        samples = usage({pod.name: load for pod in self.pods}, at=NOW + after - age)
        return self.look_at(samples, after, **more)

    def look_at(self, samples: Samples, after: float, **more: object) -> Decision:
        assessment, decision = assess_and_decide(
            self.rule, self.pods, samples, memory=self.memory, now=NOW + after, **more,  # type: ignore[arg-type]
        )  # fmt: skip
        self.memory, self.assessment = assessment.memory, assessment
        return decision

    def counts(self, *looks: tuple[str | None, float]) -> list[int | None]:
        return [self.look(load, after).desired for load, after in looks]


def ahead(since: float, until: float) -> Memory:
    """Usage has been above from and until these seconds after now."""
    return Memory(beyond={"cpu": Beyond(Side.ABOVE, NOW + since, NOW + until)})


@pytest.mark.parametrize(
    ("metric", "memory", "looks", "counts"),
    [
        pytest.param(DOWN, Memory(), {0: "300m", 59: "300m", 60: "300m"}, [5, 5, 3], id="below for the delay"),
        pytest.param(UP, Memory(), {0: "300m"}, [3], id="the other direction does not wait"),
        pytest.param(
            BOTH, Memory(), {0: "1500m", 30: "300m", 60: "1500m", 119: "1500m", 120: "1500m"}, [5, 5, 5, 5, 7],
            id="beyond the other watermark the time begins anew",
        ),
        pytest.param(
            UP, Memory(), {0: "1500m", 200: None, 280: "1500m"}, [5, None, 7], id="a failing source says nothing"
        ),
        pytest.param(
            UP, Memory(), {0: "1500m", 301: "1500m", 360: "1500m", 361: "1500m"}, [5, 5, 5, 7],
            id="after more than 5 min without a sample it begins anew",
        ),
        pytest.param(
            UP, ahead(10_000, 10_000), {0: "1500m", 59: "1500m", 60: "1500m"}, [5, 5, 7],
            id="a time in the future counts as now",
        ),
        pytest.param(
            UP, ahead(10_000, -15), {0: "1500m", 59: "1500m", 60: "1500m"}, [5, 5, 7], id="its beginning alone too"
        ),
    ],
)  # fmt: skip
def test_a_count_changes_once_usage_was_beyond_the_watermark_for_the_delay(
    metric: Metric, memory: Memory, looks: dict[float, str | None], counts: list[int | None]
) -> None:
    service = Service(metric)
    service.memory = memory
    assert service.counts(*((load, after) for after, load in looks.items())) == counts


def test_the_same_samples_assessed_often_do_not_make_the_time_longer() -> None:
    service = Service(UP)
    samples = usage({pod.name: "1500m" for pod in service.pods}, at=NOW)
    decisions = [service.look_at(samples, after) for after in (0, 30, 60, 75, 85)]
    assert [decision.desired for decision in decisions] == [5] * 5


def test_the_time_runs_from_the_newest_sample_at_first_to_the_oldest_at_last() -> None:
    service = Service(UP, count=2)
    names = [pod.name for pod in service.pods]

    def look(first: float, second: float, after: float) -> int | None:
        samples = usage({names[0]: "1500m"}, at=NOW + first).resources.pods
        other = usage({names[1]: "1500m"}, at=NOW + second).resources
        merged = Samples(replace(other, pods={**samples, **other.pods}, fetched_at=NOW + after))
        return service.look_at(merged, after).desired

    assert [look(-30, 0, 0), look(30, 60, 60), look(59, 89, 89), look(60, 90, 90)] == [2, 2, 2, 3]


@pytest.mark.parametrize(("metric", "load", "side"), [(UP, "1500m", "above the high"), (DOWN, "300m", "below the low")])
def test_a_decision_that_waits_says_for_what_and_how_long_it_has(metric: Metric, load: str, side: str) -> None:
    service = Service(metric)
    service.look(load, 0)
    decision = service.look(load, 45)
    assert (decision.desired, decision.held_by) == (5, HeldBy.DELAY)
    said = explain(service.assessment, decision, BOUNDS, NOW + 45)
    assert f"cpu proposes 5 (its samples must be {side} watermark for 60 s, and have been for 45 s)" in said


class TestGapsInTheSamples:
    """A source that fails says nothing of usage."""

    def test_a_slow_source_is_no_break_while_its_samples_count(self) -> None:
        # Asked every ten minutes; each answer counts for fifteen.
        service = Service(replace(queue("1200m", "400m"), delay=Delay(up=900)))
        decisions = []
        for after in range(0, 2000, 300):
            answer = total("7500m", at=NOW + after // 600 * 600).queries["queue"]
            samples = Samples(queries={"queue": replace(answer, max_age=900.0)})
            decisions.append(service.look_at(samples, after).desired)
        assert decisions == [5, 5, 5, 5, 7, 7, 7]

    def test_a_pod_without_a_sample_does_not_begin_the_time_anew(self) -> None:
        # 4 pods at 1500m are above; with the fifth at 0 it is 1200m, which holds, but usage was above all the time.
        service = Service(UP)
        service.look("1500m", 0)
        names = [pod.name for pod in service.pods]
        gap = usage(dict.fromkeys(names[:4], "1500m") | {names[4]: None}, at=NOW + 30)
        assert service.look_at(gap, 30).held_by is HeldBy.MISSING
        assert service.look("1500m", 60).desired == 7


class TestTheMemory:
    """What a restart, another replica and a wrong clock make of the time."""

    def test_a_replica_that_starts_neither_loses_the_time_nor_acts_sooner(self) -> None:
        service = Service(UP)
        service.look("1500m", 0)
        service.memory = status_memory.from_status(status_memory.to_status(service.memory))
        # Its source has not answered yet.
        assert service.look(None, 20).desired is None
        assert service.counts(("1500m", 45), ("1500m", 60)) == [5, 7]

    def test_only_a_beginning_and_an_end_of_the_time_are_written_to_the_status_at_once(self) -> None:
        service = Service(UP)
        parts = []
        for load, after in (("1500m", 0), ("1500m", 15), ("1000m", 30)):
            service.look(load, after)
            parts.append(status_memory.durable_part(status_memory.to_status(service.memory)))
        assert parts[0]["beyond"] == parts[1]["beyond"]
        assert "beyond" not in parts[2]

    def test_a_delay_that_is_taken_away_is_forgotten(self) -> None:
        service = Service(UP)
        service.look("1500m", 0)
        service.rule = policy(cpu("1200m", "400m"))
        assert service.counts(("1500m", 15)) == [7]
        assert not service.memory.beyond


@given(scenarios(Choices(totals=False)), st.floats(0, 600), st.floats(0, 600))
def test_a_delay_only_ever_holds(service: DrawnService, up: float, down: float) -> None:
    waiting = replace(service, rule=_with_delay(service.rule, Delay(up=up, down=down)))
    plain, delayed, current = service.desired(), waiting.desired(), service.current
    assert min(plain, current) <= delayed <= max(plain, current)


@given(scenarios(), scenarios(Choices(totals=True)))
def test_a_delay_of_zero_changes_nothing(one: DrawnService, other: DrawnService) -> None:
    for service in (one, other):
        assert replace(service, rule=_with_delay(service.rule, Delay(up=0, down=0))).decided() == service.decided()


@given(scenarios(), st.sampled_from([Delay(up=30), Delay(down=30), Delay(up=30, down=30)]))
def test_what_has_waited_long_enough_is_decided_as_without_a_delay(service: DrawnService, delay: Delay) -> None:
    waiting = replace(service, rule=_with_delay(service.rule, delay))
    verdicts = {one.verdict for one in service.decided()[0].metrics[0].scenarios}
    is_above = Verdict.ABOVE in verdicts
    known = Beyond(Side.ABOVE if is_above else Side.BELOW, since=NOW - 100, until=NOW - 10)
    waited = waiting.decided({"cpu": known})[1]
    if is_above or verdicts == {Verdict.BELOW}:
        at_once = service.decided()[1]
        assert waited.desired == at_once.desired
        # Where doubt holds the count, the delay of the other direction may hold it with more pods in.
        if waited.desired != service.current:
            assert waited.held_by == at_once.held_by


def _with_delay(rule: Policy, delay: Delay) -> Policy:
    return replace(rule, metrics=tuple(replace(metric, delay=delay) for metric in rule.metrics))
