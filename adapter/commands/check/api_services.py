"""Who serves the metrics APIs: our APIServices, another adapter, or nobody; and whether the API server reaches them."""

import base64
from collections.abc import Iterator

import msgspec

from adapter.commands.check.installation import CAUSE as SERVERS
from adapter.commands.check.report import ReportSection, reason
from adapter.kube.api import API_SERVICES
from adapter.kube.errors import Forbidden, KubeError, NotFound
from adapter.kube.objects import ApiService, Condition, ServiceReference
from adapter.kube.session import Session
from adapter.runtime.decoding import decode
from adapter.settings import Settings

CUSTOM = ("v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io")
EXTERNAL = "v1beta1.external.metrics.k8s.io"
CAUSE = "custom.metrics.k8s.io"
CERTIFICATES = "certificates"
"""The cause where a certificate that client or server of this API shows is not valid."""
RESTART = "settings that wait for a restart"
"""The cause that a server reports whose settings changed since it started."""
_APPLY = "apply manifests/base/apiservices.yaml"
_KNOWN = {
    "prometheus-adapter": "prometheus-adapter",
    "keda-metrics-apiserver": "KEDA",
    "keda-operator-metrics-apiserver": "KEDA",
    "kube-metrics-adapter": "kube-metrics-adapter",
    "datadog-custom-metrics-server": "Datadog",
    "datadog-cluster-agent": "Datadog",
}
"""Services of other adapters, by name."""
_REMEDIES = {
    "ServiceNotFound": "the Service does not exist: apply manifests/base/service.yaml",
    "ServicePortError": "the Service lacks the port that the APIService names: apply manifests/base/service.yaml",
    "EndpointsNotFound": "the Service has no pods: kubectl -n {namespace} get pods",
    "MissingEndpoints": "the Service has no ready pod: kubectl -n {namespace} get pods, and their log",
    "EndpointsNotReachable": "the API server does not reach the pods: open their port (firewall, NetworkPolicy)",
    "FailedDiscoveryCheck": "the API server gets no answer from the pods",
}
_OF_MESSAGE = {
    "x509": "its caBundle does not fit the serving certificate: see server.tls.injectCABundle and the server's log",
    "connection refused": "nothing listens on the port: kubectl -n {namespace} get pods, and their log",
    "deadline": "open the pods' port to the control plane (firewall, NetworkPolicy), or the pods hang: see their log",
    "timeout": "open the pods' port to the control plane (firewall, NetworkPolicy), or the pods hang: see their log",
    "Forbidden": "the server refuses the API server itself: see identity_headers_refused in its log",
    "Unauthorized": "the server refuses the API server itself: see identity_headers_refused in its log",
}


def authority_of(api_service: ApiService) -> str:
    """The PEM bundle of the CAs that the aggregator trusts for an APIService; empty without one."""
    try:
        return base64.b64decode(api_service.spec.ca_bundle).decode()
    except ValueError:
        return ""


def unavailable(api_service: ApiService) -> Condition | None:
    """An APIService's condition Available where that is not True; None where it is."""
    found = next(
        (condition for condition in api_service.status.conditions or () if condition.type == "Available"), None
    )
    if found is None:
        return Condition(type="Available", status="Unknown", reason="Unknown", message="not judged yet")
    return None if found.status == "True" else found


def _named(service: ServiceReference | None) -> str:
    """A Service by its namespace and name, with the adapter that is known by that name."""
    if service is None:
        return "the API server itself"
    adapter = _KNOWN.get(service.name, "")
    return f"Service {service.namespace}/{service.name}{f' ({adapter})' if adapter else ''}"


async def read_api_service(session: Session, name: str) -> ApiService | None:
    """An APIService; None where it does not exist. Raises KubeError."""
    try:
        return decode(await session.get(API_SERVICES.path("", name)), ApiService)
    except NotFound:
        return None


async def api_service_sections(
    session: Session, settings: Settings, *, settings_known: bool
) -> tuple[list[ReportSection], dict[str, ApiService]]:
    """The findings about each APIService that the settings want, and those that exist, by name."""
    sections, known = list[ReportSection](), dict[str, ApiService]()
    for name in (*CUSTOM, EXTERNAL):
        section = ReportSection(f"APIService {name}")
        sections.append(section)
        try:
            one = await read_api_service(session, name)
        except Forbidden as error:
            section.skipped(f"who serves the metrics APIs, for {reason(error)}")
            break
        except (KubeError, msgspec.MsgspecError) as error:
            section.skipped(f"who serves it: {error}")
            continue
        if one is not None:
            known[name] = one
        is_ours = one is not None and one.spec.service == own_service(settings)
        wanted = name != EXTERNAL or settings.server.external_metrics or (is_ours and not settings_known)
        beside = known.get(CUSTOM[0])
        waits = beside is not None and beside.spec.service == own_service(settings) and unavailable(beside) is None
        _add(section, name, one, settings, wanted=wanted, waits=name == EXTERNAL and waits)
    return [one for one in sections if one.findings], known


def own_service(settings: Settings) -> ServiceReference:
    """The Service that the APIServices have to name."""
    return ServiceReference(namespace=settings.server.tls.namespace, name=settings.server.tls.service)


def _add(
    section: ReportSection, name: str, one: ApiService | None, settings: Settings, *, wanted: bool, waits: bool
) -> None:
    """Add what is found. `waits`: the servers answer another group, so they have not read the settings."""
    expected = own_service(settings)
    service = one.spec.service if one is not None else None
    cause = CAUSE if name == CUSTOM[0] else name
    if not wanted:
        if one is not None and service == expected:
            section.wrong(
                f"it names {_named(expected)}, and the settings do not serve it (server.externalMetrics): set that, or "
                "delete it"
            )
        elif one is not None:
            section.ok(f"it is served by {_named(service)}, and the settings do not want it")
        return
    if one is None:
        section.wrong(f"it does not exist, so no HPA is answered: {_APPLY}", cause=cause)
    elif service != expected:
        condition = unavailable(one)
        answers = "its adapter answers the HPAs" if condition is None else f"which does not answer ({condition.reason})"
        section.wrong(
            f"it is served by {_named(service)}, not by {_named(expected)}: {answers}; "
            f"a group has one server, so {_APPLY}; the other adapter can answer behind this one "
            "(upstreams in the settings)",
            cause=cause,
        )
    elif (condition := unavailable(one)) is not None:
        remedy = " ".join(dict.fromkeys(_remedies(condition, expected.namespace))).rstrip()
        if waits:
            remedy = (
                f"the servers answer {CAUSE}, so they have not read server.externalMetrics yet: a ConfigMap reaches "
                "the pods within two minutes, sooner by "
                f"kubectl -n {expected.namespace} rollout restart deployment effective-load"
            )
        symptom = (CERTIFICATES, *(("rights/server", SERVERS) if name == CUSTOM[0] else (CAUSE, RESTART, SERVERS)))
        section.wrong(
            f"it is not available ({condition.reason}: {condition.message.strip()}): {remedy}",
            cause=cause,
            symptom_of=symptom,
        )
    else:
        section.ok(f"it is available, served by {_named(expected)}")


def _remedies(condition: Condition, namespace: str) -> Iterator[str]:
    """What to do about an APIService: what its message shows, else its reason."""
    for part, remedy in _OF_MESSAGE.items():
        if part in condition.message:
            yield remedy.format(namespace=namespace)
            return
    default = "look at kubectl describe apiservice"
    yield _REMEDIES.get(condition.reason, default).format(namespace=namespace)
