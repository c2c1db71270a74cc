"""What a seed makes: the same each time, and policies that the adapter accepts."""

import itertools
import math
from fractions import Fraction
from unittest.mock import Mock

import pytest

from adapter.policy.watermark_policy import parse_policy
from lab.faults.scenarios import SCENARIOS
from lab.soak import checks
from lab.soak.actions import Actions
from lab.soak.defects import DEFECTS
from lab.soak.needs import Rules
from lab.soak.plan import MOST_PODS, Group, Invariant, Service, groups, services
from lab.soak.run import fault_names, inputs_of
from lab.soak.stage import Truth, reach


def first(seed: int, count: int = 200) -> list[Group]:
    return list(itertools.islice(groups(seed, fault_names()), count))


def spec_of(service: Service, **changed: object) -> dict[str, object]:
    spec = {**service.spec, **changed}
    return {
        "metrics": [one.written() for one in service.metrics],
        **{key: value for key, value in spec.items() if value is not None},
    }


def test_what_the_registry_puts_back_stays_out_where_it_was_pulled_out_by_hand() -> None:
    """In seed 2611 annotated pods got load, which the adapter rightly did not count."""
    stage = Mock()
    service = next(one for one in services(1) if one.registry)
    truth = Truth(service, 1.0, Rules(service.metrics, service.spec), out={"m", "a", "h"}, absent={"a"}, by_hand={"h"})
    Actions(stage).put_back(truth)
    assert truth.out == {"a", "h"}
    assert [call.args[1].split("/")[-1] for call in stage.consul.request.mock_calls] == ["m?enable=false"]


def test_a_seed_makes_the_same_run_each_time_and_another_one_another() -> None:
    assert (services(7), first(7)) == (services(7), first(7))
    assert services(7) != services(8)
    assert first(7) != first(8)


@pytest.mark.parametrize("seed", range(10))
def test_every_policy_of_a_run_is_valid_at_first_and_after_each_edit(seed: int) -> None:
    known = {one.name: one for one in services(seed)}
    for one in known.values():
        parse_policy(policy(one.name, spec_of(one)))
    for step in (step for group in first(seed) for step in group.steps if step.kind == "edit_policy"):
        service = known[step.service]
        parse_policy(policy(step.service, spec_of(service, **step.arguments["change"])))


def policy(name: str, spec: dict[str, object]) -> dict[str, object]:
    return {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": {"name": name, "namespace": "faults"},
        "spec": spec,
    }


def test_a_run_has_every_kind_of_step_and_every_fault() -> None:
    steps = [step for group in first(1, 800) for step in group.steps]
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
