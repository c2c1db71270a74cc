"""How policies, HPAs, workloads and settings fit together: the same for a cluster and for files. Pure."""

from collections.abc import Callable, Iterator, Sequence

from adapter.commands.check.report import Section
from adapter.commands.check.sources import catalog_of
from adapter.commands.check.world import Read, Workload, World
from adapter.kube.selectors import LabelSelector
from adapter.load.findings import at_limit
from adapter.load.pod_samples import MetricReader
from adapter.load.pods import Pod
from adapter.load.spec import Metric, Policy
from adapter.policy.conditions import Reason
from adapter.policy.conformance import READ_ONLY, READ_ONLY_PREFIXES, Flaw, Wiring, flaws
from adapter.policy.hpa import DESIRED_REPLICAS, POLICY_LABEL, Hpa, HpaMetric, MetricSourceType
from adapter.policy.linking import Links, reference_faults
from adapter.policy.watermark_policy import GROUP, KIND
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.source import service_of
from adapter.runtime.faults import Fault, closest, first_names
from adapter.usage.query_catalog import WorkloadQuery

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


def check_links(
    world: World, only: str = "", more: Callable[[Section, Policy], None] = lambda *_: None
) -> list[Section]:
    """A section for each policy and each HPA; with `only` for one policy (NAMESPACE/NAME) and the HPAs that ask it.

    `more` adds what else is known of a policy, before its HPA is judged.
    """
    links, sections = world.links(), dict[str, Section]()
    wanted = {key: read for key, read in world.policies.items() if only in {"", "/".join(key)}}
    for (namespace, name), read in wanted.items():
        section = sections[f"policy {namespace}/{name}"] = Section(f"policy {namespace}/{name}")
        _add_faults(section, read)
        if read.value is not None:
            _policy(world, links, read, read.value, section)
            more(section, read.value)
    place, _, of = only.partition("/")
    for (namespace, name), hpa in world.hpas.items():
        followers = [
            one for one in wanted.values() if one.value and (one.value.namespace, one.value.hpa) == (namespace, name)
        ]
        asks = hpa.value is not None and any(metric.names(of) for metric in hpa.value.metrics)
        if not only or followers or (asks and namespace == place):
            section = sections[f"HPA {namespace}/{name}"] = Section(f"HPA {namespace}/{name}")
            _add_faults(section, hpa)
            if hpa.value is not None:
                _hpa(world, hpa, hpa.value, section)
                _followed(world, links, hpa, hpa.value, followers, sections)
    for section in sections.values():
        if section.about.startswith("policy") and not section.findings:
            section.ok("it is valid and fits its HPA")
    return [section for section in sections.values() if section.findings]


def _followed(
    world: World,
    links: dict[str, Links],
    read: Read[Hpa],
    hpa: Hpa,
    followers: Sequence[Read[Policy]],
    sections: dict[str, Section],
) -> None:
    """Add how an HPA follows its policies; its own error, unless a fault of it or of a policy explains that."""
    section = sections[f"HPA {hpa.namespace}/{hpa.name}"]
    policies = [(one, one.value) for one in followers if one.value is not None]
    for follower, policy in policies:
        _add_flaws(world, links, follower, policy, read, hpa, section, sections[f"policy {_key(policy)}"])
    explained = section.has_errors or any(sections[f"policy {_key(policy)}"].has_errors for _, policy in policies)
    if hpa.inactive and not explained and (hpa.desired_metrics or policies):
        section.error(hpa.inactive)
    if policies and not section.findings:
        section.ok("it follows its policy")


def _key(policy: Policy) -> str:
    return f"{policy.namespace}/{policy.name}"


def _add_faults(section: Section, read: Read[Policy] | Read[Hpa]) -> None:
    """Add why an object is not valid; the path is part of the place where there is a file."""
    for fault in read.faults:
        text = str(Fault("", fault.value, fault.advice)) if read.at is not None else f"it is not valid: {fault}"
        section.error(text, read.place(fault.path))


