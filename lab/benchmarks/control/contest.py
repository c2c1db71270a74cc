"""The contenders on one service: the stock HPA, the policy as shipped, the suggestion, and perfect knowledge.

Levels and suggestions are searched with the quick model, which is held to `replay` on a part of the same history.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.front import LEVELS, at_level
from adapter.commands.replay.hpas import stock_hpa_for
from adapter.commands.replay.levels import Level, level_at, search_levels
from adapter.commands.replay.player import paced
from adapter.commands.replay.service import Judge, Summary
from adapter.commands.replay.simulation import simulate
from adapter.commands.replay.suggest import SHIPPED_LOW, Part, Plan, Suggestions, suggest, yardstick
from adapter.commands.replay.suggestion_report import behavior_texts
from adapter.load.spec import Bounds, Metric, Policy, ResourceMetric
from adapter.policy.behavior import SHIPPED_PACE
from adapter.policy.hpa import CrossVersionReference, Hpa, ScalingRules
from lab.benchmarks.control import perfect, quick
from lab.benchmarks.control.quick import Rules
from lab.benchmarks.control.services import CAPACITY, FIRST_REPLICAS, MAXIMUM, MINIMUM, STEP, loads, setup, ticks

_DAY = 86_400.0
_JUDGE = Judge({"cpu": Fraction(CAPACITY)}, MINIMUM)
_FIRST_SHARE = Fraction(3, 5)
_ROUNDS = 3
_NO_LAG = Rules(1.0)


def policy(share: Fraction, ratio: Fraction = SHIPPED_LOW) -> Policy:
    """A policy on CPU with this share of a pod's capacity as its high watermark."""
    metric = Metric(name="cpu", resource=ResourceMetric(name="cpu"))
    return at_level(Policy(namespace="lab", name="lab", hpa="lab", metrics=(metric,)), share * CAPACITY, ratio)


def native(down: ScalingRules = SHIPPED_PACE) -> Hpa:
    """The HPA of a policy: tolerance 0, and this pace downwards."""
    exact = ScalingRules(tolerance=Fraction(0))
    return Hpa(
        namespace="lab",
        name="lab",
        target=CrossVersionReference("apps/v1", "Deployment", "lab"),
        bounds=Bounds(minimum=MINIMUM, maximum=MAXIMUM),
        scale_up=exact,
        scale_down=replace(down, tolerance=Fraction(0)),
        has_behavior=True,
    )


def rules(plan: Plan) -> Rules:
    """What the quick model plays of a plan."""
    (metric,), down = plan.policy.metrics, plan.down or SHIPPED_PACE
    factor = float(plan.policy.saturation_factor)
    assert metric.high
    assert metric.low
    assert down.stabilization is not None
    percent = down.policies[0].value if down.policies else None
    band = float(metric.high / CAPACITY), float(metric.low / metric.high)
    return Rules(*band, down.stabilization, percent, factor=factor, up_window=plan.up or 0)


def replayed(
    plan: Plan | None, share: Fraction, name: str, seed: int, begin: float, seconds: float, lag: Rules = _NO_LAG
) -> Summary:
    """What `replay` says of a plan, or of the stock HPA, at a level on a part of a history; `lag` has how late."""
    late = replace(setup(FIRST_REPLICAS), starts=lag.start * STEP, window=lag.covered * STEP)
    if plan is None:
        hpa = stock_hpa_for(policy(share), native(ScalingRules()), setup(1))
        autoscaler: HpaAutoscaler | PolicyAutoscaler = HpaAutoscaler(hpa)
    else:
        autoscaler = PolicyAutoscaler(at_level(plan.policy, share * CAPACITY), paced(native(), plan))
    (run,) = simulate(ticks(name, seed, begin, seconds), late, [autoscaler], _JUDGE)
    return run.summary


SHIPPED = Plan(policy(_FIRST_SHARE), SHIPPED_PACE)
BANDS = {
    **{f"low/high {ratio:g}": Rules(1.0, ratio) for ratio in (0.33, 0.5, 0.6, 0.7, 0.8, 0.9)},
    "low/high 0.8, as shipped": rules(SHIPPED),
    "stock HPA, as shipped": Rules(1.0, None, SHIPPED_PACE.stabilization or 0, 10),
}
"""Shapes that are compared with the stock HPA: the band with the default way down, and with ours."""
LAGS = {
    "start of 60 s": replace(_NO_LAG, start=4),
    "samples of 60 s": replace(_NO_LAG, covered=4),
    "samples of 120 s": replace(_NO_LAG, covered=8),
}


