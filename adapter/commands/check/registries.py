"""The registries: whether they answer and know the services of the policies; why a Ready pod matches no instance."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from adapter.commands.check.report import Section
from adapter.commands.check.sources import NOT_FROM_HERE
from adapter.load.matching import Mismatch, RegistrationMatch, canonical_ip, match_registrations, named_pod
from adapter.load.pods import Pod
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Policy
from adapter.load.spec import Registry as PolicyRegistry
from adapter.load.states import out_reason_of, service_registry
from adapter.registries.cache import Trouble, count_states
from adapter.registries.probe import ProbeResult, probe
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.source import ServiceKey, service_of
from adapter.settings.registries import Registry

PROBE_SERVICE = "effective-load-check"
"""The service to ask a registry about where no policy names one; `unknown` proves the connection too."""
_MOST_LISTED = 20
Probes = Mapping[str, Sequence[ProbeResult]]
"""What each registry's servers answered, by the registry's name."""
_TROUBLES = {
    "unreachable": "cannot be reached",
    "error": "could not be asked",
    "unauthenticated": "does not authenticate the adapter",
    "forbidden": "does not let the adapter read",
    "filtered": "does not let the adapter read",
}


async def check_registries(
    registries: Sequence[Registry], policies: Iterable[Policy], *, may_contact: bool
) -> tuple[list[Section], Probes]:
    """Each registry: whether its servers can be reached, accept the credentials and let the adapter read."""
    if not may_contact:
        return [Section(f"registry {one.name} ({one.type})").skipped(NOT_FROM_HERE) for one in registries], {}
    services = asked_services(registries, policies)
    keys = [services.get(one.name) or {ServiceKey(one.name, PROBE_SERVICE)} for one in registries]
    answers = await asyncio.gather(*map(probe, registries, keys, [time.time] * len(keys)))
    sections = [_registry_section(*one) for one in zip(registries, answers, strict=True)]
    return sections, {one.name: answer for one, answer in zip(registries, answers, strict=True)}


def asked_services(registries: Sequence[Registry], policies: Iterable[Policy]) -> dict[str, set[ServiceKey]]:
    """The services that the policies may name, by their registry."""
    asked: dict[str, set[ServiceKey]] = {}
    allowlist = ServiceAllowlist(registries)
    for policy in policies:
        service = service_of(policy)
        if service is not None and not allowlist.refusal(service, policy.namespace):
            asked.setdefault(service.registry, set()).add(service)
    return asked


def _registry_section(settings: Registry, probes: Sequence[ProbeResult]) -> Section:
    section = Section(f"registry {settings.name} ({settings.type})")
    for one in probes:
        trouble = None if one.instances else next(iter(one.troubles.values()), None)
        if trouble is None:
            how = "accepts the credentials" if settings.has_credentials else "asks for no credentials"
            section.ok(f"{one.server} {how} and lets the adapter read")
        elif trouble.reason == "unknown" and any(key.service == PROBE_SERVICE for key in one.troubles):
            section.ok(f"{one.server} answers")
        elif trouble.reason != "unknown":  # of a service, not of the registry
            text = _TROUBLES.get(trouble.reason, "gives no usable answer")
            section.error(f"{one.server} {text}: {_sentence(one.server, trouble)}")
    return section


def _sentence(server: str, trouble: Trouble) -> str:
    """The trouble's sentence without the server's address at its start, which the finding names already."""
    return trouble.sentence.removeprefix(server).removeprefix(": ")


def add_registrations(section: Section, policy: Policy, pods: Sequence[Pod] | None, probes: Probes) -> None:
    """Add whether the registry knows the policy's service, and which of the pods (None: unknown) match an instance."""
    key, registry = service_of(policy), service_registry(policy)
    if key is None or registry is None or key.registry not in probes:
        return
    answers = probes[key.registry]
    places = [f"namespace {key.namespace}"] * bool(key.namespace) + [f"group {key.group}"] * bool(key.group)
    named = " ".join([f"service {key.service} of registry {key.registry}", *places])
    for one in answers:
        if key in one.troubles:
            section.error(f"{named}: {one.server}: {_sentence(one.server, one.troubles[key])}")
    lists = {one.server: one.instances[key] for one in answers if key in one.instances}
    if len({_count(one) for one in lists.values()}) > 1:
        counts = ", ".join(f"{server} lists {_count(one)}" for server, one in lists.items())
        section.warning(f"{named}: its servers differ: {counts}")
    roster = max(lists.values(), key=lambda listed: len(listed.instances), default=None)
    if roster is not None:
        _add_roster(section, named, roster)
        if pods is not None and (roster.instances or not roster.absence_counts):
            _add_matches(section, registry, pods, roster)