# --- a policy ---


def _policy(world: World, links: dict[str, Links], read: Read[Policy], policy: Policy, section: Section) -> None:
    _settings(world, read, policy, section)
    hpa = world.hpa_of(policy)
    if hpa is None:
        others = sorted(links[policy.namespace].hpas)
        place = read.place("spec.hpa" if policy.hpa != policy.name else "metadata.name")
        if not others and not world.is_live:
            section.skipped(f"its HPA {policy.hpa} is not among the files", place)
            return
        there = f"; name one of {first_names(others, _NAMED)} in spec.hpa, or" if others else ";"
        text = f"there is no HPA {policy.hpa} in namespace {policy.namespace}{closest(policy.hpa, others)}{there}"
        section.error(f"{text} write it with `effective-load migrate`", place)
        return
    trouble = world.troubles.get((policy.namespace, policy.name))
    workload = world.workload_of_policy(policy)
    if trouble:
        add = section.skipped if trouble.startswith("this account") else section.error
        add(f"its pods, for {trouble}" if trouble.startswith("this account") else trouble)
    if workload is None:
        if not world.is_live and any(metric.relative_to is not None for metric in policy.metrics) and hpa.value:
            target = hpa.value.target
            text = f"{target.kind} {target.name} is not among the files, so its requests and limits are unknown"
            section.skipped(text, read.place("spec.metrics"))
        return
    for index, metric in enumerate(policy.metrics):
        limit = at_limit(policy, _serving(workload)).get(metric.name)
        for text in (*_lacks(metric, workload), *([limit] if limit else ())):
            section.error(text, read.place(f"spec.metrics[{index}]"))
    if hpa.value is not None and workload.replicas == 0 and hpa.value.bounds.minimum > 0:
        section.warning(
            f"its target was scaled to 0 by hand: an HPA with minReplicas {hpa.value.bounds.minimum} rests there until "
            "somebody scales it to 1 or more"
        )
    _strangers(workload, section)


def _settings(world: World, read: Read[Policy], policy: Policy, section: Section) -> None:
    """Add what the policy names and the settings lack: its namespace, queries, registry, routes of notifications."""
    service, known = service_of(policy), world.settings
    queries = [(index, metric, metric.query) for index, metric in enumerate(policy.metrics) if metric.query is not None]
    if not known:
        needs = ["queries"] * bool(queries) + ["registry"] * (service is not None) + ["routes"] * bool(policy.notify)
        if needs:
            how = "may not be read" if world.is_live else "are not among the files"
            section.skipped(f"its {', '.join(needs)}: the settings {how} (--settings FILE)", read.place())
        return
    watched = [one.kubernetes.namespaces for one in known]
    if all(namespaces and policy.namespace not in namespaces for namespaces in watched):
        section.error(f"the settings leave namespace {policy.namespace} out (kubernetes.namespaces)", read.place())
    for index, metric, named in queries:
        query = WorkloadQuery(named, policy.namespace, policy.name)
        resolved = [catalog_of(one).resolve(query) for one in known]
        if all(isinstance(one, str) for one in resolved):
            section.error(f"metric {metric.name}: {resolved[0]}", read.place(f"spec.metrics[{index}].query"))
    refusals = [service and ServiceAllowlist(one.registries).refusal(service, policy.namespace) for one in known]
    if refusals[0] and all(refusals):
        section.error(refusals[0], read.place("spec.registry"))
    routes = {one.name for each in known for one in each.companion.notifications.routes if one.serves(policy.namespace)}
    for name in set(policy.notify) - routes:
        text = f"the settings define no route {name} for namespace {policy.namespace}; add it, or name another"
        section.error(text, read.place("spec.notify"))


def _serving(workload: Workload) -> list[Pod]:
    """The pods that run, or the template's."""
    return [pod for pod in workload.pods if workload.at is not None or (pod.is_ready and not pod.deleting)]


