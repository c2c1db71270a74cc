"""How policies, HPAs, workloads and settings fit together: the same for a cluster and for files. Pure."""

from collections.abc import Iterator

from adapter.commands.check.report import Finding, error, has_errors, ok, skipped, warning
from adapter.commands.check.world import Name, Read, Workload, World
from adapter.load.explanation import at_limit
from adapter.load.pod_samples import MetricReader
from adapter.load.spec import Metric, Policy
from adapter.policy.conditions import Reason
from adapter.policy.conformance import READ_ONLY, READ_ONLY_PREFIXES, Wiring, flaws
from adapter.policy.hpa import DESIRED_REPLICAS, POLICY_LABEL, Hpa, HpaMetric, MetricSourceType
from adapter.policy.linking import Links, reference_faults
from adapter.policy.watermark_policy import GROUP, KIND
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.source import service_of
from adapter.runtime.faults import closest, first_names
from adapter.settings import Settings
from adapter.usage.query_catalog import QueryCatalog, WorkloadQuery

_NAMED = 20
_FIELDS = {
    Reason.POLICY_CONFLICT: "spec.scaleTargetRef",
    Reason.SHARED_TARGET: "spec.scaleTargetRef",
    Reason.STUCK_AT_ZERO: "spec.minReplicas",
    Reason.SCALE_UP_DISABLED: "spec.behavior.scaleUp.selectPolicy",
    Reason.TOLERANCE: "spec.behavior",
    Reason.NO_STABILIZATION: "spec.behavior.scaleDown.stabilizationWindowSeconds",
    Reason.WAITS_TWICE: "spec.behavior",
}
_OF_POLICY = {Reason.WATERMARKS_TOO_CLOSE: "spec.metrics", Reason.TOTAL: "spec.algorithm"}
"""Fields of the policy, not of the HPA."""
_STOPS = {
    Reason.POLICY_CONFLICT, Reason.SHARED_TARGET, Reason.STUCK_AT_ZERO, Reason.NOT_WIRED, Reason.AVERAGE_VALUE,
    Reason.SCALE_UP_DISABLED, Reason.READ_ONLY_METRIC, Reason.TOLERANCE,
}  # fmt: skip
"""Flaws with which the HPA does not follow the policy; others are unwise."""


def wanted_policies(world: World, only: str) -> dict[Name, Read[Policy]]:
    """The policies to check: all, or `only` one (NAMESPACE/NAME)."""
    return {key: read for key, read in world.policies.items() if only in {"", "/".join(key)}}


def followers(world: World, hpa: Read[Hpa], only: str) -> list[tuple[Read[Policy], Policy]]:
    """The checked policies that an HPA belongs to."""
    found = [(one, one.value) for one in wanted_policies(world, only).values() if one.value is not None]
    return [(read, policy) for read, policy in found if world.hpa_of(policy) is hpa]


def check_links(world: World, only: str = "") -> list[Finding]:
    """The findings about each policy and each HPA; with `only` of this policy and the HPAs that ask it."""
    links, found = world.links(), list[Finding]()
    for (namespace, _), read in wanted_policies(world, only).items():
        of_policy = read.findings()
        if read.value is not None:
            of_policy += _check_policy(world, links[namespace], read, read.value)
        found += of_policy or [ok(read.about, "it is valid")]
    place, _, name = only.partition("/")
    for (namespace, _), hpa in world.hpas.items():
        policies = followers(world, hpa, only)
        asks = hpa.value is not None and any(metric.names(name) for metric in hpa.value.metrics)
        if only and not policies and not (asks and namespace == place):
            continue
        of_hpa = hpa.findings()
        if hpa.value is not None:
            of_hpa += _check_hpa(world, hpa, hpa.value)
            for of, policy in policies:
                of_hpa += _check_wiring(world, links[namespace], of, policy, hpa, hpa.value)
        found += of_hpa or [ok(hpa.about, "it follows its policy")] * bool(policies)
    return found


# --- a policy ---


def _check_policy(world: World, links: Links, read: Read[Policy], policy: Policy) -> Iterator[Finding]:
    yield from _check_settings(world, read, policy)
    hpa = world.hpa_of(policy)
    if hpa is None:
        others, place = sorted(links.hpas), read.place("spec.hpa" if policy.hpa != policy.name else "metadata.name")
        if not others and not world.is_live:
            yield skipped(read.about, f"its HPA {policy.hpa} is not among the files", place=place)
            return
        text = f"there is no HPA {policy.hpa} in namespace {policy.namespace}{closest(policy.hpa, others)}"
        there = f"name one of {first_names(others, _NAMED)} in spec.hpa, or " if others else ""
        yield error(read.about, text, f"{there}write it with `effective-load migrate`", place)
    elif hpa.value is not None and not world.is_live:
        target = hpa.value.target
        workload = world.workloads.get((policy.namespace, target.identity))
        if workload is not None:
            yield from _check_basis(read, policy, workload)
        elif any(metric.relative_to is not None for metric in policy.metrics):
            text = f"{target.kind} {target.name} is not among the files, so its requests and limits are unknown"
            yield skipped(read.about, text, place=read.place("spec.metrics"))


