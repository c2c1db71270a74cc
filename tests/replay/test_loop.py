"""The closed loop: what a service does with the counts of an autoscaler, and what the autoscaler sees of it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler, hpa_following
from adapter.commands.replay.compare import Service, compare
from adapter.commands.replay.history import Tick, stretches
from adapter.commands.replay.loop import play
from adapter.commands.replay.model import Autoscaler, Setup, View
from adapter.commands.replay.score import Run
from tests.replay.kit import START, cores, phases, policy, stock, wandering

HIGH = {"cpu": cores(1)}
USUAL = Setup(replicas=10, sample_age=5.0, window=15.0)


class Fixed(Autoscaler):
    """Sets counts at given syncs, and keeps its views."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts = counts or {}
        self.views: list[View] = []

    def sync(self, view: View) -> int:
        self.views.append(view)
        return self._counts.get(len(self.views) - 1, view.replicas)


def run(autoscaler: Autoscaler, ticks: list[Tick], setup: Setup = USUAL) -> Run:
    return play(stretches(ticks, setup), setup, autoscaler, HIGH)


def test_new_pod_serves_after_its_startup_and_costs_at_once() -> None:
    fixed = Fixed({0: 20})
    found = run(fixed, list(phases((15, 120))), replace(USUAL, pod_startup=45))
    assert found.summary.over_high_seconds == 45
    assert found.summary.pod_hours == 20 * 120 / 3600
    assert [len(view.samples["cpu"]) for view in fixed.views] == [10, 10, 10, 10, 10, 20, 20, 20]


def test_samples_are_means_over_the_window_and_as_old_as_said() -> None:
    fixed = Fixed()
    run(fixed, list(phases((10, 60), (20, 60))))
    shown = [next(iter(view.samples["cpu"].values())) / 10**9 for view in fixed.views]
    assert shown[3:7] == pytest.approx([1.0, 1.0, 1.0 + 10 / 15, 2.0])
    assert fixed.views[4].sampled_at == fixed.views[4].now - 5


def test_pulled_out_pods_use_nothing_and_load_falls_on_the_others() -> None:
    fixed = Fixed()
    run(fixed, list(phases((10, 60), pulled_out=5)))
    assert sorted(fixed.views[-1].samples["cpu"].values()) == [0] * 5 + [cores(2)] * 5


def test_throttled_samples_hide_the_overload_that_the_shortfall_shows() -> None:
    fixed, limit = Fixed(), {"cpu": int(cores(1.5))}
    found = run(fixed, list(phases((30, 60))), replace(USUAL, throttles=limit, capacity=limit))
    assert set(fixed.views[-1].samples["cpu"].values()) == {cores(1.5)}
    assert found.summary.shortfall_ratio == 0.5


def test_gap_is_unknown_and_no_load_of_zero() -> None:
    ticks = [*phases((8, 600)), *(tick._replace(at=tick.at + 1800) for tick in phases((8, 600)))]
    for autoscaler in (PolicyAutoscaler(policy()), HpaAutoscaler(stock())):
        found = run(autoscaler, ticks)
        assert found.summary.unknown_seconds == 1800 - 600 + 15 - 90
        assert not found.summary.change_count
    overloaded = run(Fixed(), [tick._replace(load={"cpu": cores(12)}) for tick in ticks]).summary
    known = overloaded.over_high_seconds, overloaded.longest_over_high_seconds
    assert known == (675 + 600, 675), "an overload does not last through the unknown time"


def test_one_missing_tick_is_bridged_at_any_step() -> None:
    ticks = [Tick(START + 300 * index, {"cpu": cores(8)}) for index in range(20) if index != 10]
    assert run(Fixed(), ticks).summary.unknown_seconds == 0


AUTOSCALERS: dict[str, Callable[[], Autoscaler]] = {
    "policy": lambda: PolicyAutoscaler(policy(), stock(most=30)),
    "policy with a cooldown that deletes pulled-out pods first": lambda: PolicyAutoscaler(
        policy(cooldown={"scaleDownSeconds": 400}, pulledOut={"deleteFirst": True})
    ),
    "raw": lambda: HpaAutoscaler(stock(most=30)),
    "effective": lambda: HpaAutoscaler(stock(least=5), effective=True),
    "slow": lambda: HpaAutoscaler(stock(behavior={"scaleUp": {"stabilizationWindowSeconds": 120}})),
}


@pytest.mark.parametrize("name", AUTOSCALERS)
def test_skipped_syncs_change_no_count(name: str) -> None:
    for seed in range(3):
        history = stretches(wandering(seed, 500), USUAL)
        whole, skipping = (play(history, USUAL, AUTOSCALERS[name](), HIGH, skip=skip) for skip in (False, True))
        assert (skipping.changes, skipping.summary) == (whole.changes, whole.summary), f"seed {seed}"


def test_stock_hpa_is_aimed_at_the_risk_of_the_policy() -> None:
    ticks = list(phases(*[(8, 1200), (11, 300), (14, 1200), (9, 1200)] * 2))
    setup, rule = replace(USUAL, capacity={"cpu": int(cores(1.2))}), policy()
    result = compare(Service(policy=rule, setup=setup, hpa=hpa_following(rule, None)), ticks)
    raw, _, ours = (one.summary for one in result.runs)
    assert ours.shortfall_ratio
    assert raw.shortfall_ratio is not None
    assert raw.shortfall_ratio <= 1.01 * ours.shortfall_ratio
    assert "at most the policy's" in result.stock_is


def test_load_of_whole_pods_asks_for_no_pod_more() -> None:
    for load in (7, 14, 21, 24):
        found = run(PolicyAutoscaler(policy()), list(phases((5, 600), (load, 900))))
        assert found.summary.replicas.most == max(10, load)


def test_flap_is_a_change_turned_back_within_ten_minutes() -> None:
    found = run(Fixed({0: 12, 30: 10, 100: 12}), list(phases((5, 1800))))
    assert (found.summary.change_count, found.summary.flaps) == (3, 1)
    assert found.summary.overshoot == 12 - 5
