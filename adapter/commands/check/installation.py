"""What is installed: the API server, Deployments and settings, APIServices with their CA, the readiness of servers."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import msgspec

from adapter.commands.check.report import Finding, error, ok, skipped, warning
from adapter.commands.check.rights import ACCOUNTS
from adapter.commands.cluster import list_objects, read_object, reason
from adapter.kube.api import API_SERVICES, CONFIG_MAPS, DEPLOYMENTS, PODS
from adapter.kube.errors import KubeError, NotFound
from adapter.kube.objects import ApiService, ConfigMap, ObjectReference
from adapter.kube.session import Session
from adapter.policy.documents import mapping_at
from adapter.runtime.decoding import Decoder
from adapter.settings import Settings, SettingsError, parse_settings
from adapter.telemetry.metrics import package_version

CUSTOM = ("v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io")
EXTERNAL = "v1beta1.external.metrics.k8s.io"
SELECTOR = "app.kubernetes.io/name=effective-load"
_COMPONENT = "app.kubernetes.io/component"
_TOLERANCE_SINCE = (1, 35)
"""The Kubernetes version from which on HPAs have a tolerance of their own."""
_WRONG_SECONDS = 60.0
_ASK_SECONDS = 3.0
_PODS_LOG = "kubectl -n {namespace} get pods, and their log"
_PORT = "open the pods' port to the control plane (firewall, NetworkPolicy)"
_REFUSED = "the server refuses the API server itself: see client_refused in its log"
_REMEDIES = {
    "x509": "its caBundle does not fit the serving certificate: see server.tls.injectCABundle and the server's log",
    "connection refused": f"nothing listens on the port: {_PODS_LOG}",
    "deadline": f"{_PORT}, or the pods hang: see their log",
    "timeout": f"{_PORT}, or the pods hang: see their log",
    "Forbidden": _REFUSED,
    "Unauthorized": _REFUSED,
    "ServiceNotFound": "the Service does not exist: apply manifests/base/service.yaml",
    "ServicePortError": "the Service lacks the port that the APIService names: apply manifests/base/service.yaml",
    "EndpointsNotFound": "the Service has no pods: kubectl -n {namespace} get pods",
    "MissingEndpoints": f"the Service has no ready pod: {_PODS_LOG}",
    "EndpointsNotReachable": f"the API server does not reach the pods: {_PORT}",
    "FailedDiscoveryCheck": "the API server gets no answer from the pods",
}
"""What to do about an APIService that is not available, by a part of its condition's message, else by its reason."""
_WITH_APISERVICES = "apply manifests/base/apiservices.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Where the adapter is installed. `parts` are its Deployments by component; None where they may not be read."""

    namespace: str
    parts: Mapping[str, Mapping[str, Any]] | None
    trouble: str
    api_services: Mapping[str, ApiService | KubeError]

    @property
    def accounts(self) -> dict[str, str]:
        """The service account of each component; those of the manifests where no Deployment is known."""
        if not self.parts:
            return dict(ACCOUNTS) if self.parts is None else {"server": ACCOUNTS["server"]}
        return {name: str(_pod(part).get("serviceAccountName") or "default") for name, part in self.parts.items()}