def _check_settings(world: World, read: Read[Policy], policy: Policy) -> Iterator[Finding]:
    """What the policy names and the settings lack: its namespace, queries, registry, routes of notifications."""
    service, known = service_of(policy), world.settings
    queries = [(index, metric, metric.query) for index, metric in enumerate(policy.metrics) if metric.query is not None]
    if not known:
        needs = ["queries"] * bool(queries) + ["registry"] * (service is not None) + ["routes"] * bool(policy.notify)
        if needs:
            how = "may not be read" if world.is_live else "are not among the files"
            text = f"its {', '.join(needs)}: the settings {how}"
            yield skipped(read.about, text, "give --settings FILE", read.place())
        return
    watched = [one.kubernetes.namespaces for one in known]
    if all(namespaces and policy.namespace not in namespaces for namespaces in watched):
        text = f"the settings leave namespace {policy.namespace} out (kubernetes.namespaces)"
        yield error(read.about, text, place=read.place())
    catalogs = [_catalog(one) for one in known] if queries else []
    for index, metric, query in queries:
        asked = WorkloadQuery(query, policy.namespace, policy.name)
        resolved = [catalog.resolve(asked) for catalog in catalogs]
        if all(isinstance(one, str) for one in resolved):
            text, place = f"metric {metric.name}: {resolved[0]}", read.place(f"spec.metrics[{index}].query")
            yield error(read.about, text, place=place)
    refusals = [service and ServiceAllowlist(one.registries).refusal(service, policy.namespace) for one in known]
    if refusals[0] and all(refusals):
        yield error(read.about, refusals[0], place=read.place("spec.registry"))
    routes = {one.name for each in known for one in each.companion.notifications.routes if one.serves(policy.namespace)}
    for name in sorted(set(policy.notify) - routes):
        text = f"the settings define no route {name} for namespace {policy.namespace}"
        yield error(read.about, text, "add it, or name another", read.place("spec.notify"))


def _catalog(settings: Settings) -> QueryCatalog:
    prometheus = settings.prometheus
    names = [server.name for server in prometheus.servers]
    return QueryCatalog(names, prometheus.queries, inline_allowed=prometheus.inline_queries)


def _check_basis(read: Read[Policy], policy: Policy, workload: Workload) -> Iterator[Finding]:
    """What the workload's template lacks for the metrics, and watermarks that its limits keep out of reach."""
    for index, metric in enumerate(policy.metrics):
        place = read.place(f"spec.metrics[{index}]")
        sizes, lack, limit = MetricReader(metric).basis(workload.pod)
        for text, remedy in _lacks(metric, workload, lack):
            yield error(read.about, text, remedy, place)
        if sentence := at_limit(policy, metric, [(sizes, limit)]):
            yield error(read.about, sentence, place=place)


def _lacks(metric: Metric, workload: Workload, lack: str) -> Iterator[tuple[str, str]]:
    """What a pod lacks for a metric: the named containers, else its `lack` of requests or limits; and what to do."""
    source, names = metric.resource or metric.query, [container.name for container in workload.pod.containers]
    missing = [name for name in (source.containers if source else ()) if name not in names]
    for name in missing:
        yield f"{workload} has no container {name}{closest(name, names)}", f"there are {', '.join(names)}"
    if lack and not missing:
        where = workload.at.place("spec.template.spec.containers")
        remedy = "set it, name the containers that have one in `containers`, or drop `relativeTo`"
        yield f"{lack} in {workload} ({where}), and the metric is a share of it", remedy


# --- an HPA ---


def _check_hpa(world: World, read: Read[Hpa], hpa: Hpa) -> Iterator[Finding]:
    """What is wrong with an HPA by itself: its reference, metrics that name nothing, rivals."""
    policies = {name: one.value for (namespace, name), one in world.policies.items() if namespace == hpa.namespace}
    for index, metric in enumerate(hpa.metrics):
        for text, remedy in _dangling(world, hpa, metric, policies):
            if policies or world.is_live:
                yield error(read.about, text, remedy, read.place(f"spec.metrics[{index}]"))
            else:
                none = f"its WatermarkPolicy: none of namespace {hpa.namespace} is among the files"
                yield skipped(read.about, none, place=read.place())
        policy = policies.get(_named_policy(metric))
        if policy is not None and metric.names(policy.name) and metric.name not in _metrics_of(policy):
            text = f"WatermarkPolicy {policy.name} has no metric {metric.name}"
            guess, place = closest(metric.name, [DESIRED_REPLICAS]), metric.kind[:1].lower() + metric.kind[1:]
            at = read.place(f"spec.metrics[{index}].{place}.metric.name")
            yield error(read.about, f"{text}{guess}", f"ask for {DESIRED_REPLICAS}", at)
    if not hpa.desired_metrics and all(one is None or one.hpa != hpa.name for one in policies.values()):
        return
    for fault in reference_faults(*hpa.target):
        yield error(read.about, fault.advice, place=read.place(fault.path))
    target = f"{hpa.target.kind} {hpa.target.name}"
    for rival in world.rivals:
        if (rival.namespace, rival.target) == (hpa.namespace, hpa.target.identity):
            where = f" ({rival.at.place()})" if rival.at is not None else ""
            makes = "KEDA makes an HPA of it, and HPAs that select the same pods do not act"
            effect = makes if rival.kind == "ScaledObject" else "both set its count in turn"
            text = f"{rival.kind} {rival.name}{where} scales {target} as well: {effect}"
            yield error(read.about, text, "delete it", read.place("spec.scaleTargetRef"))
    workload = world.workloads.get((hpa.namespace, hpa.target.identity))
    if workload is not None:
        yield from _overlaps(world, read.about, hpa, workload)


