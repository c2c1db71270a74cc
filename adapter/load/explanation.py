"""Sentences: a decision in the order of its stages, what an assessment finds beside it, and errors told once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import floor

from adapter.load.assessment import Assessment, AssessmentInputs, Decision, HeldBy, MetricAssessment, Outcome, Verdict
from adapter.load.memory import last_scaled
from adapter.load.pod_samples import Sizes, source_name
from adapter.load.pods import GONE, PodState
from adapter.load.quantity import NANO, milli_text, nano_text, percent_text
from adapter.load.samples import time_text
from adapter.load.schedule import limits_at
from adapter.load.spec import Algorithm, Bounds, Metric, Mode, Policy, Strategy
from adapter.load.states import ABSENCE_TRUSTED_SECONDS, PodGroups, service_registry

_NAMED_AT_MOST = 20
_PLAIN = GONE | {PodState.SERVING}


def explain(assessment: Assessment, decision: Decision, bounds: Bounds, now: float) -> tuple[str, ...]:
    """One sentence for each stage that led to the count. `now` is the time of the decision (seconds)."""
    result = tuple(_result(assessment, decision, bounds, now))
    counted = ", ".join(f"{count} {state.value}" for state, count in sorted(assessment.counts.items()) if count)
    pods = f"{_many(len(assessment.pods), 'pod')}: {counted}" if counted else "no pods"
    before, notable = [f"{assessment.target} has {pods}"], [one for one in assessment.pods if one.state not in _PLAIN]
    for assessed in notable[:_NAMED_AT_MOST]:
        evidence = f" ({assessed.evidence})" if assessed.evidence else ""
        before.append(f"{assessed.pod.name} is {assessed.state.value}: {assessed.reason}{evidence}")
    if len(notable) > _NAMED_AT_MOST:
        before.append(f"… and {len(notable) - _NAMED_AT_MOST} more pods that do not plainly serve")
    before += assessment.conditions.values()
    # The condition InputsFresh or the last sentence has the error of a metric without an answer.
    for outcome in decision.outcomes:
        metric, sentence = outcome.metric, _usage(outcome, assessment.policy)
        if not metric.floor and metric.raw is not None and metric.raw != metric.usage:
            raw = value_text(metric.raw, as_percent=metric.metric.relative_to is not None)
            sentence += f"; over all running pods it would be {raw}"
        before += [sentence, _proposal(outcome, assessment, decision.current)]
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
    if fallback := _fallback(assessment, decision):
        return fallback
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
    if upper is None or (lower is not None and lower > upper):  # up beats down
        return f"at least {lower}"
    return f"at most {upper}" if lower is None else f"{lower} to {upper}"


def _usage(outcome: Outcome, policy: Policy) -> str:
    """The usage that decided, and where it stands, as a sentence."""
    metric, reading = outcome.metric, outcome.reading
    as_text = partial(value_text, as_percent=metric.metric.relative_to is not None)
    total = (metric.total and metric.total.value) or 0
    if metric.floor:
        return f"{metric.name}: a floor for {value_text(total)} at {value_text(metric.high or 0)} a pod"
    usage = metric.usage if reading is None or reading.usage is None else reading.usage
    if usage is None:
        return f"{metric.name}: {value_text(total)} for the whole service, and no pod"
    n = metric.n if reading is None else reading.pods
    how = f"{_many(n, 'pod')} use{'s' if n == 1 else ''} {as_text(usage)} on average"
    if policy.algorithm is Algorithm.ABSOLUTE:
        how = how.replace("on average", "in total")
    elif metric.total is not None:
        how = f"{_many(n, 'pod')} share{'s' * (n == 1)} {as_text(total)}, {as_text(usage)} each"
    if reading is not None and reading.saturation is not None:
        share = value_text(floor(reading.saturation * 10**9), as_percent=True)
        return f"{metric.name}: {how}, and {share} of their limit: the load is more than it shows"
    if metric.is_ignored_zero:
        return f"{metric.name}: {how}; a load of exactly 0 is ignored and holds the count (acceptZeroUsage: true)"
    if reading is not None and reading.extreme is not None and n > 1:
        how += f", one of them {as_text(reading.extreme)}"
    return f"{metric.name}: {how}, {_stand(metric, outcome.verdict, policy)}"


def _stand(metric: MetricAssessment, verdict: Verdict, policy: Policy) -> str:
    """Where the usage stands, and from where on the metric acts."""
    marks = (metric.metric.target, metric.high, metric.low, *policy.edges_of(metric.metric))
    is_share = metric.metric.relative_to is not None
    target, high, low, beyond, under = ("" if mark is None else value_text(mark, as_percent=is_share) for mark in marks)
    if verdict is Verdict.ABOVE and beyond:
        return f"above the {f'target {target}' if target else f'high watermark {high}'} (acts beyond {beyond})"
    if verdict is Verdict.BELOW and under:
        return f"below the {f'target {target}' if target else f'low watermark {low}'} (acts under {under})"
    if target:
        return f"near the target {target} ({low} … {high})"
    acts = " or ".join([f"under {under}"] * bool(under) + [f"beyond {beyond}"] * bool(beyond))
    inside = f"inside the band {low or '0'} … {high or 'any'}"
    return f"{inside} (tolerance {percent_text(policy.tolerance)}: acts {acts})" if policy.tolerance else inside


def _proposal(outcome: Outcome, assessment: Assessment, current: int) -> str:
    """The range of counts that a metric allows, and what it proposes."""
    metric, reading, policy = outcome.metric, outcome.reading, assessment.policy
    if metric.floor:
        return f"{metric.name} proposes at least {outcome.proposal} (now {current})"
    parts = []
    if reading is not None and reading.needed is not None:
        mark = "high watermark" if metric.metric.target is None else "target"
        parts.append(f"{_many(reading.needed, 'serving pod')} carry the known load at the {mark}")
        if policy.strategy is Strategy.STEP:
            parts.append(f"{policy.step.up} of them by step.up")
        if outcome.replaced:
            parts.append(f"{outcome.replaced} more replace pulled-out ones")
    if policy.replica_multiple > 1 and outcome.proposal != current:
        parts.append(f"rounded up to a multiple of {policy.replica_multiple}")
    because = "; ".join(filter(None, [*parts, _why_held(outcome, assessment, current)]))
    allowed = f"{metric.name} allows {range_text(outcome.lower_bound, outcome.upper_bound)}"
    return f"{allowed}{f' ({because})' * bool(because)}: proposes {outcome.proposal} (now {current})"


_WHY_HELD: dict[HeldBy | None, str] = {
    HeldBy.DOUBT: "doubtful pods may carry load",
    HeldBy.DEPARTED: "pods left, turned out or were added since these samples began, and others carry their load now",
    HeldBy.WARMING_UP: "these samples began before the adapter watched this service, or before the count rose",
    HeldBy.WINDOWS: "the windows of the query are filling or draining",
}


def _why_held(outcome: Outcome, assessment: Assessment, current: int) -> str:
    """What kept a metric from moving the count further, as a clause; empty where nothing did."""
    metric, step, why = outcome.metric, assessment.policy.step, _WHY_HELD.get(outcome.held_by, "")
    if outcome.held_by is HeldBy.MISSING:
        gaps = [f"{_many(metric.missing, 'pod')} without a fresh sample"] * bool(metric.missing)
        gaps += [f"{_many(assessment.young, 'pod')} that may serve soon"] * bool(assessment.young)
        gaps += [f"{_many(metric.lost, 'scrape target')} fewer than in the last hour"] * bool(metric.lost)
        gaps += ["windows that lack samples"] * (metric.is_partial and not metric.lost)
        why = f"kept by {' and '.join(gaps) or 'what the samples do not tell of'}"
    elif outcome.held_by is HeldBy.DELAY:
        delay, is_up = metric.metric.delay, outcome.verdict is Verdict.ABOVE
        why = f"its samples must be beyond the watermark for {delay.up if is_up else delay.down:g} s"
    elif outcome.held_by is None and outcome.lower_bound is None and metric.upper.spare is not None:
        why = f"{_many(step.down, 'pod')} fewer would leave the others above the limit"
        if outcome.proposal < current:
            why = f"{_many(current - outcome.proposal, 'pod')} fewer (step.down {step.down})"
        elif current <= max(1, step.min_pods):
            why = f"step.minPods {step.min_pods}"
    return why


def _result(assessment: Assessment, decision: Decision, bounds: Bounds, now: float) -> Iterator[str]:
    fallback, limits = assessment.policy.fallback, limits_at(assessment.windows, now)
    if decision.desired is None or decision.served is None:
        later = "" if fallback is None else f"; the fallback after {fallback.after:g} s is {fallback.replicas}"
        yield f"nothing is decided: {decision.error}{later}"
        return
    if decision.held_by is HeldBy.SCHEDULE and limits.floor is not None:
        yield f"schedule {limits.floor_of} keeps at least {limits.floor}"
    if decision.held_by is HeldBy.SCHEDULE and limits.cap is not None:
        yield f"schedule {limits.cap_of} keeps at most {limits.cap}"
    if sentence := _held(assessment, decision, bounds, now):
        yield sentence
    yield f"asks for {decision.desired} (now {decision.current}), served as {milli_text(decision.served)}"


def _held(assessment: Assessment, decision: Decision, bounds: Bounds, now: float) -> str:
    """Why the last stage changed the count; empty where other sentences say it."""
    policy, cooldown, current = assessment.policy, assessment.policy.cooldown, decision.current
    percent = policy.velocity.up if (decision.desired or 0) > current else policy.velocity.down
    last, by_hand = last_scaled(assessment.memory, bounds, now), current == 0 and decision.desired == 0
    ago = "" if last is None else f", and the count last changed {max(0.0, now - last):.0f} s ago"
    rest, allowed = f"in mode {policy.mode.value}", f"the HPA allows {bounds.minimum} to {bounds.maximum}"
    if policy.mode is Mode.ACTIVE and policy.hold_until is not None:
        rest = f"held until {time_text(policy.hold_until)}"
    if by_hand:
        allowed = f"0 by hand: an HPA with minReplicas {bounds.minimum} rests there until somebody scales it to 1"
    sentences: dict[HeldBy | None, str] = {
        HeldBy.MIN_SERVING: f"fewer than {policy.min_serving_percent} % of the pods serve: no scale-down",
        HeldBy.METRIC_ERROR: _fallback(assessment, decision) or "a metric is in error: no scale-down",
        HeldBy.VELOCITY: f"the policy's velocity allows {percent or 0} % of {current} at a time",
        HeldBy.COOLDOWN: f"the policy's cooldown is {cooldown.up:g} s up and {cooldown.down:g} s down{ago}",
        HeldBy.MODE: f"the policy is {rest}: the current count is kept",
        HeldBy.BOUNDS: allowed,
        HeldBy.HPA_TOLERANCE: suppressed_step(decision, bounds),
    }
    return sentences.get(decision.held_by, "")


def _fallback(assessment: Assessment, decision: Decision) -> str:
    """That the fallback is asked for; empty where it is not."""
    fallback = assessment.policy.fallback
    if fallback is None or decision.held_by is not HeldBy.METRIC_ERROR or decision.verdict is not Verdict.ERROR:
        return ""
    return f"nothing could be decided for {fallback.after:g} s: the fallback is {decision.desired}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def value_text(nano: Fraction | int, *, as_percent: bool = False) -> str:
    """A value (nano-units) for people, to the nearest milli-unit; a small one with four digits (999980n is 1m).

    `as_percent`: as a percentage with at most one decimal (`83%`, `83.4%`), more for very small ones.
    """
    if as_percent:
        digits = 1 if nano >= 10**6 else 7  # a nano-unit of a ratio is seven decimals of a percentage
        whole, rest = divmod(floor(nano) // 10 ** (7 - digits), 10**digits)
        return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".") + "%"
    if nano >= 100 * 10**6:
        return milli_text(round(Fraction(nano, 10**6)))
    return nano_text(round(Fraction(nano), 4 - len(str(floor(nano)))))


def value_texts(values: Mapping[str, Fraction | int], *, as_percent: bool = False) -> dict[str, str]:
    """Values of one metric in one unit: whole numbers in milli-units beside others in them (1000m, 720m)."""
    texts = {name: value_text(nano, as_percent=as_percent) for name, nano in values.items()}
    if any(text.endswith("m") for text in texts.values()):
        texts |= {name: f"{text}000m" for name, text in texts.items() if text.isdecimal() and text != "0"}
    return texts


def metric_errors(metrics: Iterable[MetricAssessment]) -> str:
    """The errors of the metrics in one sentence, a query as the subject of its own; empty where there is none."""
    clauses = []
    for metric in metrics:
        source, subject, error = source_name(metric.metric), f"metric {metric.name}", metric.error
        if error and metric.metric.query and error.startswith((f"{source}: ", f"{source} ")):
            subject = source if source == f"query {metric.name}" else f"{subject}: {source}"
            clauses.append((subject, error.removeprefix(source)))
        elif error:
            clauses.append((subject, f": {error}"))
    return join_clauses(clauses)


def join_clauses(clauses: Iterable[tuple[str, str]]) -> str:
    """Join subjects and predicates (`: …` or ` has …`) to one sentence; subjects of an equal predicate share it."""
    joined: dict[str, list[str]] = {}
    for subject, predicate in clauses:
        joined.setdefault(predicate, []).append(subject)
    return "; ".join(f"{', '.join(subjects)}{predicate}" for predicate, subjects in joined.items())


SILENCE_SECONDS = 30.0
"""The data of a registry that has failed for this long are not valid, although its last answer still counts."""
FIRST_SAMPLE_SECONDS = 120.0
"""How long after a metric's window a new pod may have no sample: of scrapes, polls and clocks."""
NAMED_PODS = 5
DOUBT_SECONDS = 900.0
"""Pods that have been doubtful for this long are a finding: the registry does not vouch for them."""


