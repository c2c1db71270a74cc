"""How policies, HPAs, workloads and settings fit together: the same for a cluster and for files. Pure."""

from collections.abc import Collection, Iterator, Mapping

from adapter.commands.check.report import Finding, error, has_errors, ok, skipped, warning
from adapter.commands.check.world import HPA_KIND, Read, World
from adapter.commands.files import ManifestObject
from adapter.load.explanation import at_limit
from adapter.load.pod_samples import MetricReader
from adapter.load.pods import Pod
from adapter.load.spec import Policy, Query
from adapter.policy.conditions import Reason
from adapter.policy.conformance import READ_ONLY, READ_ONLY_PREFIXES, Wiring, flaws
from adapter.policy.hpa import DESIRED_REPLICAS, POLICY_LABEL, Hpa, HpaMetric
from adapter.policy.linking import Links, reference_faults
from adapter.policy.watermark_policy import GROUP, KIND
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.source import service_of
from adapter.runtime.faults import closest, first_names
from adapter.usage.query_catalog import QueryCatalog, WorkloadQuery

_NAMED = 20
_FIELDS: Mapping[Reason, str] = {
    "PolicyConflict": "spec.scaleTargetRef",
    "SharedTarget": "spec.scaleTargetRef",
    "StuckAtZero": "spec.minReplicas",
    "ScaleUpDisabled": "spec.behavior.scaleUp.selectPolicy",
    "Tolerance": "spec.behavior",
    "NoStabilization": "spec.behavior.scaleDown.stabilizationWindowSeconds",
    "WaitsTwice": "spec.behavior",
}
_OF_POLICY: Mapping[Reason, str] = {"WatermarksTooClose": "spec.metrics", "Total": "spec.algorithm"}
"""Fields of the policy, not of the HPA."""
_STOPS: Collection[Reason] = {
    "PolicyConflict", "SharedTarget", "StuckAtZero", "NotWired", "AverageValue",
    "ScaleUpDisabled", "ReadOnlyMetric", "Tolerance",
}  # fmt: skip
"""Flaws with which the HPA does not follow the policy; others are unwise."""


def check_links(world: World) -> list[Finding]:
    """The findings about each policy and each HPA; with one policy alone about it and the HPAs that ask for it."""
    links, found = world.links(), [] if world.only else list(_check_queries(world))
    for read in world.wanted:
        of_policy = read.findings()
        if read.value is not None:
            of_policy += _check_policy(world, links[read.at.namespace], read, read.value)
        found += of_policy or [ok(read.about, "it is valid")]
    place, _, name = world.only.partition("/")
    for hpa in world.hpas.values():
        policies, value = world.followers(hpa), hpa.value
        asks = value is not None and value.namespace == place and any(metric.names(name) for metric in value.metrics)
        if not policies and (not asks if world.only else world.is_live and value is None):
            continue
        of_hpa = hpa.findings()
        if value is not None:
            of_hpa += _check_hpa(world, hpa, value)
            for of, policy in policies:
                of_hpa += _check_wiring(world, links[value.namespace], of, policy, hpa, value)
        found += of_hpa or [ok(hpa.about, "it follows its policy")] * bool(policies)
    return found


# --- a policy ---


def _check_queries(world: World) -> Iterator[Finding]:
    """The queries of the settings that cannot be sent, whether or not a policy uses them."""
    for known in world.settings:
        sources = known.prometheus
        catalog = QueryCatalog([one.name for one in sources.servers], sources.queries, inline_allowed=False)
        for query in sources.queries:
            resolved = catalog.resolve(WorkloadQuery(Query(name=query.name), "namespace", "workload"))
            if isinstance(resolved, str):
                yield error("settings", f"prometheus.queries: query {query.name}: {resolved}")


def _check_policy(world: World, links: Links, read: Read[Policy], policy: Policy) -> Iterator[Finding]:
    yield from _check_settings(world, read, policy)
    hpa = world.hpa_of(policy)
    if hpa is None and HPA_KIND in world.unread:
        return
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
            yield from _check_basis(read, policy, *workload)
        elif any(metric.relative_to is not None for metric in policy.metrics):
            text = f"{target.kind} {target.name} is not among the files, so its requests and limits are unknown"
            yield skipped(read.about, text, place=read.place("spec.metrics"))


