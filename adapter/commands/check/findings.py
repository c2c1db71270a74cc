"""Findings about registries, their services, the pods of policies, and HPAs. Pure: everything was read before."""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from adapter.commands.check.report import ReportSection, SubjectKind
from adapter.commands.cluster import ListedPolicy
from adapter.load.findings import at_limit
from adapter.load.matching import Mismatch, RegistrationMatch, canonical_ip, match_registrations, named_pod
from adapter.load.pods import Pod
from adapter.load.quantity import NANO
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Capacity, Metric, Policy, ResourceMetric, Strategy, Target
from adapter.load.spec import Registry as PolicyRegistry
from adapter.load.states import out_reason_of
from adapter.policy.conditions import Reason
from adapter.policy.conformance import READ_ONLY, READ_ONLY_PREFIXES, Flaw, Wiring, flaws
from adapter.policy.hpa import (
    DEFAULT_TOLERANCE,
    DESIRED_REPLICAS,
    POLICY_LABEL,
    CrossVersionReference,
    Hpa,
    MetricSourceType,
    MetricTargetType,
)
from adapter.policy.watermark_policy import GROUP, KIND
from adapter.registries.cache import Trouble, count_states
from adapter.registries.probe import ProbeResult
from adapter.registries.source import ServiceKey
from adapter.runtime.faults import first_names
from adapter.settings.registries import Registry

PROBE_SERVICE = "effective-load-check"
"""The service to ask a registry about where no policy names one; `unknown` proves the connection too."""
MAX_LISTED = 20
"""Instances without a pod that are listed; further ones are counted."""


def registry_section(settings: Registry, probes: Sequence[ProbeResult]) -> ReportSection:
    """How far the adapter gets with each server of a registry: reached, authenticated, allowed; a failure ends it."""
    section = ReportSection(f"registry {settings.name} ({settings.type})", SubjectKind.REGISTRY)
    for probe in probes:
        server, trouble = probe.server, None if probe.instances else next(iter(probe.troubles.values()))
        if trouble is None or trouble.reason not in {"unreachable", "error"}:
            section.ok(f"{server} can be reached")
        if trouble is None:
            section.ok(
                f"{server} {'accepts the credentials' if settings.has_credentials else 'asks for no credentials'}"
            )
            section.ok(f"{server} lets the adapter read")
        elif trouble.reason == "unknown" and any(key.service == PROBE_SERVICE for key in probe.troubles):
            text = "was asked about a service that does not exist; name one that does"
            section.note(f"{server} {text}: {_sentence(server, trouble)}")
        else:
            text = _TROUBLES.get(trouble.reason, "gives no usable answer")
            section.wrong(f"{server} {text}: {_sentence(server, trouble)}")
    return section


_TROUBLES = {
    "unreachable": "cannot be reached",
    "error": "could not be asked",
    "unauthenticated": "does not authenticate the adapter",
    "forbidden": "does not let the adapter read",
    "filtered": "does not let the adapter read",
}
"""How far the adapter gets, by the reason of a registry's trouble."""


def _sentence(server: str, trouble: Trouble) -> str:
    """The trouble's sentence without the server's address at its start, which the finding names already."""
    return trouble.sentence.removeprefix(server).removeprefix(": ")


def service_section(key: ServiceKey, probes: Sequence[ProbeResult]) -> ReportSection:
    """Whether a registry knows a service, and how many instances it lists."""
    places = [f"namespace {key.namespace}"] * bool(key.namespace) + [f"group {key.group}"] * bool(key.group)
    section = ReportSection(
        " ".join([f"service {key.service} of registry {key.registry}", *places]), SubjectKind.SERVICE
    )
    for probe in probes:
        if key in probe.troubles and probe.instances:
            section.wrong(f"{probe.server}: {_sentence(probe.server, probe.troubles[key])}")
    counts = {probe.server: _count(probe.instances[key]) for probe in probes if key in probe.instances}
    for server, count in counts.items() if len(set(counts.values())) > 1 else ():
        section.note(f"{server} lists {count}: servers differ")
    best = fullest_list(key, probes)
    if best is None:
        section.wrong("no server gave a valid answer about it")
    else:
        if best.error is not None:
            section.wrong(best.error)
        if best.instances:
            section.ok(f"it is known: {_count(best)}")
        elif best.error is None and best.absence_counts:
            section.wrong("no instance is registered under this name; check service, namespace and group")
        elif best.error is None:
            section.ok("it is known, and no pod is listed, so all of them serve")
        if best.protected:
            section.note("the registry protects itself: it calls unhealthy instances healthy, so health is no evidence")
    return section


def fullest_list(key: ServiceKey, probes: Sequence[ProbeResult]) -> Roster | None:
    """The list with the most instances if servers differ; None if no server gave one."""
    lists = (probe.instances[key] for probe in probes if key in probe.instances)
    return max(lists, key=lambda listed: len(listed.instances), default=None)


