"""What a user should know of a policy beside its count: findings, each a sentence."""

from collections.abc import Mapping, Sequence

from adapter.load.assessment import MetricAssessment, Verdict
from adapter.load.census import Census
from adapter.load.explanation import incomplete_metrics, join_clauses, metric_errors
from adapter.load.memory import Memory
from adapter.load.memory_updates import replacement_ineffective
from adapter.load.metric_assessment import MeasuredMetric
from adapter.load.pods import PodState
from adapter.load.roster import Roster
from adapter.load.spec import Policy

SILENCE_SECONDS = 30.0
"""A registry that has failed for so long is not trusted any more, though what it said last still counts."""


def distrust(policy: Policy, trouble: str, roster: Roster | None, now: float) -> str:
    """Why the registry is not trusted just now, with its own words where it has any; empty where it is.

    `trouble`: what is wrong with it as far as the pods' states tell (`membership.trouble`).
    """
    error = roster.error if roster is not None else None
    if policy.registry is None or error is None:
        return trouble
    if not trouble and roster is not None and now - roster.at > SILENCE_SECONDS:
        trouble = (
            f"registry {policy.registry.name} gave its last valid answer {now - roster.at:.0f} s ago, which counts"
        )
    return f"{trouble}: {error}" if trouble else ""


def conditions(
    policy: Policy,
    distrusted: str,
    memory: Memory,
    census: Census,
    measured: Sequence[MeasuredMetric],
) -> dict[str, str]:
    """What a user should know, by condition; a condition without trouble is absent."""
    found = {}
    metrics = [one.assessment for one in measured]
    if distrusted:
        found["RegistryTrusted"] = distrusted
    stale = [metric_errors(policy, metrics), join_clauses(incomplete_metrics(metrics))]
    if any(stale):
        found["InputsFresh"] = "; ".join(filter(None, stale))
    if replacement_ineffective(memory, census.assessed):
        found["ReplacementIneffective"] = "pods created to replace pulled-out ones are pulled out themselves"
    undersized = _undersized(census.counts, metrics)
    if undersized:
        found["UndersizedByUnready"] = undersized
    return found


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
