"""`--sweep`: other watermarks and another pace for a policy, judged by the risk of the present ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

from adapter.commands.replay.autoscalers import PolicyAutoscaler
from adapter.commands.replay.compare import Judge, Result
from adapter.commands.replay.model import TITLE, Summary
from adapter.commands.terminal.output import aligned
from adapter.load.quantity import nano_text, percent_text
from adapter.load.spec import Metric, Policy, Strategy
from adapter.runtime.faults import Fault, FaultyDocument

_HIGH = (Fraction(8, 10), Fraction(9, 10), Fraction(1), Fraction(11, 10))
"""High watermarks, as shares of the present one."""
_LOW = (Fraction(5, 10), Fraction(65, 100), Fraction(8, 10))
"""Low watermarks, as shares of the high one."""
_COOLDOWN = 600.0
"""The slower pace: seconds before the count falls after a change."""
_SLACK = 1.01
"""Risks within 1 % are the same."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A policy that was tried, with its figures on the first two thirds of the history and on the last third."""

    policy: Policy
    first: Summary
    last: Summary | None = None

    def values(self) -> dict[str, str]:
        """What the policy sets, by field."""
        found = {}
        for metric in self.policy.metrics:
            if not metric.floor:
                found[f"{metric.name} highWatermark"] = _text(metric, metric.high)
                found[f"{metric.name} lowWatermark"] = _text(metric, metric.low)
        found["cooldown.scaleDownSeconds"] = f"{self.policy.cooldown.down:g}"
        return {name: text for name, text in found.items() if text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The present policy, and the plans with at most its risk on the first two thirds, the cheapest first."""

    present: Plan
    plans: Sequence[Plan]
    tried: int

    @property
    def advice(self) -> str:
        """What the sweep recommends, in a sentence."""
        best = self.plans[0] if self.plans else self.present
        if best.first.pod_seconds >= self.present.first.pod_seconds or best.last is None or self.present.last is None:
            return "Keep the present values: no other plan needs fewer pod-hours at the same risk."
        saved = f"{100 * (best.first.pod_seconds / self.present.first.pod_seconds - 1):+.1f} % pod-hours"
        last = f"{100 * (best.last.pod_seconds / self.present.last.pod_seconds - 1):+.1f} %"
        if best.last.risk > self.present.last.risk * _SLACK or best.last.pod_seconds >= self.present.last.pod_seconds:
            return f"Keep the present values: the best plan ({saved}) does not hold in the last third of the history."
        values = ", ".join(f"{name} {text}" for name, text in best.values().items())
        return f"Set {values}: {saved}; in the last third of the history, which was not used to choose, {last}."


def sweep(result: Result) -> Sweep:
    """Try up to 24 plans for the policy of a comparison. Raises FaultyDocument for a policy without watermarks."""
    service = result.service
    policy = service.policy
    if policy.strategy is not Strategy.WATERMARK:
        advice = f"tries watermarks, and policy {policy.name} has strategy {policy.strategy}; leave out --sweep"
        raise FaultyDocument([Fault("--sweep", None, advice)], TITLE)
    history = result.history
    cut = result.begin + (result.end - result.begin) * 2 / 3
    first = [stretch for stretch in history if stretch.at < cut]
    last = [stretch for stretch in history if stretch.at >= cut]
    judge = Judge(service, first)

    def played(tried: Policy, by: Judge) -> Summary:
        return by.play(PolicyAutoscaler(tried, service.hpa, totals=service.totals)).summary

    present = Plan(policy=policy, first=played(policy, judge))
    plans = [Plan(policy=tried, first=played(tried, judge)) for tried in _policies(policy)]
    safe = [plan for plan in plans if plan.first.risk <= present.first.risk * _SLACK]
    safe.sort(key=lambda plan: plan.first.pod_seconds)
    safe = safe[:_SHOWN]
    if last:
        check = Judge(service, last)
        present, *safe = (replace(plan, last=played(plan.policy, check)) for plan in (present, *safe))
    return Sweep(present=present, plans=safe, tried=len(plans))


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


def _text(metric: Metric, mark: Fraction | None) -> str:
    if mark is None:
        return ""
    return nano_text(mark) if metric.relative_to is None else percent_text(mark / 10**9)


def lines(found: Sweep) -> Iterator[str]:
    """The sweep as text."""
    yield f"SWEEP: {found.tried} plans on the first two thirds of the history; those with at most the present risk:"
    head = ["PLAN", *found.present.values(), "POD-HOURS", "RISK", "LAST THIRD", "RISK"]
    rows = [("present", found.present), *((f"{number}", plan) for number, plan in enumerate(found.plans, 1))]
    yield from aligned([head, *([name, *plan.values().values(), *_figures(plan)] for name, plan in rows)])
    yield found.advice


def _figures(plan: Plan) -> list[str]:
    figures = []
    for summary in (plan.first, plan.last):
        figures += ["", ""] if summary is None else [f"{summary.pod_hours:.1f}", f"{100 * summary.risk:.3f} %"]
    return figures


def data(found: Sweep) -> dict[str, Any]:
    """The sweep as JSON data; `risk` is the shortfall, or the share of the time over the high watermark."""

    def of(plan: Plan) -> dict[str, Any]:
        parts = {"firstTwoThirds": plan.first, "lastThird": plan.last}
        return {"values": plan.values()} | {
            name: {"podHours": round(one.pod_hours, 3), "risk": one.risk} for name, one in parts.items() if one
        }

    return {"advice": found.advice, "present": of(found.present), "plans": [of(plan) for plan in found.plans]}
