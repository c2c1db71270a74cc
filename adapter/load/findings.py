"""What an assessment finds that a user should know beside the count: a sentence for each condition."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from fractions import Fraction

from adapter.load.assessment import AssessmentInputs, MetricAssessment
from adapter.load.explanation import join_clauses, metric_errors
from adapter.load.matching import Mismatch, match_registrations
from adapter.load.pod_samples import Sizes
from adapter.load.pods import PodState
from adapter.load.quantity import NANO, nano_text, percent_text
from adapter.load.samples import time_text
from adapter.load.spec import Algorithm, Metric, Policy
from adapter.load.states import ABSENCE_TRUSTED_SECONDS, PodGroups, service_registry


class Finding(StrEnum):
    """What an assessment may find: the type of its condition in the status of a policy (`policy.conditions`)."""

    INPUTS_FRESH = "InputsFresh"
    REGISTRY_DATA_VALID = "RegistryDataValid"
    UNREADY_PODS_FILL_REPLICAS = "UnreadyPodsFillReplicas"
    FLOOR_MISSING = "FloorMissing"
    ZERO_USAGE_IGNORED = "ZeroUsageIgnored"
    QUERY_WINDOW_TOO_LONG = "QueryWindowTooLong"
    WATERMARK_AT_LIMIT = "WatermarkAtLimit"


ZERO_SECONDS = 600.0
"""A usage of exactly 0 that is ignored for longer than this is worth a condition."""
SLOW_WINDOW_SECONDS = 300.0
"""Windows longer than this follow the load too late for most services."""
SILENCE_SECONDS = 30.0
"""The data of a registry that has failed for this long are not valid, although its last answer still counts."""
FIRST_SAMPLE_SECONDS = 120.0
"""How long after a metric's window a new pod may have no sample: of scrapes, polls and clocks."""
NAMED_PODS = 5
DOUBT_SECONDS = 900.0
"""Pods that have been doubtful for this long are a finding: the registry does not vouch for them."""


def condition_sentences(
    inputs: AssessmentInputs, groups: PodGroups, assessed: Sequence[MetricAssessment], zero_since: float | None
) -> dict[str, str]:
    """The sentence of each condition with trouble; a condition without trouble is absent.

    `zero_since`: since when usage is exactly 0 and ignored (seconds; None: it is not).
    """
    policy, now, serving, zero = inputs.policy, inputs.now, len(groups.serving), ""
    metrics = [metric for metric in assessed if not metric.floor]
    floors = metric_errors(metric for metric in assessed if metric.floor)
    late = join_clauses(
        (f"metric {metric.name}", f" follows the load as late as its window of {metric.window:g} s")
        for metric in metrics
        if (metric.window or 0.0) > SLOW_WINDOW_SECONDS
    )
    if zero_since is not None and now - zero_since > ZERO_SECONDS:
        zero = f"usage has been exactly 0 since {time_text(zero_since)}; it is ignored and holds the count"
    sentences = {
        Finding.REGISTRY_DATA_VALID: _joined(_registry_trouble(inputs, groups), _long_doubt(inputs, groups)),
        Finding.INPUTS_FRESH: _joined(metric_errors(metrics), join_clauses(_overdue(metrics, now))),
        Finding.UNREADY_PODS_FILL_REPLICAS: _undersized(groups, metrics),
        Finding.WATERMARK_AT_LIMIT: _joined(
            *(
                at_limit(policy, each.metric, [(one.sizes, one.limit) for one in each.samples[:serving]])
                for each in metrics
            )
        ),
        Finding.FLOOR_MISSING: floors and f"a floor has no answer and keeps nothing up: {floors}",
        Finding.ZERO_USAGE_IGNORED: zero and f"{zero}: fix the source, or set acceptZeroUsage: true",
        Finding.QUERY_WINDOW_TOO_LONG: late and f"{late}: shorten the range of its query",
    }
    return {condition: sentence for condition, sentence in sentences.items() if sentence}


