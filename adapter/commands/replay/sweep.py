"""`--sweep`: other watermarks and another pace for a policy, judged by the risk of the present ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from adapter.commands.replay.autoscalers import PolicyAutoscaler
from adapter.commands.replay.compare import Result
from adapter.commands.replay.history import Stretch
from adapter.commands.replay.model import fault
from adapter.commands.replay.report import percent
from adapter.commands.replay.score import Summary
from adapter.commands.terminal.output import aligned
from adapter.load.quantity import nano_text, percent_text
from adapter.load.spec import Metric, Policy, Strategy

_HIGH = (Fraction(8, 10), Fraction(9, 10), Fraction(1), Fraction(11, 10))
"""High watermarks, as shares of the present one."""
_LOW = (Fraction(5, 10), Fraction(65, 100), Fraction(8, 10))
"""Low watermarks, as shares of the high one."""
_COOLDOWN = 600.0
"""The slower pace: seconds before the count falls after a change."""
_SLACK = 1.01
"""Risks within 1 % are the same."""
_SHOWN = 5


class Plan(NamedTuple):
    """A policy that was tried, with its figures on the first two thirds of the history and on the last third."""

    policy: Policy
    first: Summary
    last: Summary

    def values(self) -> dict[str, str]:
        """What the policy sets, by field."""
        found = {}
        for metric in self.policy.metrics:
            for field, mark in (("highWatermark", metric.high), ("lowWatermark", metric.low)):
                if mark is not None and not metric.floor:
                    text = nano_text(mark) if metric.relative_to is None else percent_text(mark / 10**9)
                    found[f"{metric.name} {field}"] = text
        return found | {"cooldown.scaleDownSeconds": f"{self.policy.cooldown.down:g}"}


def sweep(result: Result) -> tuple[dict[str, Any], list[str]]:
    """Up to 24 plans for the policy of a comparison, as JSON data and as text, with a recommendation.

    Those with at most the risk of the present policy on the first two thirds of the history are ranked by pod-hours.
    Raises FaultyDocument for a policy without watermarks.
    """
    service, policy = result.service, result.service.policy
    if policy.strategy is not Strategy.WATERMARK:
        advice = f"tries watermarks, and policy {policy.name} has strategy {policy.strategy}; leave out --sweep"
        raise fault("--sweep", None, advice)
    cut = result.begin + (result.end - result.begin) * 2 / 3
    begun = [stretch for stretch in result.history if stretch.at < cut]
    rest = [stretch for stretch in result.history if stretch.at >= cut] or begun

    def played(tried: Policy, history: Sequence[Stretch]) -> Summary:
        return service.play(history, PolicyAutoscaler(tried, service.hpa, totals=service.totals)).summary

    present = Plan(policy, played(policy, begun), played(policy, rest))
    tried = [(one, played(one, begun)) for one in _policies(policy)]
    safe = sorted(
        (one for one in tried if one[1].risk <= present.first.risk * _SLACK), key=lambda one: one[1].pod_hours
    )
    plans = [Plan(one, first, played(one, rest)) for one, first in safe[:_SHOWN]]
    advice = _advice(present, plans)
    head = ["PLAN", *present.values(), "POD-HOURS", "RISK", "LAST THIRD", "RISK"]
    lines = [
        f"SWEEP: {len(tried)} plans on the first two thirds of the history; those with at most the present risk:",
        *aligned(
            [
                head,
                *([name, *_cells(plan)] for name, plan in zip(["present", *"12345"], [present, *plans], strict=False)),
            ]
        ),
        advice,
    ]
    return {"advice": advice, "present": _data(present), "plans": [_data(plan) for plan in plans]}, lines


def _policies(policy: Policy) -> Iterator[Policy]:
    has_low = any(metric.low is not None for metric in policy.metrics)
    paces = sorted({policy.cooldown.down, _COOLDOWN})
    for high, low, pace in product(_HIGH, _LOW if has_low else (Fraction(1, 2),), paces):
        metrics = tuple(metric if metric.floor else _scaled(metric, high, low) for metric in policy.metrics)
        yield replace(policy, metrics=metrics, cooldown=replace(policy.cooldown, down=pace))


def _scaled(metric: Metric, high: Fraction, low: Fraction) -> Metric:
    if metric.high is None:
        return replace(metric, low=None if metric.low is None else metric.low * high)
    mark = metric.high * high
    return replace(metric, high=mark, low=None if metric.low is None else mark * low)


def _advice(present: Plan, plans: list[Plan]) -> str:
    best = plans[0] if plans else present
    if best.first.pod_hours >= present.first.pod_hours:
        return "Keep the present values: no other plan needs fewer pod-hours at the same risk."
    saved, last = (
        f"{100 * (mine.pod_hours / theirs.pod_hours - 1):+.1f} %"
        for mine, theirs in ((best.first, present.first), (best.last, present.last))
    )
    if best.last.risk > present.last.risk * _SLACK or best.last.pod_hours >= present.last.pod_hours:
        return f"Keep the present values: the best plan ({saved} pod-hours) does not hold in the last third."
    values = ", ".join(f"{name} {text}" for name, text in best.values().items())
    return f"Set {values}: {saved} pod-hours; in the last third of the history, which was not used to choose, {last}."


def _cells(plan: Plan) -> list[str]:
    figures = ([f"{one.pod_hours:.1f}", percent(one.risk)] for one in plan[1:])
    return [*plan.values().values(), *(cell for pair in figures for cell in pair)]


def _data(plan: Plan) -> dict[str, Any]:
    first, last = ({"podHours": one.pod_hours, "risk": one.risk} for one in plan[1:])
    return {"values": plan.values(), "firstTwoThirds": first, "lastThird": last}
