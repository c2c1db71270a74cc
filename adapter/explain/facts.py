"""The parts of a page as plain values: bands, pods, freshness. No terminal, no colours."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from adapter.explain.hpa import age_text
from adapter.explain.reading import Explained
from adapter.load.assessment import Assessment, AssessmentInputs, Decision, MetricAssessment, PodAssessment, Verdict
from adapter.load.effective_usage import source_name
from adapter.load.explanation import is_utilization, value_text
from adapter.load.pods import PodState
from adapter.load.quantity import milli_text
from adapter.load.samples import QuerySamples, ResourceSamples
from adapter.load.spec import Policy

_MILLI = 10**6
COUNTED = (PodState.SERVING, PodState.DOUBTFUL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
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


def bands(policy: Policy, assessment: Assessment, decision: Decision) -> Iterator[Band]:
    """The band of each metric but floors."""
    outcomes = {outcome.metric.name: outcome for outcome in decision.outcomes}
    for metric in assessment.metrics:
        if metric.floor:
            continue
        outcome = outcomes.get(metric.name)
        scenario = outcome.scenario if outcome is not None else None
        yield Band(
            name=metric.name,
            low=metric.low,
            high=metric.high,
            target=metric.target,
            usage=scenario.usage if scenario is not None else metric.usage,
            raw=metric.raw,
            verdict=(scenario.verdict if scenario is not None else Verdict.ERROR).value,
            is_percent=is_utilization(policy, metric.name),
            error=metric.error or "",
        )


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod: whether it counts, its state, why, where that is from, and its usage by metric."""

    name: str
    counts: bool
    state: str
    reason: str
    source: str
    usage: tuple[str, ...]


def pod_rows(policy: Policy, assessment: Assessment) -> list[PodRow]:
    """All pods, those that are left out first."""
    rows = [_row(policy, assessment, one) for one in assessment.pods]
    return sorted(rows, key=lambda row: (row.counts, row.state, row.name))


def _row(policy: Policy, assessment: Assessment, one: PodAssessment) -> PodRow:
    usage = []
    for metric in assessment.metrics:
        value, lack = one.usage.get(metric.name), one.missing.get(metric.name, "")
        shown = "" if value is None else _short(value, as_percent=is_utilization(policy, metric.name))
        usage.append(shown or lack)
    return PodRow(one.pod.name, one.state in COUNTED, one.state.value, one.reason, one.evidence, tuple(usage))


def _short(value: int, *, as_percent: bool) -> str:
    """A pod's usage in milli-units, rounded down, where it has any; sentences are more exact."""
    return value_text(value, as_percent=as_percent) if as_percent or value < _MILLI else milli_text(value // _MILLI)


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
    if any(metric.resource for metric in inputs.policy.metrics):
        stale = [one.stale_at for one in _assessed(assessment, inputs, of_queries=False) if one.stale_at is not None]
        yield _source_row("metrics.k8s.io", inputs.samples.resources, stale, now)
    for metric in inputs.policy.metrics:
        samples = inputs.samples.queries.get(metric.name)
        if metric.query is not None and samples is not None:
            known = assessment.metric(metric.name)
            stale = [known.stale_at] if known is not None and known.stale_at is not None else []
            yield _source_row(f"{source_name(metric)} ({metric.name})", samples, stale, now)
    if inputs.policy.registry is not None:
        yield _registry_row(inputs, now)


def _assessed(assessment: Assessment, inputs: AssessmentInputs, *, of_queries: bool) -> Iterator[MetricAssessment]:
    for metric in inputs.policy.metrics:
        known = assessment.metric(metric.name)
        if known is not None and (metric.query is not None) is of_queries:
            yield known


def _source_row(name: str, samples: ResourceSamples | QuerySamples, stale: list[float], now: float) -> InputRow:
    answered = samples.fetched_at
    age = "never answered" if answered is None else f"answered {age_text(now - answered)} ago"
    left = f"the oldest sample counts {age_text(min(stale) - now)} more" if stale else "no sample counts"
    return InputRow(name, age, left, samples.error or "")


def _registry_row(inputs: AssessmentInputs, now: float) -> InputRow:
    registry, roster = inputs.policy.registry, inputs.roster
    assert registry is not None
    name = f"registry {registry.name}"
    if roster is None:
        return InputRow(name, "never answered", "", "no roster of the service yet")
    listed = f"{len(roster.instances)} instances"
    return InputRow(name, f"answered {age_text(now - roster.at)} ago", listed, roster.error or "")
