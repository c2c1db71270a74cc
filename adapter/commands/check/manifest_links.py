"""How policies, HPAs, workloads and settings of files fit together. Pure; sentences are those of the live check."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from adapter.commands.check.findings import dangling_hpas, stops, targets_at_limit
from adapter.commands.check.load_sources import catalog_of
from adapter.commands.check.manifest_objects import (
    DeclaredWorkload,
    Located,
    Objects,
    Parsed,
    read_folder,
    read_objects,
    read_stream,
)
from adapter.commands.check.report import Finding, FindingLevel, ReportSection
from adapter.commands.cluster import ListedPolicy
from adapter.kube.selectors import LabelSelector, Operator
from adapter.load.findings import at_limit
from adapter.load.pod_samples import MetricReader
from adapter.load.samples import Samples
from adapter.load.spec import Metric, Policy
from adapter.policy.conditions import Reason
from adapter.policy.conformance import READ_ONLY, Flaw, Wiring, flaws
from adapter.policy.hpa import DESIRED_REPLICAS, POLICY_LABEL, CrossVersionReference, Hpa
from adapter.policy.linking import Links, reference_faults
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.source import service_of
from adapter.runtime.faults import closest
from adapter.settings import Settings
from adapter.usage.query_catalog import WorkloadQuery

_FIELDS = {
    Reason.POLICY_CONFLICT: "spec.scaleTargetRef",
    Reason.SHARED_TARGET: "spec.scaleTargetRef",
    Reason.STUCK_AT_ZERO: "spec.minReplicas",
    Reason.SCALE_UP_DISABLED: "spec.behavior.scaleUp.selectPolicy",
    Reason.NOT_WIRED: "spec.metrics",
    Reason.RESTING: "spec.metrics",
    Reason.TOLERANCE: "spec.behavior",
    Reason.NO_STABILIZATION: "spec.behavior.scaleDown.stabilizationWindowSeconds",
    Reason.WAITS_TWICE: "spec.behavior",
}
_OF_POLICY = {Reason.WATERMARKS_TOO_CLOSE: "spec.metrics", Reason.TOTAL: "spec.algorithm"}
"""Fields of the policy, not of the HPA."""


class _Folder:
    """Indexes of the objects."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.links: dict[str, Links] = defaultdict(Links)
        self.hpas: dict[tuple[str, str], Parsed[Hpa]] = {}
        self.workloads: dict[tuple[str, CrossVersionReference], Parsed[DeclaredWorkload]] = {}
        for hpa in objects.hpas:
            if self.hpas.setdefault((hpa.value.namespace, hpa.value.name), hpa) is hpa:
                self.links[hpa.value.namespace].put_hpa(hpa.value.name, hpa.value)
        for policy in reversed(objects.policies):
            self.links[policy.value.namespace].put_policy(policy.value.name, policy.value)
        for workload in objects.workloads:
            self.workloads.setdefault((workload.value.namespace, workload.value.reference.identity), workload)
        self.policies_of: dict[tuple[str, str], list[Parsed[Policy]]] = defaultdict(list)
        for policy in objects.policies:
            self.policies_of[policy.value.namespace, policy.value.hpa].append(policy)
        self.scaled = {(hpa.value.namespace, hpa.value.target.identity) for hpa in objects.hpas}
        self._by_namespace: dict[str, list[Parsed[DeclaredWorkload]]] = defaultdict(list)
        self._by_label: dict[tuple[str, str, str], list[Parsed[DeclaredWorkload]]] = defaultdict(list)
        for (namespace, _), workload in self.workloads.items():
            self._by_namespace[namespace].append(workload)
            for key, value in workload.value.pod.labels.items():
                self._by_label[namespace, key, value].append(workload)

    def selected(self, namespace: str, selector: LabelSelector) -> Iterator[Parsed[DeclaredWorkload]]:
        """The workloads whose pods a selector matches."""
        single = (
            requirement
            for requirement in selector.requirements
            if requirement.operator is Operator.IN and len(requirement.values) == 1
        )
        first = next(single, None)
        candidates = self._by_namespace[namespace]
        if first is not None:
            candidates = self._by_label.get((namespace, first.key, first.values[0]), [])
        return (candidate for candidate in candidates if selector.matches(candidate.value.pod.labels))

    def workload_of(self, hpa: Hpa) -> Parsed[DeclaredWorkload] | None:
        """The workload that an HPA scales; None where it is not among the files."""
        return self.workloads.get((hpa.namespace, hpa.target.identity))


