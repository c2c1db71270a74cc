"""An explained decision as plain values, lines and data: bands, pods, freshness, and what the HPA will do with it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from adapter.commands.decide.decision import decided, decision_json
from adapter.commands.decide.reader import DecisionCase
from adapter.commands.explain.reading import Explained
from adapter.hpa.behavior import DEFAULT_DOWN, DEFAULT_UP, Rules, rules
from adapter.hpa.controller import Controller, Flags
from adapter.hpa.go_numbers import milli
from adapter.kube.objects import Condition
from adapter.load.assessment import Assessment, Decision, Verdict
from adapter.load.explanation import explain, is_utilization, value_text
from adapter.load.explanation import headline as decision_headline
from adapter.load.pod_samples import source_name
from adapter.load.pods import PodAssessment, PodState
from adapter.load.quantity import milli_text, parse_nano, percent_text
from adapter.load.samples import QuerySamples, ResourceSamples
from adapter.load.spec import Policy
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.hpa import Hpa
from adapter.runtime.times import format_time, parse_time

_DOWN_WINDOW = 300
"""The controller's own window for scaling down, in seconds, where an HPA sets none."""
_LIMITS = {
    "ScaleUpLimit": "its behavior.scaleUp allows no more at once",
    "ScaleDownLimit": "its behavior.scaleDown allows no fewer at once",
    "TooManyReplicas": "maxReplicas allows no more",
    "TooFewReplicas": "minReplicas allows no fewer",
}

_MILLI = 10**6
COUNTED = (PodState.SERVING, PodState.DOUBTFUL)


def headline(explained: Explained, made: tuple[Assessment, Decision] | None) -> str:
    """What was served, in one sentence."""
    if made is None:
        return f"HPAs get an error: {explained.refusal}" if explained.refusal else "the server's decision is not known"
    assessment, decision = made
    served = "" if decision.served is None else f", served as {milli_text(decision.served)}"
    return f"{decision_headline(assessment, decision)}{served}"


def differences(explained: Explained, decision: Decision) -> tuple[str, ...]:
    """What the server decided, where this command decides otherwise on the same document; empty where they agree."""
    served = explained.served
    if served is None:
        return ()
    value = None if decision.served is None else milli_text(decision.served)
    if (served.desired_replicas, served.served, served.error) == (decision.desired, value, decision.error):
        return ()
    said = served.error or f"{served.desired_replicas}, served as {served.served}"
    return (
        f"the server (version {explained.server_version}) decided: {said}",
        "this command is of another version; use that of the server's image for its sentences",
    )


def lines(explained: Explained) -> Iterator[str]:
    """The page in plain lines."""
    made = decided(explained.case) if explained.case is not None else None
    yield f"WatermarkPolicy {explained.namespace}/{explained.name}: {headline(explained, made)}"
    yield from explained.trouble
    if explained.case is not None and made is not None:
        yield from differences(explained, made[1])
        yield from explain(*made, explained.case.inputs.bounds, explained.case.now)
        for row in input_rows(explained, made[0]):
            yield ", ".join(filter(None, (f"input {row.name}: {row.age}", row.counts, row.trouble)))
    else:
        yield from (f"status: {condition_text(condition)}" for condition in explained.conditions)
    yield from (f"HPA: {line}" for line in explained.hpa_trouble)
    if explained.hpa is not None:
        yield from (f"HPA {explained.hpa.name} will: {line}" for line in will_do(explained))
        yield from (f"HPA {explained.hpa.name} last: {line}" for line in did_last(explained))


