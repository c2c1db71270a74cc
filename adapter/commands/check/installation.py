"""What is installed in the cluster: the Deployments, their accounts, and the settings that they run with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import msgspec

from adapter.commands.check.report import ReportSection, reason
from adapter.commands.check.rights import Account
from adapter.kube.api import API_SERVICES, CONFIG_MAPS, DEPLOYMENTS
from adapter.kube.errors import Forbidden, KubeError, NotFound
from adapter.kube.objects import AnyObject, AnyObjectList, ApiService, ConfigMap
from adapter.kube.session import Session
from adapter.runtime.decoding import decode
from adapter.settings import Settings, SettingsError, parse_settings
from adapter.telemetry.metrics import package_version

SELECTOR = "app.kubernetes.io/name=effective-load"
_COMPONENT = "app.kubernetes.io/component"
_API_SERVICE = "v1beta2.custom.metrics.k8s.io"
_CONFIG_MAP = "effective-load-settings"
_KEY = "settings.yaml"
_ACCOUNTS = {Account.SERVER: "effective-load", Account.COMPANION: "effective-load-companion"}
_DEFAULTS = "every default is assumed"
CAUSE = "servers"


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
    preferred = (await _registered(session), namespace)
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
        home = next((one for one in (*preferred, *homes) if one in homes), namespace)
        return Installation(
            namespace=home,
            parts=_parts(deployment for deployment in deployments if deployment.metadata.namespace == home),
        )
    return Installation(namespace=namespace, is_known=False, trouble=trouble)


async def _registered(session: Session) -> str:
    """The namespace of the Service that serves the metrics API; empty where that is unknown."""
    try:
        service = decode(await session.get(API_SERVICES.path("", _API_SERVICE)), ApiService).spec.service
    except (KubeError, msgspec.MsgspecError):
        return ""
    return service.namespace if service is not None else ""


def _parts(deployments: Iterable[AnyObject]) -> dict[Account, InstalledPart]:
    parts: dict[Account, InstalledPart] = {}
    for deployment in deployments:
        component = (deployment.metadata.labels or {}).get(_COMPONENT)
        if component in _ACCOUNTS:
            pod = _mapping(_mapping(deployment.spec, "template"), "spec")
            containers = pod.get("containers") or [{}]
            arguments = [str(argument) for container in containers for argument in (container.get("args") or ())]
            settings = next((text.partition("=")[2] for text in arguments if text.startswith("--settings=")), _KEY)
            volumes = {
                volume.get("name"): _mapping(volume, "configMap").get("name") for volume in pod.get("volumes") or ()
            }
            status = deployment.status or {}
            parts[Account(component)] = InstalledPart(
                deployment=deployment.metadata.name,
                account=str(pod.get("serviceAccountName") or "default"),
                image=str(containers[0].get("image") or ""),
                wanted=int((deployment.spec or {}).get("replicas") or 0),
                ready=int(status.get("readyReplicas") or 0),
                config_map=str(volumes.get("settings") or _CONFIG_MAP),
                key=PurePosixPath(settings).name,
            )
    return parts


def _mapping(data: Mapping[str, Any] | None, key: str) -> Mapping[str, Any]:
    inner = (data or {}).get(key)
    return inner if isinstance(inner, Mapping) else {}


async def installed_settings(session: Session, installation: Installation) -> tuple[Settings, bool, ReportSection]:
    """The settings of the installation, from its ConfigMap; whether they were read; and where they are from."""
    section = ReportSection("settings")
    part = installation.parts.get(Account.SERVER) or InstalledPart(deployment="", account="")
    where = f"ConfigMap {installation.namespace}/{part.config_map}"
    settings, known = Settings(), False
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
        known = True
    return with_namespace(settings, installation.namespace), known, section


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
    for account, part in installation.parts.items():
        named = f"Deployment {installation.namespace}/{part.deployment}"
        if part.ready:
            section.ok(f"{named} has {part.ready} of {part.wanted} pods ready")
        elif part.wanted:
            cause = CAUSE if account is Account.SERVER else ""
            text = f"{named} has none of its {part.wanted} pods ready: kubectl -n {installation.namespace} get pods"
            section.wrong(text, cause=cause, symptom_of=(f"rights/{account.value}",))
        version = part.image.rpartition(":")[2]
        if version[:1].isdigit() and version != package_version():
            section.note(f"{named} runs version {version}, and this program is {package_version()}")
    return section
