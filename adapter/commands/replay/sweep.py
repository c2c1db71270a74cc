"""`--sweep`: other watermarks and another pace for a policy, judged by the risk of the present ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from adapter.commands.replay.compare import SLACK, Result
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
_SHOWN = 5


class Plan(NamedTuple):
    """What a policy sets, by field, with its figures on the first two thirds of the history and on the last third."""

    values: dict[str, str]
    first: Summary
    last: Summary

    def cells(self) -> list[str]:
        """A line of the table."""
        first, last = ([f"{one.pod_hours:.1f}", percent(one.risk)] for one in (self.first, self.last))
        return [*self.values.values(), *first, *last]

    def data(self) -> dict[str, Any]:
        """The plan as JSON data."""
        first, last = ({"podHours": one.pod_hours, "risk": one.risk} for one in (self.first, self.last))
        return {"values": self.values, "firstTwoThirds": first, "lastThird": last}


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

    def figures(tried: Policy, history: Sequence[Stretch]) -> Summary:
        return service.play(history, service.follower(tried)).summary

    present = Plan(_values(policy), figures(policy, begun), figures(policy, rest))
    tried = [(figures(one, begun), one) for one in _policies(policy)]
    safe = [one for one in tried if one[0].risk <= present.first.risk * SLACK]
    best = sorted(safe, key=lambda one: one[0].pod_hours)[:_SHOWN]
    plans = [Plan(_values(one), first, figures(one, rest)) for first, one in best]
    advice = _advice(present, plans)
    rows = [["present", *present.cells()], *([str(place), *one.cells()] for place, one in enumerate(plans, 1))]
    lines = [
        f"SWEEP: {len(tried)} plans on the first two thirds of the history; those with at most the present risk:",
        *aligned([["PLAN", *present.values, "POD-HOURS", "RISK", "LAST THIRD", "RISK"], *rows]),
        advice,
    ]
    return {"advice": advice, "present": present.data(), "plans": [one.data() for one in plans]}, lines


def _policies(policy: Policy) -> Iterator[Policy]:
    has_low = any(metric.low is not None for metric in policy.metrics)
    paces = sorted({policy.cooldown.down, _COOLDOWN})
    for high, low, pace in product(_HIGH, _LOW if has_low else _LOW[:1], paces):
        metrics = tuple(metric if metric.floor else _scaled(metric, high, low) for metric in policy.metrics)
        yield replace(policy, metrics=metrics, cooldown=replace(policy.cooldown, down=pace))


def _scaled(metric: Metric, high: Fraction, low: Fraction) -> Metric:
    under = metric.low if metric.high is None else metric.high * low
    low_mark = None if metric.low is None or under is None else under * high
    return replace(metric, high=metric.high and metric.high * high, low=low_mark)


def _values(policy: Policy) -> dict[str, str]:
    found = {}
    for metric in (metric for metric in policy.metrics if not metric.floor):
        for field, mark in (("highWatermark", metric.high), ("lowWatermark", metric.low)):
            if mark is not None:
                text = nano_text(mark) if metric.relative_to is None else percent_text(mark / 10**9)
                found[f"{metric.name} {field}"] = text
    return found | {"cooldown.scaleDownSeconds": f"{policy.cooldown.down:g}"}


def _advice(present: Plan, plans: list[Plan]) -> str:
    best = plans[0] if plans else present
    if best.first.pod_hours >= present.first.pod_hours:
        return "Keep the present values: no other plan needs fewer pod-hours at the same risk."
    saved, last = (
        f"{100 * (mine.pod_hours / theirs.pod_hours - 1):+.1f} %"
        for mine, theirs in ((best.first, present.first), (best.last, present.last))
    )
    if best.last.risk > present.last.risk * SLACK or best.last.pod_hours >= present.last.pod_hours:
        return f"Keep the present values: the best plan ({saved} pod-hours) does not hold in the last third."
    values = ", ".join(f"{name} {text}" for name, text in best.values.items())
    return f"Set {values}: {saved} pod-hours; in the last third of the history, which was not used to choose, {last}."
