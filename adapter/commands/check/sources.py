"""The sources of load and the registries: whether they answer and know the services; why a pod matches no instance."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from adapter.commands.check.report import Finding, error, ok, skipped, warning
from adapter.commands.cluster import reason
from adapter.kube.api import POD_METRICS
from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.session import Session
from adapter.load.pods import Pod
from adapter.load.roster import (
    Instance,
    Mismatch,
    RegistrationMatch,
    Roster,
    canonical_ip,
    match_registrations,
    named_pod,
)
from adapter.load.spec import Policy, Registry
from adapter.load.states import out_reason_of, service_registry
from adapter.registries.cache import count_states
from adapter.registries.follow import ProbeResult, probe
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.source import ServiceKey, service_of
from adapter.runtime.http import MIB
from adapter.runtime.source_errors import SourceError
from adapter.settings import PrometheusServer, Settings, registries
from adapter.usage.prometheus_api import PrometheusClient
from adapter.usage.query_catalog import INLINE_MAX_AGE_SECONDS

_SKEW_SECONDS = 10.0
_CREDENTIALS = "give the server username and passwordFile, or bearerTokenFile, that it accepts"
_ELSEWHERE = "url leads to something else, such as a page to log in: name the server's own address"
_REMEDIES = {
    "HTTP 401": _CREDENTIALS,
    "HTTP 403": _CREDENTIALS,
    "HTTP 404": "url needs the path under which its API is, and no more",
    "HTTP 3": _ELSEWHERE,
    "not what is expected": _ELSEWHERE,
    "connection refused": "nothing listens there: compare url with kubectl get services",
    "cannot be resolved": "correct the name in url",
    "not trusted": "give the CA that signed it as caFile",
    "TLS failed": "check that it speaks https, as url says",
    "timed out": "check its load, timeoutSeconds, and whether a network policy drops the connection",
}
"""What to do about a Prometheus server, by a part of its public error."""


async def check_usage(session: Session, settings: Settings, policies: Sequence[Policy]) -> list[Finding]:
    """Whether metrics.k8s.io answers, if a policy needs it; in the namespace of the first such policy."""
    about, options = "metrics.k8s.io", settings.resource_metrics
    namespace = next((one.namespace for one in policies if any(metric.query is None for metric in one.metrics)), None)
    if namespace is None:
        return []
    try:
        await session.get(
            POD_METRICS.collection(namespace), timeout=options.timeout_seconds, largest=options.max_answer_mib * MIB,
        )  # fmt: skip
    except Forbidden as refusal:
        return [skipped(about, f"the usage of pods, for {reason(refusal)}")]
    except KubeError as fault:
        text = f"it does not answer, so policies on cpu and memory hold their counts: {fault}"
        look = "kubectl -n kube-system get pods -l k8s-app=metrics-server, and kubectl top pods"
        return [error(about, text, f"install metrics-server, or find out why it fails ({look})")]
    return [ok(about, f"it answers for namespace {namespace}")]


async def check_prometheus(servers: Sequence[PrometheusServer], now: float) -> list[Finding]:
    """Whether each Prometheus server answers, and its clock. `now`: the time here, epoch seconds."""
    found = list[Finding]()
    for server in servers:
        about, client = f"Prometheus {server.name}", PrometheusClient(server)
        try:
            samples = await client.query("vector(1)", max_age=INLINE_MAX_AGE_SECONDS)
            at = next((sample.value[0] for sample in samples if sample.value is not None), now)
            if abs(skew := at - now) > _SKEW_SECONDS:
                ahead = "ahead of" if skew > 0 else "behind"
                text = f"its clock is {abs(skew):.0f} s {ahead} the one here, so samples seem old or new"
                found.append(error(about, text, "set both by NTP"))
            else:
                found.append(ok(about, f"{server.url} answers"))
        except SourceError as fault:
            why = str(fault).removeprefix(f"{client.url}: ")
            text = f"{server.url} cannot be asked: {why}; policies with its queries hold their counts"
            found.append(error(about, text, remedy_of(fault)))
        finally:
            await client.close()
    return found


def remedy_of(trouble: SourceError | str) -> str:
    """What to do about the error of a Prometheus server, or its public text; empty where nothing is known."""
    trouble = trouble.public if isinstance(trouble, SourceError) else trouble
    return next((text for part, text in _REMEDIES.items() if part in trouble), "")


# --- registries ---

PROBE_SERVICE = "effective-load-check"
"""The service to ask a registry about where no policy names one; `unknown` proves the connection too."""
_MOST_LISTED = 20
Probes = dict[str, Sequence[ProbeResult]]
"""What each registry's servers answered, by the registry's name."""


async def check_registries(
    named: Sequence[registries.Registry], policies: Iterable[Policy]
) -> tuple[list[Finding], Probes]:
    """Each registry: whether its servers can be reached, accept the credentials and let the adapter read."""
    allowlist, asked = ServiceAllowlist(named), {one.name: set[ServiceKey]() for one in named}
    for policy in policies:
        service = service_of(policy)
        if service is not None and not allowlist.refusal(service, policy.namespace):
            asked[service.registry].add(service)
    keys = [asked[one.name] or {ServiceKey(one.name, PROBE_SERVICE)} for one in named]
    answers = await asyncio.gather(*map(probe, named, keys))
    found = [finding for one, probes in zip(named, answers, strict=True) for finding in _server(one, probes)]
    return found, {one.name: answer for one, answer in zip(named, answers, strict=True)}


def _server(registry: registries.Registry, probes: Sequence[ProbeResult]) -> Iterator[Finding]:
    about = f"registry {registry.name} ({registry.type})"
    for one in probes:
        trouble = None if one.instances else next(iter(one.troubles.values()), None)
        if trouble is None:
            how = "accepts the credentials" if registry.has_credentials else "asks for no credentials"
            yield ok(about, f"{one.server} {how} and lets the adapter read")
        elif trouble.reason == "unknown" and any(key.service == PROBE_SERVICE for key in one.troubles):
            yield ok(about, f"{one.server} answers")
        elif trouble.reason != "unknown":  # of a service, not of the registry
            yield error(about, f"{one.server}: {trouble.public}: {_sentence(one, trouble.sentence)}")


def _sentence(of: ProbeResult, sentence: str) -> str:
    """A trouble's sentence without the server's address at its start, which the finding names already."""
    return sentence.removeprefix(of.server).removeprefix(": ")


def check_service(
    about: str, policy: Policy, pods: Sequence[Pod], listed: Roster | None, probes: Probes
) -> Iterator[Finding]:
    """Whether the registry knows the policy's service, and which pods match an instance.

    `listed`: the list that the server decided on, for a registry that was not probed.
    """
    key, registry = service_of(policy), service_registry(policy)
    if key is None or registry is None:
        return
    places = [f"namespace {key.namespace}"] * bool(key.namespace) + [f"group {key.group}"] * bool(key.group)
    named = " ".join([f"service {key.service} of registry {key.registry}", *places])
    answers = probes.get(key.registry, ())
    for one in answers:
        if key in one.troubles:
            yield error(about, f"{named}: {one.server}: {_sentence(one, one.troubles[key].sentence)}")
    lists = {one.server: one.instances[key] for one in answers if key in one.instances}
    if len({_count(one) for one in lists.values()}) > 1:
        counts = ", ".join(f"{server} lists {_count(one)}" for server, one in lists.items())
        yield warning(about, f"{named}: its servers differ: {counts}")
    roster = max(lists.values(), key=lambda found: len(found.instances), default=None if answers else listed)
    if roster is None or not roster.valid:
        return
    if roster.error is not None:
        yield error(about, f"{named}: {roster.error}")
    elif roster.instances:
        yield ok(about, f"{named} is known: {_count(roster)}")
    elif roster.absence_counts:
        text = f"{named}: no instance is registered under this name"
        yield error(about, text, "check service, namespace and group")
        return
    if roster.protected:
        text = "the registry protects itself: it calls unhealthy instances healthy, so health does not count"
        yield warning(about, text)
    yield from _matches(about, registry, pods, roster)


def _count(roster: Roster) -> str:
    states = ", ".join(f"{count:.0f} {state}" for state, count in count_states(roster.instances).items() if count)
    number = len(roster.instances)
    return f"{number} instance{'s' * (number != 1)}" + (f" ({states})" if states else "")


def _matches(about: str, registry: Registry, pods: Sequence[Pod], roster: Roster) -> Iterator[Finding]:
    """The pods with an instance that counts, and those without, and why."""
    matches, by_pod = list(match_registrations(pods, roster, registry)), dict[str, list[Instance]]()
    for instance, pod, mismatch in matches:
        if pod is not None and mismatch is None:
            by_pod.setdefault(pod.uid, []).append(instance)
    living = [pod for pod in pods if not pod.deleting and pod.phase not in {"Failed", "Succeeded"}]
    matched = sum(pod.uid in by_pod for pod in living)
    add = ok if matched or not living or not roster.absence_counts else error
    yield add(about, f"{matched} of {len(living)} pods match an instance")
    for pod in living:
        if pod.uid not in by_pod:
            add = error if pod.is_ready and roster.absence_counts else warning
            yield add(about, f"pod {pod.name} matches no instance: {why_unmatched(pod, matches, registry)}")
        elif word := out_reason_of(by_pod[pod.uid], registry, roster):
            yield warning(about, f"pod {pod.name} is out: {word}")
    strangers = [match for match in matches if match.mismatch is not None]
    for match in strangers[:_MOST_LISTED]:
        yield warning(about, f"instance {address(match.instance)} counts for no pod: {match.mismatch}")
    if len(strangers) > _MOST_LISTED:
        yield warning(about, f"{len(strangers) - _MOST_LISTED} more instances count for no pod")


def why_unmatched(pod: Pod, matches: Sequence[RegistrationMatch], registry: Registry) -> str:
    """The likeliest reason why no registration counts for a pod: a sentence without a full stop."""
    reasons = sorted(reason for match in matches for reason in _reasons(pod, match, registry))
    if reasons:
        return reasons[0][1]
    if not pod.ips:
        return "it has no address yet"
    nowhere = f"no instance is registered at its address ({', '.join(pod.ips)})"
    return nowhere if pod.is_ready else "it is not Ready, and services register once they are"


def _reasons(pod: Pod, match: RegistrationMatch, registry: Registry) -> Iterator[tuple[int, str]]:
    """What one registration says of a pod, with its rank: the smaller the likelier."""
    instance, node, at = match.instance, canonical_ip(pod.host_ip), canonical_ip(match.instance.ip)
    if match.pod is pod and match.mismatch:
        yield 0, f"{address(instance)}: {match.mismatch}"
    if at in map(canonical_ip, pod.ips) and (match.mismatch or match.pod):
        carry = "let instances carry their pod's name (registry.podNameKey)"
        hints = {
            Mismatch.NAMESPACE: f" ({instance.pod_namespace})",
            Mismatch.OTHER_PORT: f" (registry.port: {registry.port})",
            Mismatch.UNDECLARED_PORT: f"; declare it as a containerPort, name it in registry.port, or {carry}",
            Mismatch.AMBIGUOUS: f"; {carry}",
        }
        named = named_pod(instance, registry) or instance.pod_uid or (match.pod.name if match.pod else "")
        why = f"as pod {named}" if match.mismatch is None or match.mismatch not in hints else match.mismatch
        yield 1, f"{address(instance)} is registered, but {why}{hints.get(match.mismatch or Mismatch.UID, '')}"
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
