"""Scenarios that are left out, or not looked at, change no decision: the same decisions as with all of them."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.load import metric_assessment, pipeline, scenarios
from adapter.load.assessment import Assessment, AssessmentInputs
from adapter.load.memory import Departed, LastSample, Memory, PodMemory
from adapter.load.pipeline import assess, decide
from adapter.load.samples import Samples
from adapter.load.scenarios import _Offer, _Offers
from adapter.load.spec import (
    Average,
    Bounds,
    Capacity,
    Converge,
    Delay,
    Metric,
    Policy,
    PulledOut,
    Query,
    ResourceMetric,
    Step,
    Strategy,
    ToleranceIn,
    Trigger,
)
from adapter.load.steps import collected
from tests.load.kit import NOW, REGISTRY, TARGET, cpu, nano, pod, policy, roster, scale, total, usage

OFFERS = st.builds(
    lambda least, line, replaceable: _Offer(least, line, least + replaceable),
    st.integers(1, 12), st.integers(-8, 8), st.integers(0, 8),
)  # fmt: skip


@given(st.lists(OFFERS, min_size=1, max_size=7), st.integers(1, 5))
@settings(max_examples=600)
def test_offers_that_are_dropped_win_at_no_count(given_offers: Sequence[_Offer], multiple_of: int) -> None:
    """The last offer is that of the scenario with the most doubtful pods in."""
    offers = _Offers()
    added = [inside for inside in reversed(range(len(given_offers))) if offers.add(inside, given_offers[inside])]
    kept = set(added) - offers.beaten(multiple_of)
    for current in range(32):

        def proposal(inside: int, current: int = current) -> tuple[int, int]:
            least, line, most = given_offers[inside]
            count = min(most, max(least, line + current))
            return max(current, -(-count // multiple_of) * multiple_of), inside

        assert max(range(len(given_offers)), key=proposal) in kept


class Doubt(NamedTuple):
    """A doubtful pod, or one of the others: its load in milli-units (None: no sample) and its CPU limit."""

    load: int | None
    limit: int
    since: float
    age: float


DOUBT = st.sampled_from([10.0, 400.0])
"""For how long a pod has been doubtful: not for long, or so long that it may be replaced."""
SPANS = st.sampled_from([(0, 410), (300, 900), (750, 1400), (1000, 3000), (0, 3000), (0, 0)])


@st.composite
def _pods(draw: st.DrawFn, most: int, span: tuple[int, int]) -> list[Doubt]:
    loads = st.integers(*span) | st.none() if draw(st.booleans()) else st.integers(*span)
    ages = st.sampled_from([9000.0, 9000.0, 250.0])
    alike = st.builds(Doubt, st.integers(*span), st.just(1), st.just(draw(DOUBT)), st.just(9000.0))
    unlike = st.builds(Doubt, loads, st.sampled_from([1, 1, 4]), DOUBT, ages)
    return draw(st.lists(alike if draw(st.booleans()) else unlike, max_size=most))


@st.composite
def _metrics(draw: st.DrawFn, high: str | None, low: str | None, aim: str | None) -> Metric:
    target = None if aim is None else Fraction(nano(aim))
    return replace(
        cpu(high, low, target=target),
        delay=draw(st.sampled_from([Delay(), Delay(), Delay(up=30.0), Delay(down=30.0)])),
        resource=ResourceMetric(name="cpu", of=draw(st.sampled_from([None, Capacity.LIMIT]))),
    )


@st.composite
def _rules(draw: st.DrawFn) -> Policy:
    strategy, multiple = draw(st.sampled_from([Strategy.WATERMARK, *Strategy])), draw(st.integers(1, 4))
    if strategy is Strategy.STEP:
        step = Step(
            tolerance=draw(st.sampled_from([0, 15, 50])), tolerance_in=ToleranceIn.RATIO,
            trigger=draw(st.sampled_from(Trigger)), up=draw(st.integers(0, 3)),
            down=draw(st.integers(multiple, 9)), min_pods=draw(st.integers(0, 4)),
        )  # fmt: skip
        rule = policy(draw(_metrics(None, None, "800m")), strategy=strategy, step=step)
    elif strategy is Strategy.RATIO:
        rule = policy(draw(_metrics(None, None, "800m")), strategy=strategy, tolerance=Fraction(1, 10))
    else:
        high, low = draw(st.sampled_from([("1200m", "400m"), ("1200m", None), (None, "400m"), ("800m", "790m")]))
        converge = draw(st.sampled_from([None, *([Converge.LOW] if low else []), *([Converge.HIGH] if high else [])]))
        rule = policy(draw(_metrics(high, low, None)), converge_towards=converge)
    of = rule.metrics[0].resource
    average = Average.TOTAL if strategy is not Strategy.STEP and (of is None or of.of is None) else Average.PER_POD
    return replace(
        rule,
        registry=REGISTRY,
        average=draw(st.sampled_from([Average.PER_POD, Average.PER_POD, average])),
        multiple_of=multiple,
        min_serving_percent=0,
        tolerate_zero=draw(st.sampled_from([None, True, False])),
        pulled_out=PulledOut(replace=draw(st.booleans()), replace_after=draw(st.sampled_from([0.0, 60.0]))),
    )


@st.composite
def _services(draw: st.DrawFn) -> AssessmentInputs:
    """A service with pods that serve, doubtful ones (never registered), and some that departed."""
    rule = draw(_rules())
    drawn = {f"in{index}": one for index, one in enumerate(draw(SPANS.flatmap(lambda span: _pods(5, span))))}
    drawn |= {f"doubt{index}": one for index, one in enumerate(draw(SPANS.flatmap(lambda span: _pods(14, span))))}
    pods = [
        pod(name, age=one.age, ip=f"10.0.0.{index}", limits={"cpu": str(one.limit)})
        for index, (name, one) in enumerate(drawn.items())
    ]
    listed = roster(*(each.ips[0] for each in pods if each.name.startswith("in")))
    doubted = {f"uid-{name}": PodMemory(doubt_since=NOW - one.since) for name, one in drawn.items() if name[0] == "d"}
    left = draw(st.lists(st.integers(0, 3000), max_size=2))
    departed = {f"left{i}": Departed(NOW - 5, {"cpu": LastSample(NOW - 20, nano(f"{x}m"))}) for i, x in enumerate(left)}
    samples = usage({name: None if one.load is None else f"{one.load}m" for name, one in drawn.items()})
    if rule.metrics[0].resource is not None and rule.metrics[0].resource.of is None and draw(st.booleans()):
        samples, rule = _of_the_service(samples, rule)
    return AssessmentInputs(
        policy=rule, pods=pods, samples=samples, roster=listed, scale=scale(max(1, len(pods))),
        bounds=Bounds(minimum=draw(st.sampled_from([0, 1])), maximum=999), target=TARGET, now=NOW,
        memory=Memory(pods=doubted, departed=departed, ever_in_roster=True),
    )  # fmt: skip


def _of_the_service(samples: Samples, rule: Policy) -> tuple[Samples, Policy]:
    """The same load as one number for the service."""
    load = sum(each.containers["app"]["cpu"] for each in samples.resources.pods.values())
    return total(f"{load}n", name="cpu"), replace(
        rule, metrics=(replace(rule.metrics[0], resource=None, query=Query(name="cpu")),)
    )


def _decisions(inputs: AssessmentInputs) -> list[tuple[object, ...]]:
    """What is decided at each count, and the winner; first, since when usage has been beyond a watermark."""
    assessment = assess(inputs)
    beyond = tuple(metric.beyond for metric in assessment.metrics)
    return [beyond, *_every_count(assessment, inputs)]


def _every_count(assessment: Assessment, inputs: AssessmentInputs) -> list[tuple[object, ...]]:
    return [_decision(assessment, inputs, current) for current in range(len(inputs.pods) * 2 + 6)]


def _decision(assessment: Assessment, inputs: AssessmentInputs, current: int) -> tuple[object, ...]:
    found = decide(assessment, scale(current), inputs.bounds, NOW)
    winners = [(one.scenario, one.proposal, one.replaced, one.held_by) for one in found.outcomes]
    return current, found.desired, found.error, found.verdict, found.held_by, winners


@given(_services())
@settings(max_examples=150)
def test_scenarios_that_are_not_compared_change_no_decision(inputs: AssessmentInputs) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios, "_that_may_win", lambda steps, _: collected(range(len(steps))))
        patch.setattr(metric_assessment, "held_with_all_in", lambda *_: None)
        patch.setattr(metric_assessment, "are_comparable", lambda *_: False)
        patch.setattr(pipeline, "contenders", lambda scenarios, *_: scenarios)
        of_all = _decisions(inputs)
    for found, wanted in zip(_decisions(inputs), of_all, strict=True):
        assert found == wanted


def test_serving_pods_above_the_band_win_over_doubtful_ones_that_bring_the_average_into_it() -> None:
    pods = [pod(f"web-{index}", ip=f"10.0.0.{index}") for index in range(5)]
    doubted = {one.uid: PodMemory(doubt_since=NOW - 400) for one in pods[2:]}
    inputs = AssessmentInputs(
        policy=policy(cpu("1200m", "400m"), registry=REGISTRY), pods=pods, bounds=Bounds(minimum=1, maximum=99),
        samples=usage({one.name: "1500m" if one in pods[:2] else "600m" for one in pods}), target=TARGET, now=NOW,
        roster=roster("10.0.0.0", "10.0.0.1"), scale=scale(5), memory=Memory(pods=doubted, ever_in_roster=True),
    )  # fmt: skip
    assert decide(assess(inputs), scale(5), inputs.bounds, NOW).desired == 6
