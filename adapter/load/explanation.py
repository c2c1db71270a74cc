"""A decision as sentences, in the order of its stages; and errors of metrics, with equal ones told once."""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from math import floor

from adapter.load.assessment import Assessment, Decision, HeldBy, MetricAssessment, Outcome, Scenario, Verdict
from adapter.load.floor import load_of_one_pod
from adapter.load.pod_samples import source_name
from adapter.load.pods import GONE, PodState
from adapter.load.quantity import milli_text, nano_text, percent_text
from adapter.load.remembering import last_scaled
from adapter.load.samples import time_text
from adapter.load.schedule import limits_at
from adapter.load.spec import Average, Bounds, Delay, Mode, Policy, Strategy

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


def swallowed_step(decision: Decision, bounds: Bounds) -> str:
    """A sentence about the step that the HPA's tolerance suppresses; empty where it suppresses none."""
    if not decision.swallowed or bounds.tolerance is None:
        return ""
    tolerance = bounds.tolerance.up if decision.swallowed > 0 else bounds.tolerance.down
    return (
        f"the HPA's tolerance of {percent_text(tolerance)} swallows the step from {decision.current} to "
        f"{decision.current + decision.swallowed}"
    )


def _usage(outcome: Outcome, policy: Policy) -> str:
    metric, scenario = outcome.metric, outcome.scenario
    if metric.floor:
        one_pod = value_text(load_of_one_pod(metric))
        return f"{metric.name}: a floor for {value_text(metric.total_value or 0)} at {one_pod} a pod"
    if scenario.usage is None and scenario.verdict is not Verdict.ERROR:
        return f"{metric.name}: {value_text(metric.total_value or 0)} for the whole service, and no pod"
    if scenario.usage is None:
        return f"{metric.name}: no pod that surely serves can be compared"
    as_text = partial(value_text, as_percent=is_utilization(policy, metric.name))
    pods = _many(scenario.n, "pod")
    verb_ending = "s" if scenario.n == 1 else ""
    how = f"{pods} use{verb_ending} {as_text(scenario.usage)} on average"
    if policy.average is Average.TOTAL:
        how = f"{pods} use{verb_ending} {as_text(scenario.usage)} in total"
    elif metric.total and scenario.n == 1:
        how = f"1 pod carries all of {as_text(metric.total_value or 0)}"
    elif metric.total:
        how = f"{pods} share {as_text(metric.total_value or 0)}, {as_text(scenario.usage)} each"
    if scenario.saturation is not None:
        share = value_text(floor(scenario.saturation * 10**9), as_percent=True)
        return f"{metric.name}: {how}, and {share} of their limit: the load is more than it shows"
    if scenario.is_doubted_zero:
        return f"{metric.name}: {how}, which is not believed: load of exactly 0 holds the count (tolerateZero: true)"
    one_of_them = "" if scenario.extreme is None or scenario.n == 1 else f", one of them {as_text(scenario.extreme)}"
    return f"{metric.name}: {how}{one_of_them}, {_stand(metric, scenario.verdict, policy.tolerance, as_text)}"


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
    metric, scenario = outcome.metric, outcome.scenario
    if scenario.shrink is not None:
        return f"{metric.name} proposes {outcome.proposal}{_why_stepped(outcome, decision, policy)}"
    if scenario.needed is None:
        return f"{metric.name} proposes {outcome.proposal}{_why_held(outcome, policy)}"
    if metric.floor:
        return f"{metric.name} proposes at least {outcome.proposal} (now {decision.current})"
    text = f"{metric.name} needs {_many(scenario.needed, 'serving pod')}"
    if scenario.verdict is Verdict.ABOVE:
        text += f" ({policy.step.up} of them by stepUp)" if policy.strategy is Strategy.STEP else ""
        text += f", {outcome.replaced} more replace pulled-out ones" if outcome.replaced else ""
    elif scenario.out:
        text += f", {scenario.out} pulled-out or doubtful ones are kept in the count"
    if policy.multiple_of > 1:
        text += f", rounded up to a multiple of {policy.multiple_of}"
    doubt = " with the doubtful pods seen the way that asks for most" if outcome.held_by is HeldBy.DOUBT else ""
    return f"{text}: proposes {outcome.proposal} (now {decision.current}){doubt}"