class Service:
    """A service of which a half is tuned on (`first`), and the other one judged on: loads in pods' capacities."""

    def __init__(self, name: str, seed: int, days: float) -> None:
        self.name, self.seed, self.seconds = name, seed, days / 2 * _DAY
        history, half = loads(name, seed), int(self.seconds / STEP)
        self.first, self.second = list(islice(history, half)), list(islice(history, half))

    def levels(self, kind: Rules, aims: Sequence[float]) -> list[Level | None]:
        """The levels of an autoscaler that have these shortfalls on the second half."""

        def play(shares: Sequence[Fraction]) -> list[Summary]:
            return [quick.play(self.second, replace(kind, level=float(share))) for share in shares]

        first = sorted({min(Fraction(kind.highest), level) for level in LEVELS})
        played = search_levels(play, aims, first, _ROUNDS)
        return [level_at(played, aim) for aim in aims]

    def suggestions(self, aims: Sequence[float]) -> Iterator[Suggestions]:
        """What the search of `replay --suggest --shortfall` finds on the first half for each aim."""

        def play(plans: Sequence[Plan], part: Part) -> list[Summary | None]:
            if part is Part.CHECK:
                return [None] * len(plans)
            return [quick.play(self.first, rules(plan)) for plan in plans]

        measure = yardstick(SHIPPED.policy, Fraction(CAPACITY))
        for aim in aims:
            yield suggest(SHIPPED, MINIMUM, measure, play, aim=aim, limit=Fraction(CAPACITY))

    def error(self, plan: Plan | None, level: Level | None) -> float:
        """By how much the quick model's pod-hours differ from those of `replay` on the second half's first day."""
        if level is None:
            return 0.0
        share, seconds = Fraction(int(100 * level.share), 100), min(_DAY, self.seconds)
        kind = replace(_NO_LAG if plan is None else rules(plan), level=float(share))
        found = quick.play(self.second[: int(seconds / STEP)], kind).pod_seconds
        return found / replayed(plan, share, self.name, self.seed, self.seconds, seconds).pod_seconds - 1


def figures(name: str, seed: int, days: float, aims: Sequence[float]) -> dict[str, Any]:
    """The figures of one service."""
    service = Service(name, seed, days)
    shown = service.second
    rises = sorted(after / before for before, after in zip(shown, shown[3:], strict=False) if before > 0)
    found: list[dict[str, Any]] = []
    errors: list[float] = []
    for aim, stock, shipped, suggested in zip(
        aims,
        service.levels(_NO_LAG, aims),
        service.levels(rules(SHIPPED), aims),
        service.suggestions(aims),
        strict=True,
    ):
        best = (suggested.recommended or suggested.candidates[0]).plan
        as_found, behavior = rules(best), behavior_texts(best)
        level = service.levels(as_found, [aim])[0]
        as_set = quick.play(shown, as_found)
        known = perfect.pod_hours(shown, STEP, setup(1).starts + setup(1).stops, MINIMUM, aim)
        errors += [service.error(None, stock), service.error(SHIPPED, shipped), service.error(best, level)]
        found.append(
            {
                "shortfall": aim,
                "stock": _level(stock),
                "shipped": _level(shipped),
                "suggestion": _level(level)
                | {
                    "low_of_high": round(as_found.ratio or 0.0, 2),
                    "scale_down": behavior["scaleDown"],
                    "scale_up": behavior["scaleUp"],
                    "saturation_factor": behavior["saturationFactor"],
                    "plans": suggested.tried,
                    "as_set": {
                        "high": round(as_found.level, 3),
                        "shortfall": as_set.shortfall,
                        "pod_hours": round(as_set.pod_seconds / 3600, 1),
                    },
                },
                "perfect": {"pod_hours": round(known, 1)},
            }
        )
    return {
        "name": name,
        "pods": round(sum(shown) / len(shown), 1),
        "most_pods": round(max(shown), 1),
        "rise_p99": round(rises[int(0.99 * len(rises))], 2),
        "rise_p999": round(rises[int(0.999 * len(rises))], 2),
        "aims": found,
        "bands": {name: _level(service.levels(kind, aims[:1])[0]) for name, kind in BANDS.items()},
        "lags": {name: _level(service.levels(kind, aims[:1])[0]) for name, kind in LAGS.items()},
        "quick_model_error": round(max(map(abs, errors)), 5),
    }


def _level(level: Level | None) -> dict[str, Any]:
    if level is None:
        return {"level": None, "pod_hours": None, "flaps": None}
    flaps = max(0.0, round(level.flaps, 1))  # the line through two levels may fall below
    return {"level": round(level.share, 3), "pod_hours": round(level.pod_hours, 1), "flaps": flaps}
