"""What a run takes up: every kind of step, every fault, and a planted defect for each invariant."""

import itertools
import math
from fractions import Fraction

import pytest

from lab.faults.scenarios import SCENARIOS
from lab.soak import checks
from lab.soak.actions import Actions
from lab.soak.defects import DEFECTS
from lab.soak.needs import Rules
from lab.soak.plan import MOST_PODS, Invariant, groups, services
from lab.soak.run import fault_names, inputs_of
from lab.soak.stage import reach


def test_a_run_has_every_kind_of_step_and_every_fault() -> None:
    steps = [step for group in itertools.islice(groups(1, fault_names()), 800) for step in group.steps]
    assert {step.arguments["name"] for step in steps if step.kind == "fault"} == set(fault_names())
    kinds = {step.kind for step in steps} - {"fault"}
    assert kinds == {name for name in vars(Actions) if not name.startswith("_")} - {"take"}
    assert {one.rules.spec["strategy"] for one in services(1)} == {"Watermark", "Ratio", "Step"}


def test_a_defect_is_planted_for_each_invariant() -> None:
    assert {defect.invariant for defect in DEFECTS} == set(Invariant) - {Invariant.ITSELF}


def asked(rules: Rules, x: float) -> int:
    """The count below which a load takes every service at least to itself."""
    (metric,) = rules.metrics
    return math.ceil(Fraction(str(x)) * 1000 / (metric.high or metric.target or 1))


@pytest.mark.parametrize("seed", range(30))
def test_a_planted_rise_is_one_and_is_larger_than_any_that_the_load_explains(seed: int) -> None:
    known = {one.name: one for one in services(seed)}
    defect = next(one for one in DEFECTS if one.name == "exaggerates")
    loads = [(index, step) for index, step in enumerate(defect.steps) if step.kind == "load"]
    for name in {step.service for _, step in loads}:
        rules = known[name].rules
        (before, low), (after, high) = [(index, step.arguments["x"]) for index, step in loads if step.service == name]
        rests_at, asks_for = rules.fewest(low), asked(rules, high)
        assert rests_at < asks_for
        assert checks.largest_rise(rules.most(high)) < min(asks_for + 8, MOST_PODS)
        passed = (after - before) * defect.seconds / len(defect.steps)
        assert passed > max(reach(one.source) for one in rules.metrics), "the larger load before bounds the count still"


def test_each_fault_is_known_by_the_inputs_that_it_breaks() -> None:
    broken = {scenario.name: inputs_of(scenario.name) for scenario in SCENARIOS}
    assert broken["prometheus-zeros"] == {"prometheus"}
    assert broken["metrics-server-gone"] == {"metrics"}
    assert broken["consul-emptied"] == broken["all-pulled-out"] == {"consul"}
    assert broken["leader-lost"] == broken["settings-broken"] == frozenset()
    assert broken["api-server-restarted"] is broken["clock-ahead"] is broken["adapter-killed"] is None