def data(explained: Explained) -> dict[str, Any]:
    """The page as JSON data; `decision` has the form of `decide -o json`."""
    case, served, hpa, status = explained.case, explained.served, explained.hpa, explained.hpa_status
    made = decided(case) if case is not None else None
    rows = list(input_rows(explained, made[0])) if made is not None else []
    last_scale = parse_time(status.last_scale_time)
    conditions = [
        {key: getattr(one, key) for key in ("type", "status", "reason", "message")} for one in status.conditions
    ]
    return {
        "policy": f"{explained.namespace}/{explained.name}",
        "at": format_time(explained.at),
        "served": None if served is None else served.served,
        "error": explained.refusal or (served.error if served is not None else None),
        "serverVersion": explained.server_version or None,
        "decision": None if case is None else decision_json(case),
        "inputs": [asdict(row) for row in rows],
        "trouble": [*explained.trouble, *explained.hpa_trouble],
        "hpa": None
        if hpa is None
        else {
            "name": hpa.name,
            "currentReplicas": status.current_replicas,
            "desiredReplicas": status.desired_replicas,
            "lastScaleTime": None if last_scale is None else format_time(last_scale),
            "willDo": list(will_do(explained)),
            "conditions": conditions,
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBand:
    """A metric's place to be drawn: values in nano-units, texts for people. `usage` and `raw` are None if unknown."""

    name: str
    low: Fraction | None
    high: Fraction | None
    target: Fraction | None
    usage: Fraction | None
    raw: Fraction | None
    verdict: str
    is_percent: bool
    error: str = ""

    def text(self, value: Fraction | None) -> str:
        """A value for people."""
        return "–" if value is None else value_text(value, as_percent=self.is_percent)


def bands(policy: Policy, assessment: Assessment, decision: Decision) -> Iterator[DrawnBand]:
    """The band of each metric but floors."""
    outcomes = {outcome.metric.name: outcome for outcome in decision.outcomes}
    for metric in assessment.metrics:
        if metric.floor:
            continue
        outcome = outcomes.get(metric.name)
        yield DrawnBand(
            name=metric.name,
            low=metric.low,
            high=metric.high,
            target=metric.target,
            usage=metric.usage,
            raw=metric.raw,
            verdict=(outcome.verdict if outcome is not None else Verdict.ERROR).value,
            is_percent=is_utilization(policy, metric.name),
            error=metric.error or "",
        )


def usage_text(policy: Policy, pod: PodAssessment, metric: str) -> str:
    """A pod's usage of a metric, or why it is missing."""
    value, as_percent = pod.usage.get(metric), is_utilization(policy, metric)
    if value is None:
        return pod.missing.get(metric, "")
    if as_percent or value < _MILLI:
        return value_text(value, as_percent=as_percent)
    return milli_text(value // _MILLI)  # rounded down to milli-units; sentences are more exact


@dataclass(frozen=True, slots=True)
class InputRow:
    """An input of the decision: how old it is, until when it counts, and what is wrong with it (empty: nothing)."""

    name: str
    age: str
    counts: str
    trouble: str = ""


def input_rows(explained: Explained, assessment: Assessment) -> Iterator[InputRow]:
    """The freshness of each input of the decision."""
    case = explained.case
    if case is None:
        return
    inputs, now = case.inputs, case.now
    yield InputRow("policy, HPA, pods (watches)", f"assessed {age_text(now - inputs.now)} ago", "until they change")
    yield InputRow("replica count", "read at the request", "")
    stale_at = {metric.name: metric.stale_at for metric in assessment.metrics}
    if any(metric.resource for metric in inputs.policy.metrics):
        stale = [stale_at.get(metric.name) for metric in inputs.policy.metrics if metric.query is None]
        yield _source_row("metrics.k8s.io", inputs.samples.resources, stale, now)
    for metric in inputs.policy.metrics:
        samples = inputs.samples.queries.get(metric.name)
        if metric.query is not None and samples is not None:
            yield _source_row(f"{source_name(metric)} ({metric.name})", samples, [stale_at.get(metric.name)], now)
    registry, roster = inputs.policy.registry, inputs.roster
    if registry is not None and roster is None:
        yield InputRow(f"registry {registry.name}", "never answered", "", "no roster of the service yet")
    elif registry is not None and roster is not None:
        age, listed = f"answered {age_text(now - roster.at)} ago", f"{len(roster.instances)} instances"
        yield InputRow(f"registry {registry.name}", age, listed, roster.error or "")


def _source_row(name: str, samples: ResourceSamples | QuerySamples, stale: list[float | None], now: float) -> InputRow:
    answered, oldest = samples.fetched_at, min((at for at in stale if at is not None), default=None)
    age = "never answered" if answered is None else f"answered {age_text(now - answered)} ago"
    left = "no sample counts" if oldest is None else f"the oldest sample counts {age_text(oldest - now)} more"
    return InputRow(name, age, left, samples.error or "")


def will_do(explained: Explained) -> Iterator[str]:
    """What the HPA will do with the served value, its rules included; nothing where the HPA is not known."""
    hpa, case, served = explained.hpa, explained.case, explained.served
    if hpa is None:
        return
    up, down = rules(hpa.scale_up, DEFAULT_UP, 0), rules(hpa.scale_down, DEFAULT_DOWN, _DOWN_WINDOW)
    if case is not None:
        if served is not None and hpa.asks_for(case.inputs.policy.name):
            yield _next_sync(hpa, case, served.served, up, down)
        yield from (flaw.message for flaw in flaws(Wiring(policy=case.inputs.policy, hpa=hpa)))
        if (tolerance := case.inputs.bounds.tolerance) is None:
            yield "tolerance: 0, so it sets every count exactly"
        else:
            ignored = f"{percent_text(tolerance.up)} up and {percent_text(tolerance.down)} down"
            yield f"tolerance: it ignores changes of up to {ignored}; set tolerance 0 in both directions"
    yield f"bounds: {hpa.bounds.minimum} to {hpa.bounds.maximum}"
    yield f"scaleUp: {_pace_text(hpa, up)}"
    yield f"scaleDown: {_pace_text(hpa, down)}"


def _next_sync(hpa: Hpa, case: DecisionCase, served: str | None, up: Rules, down: Rules) -> str:
    """The next sync by the model, as if the HPA had recommended nothing else within its windows."""
    policy, bounds, scale = case.inputs.policy, case.inputs.bounds, case.scale
    if served is None:
        return f"it keeps {scale.replicas}: the metric has an error instead of a value"
    metrics = [metric for metric in hpa.desired_metrics if metric.names(policy.name) or metric.describes(hpa.target)]
    tolerances = (bounds.tolerance.up, bounds.tolerance.down) if bounds.tolerance is not None else (Fraction(0),) * 2
    bare = replace(
        hpa,
        metrics=tuple(metrics[:1]),
        bounds=bounds,
        scale_up=replace(hpa.scale_up, tolerance=tolerances[0], stabilization=0),
        scale_down=replace(hpa.scale_down, tolerance=tolerances[1], stabilization=0),
    )
    values = [(milli(parse_nano(served)),)]
    sync = Controller(bare, Flags(down_window=0)).sync(case.now, scale.replicas, values, (), scale.status_replicas)
    count, wanted = sync.replicas, sync.recommendation
    if wanted is None or wanted == count == scale.replicas:
        return f"it keeps {count}"
    if wanted != count:
        why = _LIMITS.get(sync.limit, "")
        return f"it wants {wanted} and sets {count} (now {scale.replicas}){': ' if why else ''}{why}"
    window, side = (up.window, "fewer") if count > scale.replicas else (down.window, "more")
    when = f"once nothing {side} was recommended for {window} s (stabilizationWindowSeconds)"
    when = when if window else "at its next sync, at most 15 s from now by default"
    return f"it sets {count} (now {scale.replicas}) {when}"


def _pace_text(hpa: Hpa, pace: Rules) -> str:
    if not hpa.has_behavior:
        return f"no behavior is set; scale-down waits {_DOWN_WINDOW} s, scale-up at most doubles (or goes to 4)"
    if pace.select == "Disabled":
        return "disabled"
    changes = [
        f"{policy.value} {'%' if policy.kind == 'Percent' else 'pods'} in {policy.period} s" for policy in pace.policies
    ]
    which = "" if len(changes) < 2 else " (the smaller)" if pace.select == "Min" else " (the larger)"
    return f"window {pace.window} s, at most {' or '.join(changes)}{which}"


def did_last(explained: Explained) -> Iterator[str]:
    """What the HPA's status says: counts, the last scaling, conditions."""
    status, last_scale = explained.hpa_status, parse_time(explained.hpa_status.last_scale_time)
    counts = (status.current_replicas, status.desired_replicas)
    current, desired = ("unknown" if count is None else count for count in counts)
    yield f"current {current}, desired {desired}"
    yield "it has never scaled" if last_scale is None else f"it last scaled {age_text(explained.at - last_scale)} ago"
    yield from map(condition_text, status.conditions)


def condition_text(condition: Condition) -> str:
    """A condition of a policy or an HPA."""
    return f"{condition.type} {condition.status} ({condition.reason}): {condition.message}"


def age_text(seconds: float) -> str:
    """A time span for people: 12 s, 3 min, 5 h, 2 d; never negative."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
