"""What is installed: the API server, Deployments and settings, APIServices with their CA, the readiness of servers."""

import asyncio
import base64
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import msgspec
from cryptography import x509

from adapter.commands.check.report import Level, Section, reason
from adapter.commands.cluster import GATE, Cluster, has_tolerance, parse_version, server_version
from adapter.kube.api import API_SERVICES, CONFIG_MAPS, DEPLOYMENTS, PODS
from adapter.kube.errors import Forbidden, KubeError, NotFound
from adapter.kube.objects import AnyObject, AnyObjectList, ApiService, ConfigMap, ServiceReference
from adapter.kube.session import Session
from adapter.runtime.decoding import decode
from adapter.settings import Settings, SettingsError, parse_settings
from adapter.telemetry.metrics import package_version

CUSTOM = ("v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io")
EXTERNAL = "v1beta1.external.metrics.k8s.io"
SELECTOR = "app.kubernetes.io/name=effective-load"
_COMPONENT = "app.kubernetes.io/component"
_ACCOUNTS = {"server": "effective-load", "companion": "effective-load-companion"}
_DAY = 86_400.0
_SOON_DAYS = 14
"""Certificates are renewed a month before their end: one that ends sooner was not."""
_OLDEST = (1, 23)
_SKEW_SECONDS, _WRONG_SECONDS = 5.0, 60.0
_ASK_SECONDS = 3.0
_KNOWN = {
    "prometheus-adapter": "prometheus-adapter",
    "keda-metrics-apiserver": "KEDA",
    "keda-operator-metrics-apiserver": "KEDA",
    "kube-metrics-adapter": "kube-metrics-adapter",
    "datadog-cluster-agent": "Datadog",
}
"""Services of other adapters, by name."""
_PODS_LOG = "kubectl -n {namespace} get pods, and their log"
_REMEDIES = {
    "x509": "its caBundle does not fit the serving certificate: see server.tls.injectCABundle and the server's log",
    "connection refused": f"nothing listens on the port: {_PODS_LOG}",
    "deadline": "open the pods' port to the control plane (firewall, NetworkPolicy), or the pods hang: see their log",
    "timeout": "open the pods' port to the control plane (firewall, NetworkPolicy), or the pods hang: see their log",
    "Forbidden": "the server refuses the API server itself: see client_refused in its log",
    "Unauthorized": "the server refuses the API server itself: see client_refused in its log",
    "ServiceNotFound": "the Service does not exist: apply manifests/base/service.yaml",
    "ServicePortError": "the Service lacks the port that the APIService names: apply manifests/base/service.yaml",
    "EndpointsNotFound": "the Service has no pods: kubectl -n {namespace} get pods",
    "MissingEndpoints": f"the Service has no ready pod: {_PODS_LOG}",
    "EndpointsNotReachable": "the API server does not reach the pods: open their port (firewall, NetworkPolicy)",
    "FailedDiscoveryCheck": "the API server gets no answer from the pods",
}
"""What to do about an APIService that is not available, by a part of its condition's message, else by its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Where the adapter is installed. `parts` are its Deployments by component; None where they may not be read."""

    namespace: str
    parts: Mapping[str, AnyObject] | None = None
    trouble: str = ""
    api_services: Mapping[str, ApiService | KubeError | None] = field(default_factory=dict)

    @property
    def accounts(self) -> dict[str, str]:
        """The service account of each component; those of the manifests where no Deployment is known."""
        if not self.parts:
            return dict(_ACCOUNTS) if self.parts is None else {"server": _ACCOUNTS["server"]}
        return {name: str(_pod(part).get("serviceAccountName") or "default") for name, part in self.parts.items()}


def _pod(deployment: AnyObject) -> Mapping[str, Any]:
    pod = ((deployment.spec or {}).get("template") or {}).get("spec")
    return pod if isinstance(pod, Mapping) else {}


async def api_server_section(session: Session) -> tuple[Section, bool | None]:
    """The API server's version and clock; and whether its HPAs have a tolerance of their own (None: unknown)."""
    section, text = Section("API server"), ""
    try:
        text = await server_version(session)
    except KubeError as error:
        section.skipped(f"its version, for {reason(error)}")
    skew = session.skew
    if abs(skew) > _SKEW_SECONDS:
        section.add(
            Level.ERROR if abs(skew) > _WRONG_SECONDS else Level.WARNING,
            f"the clock here is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the API server's; tokens, "
            "certificates and ages are judged by the one here: set both by NTP",
        )
    version = parse_version(text)
    if version is None:
        return section, None
    if version < _OLDEST:
        return section.error(f"Kubernetes {text} has no autoscaling/v2; 1.23 is the oldest version that has"), False
    has_field = await has_tolerance(session, text)
    if has_field:
        section.ok(f"it is Kubernetes {text}, whose HPAs have a tolerance of their own")
    else:
        section.warning(
            f"it is Kubernetes {text}, whose HPAs have no tolerance of their own ({GATE}: by default from 1.35 on): "
            "the controller's, 10 % by default, suppresses small steps; give policies that tolerance"
        )
    return section, has_field


