"""A decision as sentences, in the order of its stages; and errors of metrics, with equal ones told once."""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from math import floor

from adapter.load.assessment import Assessment, Decision, HeldBy, MetricAssessment, Outcome, Verdict
from adapter.load.memory import last_scaled
from adapter.load.pod_samples import source_name
from adapter.load.pods import GONE, PodState
from adapter.load.quantity import milli_text, nano_text, percent_text
from adapter.load.samples import time_text
from adapter.load.schedule import limits_at
from adapter.load.spec import Algorithm, Bounds, Delay, Mode, Policy, Strategy

_NAMED_AT_MOST = 20
_SHOWN_IN_MILLI = 100 * 10**6
"""Values from here on (nano-units) are rounded to milli-units."""
_DIGITS = 4
"""The digits that are shown of smaller ones."""
_TENTH_OF_A_PERCENT = 10**6
_FINEST_PERCENT = 7
"""The decimals of a percentage that express a nano-unit of a ratio."""
_PLAIN = GONE | {PodState.SERVING}


def explain(assessment: Assessment, decision: Decision, bounds: Bounds, now: float) -> tuple[str, ...]:
    """One sentence for each stage that led to the count. `now` is the time of the decision (seconds)."""
    stages = stage_sentences(assessment, decision, bounds, now)
    counted = ", ".join(f"{count} {state.value}" for state, count in sorted(assessment.counts.items()) if count)
    pods = [f"{assessment.target} has {len(assessment.pods)} pods: {counted or 'none'}"]
    notable = [assessed for assessed in assessment.pods if assessed.state not in _PLAIN]
    for assessed in notable[:_NAMED_AT_MOST]:
        evidence = f" ({assessed.evidence})" if assessed.evidence else ""
        pods.append(f"{assessed.pod.name} is {assessed.state.value}: {assessed.reason}{evidence}")
    if len(notable) > _NAMED_AT_MOST:
        pods.append(f"… and {len(notable) - _NAMED_AT_MOST} more pods that do not plainly serve")
    return (*(sentence for sentence in pods if sentence not in stages[-1]), *stages)


def stage_sentences(assessment: Assessment, decision: Decision, bounds: Bounds, now: float) -> tuple[str, ...]:
    """As `explain`, without the sentences on the pods; the last one is the result."""
    result = tuple(_result(assessment, decision, bounds, now))
    before = [*assessment.conditions.values()]
    # The condition InputsFresh or the last sentence has the error of a metric without an answer.
    for outcome in decision.outcomes:
        metric, also = outcome.metric, ""
        if not metric.floor and metric.raw is not None and metric.raw != metric.usage:
            raw = value_text(metric.raw, as_percent=is_utilization(assessment.policy, metric.name))
            also = f"; over all running pods it would be {raw}"
        before += [f"{_usage(outcome, assessment.policy)}{also}", _proposal(outcome, decision, assessment.policy)]
    return (*(sentence for sentence in before if sentence not in result[-1]), *result)


def headline(assessment: Assessment, decision: Decision) -> str:
    """The decision in one sentence."""
    if decision.error is not None:
        return f"no decision: {decision.error}"
    if decision.desired == decision.current:
        return f"holds {decision.current}: {decision_reason(assessment, decision)}"
    return f"asks for {decision.desired}, now {decision.current}: {decision_reason(assessment, decision)}"


def decision_reason(assessment: Assessment, decision: Decision) -> str:
    """The reason for the count, without the count; empty where nothing is decided."""
    if decision.error is not None:
        return ""
    metrics = _usage(decision.outcome, assessment.policy) if decision.outcome else "no metric has an answer"
    return metrics if decision.held_by is None else f"{metrics} (held by {decision.held_by.value})"


def suppressed_step(decision: Decision, bounds: Bounds) -> str:
    """A sentence about the step that the HPA's tolerance suppresses; empty where it suppresses none."""
    if not decision.suppressed or bounds.tolerance is None:
        return ""
    tolerance = bounds.tolerance.up if decision.suppressed > 0 else bounds.tolerance.down
    return (
        f"the HPA's tolerance of {percent_text(tolerance)} suppresses the step from {decision.current} to "
        f"{decision.current + decision.suppressed}"
    )