def condition_sentences(
    inputs: AssessmentInputs, groups: PodGroups, assessed: Sequence[MetricAssessment]
) -> dict[str, str]:
    """The sentence of each condition with trouble by its type (`policy.conditions`); without trouble it is absent."""
    policy, now, serving = inputs.policy, inputs.now, len(groups.serving)
    metrics = [metric for metric in assessed if not metric.floor]
    floors = metric_errors(metric for metric in assessed if metric.floor)
    zeros = ", ".join(metric.name for metric in metrics if metric.is_ignored_zero)
    zero = f"the usage of {zeros} is exactly 0; it is ignored and holds the count"
    found: dict[str, Iterable[str]] = {
        "RegistryDataValid": (_registry_trouble(inputs, groups), _long_doubt(inputs, groups)),
        "InputsFresh": (metric_errors(metrics), join_clauses(_overdue(metrics, now))),
        "WatermarkAtLimit": (
            at_limit(policy, each.metric, [(one.sizes, one.limit) for one in each.samples[:serving]])
            for each in metrics
        ),
        "UnreadyPodsFillReplicas": (_undersized(groups, metrics),),
        "FloorMissing": (floors and f"a floor has no answer and keeps nothing up: {floors}",),
        "ZeroUsageIgnored": (zeros and f"{zero}: fix the source, or set acceptZeroUsage: true",),
    }
    return {finding: text for finding, sentences in found.items() if (text := "; ".join(filter(None, sentences)))}