def check_links(objects: Objects) -> None:
    """Add the findings about every policy, HPA and workload to their sections."""
    folder = _Folder(objects)
    for policy in objects.policies:
        section = objects.section(policy.at)
        _sources(folder, policy, section)
        _policy(folder, policy, section)
        if not section.findings:
            section.ok("it is valid and fits its HPA")
    for hpa in objects.hpas:
        section = objects.section(hpa.at)
        _hpa(folder, hpa, section)
        if not section.findings:
            section.ok("it is valid")
    listed = [ListedPolicy(policy.value.namespace, policy.value.name, policy.value) for policy in objects.policies]
    listed += [ListedPolicy(*name, None, fault) for name, fault in objects.faulty.items()]
    with_policies = {one.namespace for one in listed}
    sections_of = {f"HPA {namespace}/{name}": hpa for (namespace, name), hpa in folder.hpas.items()}
    for dangling in dangling_hpas([hpa.value for hpa in folder.hpas.values()], listed):
        hpa = sections_of[dangling.about]
        section, place = objects.section(hpa.at), hpa.at.place("spec.metrics")
        section.findings = [finding for finding in section.findings if finding.verdict is not FindingLevel.OK]
        for finding in dangling.findings:
            if hpa.value.namespace in with_policies:
                section.wrong(finding.text, place=place)
            else:
                text = f"HPA {hpa.value.name} follows a WatermarkPolicy, and none of its namespace is among the files"
                section.skipped(text, place=place)
    for hpa in objects.hpas:
        _overlaps(folder, hpa, objects.section(hpa.at))


def _policy(folder: _Folder, policy: Parsed[Policy], section: ReportSection) -> None:
    """Add the findings about a policy and its HPA, and about the workload's requests and limits."""
    read, at = policy.value, policy.at
    hpa = folder.hpas.get((read.namespace, read.hpa))
    if hpa is None:
        others = sorted(folder.links[read.namespace].hpas)
        place = at.place("spec.hpa" if read.hpa != read.name else "metadata.name")
        if not others:
            section.skipped(f"HPA {read.hpa}, which the policy names, is not among the files", place=place)
            return
        text = f"there is no HPA {read.hpa} in namespace {read.namespace}{closest(read.hpa, others)}; name one of"
        text = f"{text} {', '.join(others)} in spec.hpa, or write it with `effective-load render`"
        section.wrong(text, place=place)
        return
    section.findings += (finding for flaw, finding in _flaws(folder, policy, hpa) if flaw.reason in _OF_POLICY)
    workload, target = folder.workload_of(hpa.value), hpa.value.target
    if workload is None:
        if any(metric.relative_to is not None for metric in read.metrics):
            text = f"{target.kind} {target.name} is not among the files, so its requests and limits are unknown"
            section.skipped(text, place=at.place("spec.metrics"))
        return
    for index, metric in enumerate(read.metrics):
        fault = at_limit(read, [workload.value.pod]).get(metric.name)
        for text in (*_lacks(metric, workload), *([fault] if fault else ())):
            section.wrong(text, place=at.place(f"spec.metrics[{index}]"))


def _lacks(metric: Metric, workload: Parsed[DeclaredWorkload]) -> Iterator[str]:
    """What the workload's pods lack for a metric: the named containers, their requests or limits."""
    source, pod = metric.resource or metric.query, workload.value.pod
    names = [container.name for container in pod.containers]
    missing = [name for name in (source.containers if source else ()) if name not in names]
    target = workload.value.reference
    for name in missing:
        yield f"{target.kind} {target.name} has no container {name}{closest(name, names)}; there are {', '.join(names)}"
    lack = "" if missing else MetricReader(metric, Samples(), 0.0).basis(pod)[1]
    if lack:
        yield (
            f"{lack} in {target.kind} {target.name} ({workload.at.place('spec.template.spec.containers')}), and the "
            f"metric is a share of it; set it, or drop `relativeTo` from the metric"
        )


# --- settings ---


def _sources(folder: _Folder, policy: Parsed[Policy], section: ReportSection) -> None:
    """Add what the policy names and the settings lack: queries, its registry, routes of notifications."""
    read, at, given = policy.value, policy.at, folder.objects.settings
    queries = [(index, metric.name, metric.query) for index, metric in enumerate(read.metrics) if metric.query]
    service = service_of(read)
    if not given:
        needs = ["queries"] * bool(queries) + ["registry"] * (service is not None) + ["routes"] * bool(read.notify)
        if needs:
            why = "are not valid" if folder.objects.has_faulty_settings else "are not among the files (--settings FILE)"
            section.skipped(f"its {', '.join(needs)}, for the settings {why}", place=at.place())
        return
    for index, name, query in queries:
        asked = WorkloadQuery(query, read.namespace, read.name)
        resolved = [catalog_of(settings).resolve(asked) for settings in given]
        if all(isinstance(one, str) for one in resolved):
            section.wrong(f"metric {name}: {resolved[0]}", place=at.place(f"spec.metrics[{index}].query"))
    if service is not None:
        refusals = [ServiceAllowlist(settings.registries).refusal(service, read.namespace) for settings in given]
        if all(refusals):
            section.wrong(refusals[0], place=at.place("spec.registry"))
    for name in read.notify:
        routes = (route for settings in given for route in settings.companion.notifications.routes)
        if not any(route.name == name and route.serves(read.namespace) for route in routes):
            text = f"the settings define no route {name} for namespace {read.namespace}; add it, or name another"
            section.wrong(text, place=at.place("spec.notify"))