def range_text(lower: int | None, upper: int | None) -> str:
    """The range of counts that the load allows, for people."""
    if lower is None and upper is None:
        return "any count"
    if upper is None:
        return f"at least {lower}"
    return f"at most {upper}" if lower is None else f"{lower} to {upper}"


def _usage(outcome: Outcome, policy: Policy) -> str:
    metric, reading = outcome.metric, outcome.reading
    as_text = partial(value_text, as_percent=is_utilization(policy, metric.name))
    if metric.floor:
        one_pod = value_text((metric.high if metric.target is None else metric.target) or 0)
        return f"{metric.name}: a floor for {value_text(metric.total_value or 0)} at {one_pod} a pod"
    usage = metric.usage if reading is None or reading.usage is None else reading.usage
    if usage is None:
        return f"{metric.name}: {value_text(metric.total_value or 0)} for the whole service, and no pod"
    n = metric.n if reading is None else reading.pods
    pods, verb_ending = _many(n, "pod"), "s" if n == 1 else ""
    how = f"{pods} use{verb_ending} {as_text(usage)} on average"
    if policy.algorithm is Algorithm.ABSOLUTE:
        how = f"{pods} use{verb_ending} {as_text(usage)} in total"
    elif metric.total and n == 1:
        how = f"1 pod carries all of {as_text(metric.total_value or 0)}"
    elif metric.total:
        how = f"{pods} share {as_text(metric.total_value or 0)}, {as_text(usage)} each"
    if reading is not None and reading.saturation is not None:
        share = value_text(floor(reading.saturation * 10**9), as_percent=True)
        return f"{metric.name}: {how}, and {share} of their limit: the load is more than it shows"
    if metric.is_ignored_zero:
        return f"{metric.name}: {how}; a load of exactly 0 is ignored and holds the count (acceptZeroUsage: true)"
    extreme = None if reading is None else reading.extreme
    one_of_them = "" if extreme is None or n == 1 else f", one of them {as_text(extreme)}"
    return f"{metric.name}: {how}{one_of_them}, {_stand(metric, outcome.verdict, policy.tolerance, as_text)}"


def _stand(
    metric: MetricAssessment, verdict: Verdict, tolerance: Fraction, as_text: Callable[[Fraction | int], str]
) -> str:
    high, low = ("" if limit is None else as_text(limit) for limit in (metric.high, metric.low))
    if metric.target is not None:
        target = as_text(metric.target)
        stands = {
            Verdict.ABOVE: f"above the target {target} (acts beyond {high})",
            Verdict.BELOW: f"below the target {target} (acts under {low})",
        }
        return stands.get(verdict, f"near the target {target} ({low} … {high})")
    beyond = "" if metric.high is None else f"beyond {as_text(metric.high * (1 + tolerance))}"
    under = "" if metric.low is None else f"under {as_text(metric.low * (1 - tolerance))}"
    if verdict is Verdict.ABOVE and beyond:
        return f"above the high watermark {high} (acts {beyond})"
    if verdict is Verdict.BELOW and under:
        return f"below the low watermark {low} (acts {under})"
    inside, acts = f"inside the band {low or '0'} … {high or 'any'}", " or ".join(filter(None, (under, beyond)))
    return f"{inside} (tolerance {percent_text(tolerance)}: acts {acts})" if tolerance else inside