def _registry_trouble(inputs: AssessmentInputs, groups: PodGroups) -> str:
    """Why the registry's data are not valid, with its own error if it gave one; empty if they are."""
    registry, roster, now, trouble = service_registry(inputs.policy), inputs.roster, inputs.now, ""
    if registry is None:
        return ""
    name, error = f"registry {registry.name}", roster.error if roster is not None else None
    ready = [each for each in groups.assessed if each.pod.is_ready and not each.pod.deleting]
    is_late = all(now - each.pod.ready_since >= registry.registration_grace_seconds for each in ready)
    is_known = any(inputs.memory.pod(each.pod.uid).registered for each in groups.assessed)
    if roster is None or not roster.valid:
        trouble = f"{name} has not given a valid answer for {registry.service!r} yet"
    elif now - roster.at > (ABSENCE_TRUSTED_SECONDS if error is None else SILENCE_SECONDS):
        trouble = f"{name} gave its last valid answer at {time_text(roster.at)}"
    elif ready and is_late and roster.absence_counts and not is_known:
        trouble = f"{name} lists no pod of this target: check the service name {registry.service!r}"
    elif ready and is_known and all(each.evidence == "absence" for each in ready):
        trouble = f"{name} lists no pod of this target any more"
    return f"{trouble}: {error}" if trouble and error is not None else trouble