def _registry_trouble(inputs: AssessmentInputs, groups: PodGroups) -> str:
    """Why the registry's data are not valid, with its own error if it gave one; empty if they are."""
    registry, roster, now, trouble = service_registry(inputs.policy), inputs.roster, inputs.now, ""
    if registry is None:
        return ""
    name, error = f"registry {registry.name}", roster.error if roster is not None else None
    ready = [each.pod for each in groups.assessed if each.pod.is_ready and not each.pod.deleting]
    is_late = all(now - pod.ready_since >= registry.registration_grace_seconds for pod in ready)
    is_known = any(inputs.memory.pod(each.pod.uid).registered for each in groups.assessed)
    if roster is None or not roster.valid:
        trouble = f"{name} has not given a valid answer for {registry.service!r} yet"
    elif now - roster.at > ABSENCE_TRUSTED_SECONDS:
        trouble = f"{name} gave its last valid answer at {time_text(roster.at)}"
    elif ready and is_late and roster.absence_counts and not is_known:
        trouble = f"{name} lists no pod of this target: check the service name {registry.service!r}"
        if any(match.mismatch is Mismatch.OLDER for match in match_registrations(inputs.pods, roster, registry)):
            trouble = (
                f"{name} lists pods of this target only as registered before they started: "
                "its clock is behind, or they do not register"
            )
    elif error is not None and now - roster.at > SILENCE_SECONDS:
        trouble = f"{name} gave its last valid answer at {time_text(roster.at)}, which counts"
    return f"{trouble}: {error}" if trouble and error is not None else trouble


def _joined(*sentences: str) -> str:
    return "; ".join(filter(None, sentences))


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
    is_long = {uid for uid, at in since.items() if inputs.now - at >= DOUBT_SECONDS}
    doubtful = sorted((each for each in groups.assessed if each.pod.uid in is_long), key=lambda each: each.pod.name)
    if service_registry(inputs.policy) is None or not doubtful:
        return ""
    named = ", ".join(each.pod.name for each in doubtful[:NAMED_PODS])
    more = f" and {len(doubtful) - NAMED_PODS} more" if len(doubtful) > NAMED_PODS else ""
    return (
        f"{named}{more} {'are' if len(doubtful) > 1 else 'is'} kept in the count, in doubt for over "
        f"{DOUBT_SECONDS / 60:.0f} min: {doubtful[0].reason}; check registry.service, register these pods again "
        "or replace them"
    )


def at_limit(policy: Policy, metric: Metric, pods: Sequence[tuple[Sizes | None, int]]) -> str:
    """Why no pod passes the high watermark or target: CPU is throttled at the limit that each pod has.

    `pods`: what the usage of each is divided by, and the limit that caps it (`MetricReader.basis`).
    """
    beyond, is_share = policy.edges_of(metric).high, metric.relative_to is not None
    if beyond is None or not pods or policy.algorithm is Algorithm.ABSOLUTE or not all(limit for _, limit in pods):
        return ""
    most = max(Fraction(limit * (NANO if is_share else 1), sizes.smaller) if sizes else beyond for sizes, limit in pods)
    if beyond < most or not all(sizes for sizes, _ in pods):
        return ""
    show = (lambda nano: percent_text(nano / NANO)) if is_share else nano_text
    return (
        f"metric {metric.name} adds pods above {show(beyond)}, and no pod shows more than {show(most)}, "
        "where its CPU limit throttles it; lower the watermark or target, or raise the limit"
    )


def _undersized(groups: PodGroups, metrics: Sequence[MetricAssessment]) -> str:
    """That fewer pods can serve than are needed, because others in the count do not start or are not Ready."""
    starting = [each.pod for each in groups.assessed if each.state is PodState.STARTING]
    stuck = [pod for pod in starting if pod.uid not in groups.young]
    serving, soon, unready = len(groups.serving), len(starting) - len(stuck), groups.counts.get(PodState.UNREADY, 0)
    needed = max((metric.lower[0].needed or 0 for metric in metrics if metric.lower), default=0)
    if needed <= serving + soon or not (stuck or unready):
        return ""
    parts = [f"{serving + soon} serve or start" if soon else f"{serving} serve"]
    if unready:
        parts.append(f"{unready} unready pod{' fills' if unready == 1 else 's fill'} the count")
    if stuck:
        reason = next((f": {pod.waits_for}" for pod in stuck if pod.waits_for), "")
        parts.append(f"{len(stuck)} {'has' if len(stuck) == 1 else 'have'} not started for more than 5 min{reason}")
    return f"{needed} serving pods are needed, {', '.join(parts[:-1])}, and {parts[-1]}"