async def find_installation(session: Session, settings: Settings) -> Installation:
    """The installation: where the APIService of custom metrics leads, else where the labels of Deployments are."""
    services: dict[str, ApiService | KubeError | None] = {}
    for name in (*CUSTOM, EXTERNAL):
        try:
            services[name] = decode(await session.get(API_SERVICES.path("", name)), ApiService)
        except NotFound:
            services[name] = None
        except KubeError as error:
            services[name] = error
    registered = services[CUSTOM[0]]
    service = registered.spec.service if isinstance(registered, ApiService) else None
    home, trouble = settings.server.tls.namespace, ""
    for where in ("", home):
        try:
            body = await session.get(DEPLOYMENTS.collection(where), params={"labelSelector": SELECTOR})
            found = decode(body, AnyObjectList).items or []
        except (KubeError, msgspec.MsgspecError) as error:
            trouble = trouble or reason(error)
            continue
        labelled = [(one, (one.metadata.labels or {}).get(_COMPONENT, "")) for one in found]
        homes = [one.metadata.namespace for one, component in labelled if component == "server"]
        preferred = (service.namespace if service is not None else "", home, *homes)
        home = next((namespace for namespace in preferred if namespace in homes), home)
        parts = {
            component: one for one, component in labelled if one.metadata.namespace == home and component in _ACCOUNTS
        }
        return Installation(namespace=home, parts=parts, api_services=services)
    return Installation(namespace=home, trouble=trouble, api_services=services)


async def installed_settings(session: Session, installation: Installation) -> tuple[Settings | None, Section]:
    """The settings of the installation's ConfigMap; None where they cannot be read."""
    pod = _pod(installation.parts["server"]) if "server" in (installation.parts or {}) and installation.parts else {}
    volumes = {one.get("name"): (one.get("configMap") or {}).get("name") for one in pod.get("volumes") or ()}
    arguments = [str(one) for container in pod.get("containers") or () for one in container.get("args") or ()]
    path = next((one.partition("=")[2] for one in arguments if one.startswith("--settings=")), "settings.yaml")
    name, key = volumes.get("settings") or "effective-load-settings", PurePosixPath(path).name
    section, where = Section("settings"), f"ConfigMap {installation.namespace}/{name}"
    assumed = "every default is assumed"
    try:
        data = decode(await session.get(CONFIG_MAPS.path(installation.namespace, name)), ConfigMap).data or {}
        settings = parse_settings(data[key])
    except NotFound:
        if not pod:
            return None, section.warning(f"{where} does not exist, and no --settings are given: {assumed}")
        text = f"{where} does not exist, so no new pod of the server starts: apply manifests/base/settings.yaml"
        return None, section.error(text)
    except (KubeError, msgspec.MsgspecError) as error:
        return None, section.skipped(f"the settings in {where}, for {reason(error)}; give --settings; {assumed}")
    except LookupError:
        return None, section.error(f"{where} has no key {key}, which the server reads")
    except SettingsError as error:
        for fault in error.faults:
            section.error(f"{where}: {fault}; a running server keeps its last settings, a new one does not start")
        return None, section
    return settings, section.ok(f"they are those of {where}")


def deployments_section(installation: Installation) -> Section:
    """Whether the Deployments have ready pods, and are of this program's version."""
    section = Section("installation")
    if installation.parts is None:
        return section.skipped(f"its Deployments, for {installation.trouble}")
    if "server" not in installation.parts:
        section.warning(
            f"no Deployment has the labels {SELECTOR} and {_COMPONENT}=server: effective-load is not installed here by "
            "its manifests"
        )
    for part in installation.parts.values():
        named = f"Deployment {installation.namespace}/{part.metadata.name}"
        wanted, ready = (part.spec or {}).get("replicas") or 0, (part.status or {}).get("readyReplicas") or 0
        if ready:
            section.ok(f"{named} has {ready} of {wanted} pods ready")
        else:
            pods = f"none of its {wanted} pods ready" if wanted else "replicas: 0, so nothing runs"
            section.error(f"{named} has {pods}: kubectl -n {installation.namespace} get pods")
        containers = _pod(part).get("containers") or [{}]
        version = str(containers[0].get("image") or "").rpartition(":")[2]
        if version[:1].isdigit() and version != package_version():
            section.warning(f"{named} runs version {version}, and this program is {package_version()}")
    return section