def _pod(deployment: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of a Deployment's pods."""
    return mapping_at(deployment, "spec", "template", "spec")


async def check_api_server(session: Session) -> tuple[list[Finding], bool | None]:
    """The API server's version and clock; and whether its HPAs have a tolerance of their own (None: unknown)."""
    about, found, text = "API server", list[Finding](), ""
    try:
        text = Decoder(dict[str, str]).decode(await session.get("/version")).get("gitVersion", "")
    except (KubeError, msgspec.MsgspecError) as fault:
        found.append(skipped(about, f"its version, for {reason(fault)}"))
    if (clocks := session.clock_warning()) is not None:
        found.append((error if abs(session.skew) > _WRONG_SECONDS else warning)(about, clocks))
    version = re.match(r"v?(\d{1,4})\.(\d{1,4})(?!\d)", text)
    if version is None:
        return found, None
    if (int(version[1]), int(version[2])) >= _TOLERANCE_SINCE:
        return [*found, ok(about, f"it is Kubernetes {text}, whose HPAs have a tolerance of their own")], True
    missing = f"it is Kubernetes {text}, whose HPAs have no tolerance of their own (1.35 has)"
    why = "the controller's, 10 % by default, suppresses small steps"
    return [*found, warning(about, f"{missing}: {why}", "give policies that tolerance")], False


async def find_installation(session: Session, settings: Settings) -> Installation:
    """The installation: where the APIService of custom metrics leads, else where the labels of Deployments are."""
    named = (*CUSTOM, EXTERNAL)
    read = Decoder(ApiService).decode
    found = await asyncio.gather(*(read_object(session, API_SERVICES.path("", name), read) for name in named))
    service = None if isinstance(found[0], KubeError) else found[0].spec.service
    home = service.namespace if service is not None and service.name == settings.server.tls.service else ""
    parts, trouble = dict[str, Mapping[str, Any]](), ""
    try:
        for one in await list_objects(session, DEPLOYMENTS, [home] if home else (), labelSelector=SELECTOR):
            component = mapping_at(one, "metadata", "labels").get(_COMPONENT)
            if component in ACCOUNTS and one["metadata"]["namespace"] == (home := home or one["metadata"]["namespace"]):
                parts[component] = one
    except KubeError as fault:
        trouble = reason(fault)
    return Installation(
        namespace=home or settings.server.tls.namespace, parts=None if trouble else parts, trouble=trouble,
        api_services=dict(zip(named, found, strict=True)),
    )  # fmt: skip


async def installed_settings(session: Session, installation: Installation) -> tuple[Settings | None, list[Finding]]:
    """The settings of the installation's ConfigMap; None where they cannot be read."""
    pod = _pod((installation.parts or {}).get("server", {}))
    volumes = {one.get("name"): (one.get("configMap") or {}).get("name") for one in pod.get("volumes") or ()}
    arguments = [str(one) for container in pod.get("containers") or () for one in container.get("args") or ()]
    path = next((one.partition("=")[2] for one in arguments if one.startswith("--settings=")), "settings.yaml")
    name, key = volumes.get("settings") or "effective-load-settings", PurePosixPath(path).name
    about, where = "settings", f"ConfigMap {installation.namespace}/{name}"
    assumed = "every default is assumed"
    try:
        data = Decoder(ConfigMap).decode(await session.get(CONFIG_MAPS.path(installation.namespace, name))).data or {}
        return parse_settings(data[key]), [ok(about, f"they are those of {where}")]
    except NotFound:
        if not pod:
            return None, [warning(about, f"{where} does not exist, and no --settings are given: {assumed}")]
        text = f"{where} does not exist, so no new pod of the server starts"
        return None, [error(about, text, "apply manifests/base/settings.yaml")]
    except (KubeError, msgspec.MsgspecError) as fault:
        return None, [skipped(about, f"the settings in {where}, for {reason(fault)}; {assumed}", "give --settings")]
    except LookupError:
        return None, [error(about, f"{where} has no key {key}, which the server reads")]
    except SettingsError as faulty:
        kept = "a running server keeps its last settings, a new one does not start"
        return None, [error(about, f"{where}: {fault}; {kept}") for fault in faulty.faults]


def check_deployments(installation: Installation) -> Iterator[Finding]:
    """Whether the Deployments have ready pods, and are of this program's version."""
    about = "installation"
    if installation.parts is None:
        yield skipped(about, f"its Deployments, for {installation.trouble}")
        return
    if "server" not in installation.parts:
        labels = f"{SELECTOR} and {_COMPONENT}=server"
        yield warning(about, f"no Deployment has the labels {labels}: effective-load is not installed by its manifests")
    for part in installation.parts.values():
        named = f"Deployment {installation.namespace}/{part['metadata']['name']}"
        wanted, ready = part["spec"].get("replicas") or 0, mapping_at(part, "status").get("readyReplicas") or 0
        if ready:
            yield ok(about, f"{named} has {ready} of {wanted} pods ready")
        else:
            pods = f"none of its {wanted} pods ready" if wanted else "replicas: 0, so nothing runs"
            yield error(about, f"{named} has {pods}", f"kubectl -n {installation.namespace} get pods")
        version = str(_pod(part)["containers"][0].get("image")).rpartition(":")[2]
        if version[:1].isdigit() and version != package_version():
            yield warning(about, f"{named} runs version {version}, and this program is {package_version()}")


def check_api_services(installation: Installation, settings: Settings | None) -> Iterator[Finding]:
    """Each APIService: whether it exists, names our Service, and is available.

    `settings`: None where they are not known.
    """
    ours = ObjectReference(namespace=installation.namespace, name=(settings or Settings()).server.tls.service)
    for name, found in installation.api_services.items():
        about = f"APIService {name}"
        is_wanted = name != EXTERNAL or (settings is not None and settings.server.external_metrics)
        if isinstance(found, NotFound):
            if is_wanted:
                yield error(about, "it does not exist, so no HPA is answered", _WITH_APISERVICES)
        elif isinstance(found, KubeError):
            yield skipped(about, f"who serves it, for {reason(found)}")
        elif found.spec.service != ours and not is_wanted:
            yield ok(about, f"it is served by {_named(found.spec.service)}, and the settings do not want it")
        elif found.spec.service != ours:
            text = f"it is served by {_named(found.spec.service)}, not by {_named(ours)}; a group has one server"
            behind = "the other adapter can answer behind this one (upstreams in the settings)"
            yield error(about, text, f"{_WITH_APISERVICES}; {behind}")
        elif not is_wanted and settings is not None:
            text = f"it names {_named(ours)}, and the settings do not serve it (server.externalMetrics)"
            yield error(about, text, "set that, or delete it")
        else:
            yield _availability(about, found, ours.namespace)


def _named(service: ObjectReference | None) -> str:
    return "the API server itself" if service is None else f"Service {service.namespace}/{service.name}"


def _availability(about: str, api_service: ApiService, namespace: str) -> Finding:
    condition = next((one for one in api_service.status.conditions or () if one.type == "Available"), None)
    if condition is None:
        text = "the API server has not judged it yet (no condition Available)"
        return error(about, text, "check again in a minute")
    if condition.status == "True":
        return ok(about, f"it is available from {_named(api_service.spec.service)}")
    said = f"{condition.message} {condition.reason}"
    remedy = next((text for part, text in _REMEDIES.items() if part in said), "kubectl describe apiservice")
    text = f"it is not available ({condition.reason}): {condition.message}"
    return error(about, text, remedy.format(namespace=namespace))


async def check_servers(session: Session, namespace: str, settings: Settings) -> list[Finding]:
    """Whether each pod of the server is ready, and why not: /readyz of the telemetry port, through the API server."""

    async def ask(pod: str) -> list[Finding]:
        about, path = f"server {pod}", f"{PODS.path(namespace, pod)}:{settings.telemetry.port}/proxy/readyz"
        try:
            body = await session.get(path, params={"verbose": "", "report": ""}, timeout=_ASK_SECONDS)
        except KubeError as fault:
            return [skipped(about, f"whether it is ready, for {reason(fault)}")]
        found = list[Finding]()
        for line in body.decode(errors="replace").splitlines():
            name, _, text = line[3:].partition(" ")
            if line.startswith("[-]"):
                found.append(error(about, f"it is not ready ({name}): {text.removeprefix('failed: ')}"))
            elif line.startswith("[!]"):  # a fault that every replica shares: it stays ready
                found.append(error(about, text))
        return found or [ok(about, "it is ready")]

    try:
        pods = await list_objects(session, PODS, [namespace], labelSelector=f"{SELECTOR},{_COMPONENT}=server")
    except KubeError as fault:
        return [skipped("servers", f"whether they are ready, for {reason(fault)}")]
    return [one for found in await asyncio.gather(*(ask(pod["metadata"]["name"]) for pod in pods)) for one in found]