# --- HPAs ---


def _hpa(folder: _Folder, hpa: Parsed[Hpa], section: ReportSection) -> None:
    """Add the findings about an HPA: its reference, its metrics, and how it follows its policies."""
    read, at = hpa.value, hpa.at
    for fault in reference_faults(*read.target):
        section.wrong(fault.advice, place=at.place(fault.path))
    policies = folder.links[read.namespace].policies
    for index, metric in enumerate(read.metrics):
        named = metric.described.name if metric.described is not None else metric.match_labels.get(POLICY_LABEL, "")
        policy = policies.get(named)
        if policy is None or not metric.names(named):
            continue
        known = [f"{prefix}{is_here.name}" for is_here in policy.metrics for prefix in ("effective_", "raw_")]
        if metric.name not in {DESIRED_REPLICAS, *READ_ONLY, *known}:
            text = (
                f"WatermarkPolicy {policy.name} has no metric {metric.name}{closest(metric.name, [DESIRED_REPLICAS])}"
            )
            source = f"{metric.kind[:1].lower()}{metric.kind[1:]}"
            place = at.place(f"spec.metrics[{index}].{source}.metric.name")
            section.wrong(f"{text}; ask for {DESIRED_REPLICAS}", place=place)
    if (workload := folder.workload_of(read)) is not None:
        for index, text in targets_at_limit(read, [workload.value.pod]):
            section.wrong(text, place=at.place(f"spec.metrics[{index}]"))
    for follower in folder.policies_of[read.namespace, read.name]:
        found = _flaws(folder, follower, hpa)
        section.findings += (finding for flaw, finding in found if flaw.reason not in _OF_POLICY)


def _flaws(folder: _Folder, policy: Parsed[Policy], hpa: Parsed[Hpa]) -> Iterator[tuple[Flaw, Finding]]:
    """The flaws of a policy and its HPA, each as a finding about the one of them whose field it is."""
    neighbours = folder.links[hpa.value.namespace].neighbours(policy.value.name)
    wiring = Wiring(policy=policy.value, hpa=hpa.value, neighbours=neighbours)
    for flaw in flaws(wiring):
        named = (index for index, metric in enumerate(hpa.value.metrics) if metric.name in flaw.message.split())
        field = _FIELDS.get(flaw.reason) or f"spec.metrics[{next(named, 0)}]"
        at, path = (policy.at, _OF_POLICY[flaw.reason]) if flaw.reason in _OF_POLICY else (hpa.at, field)
        level = FindingLevel.WRONG if stops(flaw, wiring) else FindingLevel.NOTE
        yield flaw, Finding(level, flaw.message, at.place(path))


# --- workloads ---


def _overlaps(folder: _Folder, hpa: Parsed[Hpa], section: ReportSection) -> None:
    """Add the workloads whose pods the selector of the HPA's target selects as well."""
    workload = folder.workload_of(hpa.value)
    if workload is None or workload.value.selector is None:
        return
    namespace, target = hpa.value.namespace, workload.value.reference
    for other in folder.selected(namespace, workload.value.selector):
        reference = other.value.reference
        if reference.identity == target.identity:
            continue
        text = (
            f"the selector of {target.kind} {target.name} ({workload.value.selector}) also selects the pods of "
            f"{reference.kind} {reference.name} ({other.at.place()}); an HPA counts those as its own, and does not "
            "act where another HPA scales them; give each a label of its own"
        )
        is_scaled = (namespace, reference.identity) in folder.scaled
        level = FindingLevel.WRONG if is_scaled else FindingLevel.NOTE
        section.findings.append(Finding(level, text, workload.at.place("spec.selector")))


def check_folder(folder: str, settings: Settings | None) -> list[ReportSection]:
    """Check the files of a folder, or one file; `settings` take the place of those among them.

    Raises FaultyDocument for a folder that cannot be read.
    """
    return _checked(*read_folder(folder), f"folder {folder}", settings)


def check_stream(text: str, settings: Settings | None) -> list[ReportSection]:
    """As `check_folder`, of one text from standard input."""
    located, unreadable = read_stream(text)
    if not located and not unreadable:
        # A pipe has the status of its last command: a failed `helm template | …` would pass.
        text = "there is no object in it: what should print the manifests failed, or printed none"
        unreadable = [ReportSection("standard input").wrong(text)]
    return _checked(located, unreadable, "standard input", settings)


def _checked(
    located: Sequence[Located], unreadable: Sequence[ReportSection], about: str, settings: Settings | None
) -> list[ReportSection]:
    objects = read_objects(located, settings)
    check_links(objects)
    result = [*unreadable, *(section for section in objects.sections.values() if section.findings)]
    if not objects.policies and not objects.faulty:
        result.append(ReportSection(about).note("there is no WatermarkPolicy among the files"))
    for section in result:  # each finding once, and those that are ok only where no others are
        found = list(dict.fromkeys(section.findings))
        section.findings = [fault for fault in found if fault.verdict is not FindingLevel.OK] or found
    return result
