"""Who serves the metrics APIs: our APIServices, another adapter, or nobody; and whether the API server reaches them."""

import base64
from collections.abc import Iterator

import msgspec

from adapter.check.installation import CAUSE as SERVERS
from adapter.check.refusals import reason
from adapter.check.report import ReportSection
from adapter.kube.api import API_SERVICES
from adapter.kube.errors import Forbidden, KubeError, NotFound
from adapter.kube.objects import Condition
from adapter.kube.session import Session
from adapter.runtime.decoding import decode
from adapter.settings import Settings

CUSTOM = ("v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io")
EXTERNAL = "v1beta1.external.metrics.k8s.io"
CAUSE = "custom.metrics.k8s.io"
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


class _Service(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        adapter = _KNOWN.get(self.name, "")
        return f"Service {self.namespace}/{self.name}{f' ({adapter})' if adapter else ''}"


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    service: _Service | None = None
    ca_bundle: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class ApiService(msgspec.Struct, frozen=True):
    """An APIService, as far as the check reads it."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def authority(self) -> str:
        """The PEM bundle of the CAs that the aggregator trusts; empty without one."""
        try:
            return base64.b64decode(self.spec.ca_bundle).decode()
        except ValueError:
            return ""

    def unavailable(self) -> Condition | None:
        """Its condition Available where that is not True; None where it is."""
        found = next((one for one in self.status.conditions or () if one.type == "Available"), None)
        if found is None:
            return Condition(type="Available", status="Unknown", reason="Unknown", message="not judged yet")
        return None if found.status == "True" else found


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
        is_ours = one is not None and one.spec.service == _own(settings)
        wanted = name != EXTERNAL or settings.server.external_metrics or (is_ours and not settings_known)
        _add(section, name, one, settings, wanted=wanted)
    return [one for one in sections if one.findings], known


def _own(settings: Settings) -> _Service:
    return _Service(settings.server.tls.namespace, settings.server.tls.service)


def _add(section: ReportSection, name: str, one: ApiService | None, settings: Settings, *, wanted: bool) -> None:
    own = _own(settings)
    service = one.spec.service if one is not None else None
    cause = CAUSE if name == CUSTOM[0] else name
    if not wanted:
        if one is not None and service == own:
            section.wrong(
                f"it names {own}, and the settings do not serve it (server.externalMetrics): set that, or delete it"
            )
        elif one is not None:
            section.ok(f"it is served by {service or 'the API server itself'}, and the settings do not want it")
        return
    if one is None:
        section.wrong(f"it does not exist, so no HPA is answered: {_APPLY}", cause=cause)
    elif service != own:
        condition = one.unavailable()
        answers = "its adapter answers the HPAs" if condition is None else f"which does not answer ({condition.reason})"
        section.wrong(
            f"it is served by {service or 'the API server itself'}, not by {own}: {answers}; "
            f"a group has one server, so {_APPLY}; the other adapter can answer behind this one "
            "(upstreams in the settings)",
            cause=cause,
        )
    elif (condition := one.unavailable()) is not None:
        remedy = " ".join(dict.fromkeys(_remedies(condition, own.namespace))).rstrip()
        symptom = ("rights/server", SERVERS) if name == CUSTOM[0] else (CAUSE, SERVERS)
        section.wrong(
            f"it is not available ({condition.reason}: {condition.message.strip()}): {remedy}",
            cause=cause,
            symptom_of=symptom,
        )
    else:
        section.ok(f"it is available, served by {own}")


def _remedies(condition: Condition, namespace: str) -> Iterator[str]:
    """What to do about an APIService: what its message shows, else its reason."""
    for part, remedy in _OF_MESSAGE.items():
        if part in condition.message:
            yield remedy.format(namespace=namespace)
            return
    default = "look at kubectl describe apiservice"
    yield _REMEDIES.get(condition.reason, default).format(namespace=namespace)
