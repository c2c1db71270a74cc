"""Suggestions: a front of cost and risk by one yardstick, the same each time, and a patch that means the candidate."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.commands.replay.comparison import Result, compare, replay
from adapter.commands.replay.player import suggest_for
from adapter.commands.replay.scenarios.catalog import hpa as scenario_hpa
from adapter.commands.replay.service import Setup, Summary, Tick, open_spool, spooled
from adapter.commands.replay.suggest import (
    MOST_CANDIDATES,
    Part,
    Plan,
    SuggestError,
    Suggestions,
    suggest,
    watermark_text,
    with_watermarks,
    yardstick,
)
from adapter.commands.replay.suggestion_report import patch_text
from adapter.load.bounds import SATURATED
from adapter.load.quantity import NANO
from adapter.load.spec import Average, Policy
from adapter.policy.hpa import ScalingPolicy, ScalingRules, parse_hpa
from adapter.policy.watermark_policy import parse_policy
from tests.replay.services import START, hpa, wandering

MANIFEST: dict[str, Any] = {
    "metadata": {"namespace": "shop", "name": "web"},
    "spec": {
        "metrics": [
            {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "600m"},
            {"name": "rps", "query": {"name": "rps"}, "highWatermark": "500"},
        ],
        "velocity": {"scaleUpPercent": 50},
        "cooldown": {"scaleDownSeconds": 300},
    },
}
POLICY = parse_policy(MANIFEST)
CPU_ONLY = replace(POLICY, metrics=POLICY.metrics[:1])
PRESENT = Plan(CPU_ONLY)
DAY = 86_400.0


class Model:
    """Figures by formula: cost falls and risk rises with the high watermark; records what it plays."""

    def __init__(self, *, later: float = 1.0, flaps: int = 0, checks: bool = True) -> None:
        self.played: list[Plan] = []
        self.later, self.flaps, self.checks = later, flaps, checks

    def __call__(self, plans: Sequence[Plan], part: Part) -> list[Summary | None]:
        if part is Part.CHECK and not self.checks:
            return [None] * len(plans)
        self.played += plans if part is Part.LEARN else []
        worse = self.later if part is Part.CHECK else 1.0
        found = [self.summary(plan.policy) for plan in plans]
        return [one._replace(over_high=one.over_high * (1.0 if plan == PRESENT else worse))
                for plan, one in zip(plans, found, strict=True)]  # fmt: skip

    def summary(self, policy: Policy) -> Summary:
        high, low = (float(mark or 0) / NANO for mark in (policy.metrics[0].high, policy.metrics[0].low))
        seconds = 7 * DAY
        over = seconds * max(0.0, high - 0.8) ** 2 / 20
        pods = seconds * 20 * (1 + (1 - low / high) / 4) / high
        flaps = self.flaps if low / high > 0.7 else 0
        return Summary(seconds, over, 0.0, over / seconds / 10, round(over), 10, flaps, 0, pods, 30, 10)


def search(model: Model, policy: Policy = CPU_ONLY, capacity: Fraction | None = None, **changes: Any) -> Suggestions:
    return suggest(Plan(policy), 2, yardstick(policy, capacity), model, **changes)


def test_the_recommendation_needs_the_fewest_pods_at_no_more_risk_than_now() -> None:
    found = search(Model())
    present, best = found.candidates[0], found.recommended
    assert present.is_present
    assert present.plan == PRESENT
    assert best is not None
    risk = found.yardstick.risk
    assert risk(best.learned) <= 1.01 * risk(present.learned)
    assert best.learned.pod_seconds < 0.95 * present.learned.pod_seconds
    assert all(
        known.learned.pod_seconds >= best.learned.pod_seconds
        for known in found.candidates
        if risk(known.learned) <= risk(present.learned)
    )
    assert "fewer pod-hours than now" in found.recommendation()
    assert len(found.candidates) <= MOST_CANDIDATES + 2


def test_a_smaller_shortfall_is_aimed_at_and_costs_pods() -> None:
    careful, careless = (search(Model(), capacity=Fraction(2 * NANO), aim=aim).recommended for aim in (0.0001, 0.001))
    assert careful is not None
    assert careless is not None
    assert (careful.learned.shortfall or 0) <= 0.0001 * 1.01 < (careless.learned.shortfall or 0) <= 0.001 * 1.01
    assert careful.learned.pod_seconds > careless.learned.pod_seconds


def test_a_plan_that_flaps_more_than_now_is_neither_recommended_nor_shown() -> None:
    found = search(Model(flaps=50))
    assert found.recommended is not None
    assert all(known.learned.flaps == 0 for known in found.candidates)


def test_where_nothing_is_better_the_present_policy_is_kept() -> None:
    found = search(Model(), budget=1)
    assert found.recommended is None
    assert found.recommendation().startswith("Keep the present policy")


@pytest.mark.parametrize(("later", "warns"), [(1.0, False), (3.0, True)])
def test_a_later_part_that_disagrees_is_a_warning(later: float, *, warns: bool) -> None:
    best = search(Model(later=later)).recommended
    assert best is not None
    assert any("on the later part its risk is" in warning for warning in best.warnings) is warns


def test_no_high_watermark_with_its_tolerance_is_above_the_limit_or_what_a_throttled_pod_surely_shows() -> None:
    model, limit = Model(), Fraction(NANO)
    search(model, capacity=Fraction(2 * NANO), aim=1.0, limit=limit)
    tried = [plan.policy for plan in model.played if plan != PRESENT]
    assert limit * 0.9 < max(policy.metrics[0].high * (1 + policy.tolerance) for policy in tried) <= limit
    for policy in tried:
        seen = limit if policy.saturation_factor > 1 else SATURATED * limit
        assert policy.metrics[0].high * (1 + policy.tolerance) <= seen


@pytest.mark.parametrize("budget", [1, 7, 20, 60])
def test_no_more_plans_are_played_than_the_budget_allows(budget: int) -> None:
    model, seen = Model(), []
    found = search(model, budget=budget, progress=seen.append)
    assert found.tried == len(model.played) == len(set(model.played)) <= budget
    assert sum(seen) == found.tried


def test_with_a_capacity_risk_is_the_shortfall_else_the_time_over_the_present_high_watermark() -> None:
    summary = Model().summary(CPU_ONLY)
    assert yardstick(CPU_ONLY, Fraction(1500 * NANO, 1000)).risk(summary) == summary.shortfall
    assert yardstick(CPU_ONLY, None).risk(summary) == summary.over_high / summary.seconds
    assert yardstick(CPU_ONLY, None).load == CPU_ONLY.metrics[0].high


RATIO = {"strategy": "Ratio", "metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "target": "1"}]}


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        pytest.param(
            replace(CPU_ONLY, metrics=(replace(CPU_ONLY.metrics[0], high=None),)), "--capacity", id="no high watermark"
        ),
        pytest.param(
            replace(POLICY, metrics=(replace(POLICY.metrics[1], floor=True), POLICY.metrics[0])),
            "rps is a floor",
            id="a floor",
        ),
        pytest.param(
            parse_policy({"metadata": {"name": "web"}, "spec": RATIO}), "Ratio has no watermarks", id="no watermarks"
        ),
    ],
)
def test_what_no_watermark_can_be_suggested_for_is_refused(policy: Policy, said: str) -> None:
    with pytest.raises(SuggestError, match=said):
        yardstick(policy, None)


def test_a_policy_that_never_scales_down_gets_no_low_watermark() -> None:
    high_only = replace(CPU_ONLY, metrics=(replace(CPU_ONLY.metrics[0], low=None),))
    found = search(Model(), high_only)
    assert len(found.candidates) > 1
    assert all(known.policy.metrics[0].low is None for known in found.candidates)


def test_watermarks_that_flap_by_themselves_have_a_warning() -> None:
    close = with_watermarks(CPU_ONLY, Fraction(NANO), Fraction(90 * NANO, 100))
    found = suggest(Plan(close), 1, yardstick(close, None), Model(), budget=1)
    assert "above 1/2" in found.candidates[0].warnings[0]


@pytest.mark.parametrize(("factor", "warns"), [(Fraction(5, 4), True), (Fraction(1), False)])
def test_a_low_watermark_above_what_a_saturated_step_leaves_has_a_warning(factor: Fraction, *, warns: bool) -> None:
    limit = Fraction(1500 * NANO, 1000)
    near = replace(with_watermarks(CPU_ONLY, limit * 95 / 100, limit * 80 / 100), saturation_factor=factor)
    found = suggest(Plan(near), 10, yardstick(near, limit), Model(), budget=1, limit=limit)
    assert any("above 1160m, what pods at their limit use" in one for one in found.candidates[0].warnings) is warns


marks = st.integers(2, 4000).map(lambda percent: Fraction(percent * NANO, 1000))


@settings(max_examples=20)
@given(marks, st.integers(1, 99))
def test_the_patch_makes_the_policy_the_candidate(high, low_percent) -> None:
    wanted = with_watermarks(POLICY, high, high * Fraction(low_percent, 100))
    patch = yaml.safe_load(patch_text(POLICY, Plan(wanted), MANIFEST))
    assert parse_policy(merged(deepcopy(MANIFEST), patch)) == wanted


def test_saturation_and_the_window_upwards_are_patches_of_the_policy_and_of_the_hpa() -> None:
    wanted = replace(POLICY, saturation_factor=Fraction(8, 5))
    change, behavior = yaml.safe_load_all(patch_text(POLICY, Plan(wanted, up=30), MANIFEST))
    assert parse_policy(merged(deepcopy(MANIFEST), change)) == wanted
    before = scenario_hpa(behavior={"scaleUp": {"policies": [{"type": "Pods", "value": 9, "periodSeconds": 15}]}})
    after = parse_hpa(merged(before, behavior))
    assert after.scale_up == replace(parse_hpa(before).scale_up, stabilization=30)
    assert after.scale_down == parse_hpa(before).scale_down


def test_shapes_that_cost_the_same_but_for_luck_keep_the_narrowest_band_and_saturation_as_it_is() -> None:
    class Flat(Model):
        def summary(self, policy: Policy) -> Summary:
            high = float(policy.metrics[0].high or 0) / NANO
            luck = 1 + float(policy.saturation_factor) / 1000
            return super().summary(policy)._replace(pod_seconds=luck * DAY / high, flaps=0)

    best = search(Flat(), capacity=Fraction(2 * NANO), aim=0.001, limit=Fraction(2 * NANO)).recommended
    assert best is not None
    first = best.policy.metrics[0]
    assert (first.low or 0) / (first.high or 1) == pytest.approx(0.9, abs=0.02)
    assert best.policy.saturation_factor == CPU_ONLY.saturation_factor


def test_a_pace_is_a_patch_of_the_hpa() -> None:
    down = ScalingRules(stabilization=120, policies=(ScalingPolicy("Percent", 10, 60),))
    _, patch = yaml.safe_load_all(patch_text(POLICY, Plan(POLICY, down), MANIFEST))
    assert (patch["kind"], patch["metadata"]["name"]) == ("HorizontalPodAutoscaler", "web")
    written = merged(scenario_hpa(behavior={"scaleDown": {"stabilizationWindowSeconds": 300}}), patch)
    assert parse_hpa(written).scale_down == replace(down, tolerance=Fraction(0))


def merged(data: Any, patch: Any) -> Any:
    """A merge patch applied, as RFC 7386 has it."""
    if not isinstance(patch, dict):
        return patch
    known = dict(data) if isinstance(data, dict) else {}
    for key, value in patch.items():
        if value is None:
            known.pop(key, None)
        else:
            known[key] = merged(known.get(key), value)
    return known


@pytest.mark.parametrize(
    ("resource", "share", "text"),
    [
        ({"name": "cpu"}, Fraction(7777, 10_000), "770m"),
        ({"name": "cpu"}, Fraction(12_345, 10_000), "1220m"),
        ({"name": "memory", "of": "Limit"}, Fraction(777, 1000), "77%"),
        ({"name": "memory"}, Fraction(777 * 2**20), "770Mi"),
    ],
)
def test_watermarks_are_rounded_down_by_at_most_two_percent_in_the_unit_that_people_write(
    resource, share, text
) -> None:
    high = "80%" if "of" in resource else "1200m"
    metrics = [{"name": "load", "resource": resource, "highWatermark": high}]
    policy = parse_policy({"metadata": {"name": "web"}, "spec": {"metrics": metrics}})
    [metric] = with_watermarks(policy, share * NANO, share * NANO / 2).metrics
    assert watermark_text(metric, metric.high) == text


# -- on the model of a service


Suggested = Callable[..., tuple[Suggestions, Result]]


def week(file: Path, days: float, policy: Policy = CPU_ONLY, **fields: Any) -> Result:
    """A replay of a few days with a step of five minutes, with its history in the file."""
    ticks = [
        tick._replace(at=START + index * 300.0)
        for index, tick in enumerate(wandering(7, int(days * DAY / 300), step=300.0))
    ]
    setup = Setup(replicas=10, lasts=900.0, sync=120.0, capacity={"cpu": 1500 * NANO // 1000})
    comparison = compare(policy, hpa(2, 60), replace(setup, **fields))
    result = replay(comparison, spooled(ticks, file))
    assert result is not None
    return result


@pytest.fixture
def suggested(tmp_path: Path) -> Suggested:
    """The suggestions for a replay of some days, and the replay."""

    def made(days: float, policy: Policy = CPU_ONLY, *, budget: int = 1, **fields: Any) -> tuple[Suggestions, Result]:
        result = week(tmp_path / "ticks", days, policy, **fields)
        return suggest_for(result, partial(open_spool, tmp_path / "ticks"), cores=1, budget=budget), result

    return made


def test_a_long_history_is_chosen_on_its_first_part_and_checked_on_the_rest(suggested: Suggested) -> None:
    found, _ = suggested(3, budget=3)
    for known in found.candidates:
        assert known.learned.seconds == pytest.approx(2 * DAY, abs=600)
        assert known.checked is not None
        assert known.learned.seconds + known.checked.seconds == pytest.approx(3 * DAY, abs=1200)


def test_a_short_history_is_chosen_on_as_a_whole(suggested: Suggested) -> None:
    found, result = suggested(0.5)
    [present, *_] = found.candidates
    assert present.learned == result.runs[2].summary._replace(
        over_high=present.learned.over_high, recovery=present.learned.recovery, overshoot=present.learned.overshoot
    )
    assert present.checked is None


def test_every_candidate_is_judged_by_the_capacity_and_not_by_its_own_watermark(suggested: Suggested) -> None:
    found, result = suggested(0.5, with_watermarks(CPU_ONLY, Fraction(3 * NANO), Fraction(NANO)))
    [present, *_] = found.candidates
    assert present.learned.over_high > result.runs[2].summary.over_high


def test_a_share_of_the_limit_is_judged_as_the_same_plain_load(suggested: Suggested) -> None:
    metric = {
        "name": "cpu", "resource": {"name": "cpu", "of": "Limit"}, "highWatermark": "60%", "lowWatermark": "30%",
    }  # fmt: skip
    share = parse_policy({**MANIFEST, "spec": {**MANIFEST["spec"], "metrics": [metric]}})
    limits = {"limits": {"cpu": 2 * NANO}, "capacity": {"cpu": NANO * 8 // 10}}
    (plain, _), (of_limit, _) = (suggested(0.2, policy, **limits) for policy in (CPU_ONLY, share))
    assert of_limit.yardstick.load == Fraction(40 * NANO, 100)
    assert of_limit.candidates[0].learned == plain.candidates[0].learned
    assert plain.candidates[0].learned.over_high > 0


def test_two_processes_suggest_what_one_does(tmp_path: Path) -> None:
    file = tmp_path / "ticks"
    result = week(file, 0.2)
    found = [suggest_for(result, partial(open_spool, file), cores=cores, budget=5) for cores in (1, 2)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("policy", "fields"), [(replace(CPU_ONLY, average=Average.TOTAL), {}), (CPU_ONLY, {"totals": ("cpu",)})]
)
def test_for_a_total_of_the_service_nothing_is_suggested(policy: Policy, fields: dict, tmp_path: Path) -> None:
    comparison = compare(policy, hpa(2, 60), Setup(replicas=10), **fields)
    result = Result(comparison=comparison, begin=START, end=START + DAY, ticks=1, runs=())
    with pytest.raises(SuggestError, match="total of the service"):
        suggest_for(result, partial(open_spool, tmp_path / "none"))


def test_a_copy_of_a_history_is_exact(tmp_path: Path) -> None:
    ticks = [Tick(START + 0.1, {"memory": 10**30 + 1}, 2, None), Tick(START + 15.3, {}, 0, 7)]
    assert list(spooled(ticks, tmp_path / "ticks")) == ticks
    with open_spool(tmp_path / "ticks") as again:
        assert list(again) == ticks
