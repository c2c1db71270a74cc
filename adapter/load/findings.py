"""What an assessment finds that a user should know beside the count: a sentence for each condition."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction

from adapter.load.assessment import MetricAssessment
from adapter.load.explanation import incomplete_metrics, join_clauses, metric_errors
from adapter.load.memory import Memory
from adapter.load.pod_groups import PodGroups
from adapter.load.pod_samples import MetricReader
from adapter.load.pods import Pod, PodState
from adapter.load.quantity import NANO, nano_text, percent_text
from adapter.load.roster import Roster
from adapter.load.samples import Samples, time_text
from adapter.load.spec import Algorithm, Capacity, Metric, Policy, ResourceMetric
from adapter.load.states import service_registry


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
NAMED_PODS = 5
LONG_DOUBT_SECONDS = 900.0
"""Pods that have been doubtful for this long are a finding: the registry does not vouch for them."""


def invalid_registry_data(policy: Policy, trouble: str, roster: Roster | None, now: float) -> str:
    """Why the registry's data are not valid at `now`, with its own error if it gave one; empty if they are.

    `trouble` is what `states.registry_problem` says of it.
    """
    error = roster.error if roster is not None else None
    if policy.registry is None or error is None:
        return trouble
    if not trouble and roster is not None and now - roster.at > SILENCE_SECONDS:
        trouble = f"registry {policy.registry.name} gave its last valid answer at {time_text(roster.at)}, which counts"
    return f"{trouble}: {error}" if trouble else ""


def condition_sentences(
    policy: Policy,
    registry_trouble: str,
    memory: Memory,
    groups: PodGroups,
    assessed: Sequence[MetricAssessment],
    now: float,
) -> dict[str, str]:
    """The sentence of each condition with trouble; a condition without trouble is absent."""
    metrics = [metric for metric in assessed if not metric.floor]
    floors = metric_errors(policy, [metric for metric in assessed if metric.floor])
    slow = [metric for metric in metrics if metric.window is not None and metric.window > SLOW_WINDOW_SECONDS]
    late = [
        (f"metric {metric.name}", f" follows the load as late as its window of {metric.window:g} s") for metric in slow
    ]
    zero_since, zero = memory.zero_since, ""
    if zero_since is not None and now - zero_since > ZERO_SECONDS:
        zero = f"usage has been exactly 0 since {time_text(zero_since)}; it is ignored and holds the count"
    sentences = {
        Finding.REGISTRY_DATA_VALID: _joined(registry_trouble, _long_doubt(policy, memory, groups, now)),
        Finding.INPUTS_FRESH: _joined(metric_errors(policy, metrics), join_clauses(incomplete_metrics(metrics))),
        Finding.UNREADY_PODS_FILL_REPLICAS: _undersized(groups.counts, metrics),
        Finding.WATERMARK_AT_LIMIT: _joined(*at_limit(policy, groups.serving).values()),
        Finding.FLOOR_MISSING: floors and f"a floor has no answer and keeps nothing up: {floors}",
        Finding.ZERO_USAGE_IGNORED: zero and f"{zero}: fix the source, or set acceptZeroUsage: true",
        Finding.QUERY_WINDOW_TOO_LONG: f"{join_clauses(late)}: shorten the range of its query" if late else "",
    }
    return {condition: sentence for condition, sentence in sentences.items() if sentence}


def _joined(*sentences: str) -> str:
    return "; ".join(filter(None, sentences))


def _long_doubt(policy: Policy, memory: Memory, groups: PodGroups, now: float) -> str:
    """The pods that have been in doubt for LONG_DOUBT_SECONDS, why, and the field to look at."""
    if service_registry(policy) is None:
        return ""
    names: dict[str, list[str]] = defaultdict(list)
    for assessed in groups.assessed:
        is_long = now - memory.pod(assessed.pod.uid).since >= LONG_DOUBT_SECONDS
        if assessed.state is PodState.DOUBTFUL and is_long:
            names[assessed.reason].append(assessed.pod.name)
    sentences = []
    for reason, pods in names.items():
        more = len(pods) - NAMED_PODS
        listed = ", ".join(sorted(pods)[:NAMED_PODS]) + (f" and {more} more" if more > 0 else "")
        sentences.append(
            f"{listed} {'are' if len(pods) > 1 else 'is'} kept in the count, in doubt for over "
            f"{LONG_DOUBT_SECONDS / 60:.0f} min: {reason}; check registry.service, register these pods again or "
            "replace them"
        )
    return "; ".join(sentences)


def at_limit(policy: Policy, pods: Sequence[Pod]) -> dict[str, str]:
    """By metric, why no pod passes its high watermark or target: CPU is throttled at the limit that each pod has."""
    sentences = {}
    for metric in policy.metrics:
        source, high = metric.resource, policy.limits_of(metric).high
        if source is None or source.name != "cpu" or high is None or policy.algorithm is Algorithm.ABSOLUTE:
            continue
        beyond = high if metric.target is not None else high * (1 + policy.tolerance)
        most = _most_shown(metric, source, pods)
        if most is not None and beyond >= most:
            show = nano_text if metric.relative_to is None else lambda nano: percent_text(nano / NANO)
            sentences[metric.name] = (
                f"metric {metric.name} adds pods above {show(beyond)}, and no pod shows more than {show(most)}, where "
                "its CPU limit throttles it; lower the watermark or target, or raise the limit"
            )
    return sentences


def _most_shown(metric: Metric, source: ResourceMetric, pods: Sequence[Pod]) -> Fraction | None:
    """The most that a pod shows of a CPU metric (nano-units); None where one has no limit."""
    reader = MetricReader(metric, Samples(), 0.0)
    limited = reader
    if metric.relative_to is not Capacity.LIMIT:
        limited = MetricReader(replace(metric, resource=replace(source, relative_to=Capacity.LIMIT)), Samples(), 0.0)
    most = []
    for pod in pods:
        limit, size = limited.basis(pod)[0], reader.basis(pod)[0]
        if limit is None or size is None:
            return None
        most.append(
            Fraction(NANO * limit.larger, size.smaller) if metric.relative_to is not None else Fraction(limit.larger)
        )
    return max(most, default=None)


def _undersized(counts: Mapping[PodState, int], metrics: Sequence[MetricAssessment]) -> str:
    able = counts.get(PodState.SERVING, 0) + counts.get(PodState.STARTING, 0)
    unready = counts.get(PodState.UNREADY, 0)
    needed = max((metric.lower[0].needed or 0 for metric in metrics if metric.lower), default=0)
    if not unready or needed <= able:
        return ""
    return f"{needed} serving pods are needed, {able} serve or start, and {unready} unready ones fill the count"