def _proposal(outcome: Outcome, decision: Decision, policy: Policy) -> str:
    metric, reading, current = outcome.metric, outcome.reading, decision.current
    if metric.floor:
        return f"{metric.name} proposes at least {outcome.proposal} (now {current})"
    allowed = f"{metric.name} allows {range_text(outcome.lower_bound, outcome.upper_bound)}"
    parts = []
    if reading is not None and reading.needed is not None:
        parts.append(f"{_many(reading.needed, 'serving pod')} carry the known load at the high watermark")
        if policy.strategy is Strategy.STEP:
            parts.append(f"{policy.step.up} of them by step.up")
        if outcome.replaced:
            parts.append(f"{outcome.replaced} more replace pulled-out ones")
    if policy.replica_multiple > 1 and outcome.proposal != current:
        parts.append(f"rounded up to a multiple of {policy.replica_multiple}")
    if why := _why_held(outcome, decision, policy):
        parts.append(why)
    because = f" ({'; '.join(parts)})" if parts else ""
    return f"{allowed}{because}: proposes {outcome.proposal} (now {current})"


def _why_held(outcome: Outcome, decision: Decision, policy: Policy) -> str:
    """What kept a metric from moving the count further, as a clause; empty where nothing did."""
    metric = outcome.metric
    if outcome.held_by is HeldBy.MISSING:
        gaps = [f"{_many(metric.missing, 'pod')} without a fresh sample"] * bool(metric.missing)
        gaps += [f"{_many(metric.young, 'pod')} that may serve soon"] * bool(metric.young)
        gaps += [f"{_many(metric.partial, 'pod')} with a window that lacks samples"] * bool(metric.partial)
        return f"kept by {' and '.join(gaps) or 'what the samples do not tell of'}"
    if outcome.held_by is HeldBy.DELAY:
        delay = next((each.delay for each in policy.metrics if each.name == metric.name), Delay())
        is_up = outcome.verdict is Verdict.ABOVE
        seconds, side = (delay.up, "above the high") if is_up else (delay.down, "below the low")
        return f"its samples must be {side} watermark for {seconds:g} s"
    if outcome.held_by is None:
        return _why_stepped(outcome, decision, policy) if metric.upper.step is not None else ""
    return _WHY_HELD.get(outcome.held_by, "")


_WHY_HELD = {
    HeldBy.DOUBT: "doubtful pods may carry load",
    HeldBy.DEPARTED: "pods left, turned out or were added since these samples began, and others carry their load now",
    HeldBy.WARMING_UP: "these samples began before the adapter watched this service, or before the count rose",
    HeldBy.WINDOWS: "the windows of the query are filling or draining",
}


def _why_stepped(outcome: Outcome, decision: Decision, policy: Policy) -> str:
    """Why strategy Step takes a step down, or none."""
    if outcome.proposal < decision.current:
        return f"{_many(decision.current - outcome.proposal, 'pod')} fewer (step.down {policy.step.down})"
    if decision.current <= max(1, policy.step.min_pods):
        return f"step.minPods {policy.step.min_pods}"
    return f"{_many(policy.step.down, 'pod')} fewer would leave the others above the limit"


def _result(assessment: Assessment, decision: Decision, bounds: Bounds, now: float) -> Iterator[str]:
    if decision.desired is None or decision.served is None:
        yield f"nothing is decided: {decision.error}"
        return
    if decision.held_by is HeldBy.SCHEDULE:
        limits = limits_at(assessment.windows, now)
        if limits.floor is not None:
            yield f"schedule {limits.floor_of} keeps at least {limits.floor}"
        if limits.cap is not None:
            yield f"schedule {limits.cap_of} keeps at most {limits.cap}"
    elif sentence := _held(assessment, decision, bounds, now):
        yield sentence
    yield f"asks for {decision.desired} (now {decision.current}), served as {milli_text(decision.served)}"