def _add_roster(section: Section, named: str, roster: Roster) -> None:
    """Add what the list of a service is worth."""
    if roster.error is not None:
        section.error(f"{named}: {roster.error}")
    elif roster.instances:
        section.ok(f"{named} is known: {_count(roster)}")
    elif roster.absence_counts:
        section.error(f"{named}: no instance is registered under this name; check service, namespace and group")
    if roster.protected:
        section.warning("the registry protects itself: it calls unhealthy instances healthy, so health is no evidence")


def _count(roster: Roster) -> str:
    states = ", ".join(f"{count:.0f} {state}" for state, count in count_states(roster.instances).items() if count)
    number = len(roster.instances)
    return f"{number} instance{'s' * (number != 1)}" + (f" ({states})" if states else "")


def _add_matches(section: Section, registry: PolicyRegistry, pods: Sequence[Pod], roster: Roster) -> None:
    """The pods with an instance that counts, and those without, and why."""
    matches = list(match_registrations(pods, roster, registry))
    by_pod: dict[str, list[Instance]] = {}
    for instance, pod, mismatch in matches:
        if pod is not None and mismatch is None:
            by_pod.setdefault(pod.uid, []).append(instance)
    living = [pod for pod in pods if not pod.deleting and pod.phase not in {"Failed", "Succeeded"}]
    matched = [pod for pod in living if pod.uid in by_pod]
    add = section.ok if matched or not living or not roster.absence_counts else section.error
    add(f"{len(matched)} of {len(living)} pods match an instance")
    for pod in living:
        if pod not in matched:
            add = section.error if pod.is_ready and roster.absence_counts else section.warning
            add(f"pod {pod.name} matches no instance: {why_unmatched(pod, matches, registry)}")
        elif word := out_reason_of(by_pod[pod.uid], registry, roster):
            section.warning(f"pod {pod.name} is out: {word}")
    strangers = [match for match in matches if match.mismatch is not None]
    for match in strangers[:_MOST_LISTED]:
        section.warning(f"instance {address(match.instance)} counts for no pod: {match.mismatch}")
    if len(strangers) > _MOST_LISTED:
        section.warning(f"{len(strangers) - _MOST_LISTED} more instances count for no pod")


def why_unmatched(pod: Pod, matches: Sequence[RegistrationMatch], registry: PolicyRegistry) -> str:
    """The likeliest reason why no registration counts for a pod: a sentence without a full stop."""
    reasons = sorted(reason for match in matches for reason in _reasons(pod, match, registry))
    nowhere = f"no instance is registered at its address ({', '.join(pod.ips)})" if pod.ips else "it has no address yet"
    unready = "it is not Ready, and services register once they are"
    return reasons[0][1] if reasons else nowhere if pod.is_ready else unready


def _reasons(pod: Pod, match: RegistrationMatch, registry: PolicyRegistry) -> Iterator[tuple[int, str]]:
    """What one registration says of a pod, with its rank: the smaller the likelier."""
    instance, node, at = match.instance, canonical_ip(pod.host_ip), canonical_ip(match.instance.ip)
    if match.pod is pod and match.mismatch:
        yield 0, f"{address(instance)}: {match.mismatch}"
    if at in {canonical_ip(ip) for ip in pod.ips} and (why := _not_counted(pod, match, registry)):
        yield 1, f"{address(instance)} is registered, but {why}"
    for key, value in instance.metadata.items():
        if value == pod.name:
            yield 2, f"{address(instance)} carries its name under {key}; write registry.podNameKey: {key}"
    if node and at == node:
        where = f"{address(instance)} is registered at the address of its node"
        yield 3, f"{where}; register the pod's own, or let instances carry their pod's name (registry.podNameKey)"


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
