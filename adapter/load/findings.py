"""What an assessment finds that a user should know beside the count: a sentence for each condition."""

from collections.abc import Mapping, Sequence

from adapter.load.assessment import MetricAssessment, Verdict
from adapter.load.census import Census
from adapter.load.conditions import ConditionType
from adapter.load.explanation import incomplete_metrics, join_clauses, metric_errors
from adapter.load.memory import Memory
from adapter.load.memory_updates import replacement_ineffective
from adapter.load.metric_assessment import MeasuredMetric
from adapter.load.pods import PodState
from adapter.load.roster import Roster
from adapter.load.spec import Policy

SILENCE_SECONDS = 30.0
"""A registry that has failed for this long is not trusted any more, although its last answer still counts."""


def distrust(policy: Policy, trouble: str, roster: Roster | None, now: float) -> str:
    """Why the registry is not trusted at `now`, with its own error if it gave one; empty if it is trusted.

    `trouble` is what `membership.registry_problem` says of it.
    """
    error = roster.error if roster is not None else None
    if policy.registry is None or error is None:
        return trouble
    if not trouble and roster is not None and now - roster.at > SILENCE_SECONDS:
        trouble = (
            f"registry {policy.registry.name} gave its last valid answer {now - roster.at:.0f} s ago, which counts"
        )
    return f"{trouble}: {error}" if trouble else ""


def condition_sentences(
    policy: Policy,
    distrusted: str,
    memory: Memory,
    census: Census,
    measured: Sequence[MeasuredMetric],
) -> dict[ConditionType, str]:
    """The sentence of each condition with trouble; a condition without trouble is absent."""
    sentences = {}
    metrics = [one.assessment for one in measured if not one.assessment.floor]
    floors = [one.assessment for one in measured if one.assessment.floor]
    if distrusted:
        sentences[ConditionType.REGISTRY_TRUSTED] = distrusted
    stale = [metric_errors(policy, metrics), join_clauses(incomplete_metrics(metrics))]
    if any(stale):
        sentences[ConditionType.INPUTS_FRESH] = "; ".join(filter(None, stale))
    if replacement_ineffective(memory, census.assessed):
        sentences[ConditionType.REPLACEMENT_INEFFECTIVE] = (
            "pods created to replace pulled-out ones are pulled out themselves"
        )
    undersized = _undersized(census.counts, metrics)
    if undersized:
        sentences[ConditionType.UNDERSIZED_BY_UNREADY] = undersized
    if missing := metric_errors(policy, floors):
        sentences[ConditionType.FLOOR_MISSING] = f"a floor has no answer and keeps nothing up: {missing}"
    return sentences


def _undersized(counts: Mapping[PodState, int], metrics: Sequence[MetricAssessment]) -> str:
    able = counts.get(PodState.SERVING, 0) + counts.get(PodState.STARTING, 0)
    unready = counts.get(PodState.UNREADY, 0)
    needed = max(
        (m.scenarios[-1].needed or 0 for m in metrics if m.scenarios and m.scenarios[-1].verdict is Verdict.ABOVE),
        default=0,
    )
    if not unready or needed <= able:
        return ""
    return f"{needed} serving pods are needed, {able} serve or start, and {unready} unready ones fill the count"