def _held(assessment: Assessment, decision: Decision, bounds: Bounds, now: float) -> str:
    """Why the last stage changed the count; empty where the sentences on metrics say it."""
    policy, cooldown, current = assessment.policy, assessment.policy.cooldown, decision.current
    percent = policy.velocity.up if (decision.desired or 0) > current else policy.velocity.down
    last = last_scaled(assessment.memory, bounds, now)
    ago = "" if last is None else f", and the count last changed {max(0.0, now - last):.0f} s ago"
    failing, rest = "a metric is in error: no scale-down", f"in mode {policy.mode.value}"
    if decision.verdict is Verdict.ERROR and policy.fallback is not None:
        failing = f"nothing could be decided for {policy.fallback.after:g} s: the fallback is {decision.desired}"
    if policy.mode is Mode.ACTIVE and policy.hold_until is not None:
        rest = f"held until {time_text(policy.hold_until)}"
    sentences = {
        HeldBy.MIN_SERVING: f"fewer than {policy.min_serving_percent} % of the pods serve: no scale-down",
        HeldBy.METRIC_ERROR: failing,
        HeldBy.VELOCITY: f"the policy's velocity allows {percent or 0} % of {current} at a time",
        HeldBy.COOLDOWN: f"the policy's cooldown is {cooldown.up:g} s up and {cooldown.down:g} s down{ago}",
        HeldBy.MODE: f"the policy is {rest}: the current count is kept",
        HeldBy.BOUNDS: f"the HPA allows {bounds.minimum} to {bounds.maximum}",
        HeldBy.HPA_TOLERANCE: suppressed_step(decision, bounds),
    }
    return sentences.get(decision.held_by, "") if decision.held_by is not None else ""


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def is_utilization(policy: Policy, metric: str) -> bool:
    """Whether the metric of this name is a share of limits or requests, which is shown in percent."""
    return any(candidate.relative_to is not None for candidate in policy.metrics if candidate.name == metric)


def value_text(nano: Fraction | int, *, as_percent: bool = False) -> str:
    """A value (nano-units) for people, to the nearest milli-unit; a small one with four digits (999980n is 1m).

    `as_percent`: as a percentage with at most one decimal (`83%`, `83.4%`), more for very small ones.
    """
    if as_percent:
        digits = 1 if nano >= _TENTH_OF_A_PERCENT else _FINEST_PERCENT
        whole, rest = divmod(floor(nano) // 10 ** (_FINEST_PERCENT - digits), 10**digits)
        return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".") + "%"
    if nano >= _SHOWN_IN_MILLI:
        return milli_text(round(Fraction(nano, 10**6)))
    return nano_text(round(Fraction(nano), _DIGITS - len(str(floor(nano)))))


_LAST_ANSWER = " (last answer "
"""Begins the time at the end of a source's error. It is ignored when errors are compared: times differ by a second."""


def metric_errors(policy: Policy, metrics: Iterable[MetricAssessment]) -> str:
    """The errors of the metrics in one sentence, a query as the subject of its own; empty where there is none."""
    clauses = []
    for name, error in ((metric.name, metric.error) for metric in metrics if metric.error):
        spec = next((metric for metric in policy.metrics if metric.name == name), None)
        source, subject, predicate = source_name(spec) if spec and spec.query else "", f"metric {name}", f": {error}"
        if source and error.startswith((f"{source}: ", f"{source} ")):
            subject = source if source == f"query {name}" else f"{subject}: {source}"
            predicate = error.removeprefix(source)
        clauses.append((subject, predicate))
    return join_clauses(clauses)


def join_clauses(clauses: Iterable[tuple[str, str]]) -> str:
    """Join subjects and predicates (`: …` or ` has …`) to one sentence; subjects of an equal predicate share it."""
    joined: dict[str, tuple[list[str], str]] = {}
    for subject, predicate in clauses:
        subjects, _ = joined.setdefault(predicate.partition(_LAST_ANSWER)[0], ([], predicate))
        subjects.append(subject)
    return "; ".join(f"{', '.join(subjects)}{predicate}" for subjects, predicate in joined.values())


def incomplete_metrics(metrics: Iterable[MetricAssessment]) -> Iterator[tuple[str, str]]:
    """Subject and predicate for each metric that has an answer, but lacks samples that some pods should have by now."""
    for metric in metrics:
        if metric.overdue and not metric.error:
            yield f"metric {metric.name}", f": {_many(metric.overdue, 'pod')} without a fresh sample"