def _overdue(metrics: Iterable[MetricAssessment], now: float) -> Iterator[tuple[str, str]]:
    """Subject and predicate for each metric with an answer that lacks samples of pods that have been in for long.

    One missed scrape is no trouble.
    """
    for metric in metrics:
        window = (metric.window or 0.0) if metric.metric.query is not None else 0.0
        late = (metric.stale_at or 0.0) - (metric.sampled_at or 0.0) + window
        missing = sum(
            each.usage is None and now - each.at > late and now - each.since >= FIRST_SAMPLE_SECONDS + window
            for each in metric.samples[: metric.n + metric.missing]
        )
        if missing and metric.error is None:
            yield f"metric {metric.name}", f": {missing} pod{'s' * (missing > 1)} without a fresh sample"


def _long_doubt(inputs: AssessmentInputs, groups: PodGroups) -> str:
    """The pods that have been in doubt for DOUBT_SECONDS, why, and the field to look at."""
    since = {pod.uid: inputs.memory.pod(pod.uid).since for pod in groups.doubtful}
    long = [each for each in groups.assessed if inputs.now - since.get(each.pod.uid, inputs.now) >= DOUBT_SECONDS]
    doubtful = sorted(long, key=lambda each: each.pod.name)
    if service_registry(inputs.policy) is None or not doubtful:
        return ""
    named = ", ".join(each.pod.name for each in doubtful[:NAMED_PODS])
    more = f" and {len(doubtful) - NAMED_PODS} more" * (len(doubtful) > NAMED_PODS)
    return (
        f"{named}{more} {'are' if len(doubtful) > 1 else 'is'} kept in the count, in doubt for over "
        f"{DOUBT_SECONDS / 60:.0f} min: {doubtful[0].reason}; check registry.service, register these pods again "
        "or replace them"
    )