def _lacks(metric: Metric, workload: Workload) -> Iterator[str]:
    """What a pod lacks for a metric: the named containers, their requests or limits."""
    source, target = metric.resource or metric.query, workload.reference
    for pod in _serving(workload)[:1]:
        names = [container.name for container in pod.containers]
        missing = [name for name in (source.containers if source else ()) if name not in names]
        for name in missing:
            there = f"there are {', '.join(names)}"
            yield f"{target.kind} {target.name} has no container {name}{closest(name, names)}; {there}"
        lack = "" if missing else MetricReader(metric).basis(pod)[1]
        if lack:
            where = f" ({workload.at.place('spec.template.spec.containers')})" if workload.at is not None else ""
            yield (
                f"{lack} in {target.kind} {target.name}{where}, and the metric is a share of it; set it, name the "
                "containers that have one in `containers`, or drop `relativeTo`"
            )


def _strangers(workload: Workload, section: Section) -> None:
    """Add the pods of other controllers that the target's selector matches."""
    owners = sorted({f"{pod.owner.kind} {pod.owner.name}" for pod in workload.others if pod.owner is not None})
    if owners:
        section.warning(
            f"the selector of {workload.reference.kind} {workload.reference.name} also matches {len(workload.others)} "
            f"pods of {first_names(owners, 3)}: the HPA counts them; give each workload a label of its own"
        )


# --- an HPA ---


def _hpa(world: World, read: Read[Hpa], hpa: Hpa, section: Section) -> None:
    """Add what is wrong with an HPA by itself: its reference, metrics that name nothing, rivals."""
    policies = {name: one.value for (namespace, name), one in world.policies.items() if namespace == hpa.namespace}
    is_follower = bool(hpa.desired_metrics) or any(one is not None and one.hpa == hpa.name for one in policies.values())
    for index, metric in enumerate(hpa.metrics):
        for text in _dangling(world, hpa, metric, policies):
            if policies or world.is_live:
                section.error(text, read.place(f"spec.metrics[{index}]"))
            else:
                section.skipped(
                    f"its WatermarkPolicy: none of namespace {hpa.namespace} is among the files", read.place()
                )
        _misnamed(read, index, metric, policies.get(_named_policy(metric)), section)
    if not is_follower:
        return
    for fault in reference_faults(*hpa.target):
        section.error(fault.advice, read.place(fault.path))
    for rival in world.rivals:
        if (rival.namespace, rival.target) == (hpa.namespace, hpa.target.identity):
            where = f" ({rival.at.place()})" if rival.at is not None else ""
            makes = "KEDA makes an HPA of it, and HPAs that select the same pods do not act"
            effect = makes if rival.kind == "ScaledObject" else "both set its count in turn"
            target = f"{hpa.target.kind} {hpa.target.name}"
            text = f"{rival.kind} {rival.name}{where} scales {target} as well: {effect}; delete it"
            section.error(text, read.place("spec.scaleTargetRef"))
    workload = world.workload_of(hpa)
    if workload is not None and workload.selector is not None:
        _overlaps(world, hpa, workload, workload.selector, section)


def _misnamed(read: Read[Hpa], index: int, metric: HpaMetric, policy: Policy | None, section: Section) -> None:
    """Add a metric that its policy does not have."""
    if policy is None or not metric.names(policy.name):
        return
    known = [f"{prefix}{one.name}" for one in policy.metrics for prefix in READ_ONLY_PREFIXES]
    if metric.name not in {DESIRED_REPLICAS, *READ_ONLY, *known}:
        guess = closest(metric.name, [DESIRED_REPLICAS])
        text = f"WatermarkPolicy {policy.name} has no metric {metric.name}{guess}; ask for {DESIRED_REPLICAS}"
        source = f"{metric.kind[:1].lower()}{metric.kind[1:]}"
        section.error(text, read.place(f"spec.metrics[{index}].{source}.metric.name"))


