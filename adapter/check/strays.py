"""HPAs that ask for a policy's metrics where there is no such policy: each is told an error, and keeps its count."""

from collections.abc import Iterable, Iterator, Sequence

from adapter.check.cluster import ListedPolicy
from adapter.check.report import ReportSection, SubjectKind
from adapter.policy.conformance import READ_ONLY, READ_ONLY_PREFIXES
from adapter.policy.hpa import DESIRED_REPLICAS, POLICY_LABEL, Hpa, HpaMetric, MetricSourceType, ObjectReference
from adapter.policy.watermark_policy import API_VERSION, KIND

_POLICY = ObjectReference(API_VERSION, KIND, "")


def dangling_hpas(hpas: Sequence[Hpa], policies: Sequence[ListedPolicy]) -> Iterator[ReportSection]:
    """A section for each HPA that names a policy, or a scale target of one, that does not exist in its namespace."""
    for namespace in sorted({one.namespace for one in hpas}):
        here = [one for one in policies if one.namespace == namespace]
        own = [one for one in hpas if one.namespace == namespace]
        scaled = _scaled(own, here)
        for hpa in sorted(own, key=lambda one: one.name):
            section = ReportSection(f"HPA {namespace}/{hpa.name}", SubjectKind.HPA)
            for text in dict.fromkeys(_troubles(hpa, here, scaled)):
                section.wrong(text)
            if section.findings:
                yield section


def _scaled(hpas: Iterable[Hpa], policies: Sequence[ListedPolicy]) -> frozenset[ObjectReference] | None:
    """What policies of a namespace scale; None where that is not known, because one of them is not valid."""
    if any(one.policy is None for one in policies):
        return None
    followed = {one.policy.hpa for one in policies if one.policy is not None}
    return frozenset(hpa.target.identity for hpa in hpas if hpa.name in followed)


def _troubles(hpa: Hpa, policies: Sequence[ListedPolicy], scaled: frozenset[ObjectReference] | None) -> Iterator[str]:
    known = {one.name for one in policies}
    for metric in hpa.metrics:
        name = _named(metric)
        if name and name not in known:
            yield (
                f"it asks for {metric.name} of WatermarkPolicy {name}, which does not exist in namespace "
                f"{hpa.namespace}; create that policy, or name one that exists ({', '.join(sorted(known)) or 'none'})"
            )
        target = metric.described
        by_target = target is not None and metric.name == DESIRED_REPLICAS and not name
        if by_target and target is not None and scaled is not None and target.identity not in scaled:
            yield (
                f"it asks for {DESIRED_REPLICAS} of {target.kind} {target.name}, which no WatermarkPolicy in namespace "
                f"{hpa.namespace} scales; create a policy that names this HPA"
            )


def _named(metric: HpaMetric) -> str:
    """The policy that a metric is asked of by name; empty where it names none."""
    described = metric.described
    if described is not None:
        is_policy = (described.group, described.kind) == (_POLICY.group, _POLICY.kind)
        return described.name if is_policy else ""
    ours = metric.name in {DESIRED_REPLICAS, *READ_ONLY} or metric.name.startswith(READ_ONLY_PREFIXES)
    return str(metric.match_labels.get(POLICY_LABEL, "")) if ours and metric.kind is MetricSourceType.EXTERNAL else ""