def _count(roster: Roster) -> str:
    states = count_states(roster.instances)
    by_state = ", ".join(f"{count:.0f} {state}" for state, count in states.items() if count)
    number = len(roster.instances)
    return f"{number} instance{'s' * (number != 1)}" + (f" ({by_state})" if by_state else "")


def add_pod_matches(
    section: ReportSection, registry: PolicyRegistry, target: Target, pods: Sequence[Pod], roster: Roster
) -> None:
    """The pods of a target with an instance that counts, and those without, and why."""
    registrations = list(match_registrations(pods, roster, registry))
    by_pod: dict[str, list[Instance]] = {}
    for instance, pod, miss in registrations:
        if pod is not None and miss is None:
            by_pod.setdefault(pod.uid, []).append(instance)
    living = [pod for pod in pods if not pod.deleting and pod.phase not in {"Failed", "Succeeded"}]
    matched = [pod for pod in living if pod.uid in by_pod]
    add = section.ok if matched or not living or not roster.absence_counts else section.wrong
    add(f"{len(matched)} of {len(living)} pods of {target.kind} {target.name} match an instance")
    for pod in matched:
        word = out_reason_of(by_pod[pod.uid], registry, protected=roster.protected)
        if word:
            section.note(f"pod {pod.name} is out: {word}")
    for pod in living:
        if pod.uid not in by_pod:
            add = section.wrong if pod.is_ready and roster.absence_counts else section.note
            add(f"pod {pod.name} matches no instance: {why_unmatched(pod, registrations, registry)}")
    without_pod = [claim for claim in registrations if claim.mismatch is not None]
    for claim in without_pod[:MAX_LISTED]:
        section.note(f"instance {address(claim.instance)} counts for no pod: {claim.mismatch}")
    if len(without_pod) > MAX_LISTED:
        reasons = Counter(str(claim.mismatch) for claim in without_pod[MAX_LISTED:])
        counts = "; ".join(f"{count} because {reason}" for reason, count in sorted(reasons.items()))
        section.note(f"{len(without_pod) - MAX_LISTED} more instances count for no pod: {counts}")


def targets_at_limit(hpa: Hpa, pods: Sequence[Pod]) -> Iterator[tuple[int, str]]:
    """The CPU metrics of an HPA, by their place, whose target and tolerance no pod passes within its CPU limit."""
    tolerance = DEFAULT_TOLERANCE if hpa.scale_up.tolerance is None else hpa.scale_up.tolerance
    for index, metric in enumerate(hpa.metrics):
        is_resource = metric.kind in {MetricSourceType.RESOURCE, MetricSourceType.CONTAINER_RESOURCE}
        if not is_resource or metric.name != "cpu" or metric.aim is None:
            continue
        by_percent = metric.target is MetricTargetType.UTILIZATION
        source = ResourceMetric(
            name="cpu",
            relative_to=Capacity.REQUEST if by_percent else None,
            containers=(metric.container,) if metric.container else (),
        )
        target = Fraction(metric.aim * NANO, 100) if by_percent else Fraction(metric.aim)
        rule = Policy(
            namespace=hpa.namespace,
            name=hpa.name,
            hpa=hpa.name,
            strategy=Strategy.RATIO,
            tolerance=tolerance,
            metrics=(Metric(name=metric.name, resource=source, target=target),),
        )
        yield from ((index, sentence) for sentence in at_limit(rule, pods).values())


_STOPS = {
    Reason.POLICY_CONFLICT, Reason.SHARED_TARGET, Reason.STUCK_AT_ZERO, Reason.NOT_WIRED, Reason.AVERAGE_VALUE,
    Reason.READ_ONLY_METRIC, Reason.TOLERANCE,
}  # fmt: skip
"""Flaws with which the HPA does not follow the policy; others are unwise."""


def stops(flaw: Flaw, wiring: Wiring) -> bool:
    """Whether the HPA does not follow the policy because of the flaw.

    A tolerance does not, where the policy asks for no step that it suppresses, as before Kubernetes 1.35.
    """
    tolerance = wiring.hpa.bounds.tolerance
    if flaw.reason is Reason.TOLERANCE and tolerance is not None and wiring.policy.tolerance >= max(tolerance):
        return False
    return flaw.reason in _STOPS


def hpa_section(wiring: Wiring) -> ReportSection:
    """The flaws of a policy's HPA: wrong where it does not follow the policy, else notes."""
    hpa = wiring.hpa
    section = ReportSection(f"HPA {hpa.namespace}/{hpa.name} of policy {wiring.policy.name}", SubjectKind.HPA)
    for flaw in sorted(flaws(wiring), key=lambda flaw: not stops(flaw, wiring)):
        add = section.wrong if stops(flaw, wiring) else section.note
        add(flaw.message)
    if not section.findings and not hpa.inactive:
        asked = hpa.asks_for(wiring.policy.name)
        section.ok("it sets the count that is decided" if asked else "it is left as it is: the policy only observes")
    return section