def _named_policy(metric: HpaMetric) -> str:
    """The policy that a metric names; empty without one."""
    if metric.described is not None:
        return metric.described.name if (metric.described.group, metric.described.kind) == (GROUP, KIND) else ""
    is_ours = metric.name in {DESIRED_REPLICAS, *READ_ONLY} or metric.name.startswith(READ_ONLY_PREFIXES)
    is_external = metric.kind is MetricSourceType.EXTERNAL and is_ours
    return str(metric.match_labels.get(POLICY_LABEL, "")) if is_external else ""


def _dangling(world: World, hpa: Hpa, metric: HpaMetric, policies: dict[str, Policy | None]) -> Iterator[str]:
    """What an HPA's metric names that does not exist."""
    name, target = _named_policy(metric), metric.described
    if name and name not in policies:
        there = first_names(sorted(policies), _NAMED) or "none"
        yield (
            f"it asks for {metric.name} of WatermarkPolicy {name}, which does not exist in namespace {hpa.namespace}; "
            f"create that policy, or name one that exists ({there})"
        )
    if target is not None and metric.name == DESIRED_REPLICAS and not name and None not in policies.values():
        hpas = (world.hpa_of(policy) for policy in policies.values() if policy is not None)
        scaled = {one.value.target.identity for one in hpas if one is not None and one.value is not None}
        if target.identity not in scaled:
            yield (
                f"it asks for {DESIRED_REPLICAS} of {target.kind} {target.name}, which no WatermarkPolicy in namespace "
                f"{hpa.namespace} scales; create a policy that names this HPA"
            )


def _add_flaws(
    world: World,
    links: dict[str, Links],
    read: Read[Policy],
    policy: Policy,
    of_hpa: Read[Hpa],
    hpa: Hpa,
    section: Section,
    of_policy: Section,
) -> None:
    """Add the flaws of the wiring, each to the one of policy and HPA whose field it is; the harmful ones first."""
    wiring = Wiring(
        policy=policy,
        hpa=hpa,
        neighbours=links[hpa.namespace].neighbours(policy.name),
        has_tolerance=True if hpa.sets_tolerance and world.is_live else world.has_tolerance,
    )
    for flaw in sorted(flaws(wiring), key=lambda flaw: not _stops(flaw, wiring)):
        named = (index for index, metric in enumerate(hpa.metrics) if metric.name in flaw.message.split())
        path = _FIELDS.get(flaw.reason) or f"spec.metrics[{next(named, 0)}]"
        about, place = section, of_hpa.place(path)
        if flaw.reason in _OF_POLICY:
            about, place = of_policy, read.place(_OF_POLICY[flaw.reason])
        add = about.error if _stops(flaw, wiring) else about.warning
        add(flaw.message, place)


def _stops(flaw: Flaw, wiring: Wiring) -> bool:
    """Whether the HPA does not follow the policy because of the flaw.

    A tolerance does not stop it where the policy asks for no step that it suppresses, as before Kubernetes 1.35.
    """
    tolerance = wiring.hpa.bounds.tolerance
    if flaw.reason is Reason.TOLERANCE and tolerance is not None and wiring.policy.tolerance >= max(tolerance):
        return False
    return flaw.reason in _STOPS


def _overlaps(world: World, hpa: Hpa, workload: Workload, selector: LabelSelector, section: Section) -> None:
    """Add the workloads of files whose pods the selector of the HPA's target selects as well."""
    scaled = {(one.value.namespace, one.value.target.identity) for one in world.hpas.values() if one.value is not None}
    target = workload.reference
    for (namespace, identity), other in world.workloads.items():
        is_same = namespace != hpa.namespace or identity == target.identity
        if is_same or other.at is None or not selector.matches(other.pods[0].labels):
            continue
        add = section.error if (namespace, identity) in scaled else section.warning
        add(
            f"the selector of {target.kind} {target.name} ({selector}) also selects the pods of {other.reference.kind} "
            f"{other.reference.name} ({other.at.place()}); an HPA counts those as its own, and does not act where "
            "another HPA scales them; give each a label of its own",
            workload.at.place("spec.selector") if workload.at is not None else None,
        )