def _undersized(groups: PodGroups, metrics: Iterable[MetricAssessment]) -> str:
    """That fewer pods serve than are needed, because others in the count do not start or turn Ready."""
    stuck = [pod for pod in groups.idle if pod.uid not in groups.young]
    needed = max((metric.lower[0].needed or 0 for metric in metrics if metric.lower), default=0)
    if not stuck or needed <= len(groups.serving) + len(groups.young):
        return ""
    reason = next((f" ({pod.waits_for})" for pod in stuck if pod.waits_for), "")
    idle = f"{_many(len(stuck), 'pod')} in the count did not start or turn Ready within 5 min{reason}"
    return f"{needed} serving pods are needed, {len(groups.serving)} serve, and {idle}"


def at_limit(policy: Policy, metric: Metric, pods: Sequence[tuple[Sizes | None, int]]) -> str:
    """Why no pod passes the high watermark or target: CPU is throttled at the limit that each pod has.

    `pods`: what the usage of each is divided by, and the limit that caps it (`MetricReader.basis`).
    """
    beyond, is_share = policy.edges_of(metric).high, metric.relative_to is not None
    if beyond is None or not pods or policy.algorithm is Algorithm.ABSOLUTE or not all(map(all, pods)):
        return ""
    most = max(Fraction(limit * (NANO if is_share else 1), sizes.smaller) for sizes, limit in pods if sizes)
    if beyond < most:
        return ""
    show = partial(value_text, as_percent=is_share)
    return (
        f"metric {metric.name} adds pods above {show(beyond)}, and no pod shows more than {show(most)}, "
        "where its CPU limit throttles it; lower the watermark or target, or raise the limit"
    )
