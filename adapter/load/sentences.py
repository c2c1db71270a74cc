"""Sentences put together so that none says a thing twice: what holds for several metrics is said once."""

from collections.abc import Iterable, Iterator

from adapter.load.assessment import MetricAssessment
from adapter.load.effective_usage import source_name
from adapter.load.spec import Policy

_AGE = " (last answer "
"""How the end of a source's sentence begins that says how old its last answer is: it may differ by a second where all
else is the same."""


def metric_errors(policy: Policy, metrics: Iterable[MetricAssessment]) -> str:
    """Why metrics have no answer; empty where all have one."""
    return join_clauses(_error(policy, metric.name, metric.error) for metric in metrics if metric.error)


def join_clauses(said: Iterable[tuple[str, str]]) -> str:
    """What is said of several things: those of which the same is said are named in one clause.

    `said` are subjects with what follows them, be it `: …` or ` has …`.
    """
    clauses: dict[str, tuple[list[str], str]] = {}
    for subject, rest in said:
        subjects, _ = clauses.setdefault(rest.partition(_AGE)[0], ([], rest))
        subjects.append(subject)
    return "; ".join(f"{', '.join(subjects)}{rest}" for subjects, rest in clauses.values())


def incomplete_metrics(metrics: Iterable[MetricAssessment]) -> Iterator[tuple[str, str]]:
    """Metrics that have an answer, and that some pods have no fresh sample of."""
    for metric in metrics:
        if metric.missing and not metric.error:
            pods = "1 pod" if metric.missing == 1 else f"{metric.missing} pods"
            yield f"metric {metric.name}", f": {pods} without a fresh sample"


def _error(policy: Policy, name: str, error: str) -> tuple[str, str]:
    """A metric and its error. A query's own error names the query: beside a metric of that name it is enough."""
    spec = next((one for one in policy.metrics if one.name == name), None)
    source = source_name(spec) if spec is not None and spec.query is not None else ""
    if not source or not error.startswith((f"{source}: ", f"{source} ")):
        return f"metric {name}", f": {error}"
    subject = source if source == f"query {name}" else f"metric {name}: {source}"
    return subject, error.removeprefix(source)