def dangling_hpas(hpas: Sequence[Hpa], policies: Sequence[ListedPolicy]) -> Iterator[ReportSection]:
    """A section for each HPA that names a policy, or a scale target of one, that does not exist in its namespace."""
    for namespace in sorted({hpa.namespace for hpa in hpas}):
        here = [policy for policy in policies if policy.namespace == namespace]
        hpas_here = [hpa for hpa in hpas if hpa.namespace == namespace]
        followed = {policy.policy.hpa for policy in here if policy.policy is not None}
        scaled = frozenset(hpa.target.identity for hpa in hpas_here if hpa.name in followed)
        # The target of a policy that is not valid is unknown.
        known_targets = scaled if all(policy.policy is not None for policy in here) else None
        for hpa in sorted(hpas_here, key=lambda hpa: hpa.name):
            section = ReportSection(f"HPA {namespace}/{hpa.name}", SubjectKind.HPA)
            for text in dict.fromkeys(_dangling_metrics(hpa, here, known_targets)):
                section.wrong(text)
            if section.findings:
                yield section


def _dangling_metrics(
    hpa: Hpa, policies: Sequence[ListedPolicy], scaled: frozenset[CrossVersionReference] | None
) -> Iterator[str]:
    names = {policy.name for policy in policies}
    for metric in hpa.metrics:
        name, target = "", metric.described
        if target is not None:
            name = target.name if (target.group, target.kind) == (GROUP, KIND) else ""
        elif metric.kind is MetricSourceType.EXTERNAL and (
            metric.name in {DESIRED_REPLICAS, *READ_ONLY} or metric.name.startswith(READ_ONLY_PREFIXES)
        ):
            name = str(metric.match_labels.get(POLICY_LABEL, ""))
        if name and name not in names:
            there = first_names(sorted(names), MAX_LISTED) or "none"
            yield (
                f"it asks for {metric.name} of WatermarkPolicy {name}, which does not exist in namespace "
                f"{hpa.namespace}; create that policy, or name one that exists ({there})"
            )
        by_target = target is not None and metric.name == DESIRED_REPLICAS and not name
        if by_target and target is not None and scaled is not None and target.identity not in scaled:
            yield (
                f"it asks for {DESIRED_REPLICAS} of {target.kind} {target.name}, which no WatermarkPolicy in namespace "
                f"{hpa.namespace} scales; create a policy that names this HPA"
            )


def why_unmatched(pod: Pod, matches: Sequence[RegistrationMatch], registry: PolicyRegistry) -> str:
    """The likeliest reason why no registration counts for a pod: a sentence without a full stop."""
    ips, node = {canonical_ip(ip) for ip in pod.ips}, canonical_ip(pod.host_ip)
    reasons = [
        f"{address(match.instance)}: {match.mismatch}" for match in matches if match.pod is pod and match.mismatch
    ]
    reasons += (
        f"{address(match.instance)} is registered, but {why}"
        for match in matches
        if canonical_ip(match.instance.ip) in ips and (why := _not_counted(pod, match, registry))
    )
    reasons += (
        f"{address(match.instance)} carries its name under {key}; write registry.podNameKey: {key}"
        for match in matches
        for key, value in match.instance.metadata.items()
        if value == pod.name
    )
    reasons += (
        f"{address(match.instance)} is registered at the address of its node; register the pod's own, or let instances "
        "carry their pod's name (registry.podNameKey)"
        for match in matches
        if node and canonical_ip(match.instance.ip) == node
    )
    if not pod.is_ready:
        reasons.append("it is not Ready, and services register once they are")
    nowhere = f"no instance is registered at its address ({', '.join(pod.ips)})" if pod.ips else "it has no address yet"
    return reasons[0] if reasons else nowhere


def address(instance: Instance) -> str:
    """Where an instance is registered: `10.0.0.1:8080`, `[fd00::1]:8080`."""
    ip = f"[{canonical_ip(instance.ip)}]" if ":" in instance.ip else instance.ip
    return ip if instance.port is None else f"{ip}:{instance.port}"


def _not_counted(pod: Pod, match: RegistrationMatch, registry: PolicyRegistry) -> str:
    """Why a registration at a pod's address is none of the pod; empty where nothing is known."""
    instance = match.instance
    named = named_pod(instance, registry) or instance.pod_uid or (match.pod.name if match.pod else "")
    if match.pod is not None:
        return f"as pod {named}"
    shares = "it is on the host network" if pod.host_network else "it shares its address with other pods"
    sentences = {
        **dict.fromkeys((Mismatch.NAME, Mismatch.UID, Mismatch.OTHER_ADDRESS), f"as pod {named}"),
        Mismatch.NAMESPACE: f"as a pod of namespace {instance.pod_namespace}",
        Mismatch.OTHER_PORT: f"the policy counts port {registry.port} only (registry.port)",
        Mismatch.UNDECLARED_PORT: f"{shares} and declares no such port; declare it as a containerPort, name it in "
        "registry.port, or let instances carry their pod's name (registry.podNameKey)",
        Mismatch.AMBIGUOUS: "several pods have that address and port; let instances carry their pod's name "
        "(registry.podNameKey)",
    }
    return sentences.get(match.mismatch, "") if match.mismatch is not None else ""