def api_service_sections(installation: Installation, settings: Settings | None, now: float) -> list[Section]:
    """Each APIService: whether it exists, names our Service, is available, and until when its CA is valid.

    `settings`: None where they are not known.
    """
    tls = (settings or Settings()).server.tls
    ours = ServiceReference(namespace=installation.namespace, name=tls.service)
    sections = []
    for name, found in installation.api_services.items():
        section = Section(f"APIService {name}")
        sections.append(section)
        if isinstance(found, KubeError):
            section.skipped(f"who serves it, for {reason(found)}")
            continue
        service = found.spec.service if found is not None else None
        is_wanted = name != EXTERNAL or (settings is not None and settings.server.external_metrics)
        if found is None:
            if is_wanted:
                section.error("it does not exist, so no HPA is answered: apply manifests/base/apiservices.yaml")
        elif service != ours and not is_wanted:
            section.ok(f"it is served by {_named(service)}, and the settings do not want it")
        elif service != ours:
            section.error(
                f"it is served by {_named(service)}, not by {_named(ours)}; a group has one server, so apply "
                "manifests/base/apiservices.yaml; the other adapter can answer behind this one (upstreams in the "
                "settings)"
            )
        elif not is_wanted and settings is not None:
            section.error(
                f"it names {_named(ours)}, and the settings do not serve it (server.externalMetrics): set that, or "
                "delete it"
            )
        else:
            _availability(section, found, ours.namespace)
            _authority(section, found, now)
    return [section for section in sections if section.findings]


def _named(service: ServiceReference | None) -> str:
    """A Service by its namespace and name, with the adapter that is known by that name."""
    if service is None:
        return "the API server itself"
    adapter = _KNOWN.get(service.name)
    return f"Service {service.namespace}/{service.name}{f' ({adapter})' if adapter else ''}"


def _availability(section: Section, api_service: ApiService, namespace: str) -> None:
    condition = next((one for one in api_service.status.conditions or () if one.type == "Available"), None)
    if condition is None:
        section.error("the API server has not judged it yet (no condition Available): check again in a minute")
    elif condition.status == "True":
        section.ok(f"it is available from {_named(api_service.spec.service)}")
    else:
        said = f"{condition.message} {condition.reason}"
        remedy = next((text for part, text in _REMEDIES.items() if part in said), "kubectl describe apiservice")
        text = f"it is not available ({condition.reason}): {condition.message}; {remedy.format(namespace=namespace)}"
        section.error(text)


def _authority(section: Section, api_service: ApiService, now: float) -> None:
    """The end of the CA in caBundle; of several the one that ends last counts."""
    if not api_service.spec.ca_bundle:
        return
    certificates: list[x509.Certificate] = []
    with contextlib.suppress(ValueError):
        certificates = x509.load_pem_x509_certificates(base64.b64decode(api_service.spec.ca_bundle))
    newest = max(certificates, key=lambda one: one.not_valid_after_utc, default=None)
    remedy = "see serving_certificate_failed in the server's log"
    if newest is None:
        section.error(f"the CA in its caBundle cannot be read; {remedy}")
        return
    left, on = newest.not_valid_after_utc.timestamp() - now, newest.not_valid_after_utc.strftime("%Y-%m-%d")
    if left <= 0:
        section.error(f"the CA in its caBundle expired on {on}: {remedy}")
    elif left < _SOON_DAYS * _DAY:
        section.warning(f"the CA in its caBundle ends in {left / _DAY:.0f} days ({on}), not renewed yet: {remedy}")
    else:
        section.ok(f"the CA in its caBundle is valid until {on}")


async def server_sections(cluster: Cluster, namespace: str, settings: Settings) -> list[Section]:
    """Whether each pod of the Service is ready, and why not: /readyz of the telemetry port, through the API server."""
    service, port = settings.server.tls.service, settings.telemetry.port

    async def ask(pod: str) -> Section:
        section = Section(f"server {pod}")
        path = f"{PODS.path(namespace, pod)}:{port}/proxy/readyz"
        try:
            body = await cluster.session.get(path, params={"verbose": "", "report": ""}, timeout=_ASK_SECONDS)
        except KubeError as error:
            return section.skipped(f"whether it is ready, for {reason(error)}")
        for line in body.decode().splitlines():
            name, _, text = line[3:].partition(" ")
            if line.startswith("[-]"):
                section.error(f"it is not ready ({name}): {text.removeprefix('failed: ')}")
            elif line.startswith("[!]"):  # a fault that every replica shares: it stays ready
                section.error(text)
        return section if section.findings else section.ok("it is ready")

    try:
        pods = await cluster.service_pods(namespace, service)
    except Forbidden as error:
        return [Section("servers").skipped(f"whether they are ready, for {reason(error)}")]
    except KubeError as error:
        return [Section("servers").error(f"they cannot be listed: {error}")]
    return list(await asyncio.gather(*map(ask, pods)))
