"""Doubtful pods that differ in their usage alone: a few scenarios decide the same as all of them."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.load import pipeline
from adapter.load.assessment import Assessment, MetricAssessment, Scenario
from adapter.load.delay import with_delay
from adapter.load.departures import DepartedLoad
from adapter.load.metric_assessment import band_of
from adapter.load.pods import PodState
from adapter.load.relative import one_step_down
from adapter.load.scenario_spans import AlikePods, ScenarioSpans, are_comparable, spans_of
from adapter.load.scenarios import AwayPods, maker_of, recommendation_of, sketch
from adapter.load.spec import Average, Bounds, Delay, Policy, Step, Strategy, ToleranceIn, Trigger
from adapter.load.steps import finish, sorted_in_steps
from adapter.load.totals import PodLoad, Totals
from tests.load.kit import NOW, cpu, nano, policy, scale

COUNTS = (*range(14), 17, 25, 40, 90)


class Service(NamedTuple):
    """A policy, and the pods of its target."""

    policy: Policy
    none_in: Totals
    doubtful: AlikePods
    away: AwayPods

    def totals(self, inside: int) -> Totals:
        """The sums with the most loaded doubtful pods in, added up pod by pod."""
        totals, pods = replace(self.none_in), self.doubtful
        for usage in list(reversed(pods.usages))[:inside]:
            totals.usage += usage
            totals.n += 1
            totals.weight += pods.weight
            if totals.seeks_extremes:
                totals.include(PodLoad(usage, pods.weight))
        return totals

    def all_scenarios(self) -> list[Scenario]:
        """Every scenario, one after the other."""
        band, pods = band_of(self.policy, self.policy.metrics[0], total=self.none_in.total), self.doubtful
        make, scenarios = maker_of(band, self.none_in), []
        for inside in range(len(pods.usages) + 1):
            totals, out = self.totals(inside), len(pods.usages) - inside
            recommended = recommendation_of(self.policy, band, totals)
            replaceable = self.away.replaceable + out * pods.is_replaceable
            reserved = self.away.reserved + out * (not pods.is_long)
            scenarios.append(
                make.scenario(inside, sketch(recommended, totals, replaceable, reserved, self.away.out + out))
            )
        return scenarios

    def spans(self) -> ScenarioSpans | None:
        """The scenarios in spans, None where they cannot be searched."""
        band = band_of(self.policy, self.policy.metrics[0], total=self.none_in.total)
        given_pods = self.policy, band, self.away, self.none_in, self.doubtful
        return spans_of(*given_pods) if are_comparable(*given_pods) else None

    def winners(self, scenarios: Sequence[Scenario]) -> list[tuple[object, ...]]:
        """What the metric proposes at each count, before and after a step down on the same samples; with its delay."""
        metric = MetricAssessment(name="cpu", scenarios=scenarios, began_at=NOW - 20, sampled_at=NOW - 5)
        delay = self.policy.metrics[0].delay
        metric = with_delay(metric, delay, NOW - 5, None, NOW, 300) if delay.up or delay.down else metric
        found: list[tuple[object, ...]] = [(metric.beyond,)]
        for one in (metric, one_step_down(metric, NOW)):
            there = Assessment(policy=self.policy, target="web", at=NOW, counts={PodState.SERVING: 1}, metrics=(one,))
            for current in COUNTS:
                for least in (0, 1):
                    decision = pipeline.decide(there, scale(current), Bounds(minimum=least, maximum=999), NOW)
                    found += [
                        (current, least, each.scenario, each.proposal, each.replaced, each.held_by)
                        for each in decision.outcomes
                    ]
        return found


@st.composite
def _policies(draw: st.DrawFn) -> Policy:
    strategy, multiple = draw(st.sampled_from([*Strategy])), draw(st.integers(1, 4))
    average = draw(st.sampled_from([Average.PER_POD, Average.PER_POD, Average.TOTAL]))
    tolerance = draw(st.sampled_from([Fraction(0), Fraction(1, 100), Fraction(1, 4)]))
    delay = draw(st.sampled_from([Delay(), Delay(), Delay(up=30.0), Delay(down=30.0)]))
    zero = draw(st.sampled_from([None, True, False]))
    aim = replace(cpu(None, target=Fraction(nano("800m"))), delay=delay)
    if strategy is Strategy.WATERMARK:
        high, low = draw(st.sampled_from([("1200m", "400m"), ("1200m", None), (None, "400m"), ("800m", "790m")]))
        return policy(
            replace(cpu(high, low), delay=delay), average=average, multiple_of=multiple, tolerance=tolerance,
            tolerate_zero=zero,
        )  # fmt: skip
    step = Step(
        tolerance=draw(st.sampled_from([0, 15, 50])), tolerance_in=ToleranceIn.RATIO,
        trigger=draw(st.sampled_from(Trigger)), up=draw(st.integers(0, 3)), down=draw(st.integers(1, 9)),
        min_pods=draw(st.integers(0, 4)),
    )  # fmt: skip
    return policy(
        aim, strategy=strategy, average=average, multiple_of=multiple, tolerance=tolerance, tolerate_zero=zero,
        step=step,
    )  # fmt: skip


@st.composite
def _services(draw: st.DrawFn) -> Service:
    rule, weight, is_total = draw(_policies()), draw(st.sampled_from([1, 1, 3])), draw(st.sampled_from([0, 0, 0, 1]))
    span = draw(st.sampled_from([(0, 410), (300, 900), (700, 1400), (1000, 3000), (0, 3000), (380, 420), (0, 0)]))
    loads = draw(st.lists(st.integers(*span), min_size=1, max_size=25))
    serving = draw(st.lists(st.integers(*draw(st.sampled_from([span, (0, 3000)]))), max_size=8))
    missing, young = draw(st.sampled_from([0, 0, 2])), draw(st.sampled_from([0, 0, 1]))
    out, is_long = draw(st.integers(0, 9)), draw(st.booleans())
    fill = nano("1212m") * weight
    none_in = Totals(
        usage=sum(nano(f"{load}m") for load in serving), n=len(serving), weight=weight * len(serving),
        missing=missing, missing_weight=weight * missing, missing_fill=missing * fill,
        young=young, young_weight=weight * young, young_fill=young * fill, total=bool(is_total),
        departed=DepartedLoad(is_unknown=draw(st.integers(0, 9)) == 0),
        seeks_extremes=rule.step.trigger is Trigger.ANY_POD and rule.strategy is Strategy.STEP and not is_total,
    )  # fmt: skip
    for load in serving if none_in.seeks_extremes else []:
        none_in.include(PodLoad(nano(f"{load}m"), weight))
    return Service(
        rule,
        none_in,
        AlikePods(
            usages=[0] * len(loads) if is_total else sorted(nano(f"{load}m") for load in loads),
            weight=weight,
            is_long=is_long,
            is_replaceable=is_long and draw(st.booleans()),
        ),
        AwayPods(out=out, replaceable=draw(st.integers(0, out)), reserved=draw(st.sampled_from([0, 0, 3]))),
    )


@given(_services())
@settings(max_examples=200)
def test_the_ends_of_spans_and_a_search_find_the_winner_of_all_scenarios(service: Service) -> None:
    spans = service.spans()
    if spans is None:
        return
    every = service.all_scenarios()
    assert service.winners(spans) == service.winners(every)
    assert spans.verdicts == {one.verdict for one in every}
    assert spans[-1] == every[-1]


def test_ten_thousand_pods_above_the_band_need_few_scenarios() -> None:
    none_in, away = Totals(), AwayPods(out=0, replaceable=0, reserved=0)
    pods = AlikePods(usages=[nano("1300m") + i for i in range(10_000)], weight=1, is_long=True, is_replaceable=True)
    spans = Service(policy(cpu("1200m", "400m")), none_in, pods, away).spans()
    assert spans is not None
    assert [one.inside for one in spans] == [0, 1, 10_000]
    assert spans[-1].needed == 10_834


@given(st.lists(st.tuples(st.integers(0, 3), st.integers()), max_size=40), st.integers(1, 9), st.booleans())
def test_items_are_sorted_in_steps_and_equal_ones_keep_their_order(
    items: list[tuple[int, int]], at_once: int, reverse: bool
) -> None:
    found = finish(sorted_in_steps(items, lambda item: item[0], reverse=reverse, at_once=at_once))
    assert found == sorted(items, key=lambda item: item[0], reverse=reverse)
