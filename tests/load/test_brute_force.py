"""Scenarios that are left out, or not looked at, change no decision: the same decisions as with all of them."""

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load import doubt
from adapter.load.assess import assess
from adapter.load.assessment import AssessmentInputs
from adapter.load.decide import decide
from adapter.load.memory import Departed, LastSample, Memory, PodMemory
from adapter.load.samples import Samples
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
from tests.load.kit import NOW, REGISTRY, TARGET, cpu, nano, pod, policy, roster, scale, total, usage


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
    """What is decided at each count; first, since when usage has been beyond a watermark."""
    assessment = assess(inputs)
    found: list[tuple[object, ...]] = [tuple(metric.beyond for metric in assessment.metrics)]
    for current in range(len(inputs.pods) * 2 + 6):
        decision = decide(assessment, scale(current), inputs.bounds, NOW)
        found.append((current, decision.desired, decision.error))
    return found


@given(_services())
def test_the_scenarios_at_turns_ask_for_the_same_counts_as_all_of_them(inputs: AssessmentInputs) -> None:
    of_all = _decisions(inputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doubt, "ALL_UP_TO", 0)
        assert _decisions(inputs) == of_all