def _metrics_of(policy: Policy) -> set[str]:
    """The metrics that an HPA can ask for of a policy."""
    return {
        DESIRED_REPLICAS,
        *READ_ONLY,
        *(f"{prefix}{m.name}" for m in policy.metrics for prefix in READ_ONLY_PREFIXES),
    }


def _named_policy(metric: HpaMetric) -> str:
    """The policy that a metric names; empty without one."""
    if metric.described is not None:
        return metric.described.name if (metric.described.group, metric.described.kind) == (GROUP, KIND) else ""
    is_ours = metric.name in {DESIRED_REPLICAS, *READ_ONLY} or metric.name.startswith(READ_ONLY_PREFIXES)
    is_external = metric.kind is MetricSourceType.EXTERNAL and is_ours
    return str(metric.match_labels.get(POLICY_LABEL, "")) if is_external else ""


def _dangling(
    world: World, hpa: Hpa, metric: HpaMetric, policies: dict[str, Policy | None]
) -> Iterator[tuple[str, str]]:
    """What an HPA's metric names that does not exist, and what to do."""
    name, target = _named_policy(metric), metric.described
    if name and name not in policies:
        text = f"it asks for {metric.name} of WatermarkPolicy {name}, which does not exist in namespace {hpa.namespace}"
        there = first_names(sorted(policies), _NAMED) or "none"
        yield text, f"create that policy, or name one that exists ({there})"
    if target is not None and metric.name == DESIRED_REPLICAS and not name and None not in policies.values():
        hpas = (world.hpa_of(policy) for policy in policies.values() if policy is not None)
        scaled = {one.value.target.identity for one in hpas if one is not None and one.value is not None}
        if target.identity not in scaled:
            of = f"{target.kind} {target.name}, which no WatermarkPolicy in namespace {hpa.namespace} scales"
            yield f"it asks for {DESIRED_REPLICAS} of {of}", "create a policy that names this HPA"


def _check_wiring(
    world: World, links: Links, of: Read[Policy], policy: Policy, read: Read[Hpa], hpa: Hpa
) -> list[Finding]:
    """The flaws of the wiring, each about the one of policy and HPA whose field it is; the harmful ones first."""
    wiring = Wiring(
        policy=policy,
        hpa=hpa,
        neighbours=links.neighbours(policy.name),
        has_tolerance=True if hpa.sets_tolerance and world.is_live else world.has_tolerance,
    )
    # The tolerance does not stop it where the policy asks for no step that it suppresses, as before Kubernetes 1.35.
    tolerance, stops = hpa.bounds.tolerance, set(_STOPS)
    if tolerance is not None and policy.tolerance >= max(tolerance):
        stops.discard(Reason.TOLERANCE)
    found = []
    for flaw in flaws(wiring):
        add = error if flaw.reason in stops else warning
        if flaw.reason in _OF_POLICY:
            found.append(add(of.about, flaw.message, place=of.place(_OF_POLICY[flaw.reason])))
            continue
        named = (index for index, metric in enumerate(hpa.metrics) if metric.name in flaw.message.split())
        place = read.place(_FIELDS.get(flaw.reason) or f"spec.metrics[{next(named, 0)}]")
        found.append(add(read.about, flaw.message, place=place))
    return sorted(found, key=lambda finding: not has_errors([finding]))


def _overlaps(world: World, about: str, hpa: Hpa, workload: Workload) -> Iterator[Finding]:
    """The workloads of files whose pods the selector of the HPA's target selects as well."""
    scaled = {(one.value.namespace, one.value.target.identity) for one in world.hpas.values() if one.value is not None}
    selector, place = workload.selector, workload.at.place("spec.selector")
    for (namespace, identity), other in world.workloads.items():
        if namespace != hpa.namespace or other is workload or selector is None:
            continue
        if selector.matches(other.pod.labels):
            text = f"the selector of {workload} ({selector}) also selects the pods of {other} ({other.at.place()})"
            effect = "an HPA counts those as its own, and does not act where another HPA scales them"
            add = error if (namespace, identity) in scaled else warning
            yield add(about, f"{text}; {effect}", "give each a label of its own", place)