def _check_settings(world: World, read: Read[Policy], policy: Policy) -> Iterator[Finding]:
    """What the policy names and the settings lack: its namespace, queries, registry, routes of notifications."""
    service, whole = service_of(policy), read.place()
    queries = [(index, metric, metric.query) for index, metric in enumerate(policy.metrics) if metric.query is not None]
    if len(world.settings) != 1:
        needs = ["queries"] * bool(queries) + ["registry"] * (service is not None) + ["routes"] * bool(policy.notify)
        why = "several settings are among the files" if world.settings else "the settings are not known"
        if needs:
            yield skipped(read.about, f"its {', '.join(needs)}: {why}", "give --settings FILE", whole)
        return
    [known] = world.settings
    if (watched := known.kubernetes.namespaces) and policy.namespace not in watched:
        text = f"the settings leave namespace {policy.namespace} out (kubernetes.namespaces)"
        yield error(read.about, text, place=whole)
    sources = known.prometheus
    names = [server.name for server in sources.servers]
    catalog = QueryCatalog(names, sources.queries, inline_allowed=sources.inline_queries)
    for index, metric, query in queries:
        resolved = catalog.resolve(WorkloadQuery(query, policy.namespace, policy.name))
        if isinstance(resolved, str):
            text, place = f"metric {metric.name}: {resolved}", read.place(f"spec.metrics[{index}].query")
            yield error(read.about, text, place=place)
    if service and (refusal := ServiceAllowlist(known.registries).refusal(service, policy.namespace)):
        yield error(read.about, refusal, place=read.place("spec.registry"))
    routes = {one.name for one in known.companion.notifications.routes if one.serves(policy.namespace)}
    for name in sorted(set(policy.notify) - routes):
        text = f"the settings define no route {name} for namespace {policy.namespace}"
        yield error(read.about, text, "add it, or name another", read.place("spec.notify"))


def _check_basis(read: Read[Policy], policy: Policy, at: ManifestObject, pod: Pod) -> Iterator[Finding]:
    """What the workload's template lacks for the metrics, and watermarks that its limits keep out of reach."""
    workload, names = f"{at.kind} {at.name}", [container.name for container in pod.containers]
    for index, metric in enumerate(policy.metrics):
        place = read.place(f"spec.metrics[{index}]")
        sizes, lack, limit = MetricReader(metric).basis(pod)
        missing = [name for name in metric.containers if name not in names]
        for name in missing:
            text = f"{workload} has no container {name}{closest(name, names)}"
            yield error(read.about, text, f"there are {', '.join(names)}", place)
        if lack and not missing:
            where = at.place("spec.template.spec.containers")
            remedy = "set it, name the containers that have one in `containers`, or drop `relativeTo`"
            yield error(read.about, f"{lack} in {workload} ({where}), and the metric is a share of it", remedy, place)
        if sentence := at_limit(policy, metric, [(sizes, limit)]):
            yield error(read.about, sentence, place=place)


# --- an HPA ---


def _check_hpa(world: World, read: Read[Hpa], hpa: Hpa) -> Iterator[Finding]:
    """What is wrong with an HPA by itself: its reference, metrics that name nothing, rivals."""
    policies = {name: one.value for (namespace, name), one in world.policies.items() if namespace == hpa.namespace}
    for index, metric in enumerate(hpa.metrics):
        yield from _check_metric(world, read, metric, f"spec.metrics[{index}]", policies)
    if not hpa.desired_metrics and all(one is None or one.hpa != hpa.name for one in policies.values()):
        return
    for fault in reference_faults(*hpa.target):
        yield error(read.about, fault.advice, place=read.place(fault.path))
    for rival in world.rivals.get((hpa.namespace, hpa.target.identity), ()):
        makes = "KEDA makes an HPA of it, and HPAs that select the same pods do not act"
        effect = makes if rival.kind == "ScaledObject" else "both set its count in turn"
        named = f"{rival.kind} {rival.name}{f' ({rival.place()})' if rival.file else ''}"
        text = f"{named} scales {hpa.target.kind} {hpa.target.name} as well: {effect}"
        yield error(read.about, text, "delete it", read.place("spec.scaleTargetRef"))


def _check_metric(
    world: World, read: Read[Hpa], metric: HpaMetric, place: str, policies: dict[str, Policy | None]
) -> Iterator[Finding]:
    """What a metric of an HPA names that does not exist; `policies` are those of its namespace."""
    name, where = _named_policy(metric), f"in namespace {read.at.namespace}"
    if name and name not in policies and (policies or world.is_live):
        text = f"it asks for {metric.name} of WatermarkPolicy {name}, which does not exist {where}"
        there = first_names(sorted(policies), _NAMED) or "none"
        yield error(read.about, text, f"create that policy, or name one that exists ({there})", read.place(place))
    elif name and name not in policies:
        yield skipped(read.about, f"its WatermarkPolicy: none {where} is among the files", place=read.place())
    policy = policies.get(name)
    if policy is not None and metric.names(name):
        ours = {f"{prefix}{one.name}" for one in policy.metrics for prefix in READ_ONLY_PREFIXES}
        if metric.name not in {DESIRED_REPLICAS, *READ_ONLY, *ours}:
            text = f"WatermarkPolicy {name} has no metric {metric.name}{closest(metric.name, [DESIRED_REPLICAS])}"
            at = read.place(f"{place}.{metric.kind[:1].lower()}{metric.kind[1:]}.metric.name")
            yield error(read.about, text, f"ask for {DESIRED_REPLICAS}", at)


def _named_policy(metric: HpaMetric) -> str:
    """The policy that a metric names; empty without one."""
    if metric.described is not None:
        return metric.described.name if (metric.described.group, metric.described.kind) == (GROUP, KIND) else ""
    is_ours = metric.name in {DESIRED_REPLICAS, *READ_ONLY} or metric.name.startswith(READ_ONLY_PREFIXES)
    is_external = metric.kind == "External" and is_ours
    return str(metric.match_labels.get(POLICY_LABEL, "")) if is_external else ""


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
        stops.discard("Tolerance")
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
