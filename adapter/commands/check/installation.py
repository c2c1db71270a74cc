"""What is installed: Deployments, their accounts and settings, and who serves the metrics APIs, if anybody does."""

import base64
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Self

import msgspec

from adapter.commands.check.report import ReportSection, reason
from adapter.commands.check.rights import Account
from adapter.kube.api import API_SERVICES, CONFIG_MAPS, DEPLOYMENTS
from adapter.kube.errors import Forbidden, KubeError, NotFound
from adapter.kube.objects import AnyObject, AnyObjectList, ApiService, Condition, ConfigMap, ServiceReference
from adapter.kube.session import Session
from adapter.policy.field_reader import mapping_at
from adapter.runtime.decoding import decode
from adapter.settings import Settings, SettingsError, parse_settings
from adapter.telemetry.metrics import package_version

SELECTOR = "app.kubernetes.io/name=effective-load"
_COMPONENT = "app.kubernetes.io/component"
_CONFIG_MAP = "effective-load-settings"
_KEY = "settings.yaml"
_ACCOUNTS = {Account.SERVER: "effective-load", Account.COMPANION: "effective-load-companion"}
_DEFAULTS = "every default is assumed"
CUSTOM = ("v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io")
EXTERNAL = "v1beta1.external.metrics.k8s.io"
CUSTOM_METRICS = "custom.metrics.k8s.io"
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
    "Forbidden": "the server refuses the API server itself: see client_refused in its log",
    "Unauthorized": "the server refuses the API server itself: see client_refused in its log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPart:
    """A Deployment of the installation: its service account, image, and pods."""

    deployment: str
    account: str
    image: str = ""
    wanted: int = 0
    ready: int = 0
    config_map: str = _CONFIG_MAP
    key: str = _KEY

    @classmethod
    def of(cls, deployment: AnyObject) -> Self:
        """What a Deployment says of itself."""
        pod = mapping_at(deployment.spec, "template", "spec")
        containers = pod.get("containers") or [{}]
        arguments = [str(argument) for container in containers for argument in (container.get("args") or ())]
        settings = next((text.partition("=")[2] for text in arguments if text.startswith("--settings=")), _KEY)
        volumes = {
            volume.get("name"): mapping_at(volume, "configMap").get("name") for volume in pod.get("volumes") or ()
        }
        return cls(
            deployment=deployment.metadata.name,
            account=str(pod.get("serviceAccountName") or "default"),
            image=str(containers[0].get("image") or ""),
            wanted=int((deployment.spec or {}).get("replicas") or 0),
            ready=int((deployment.status or {}).get("readyReplicas") or 0),
            config_map=str(volumes.get("settings") or _CONFIG_MAP),
            key=PurePosixPath(settings).name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What is installed. `is_known`: whether Deployments could be read; `parts` is empty where there is none."""

    namespace: str
    parts: Mapping[Account, InstalledPart] = field(default_factory=dict)
    is_known: bool = True
    trouble: str = ""

    def accounts(self) -> dict[Account, str]:
        """The service accounts; those of the manifests where nothing is known."""
        if not self.is_known:
            return dict(_ACCOUNTS)
        return {account: part.account for account, part in self.parts.items()}


async def find_installation(session: Session, settings: Settings) -> Installation:
    """The installation of this cluster: where the APIService leads, else by the settings' namespace, else by labels.

    Anybody may put labels on a Deployment of theirs; only administrators write APIServices.
    """
    namespace, trouble = settings.server.tls.namespace, ""
    registered = None
    with contextlib.suppress(KubeError, msgspec.MsgspecError):
        registered = await read_api_service(session, CUSTOM[0])
    service = registered.spec.service if registered is not None else None
    preferred = (service.namespace if service is not None else "", namespace)
    for where in ("", namespace):
        try:
            body = await session.get(DEPLOYMENTS.collection(where), params={"labelSelector": SELECTOR})
            deployments = decode(body, AnyObjectList).items or []
        except (KubeError, msgspec.MsgspecError) as error:
            trouble = trouble or reason(error)
            continue
        servers = [
            deployment
            for deployment in deployments
            if (deployment.metadata.labels or {}).get(_COMPONENT) == Account.SERVER
        ]
        homes = [server.metadata.namespace for server in servers]
        home = next((namespace for namespace in (*preferred, *homes) if namespace in homes), namespace)
        parts = {
            Account(component): InstalledPart.of(deployment)
            for deployment in deployments
            if deployment.metadata.namespace == home
            and (component := (deployment.metadata.labels or {}).get(_COMPONENT)) in _ACCOUNTS
        }
        return Installation(namespace=home, parts=parts)
    return Installation(namespace=namespace, is_known=False, trouble=trouble)


async def installed_settings(session: Session, installation: Installation) -> tuple[Settings, bool, ReportSection]:
    """The settings of the installation, from its ConfigMap; whether they were read; and where they are from."""
    section = ReportSection("settings")
    part = installation.parts.get(Account.SERVER) or InstalledPart(deployment="", account="")
    where = f"ConfigMap {installation.namespace}/{part.config_map}"
    settings, is_known = Settings(), False
    try:
        body = await session.get(CONFIG_MAPS.path(installation.namespace, part.config_map))
        text = (decode(body, ConfigMap).data or {})[part.key]
        settings = parse_settings(text)
    except NotFound:
        if part.deployment:
            section.wrong(
                f"{where} does not exist, so no new pod of Deployment {part.deployment} starts: apply it "
                f"(manifests/base/settings.yaml); {_DEFAULTS} here"
            )
        else:
            section.note(f"{where} does not exist, and no --settings are given: {_DEFAULTS}")
    except Forbidden as error:
        section.skipped(f"the settings in {where}, for {reason(error)}; give --settings; {_DEFAULTS}")
    except (KubeError, msgspec.MsgspecError) as error:
        section.skipped(f"{where} cannot be read ({error}); give --settings; {_DEFAULTS}")
    except LookupError:
        section.wrong(f"{where} has no key {part.key}, which the server reads; {_DEFAULTS} here")
    except SettingsError as error:
        for fault in error.faults:
            section.wrong(f"{where}: {fault}; a running server keeps its last ones, a new one does not start")
    else:
        section.ok(f"they are those of {where}")
        is_known = True
    return with_namespace(settings, installation.namespace), is_known, section


def with_namespace(settings: Settings, namespace: str) -> Settings:
    """The settings as a process in that namespace reads them: it is the default of two keys."""
    tls, companion = settings.server.tls, settings.companion
    if "namespace" not in tls.model_fields_set:
        server = settings.server.model_copy(update={"tls": tls.model_copy(update={"namespace": namespace})})
        settings = settings.model_copy(update={"server": server})
    if "namespace" not in companion.model_fields_set:
        settings = settings.model_copy(update={"companion": companion.model_copy(update={"namespace": namespace})})
    return settings


def installation_section(installation: Installation) -> ReportSection:
    """Whether the Deployments have their pods, and whether their version is that of this program."""
    section = ReportSection("installation")
    if not installation.is_known:
        section.skipped(f"its Deployments, for {installation.trouble}")
        return section
    if Account.SERVER not in installation.parts:
        section.note(
            f"no Deployment has the labels {SELECTOR} and {_COMPONENT}=server: effective-load is not installed here by "
            "its manifests"
        )
    for part in installation.parts.values():
        named = f"Deployment {installation.namespace}/{part.deployment}"
        if part.ready:
            section.ok(f"{named} has {part.ready} of {part.wanted} pods ready")
        elif part.wanted:
            section.wrong(
                f"{named} has none of its {part.wanted} pods ready: kubectl -n {installation.namespace} get pods"
            )
        version = part.image.rpartition(":")[2]
        if version[:1].isdigit() and version != package_version():
            section.note(f"{named} runs version {version}, and this program is {package_version()}")
    return section


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
            api_service = await read_api_service(session, name)
        except Forbidden as error:
            section.skipped(f"who serves the metrics APIs, for {reason(error)}")
            break
        except (KubeError, msgspec.MsgspecError) as error:
            section.skipped(f"who serves it: {error}")
            continue
        if api_service is not None:
            known[name] = api_service
        is_ours = api_service is not None and api_service.spec.service == own_service(settings)
        wanted = name != EXTERNAL or settings.server.external_metrics or (is_ours and not settings_known)
        beside = known.get(CUSTOM[0])
        waits = beside is not None and beside.spec.service == own_service(settings) and unavailable(beside) is None
        _add(section, api_service, settings, wanted=wanted, waits=name == EXTERNAL and waits)
    return [section for section in sections if section.findings], known


def own_service(settings: Settings) -> ServiceReference:
    """The Service that the APIServices have to name."""
    return ServiceReference(namespace=settings.server.tls.namespace, name=settings.server.tls.service)


def _add(
    section: ReportSection, api_service: ApiService | None, settings: Settings, *, wanted: bool, waits: bool
) -> None:
    """Add what is found. `waits`: the servers answer another group, so they have not read the settings."""
    expected = own_service(settings)
    service = api_service.spec.service if api_service is not None else None
    if not wanted:
        if api_service is not None and service == expected:
            section.wrong(
                f"it names {_named(expected)}, and the settings do not serve it (server.externalMetrics): set that, or "
                "delete it"
            )
        elif api_service is not None:
            section.ok(f"it is served by {_named(service)}, and the settings do not want it")
        return
    if api_service is None:
        section.wrong(f"it does not exist, so no HPA is answered: {_APPLY}")
    elif service != expected:
        condition = unavailable(api_service)
        answers = "its adapter answers the HPAs" if condition is None else f"which does not answer ({condition.reason})"
        section.wrong(
            f"it is served by {_named(service)}, not by {_named(expected)}: {answers}; "
            f"a group has one server, so {_APPLY}; the other adapter can answer behind this one "
            "(upstreams in the settings)"
        )
    elif (condition := unavailable(api_service)) is not None:
        advice = next((remedy for part, remedy in _OF_MESSAGE.items() if part in condition.message), "")
        remedy = advice or _REMEDIES.get(condition.reason, "look at kubectl describe apiservice")
        remedy = remedy.format(namespace=expected.namespace)
        if waits:
            remedy = (
                f"the servers answer {CUSTOM_METRICS}, so they have not read server.externalMetrics yet: a ConfigMap "
                "reaches the pods within two minutes, sooner by "
                f"kubectl -n {expected.namespace} rollout restart deployment effective-load"
            )
        section.wrong(f"it is not available ({condition.reason}: {condition.message.strip()}): {remedy}")
    else:
        section.ok(f"it is available, served by {_named(expected)}")