def _why_stepped(outcome: Outcome, decision: Decision, policy: Policy) -> str:
    current, scenario, metric = decision.current, outcome.scenario, outcome.metric
    if outcome.proposal < current:
        return f" (now {current}): {_many(current - outcome.proposal, 'pod')} fewer (stepDown {policy.step.down})"
    if outcome.held_by is HeldBy.DEPARTED:
        return _why_departed(scenario)
    if current <= max(1, policy.step.min_pods):
        return f" (minPods {policy.step.min_pods})"
    limit = "" if metric.high is None else value_text(metric.high, as_percent=is_utilization(policy, metric.name))
    return f" ({_many(policy.step.down, 'pod')} fewer would leave the others above {limit})"


def _why_departed(scenario: Scenario) -> str:
    if not scenario.departed:
        return (
            " (the count changed since these samples began, or this process has followed the pods for too short a time)"
        )
    left = f"{_many(scenario.departed, 'pod')} left or went out since these samples began"
    return f" ({left}, whose load the others have now)"


def _why_held(outcome: Outcome, policy: Policy) -> str:
    scenario = outcome.scenario
    gaps = [f"{_many(scenario.missing, 'pod')} without a fresh sample"] * bool(scenario.missing)
    gaps += [f"{_many(scenario.young, 'pod')} that may serve soon"] * bool(scenario.young)
    gaps += [_partial(outcome.metric, scenario.partial)] * bool(scenario.partial)
    match scenario.held:
        case HeldBy.MISSING:
            return f" ({' and '.join(gaps)})"
        case HeldBy.DELAY:
            metric, verdict, lasted = outcome.metric, scenario.verdict, 0.0
            delay = next((candidate.delay for candidate in policy.metrics if candidate.name == metric.name), Delay())
            seconds, side = (delay.up, "above the high") if verdict is Verdict.ABOVE else (delay.down, "below the low")
            beyond = metric.beyond
            if beyond is not None and metric.sampled_at is not None and beyond.verdict.value == verdict.value:
                lasted = max(0.0, metric.sampled_at - beyond.since)
            return f" (its samples must be {side} watermark for {seconds:g} s, and have been for {floor(lasted)} s)"
        case HeldBy.DEPARTED:
            return _why_departed(scenario)
        case _:
            return ""


def _partial(metric: MetricAssessment, pods: int) -> str:
    """What keeps samples over a window from shrinking anything."""
    if metric.total or pods == 1:
        whose = "its window" if metric.window else "it"
        return f"{'' if metric.total else '1 pod with a partial sample: '}{whose} {metric.fullness}"
    return f"{pods} pods with partial samples: the emptiest window {metric.fullness}"


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
        HeldBy.HPA_TOLERANCE: swallowed_step(decision, bounds),
        HeldBy.FAST_SCALE_UP: "the count rose after the samples were taken, or just before: with fastScaleUp it falls "
        "on newer ones only",
    }
    return sentences.get(decision.held_by, "") if decision.held_by is not None else ""


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def is_utilization(policy: Policy, metric: str) -> bool:
    """Whether the metric of this name is a share of limits or requests, which is shown in percent."""
    return any(candidate.of is not None for candidate in policy.metrics if candidate.name == metric)


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
    """Subject and predicate for each metric that has an answer, but lacks samples that some pods should have by now.

    A gap that is counted is none: its bound stands for what it lacks, and one missed scrape is no trouble.
    """
    for metric in metrics:
        if metric.overdue and not metric.error:
            yield f"metric {metric.name}", f": {_many(metric.overdue, 'pod')} without a fresh sample"
        if metric.overdue_partial and not metric.error:
            yield f"metric {metric.name}", f": {_partial(metric, metric.overdue_partial)}"
