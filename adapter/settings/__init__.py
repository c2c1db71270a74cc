"""The adapter's own configuration file: YAML with camelCase keys, every key optional, every fault named at once.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from adapter.runtime import document_text
from adapter.runtime.faults import Fault, FaultyDocument, path_of
from adapter.runtime.outbound import Access
from adapter.settings.base import Mebibytes, Port, Seconds, Section, models_in, type_of
from adapter.settings.notifications import Notifications, Production
from adapter.settings.registries import Registry
from adapter.settings.rules import TAG_FAULTS, advice, spanning_faults

RESTART = ("server", "telemetry", "kubernetes", "companion.namespace", "companion.lease")
"""What is read once, sections or keys: a change of it needs a restart. All else is taken over while running."""

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SECRETIVE = re.compile(r"(?i)auth|password|token|secret|headers|\.urls")
_TITLE = "the settings cannot be used"


class SettingsError(FaultyDocument):
    """The settings file cannot be used; `faults` has all there is to mend."""


def own_namespace() -> str:
    """The namespace this process runs in: $POD_NAMESPACE, else the service account's, else `effective-load`."""
    named = os.environ.get("POD_NAMESPACE", "")
    if not named and _NAMESPACE_FILE.is_file():
        named = _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    return named or "effective-load"


class Tls(Section):
    """How the metrics API gets its serving certificate."""

    mode: Literal["SelfSigned", "Files"] = "SelfSigned"
    """`SelfSigned`: an own CA and leaf, kept in a Secret and renewed. `Files`: given files, read again on a change."""
    cert_file: str = ""
    """PEM file with the certificate chain, for mode `Files`."""
    key_file: str = ""
    """PEM file with the private key, for mode `Files`."""
    namespace: str = Field(default_factory=own_namespace, min_length=1)
    """Namespace of the Service and of the Secret. Default: `$POD_NAMESPACE`, else the service account's namespace, else
    `effective-load`."""
    service: str = Field(default="effective-load", min_length=1)
    """Name of the Service that the APIServices point to; the certificate is made out to it."""
    secret: str = Field(default="effective-load-tls", min_length=1)
    """Name of the Secret that holds the own CA and leaf."""
    inject_ca_bundle: bool = Field(default=True, alias="injectCABundle")
    """Whether to write the CA into the own APIServices' `caBundle`."""


class ServerSettings(Section):
    """The metrics API itself."""

    address: str = ""
    """Address to listen on; empty: every interface, IPv4 and IPv6."""
    port: Port = 6443
    """Port to listen on (HTTPS); 0: any free one."""
    external_metrics: bool = False
    """Whether external.metrics.k8s.io is served too. A cluster has one adapter for that group, often KEDA."""
    tls: Tls = Field(default_factory=Tls)
    """The serving certificate."""


class TelemetrySettings(Section):
    """The adapter's own metrics, on a port of their own, without TLS."""

    address: str = ""
    """Address to listen on; empty: every interface, IPv4 and IPv6."""
    port: Port = 8080
    """Port of `/metrics` and `/healthz` (HTTP); 0: any free one."""


class Logging(Section):
    """What is logged, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is written."""
    format: Literal["json", "console"] = "json"
    """One JSON object a line, or aligned text for people."""


class Kubernetes(Section):
    """Which part of the cluster is watched, and what its API does not tell."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty: all of them."""
    hpa_tolerance: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.1
    """The kube-controller-manager's `--horizontal-pod-autoscaler-tolerance` (0.1: 10 %), which no API tells. It holds
    for HPAs that set no tolerance of their own; what they would swallow is not asked of them."""


class ResourceMetricsSettings(Section):
    """CPU and memory from metrics.k8s.io."""

    interval_seconds: Seconds = 10
    """How often each namespace with policies is asked."""
    max_age_seconds: Seconds = 90
    """A sample older than this is no sample."""
    timeout_seconds: Seconds = 5
    """How long one request may take."""
    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """How large the answer about one namespace may be, in MiB; a pod takes about 500 bytes. A larger one is an error,
    and the last answer counts until it is too old."""


class AnswersSettings(Section):
    """Answers of all sources together."""

    max_total_mib: Mebibytes = Field(default=128, alias="maxTotalMiB")
    """How much of what metrics.k8s.io, Prometheus servers and registries answer may be in memory before it is decoded,
    in MiB after unpacking. Answers wait for one another, the large ones of one source always. No `maxAnswerMiB` may be
    more."""


class BasicAuth(Section):
    """A user name, and the file that holds its password."""

    username: str = Field(min_length=1)
    """The user's name."""
    password_file: str = Field(min_length=1)
    """File with the password; read again when it changes."""


class PrometheusServer(Section):
    """One server that answers PromQL."""

    name: str = Field(min_length=1)
    """The name that queries refer to."""
    url: str
    """Where its API begins: `http://prometheus.monitoring:9090`, with the path prefix where there is one."""
    timeout_seconds: Seconds = 5
    """How long one query may take."""
    basic_auth: BasicAuth | None = None
    """User and password. Not together with `bearerTokenFile`."""
    bearer_token_file: str = ""
    """File with a bearer token; read again when it changes."""
    ca_file: str = ""
    """PEM file with the CAs that may sign this server's certificate; empty: those of the system."""
    insecure_skip_verify: bool = False
    """Whether to accept any certificate."""
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Further request headers, such as `X-Scope-OrgID`."""
    header_files: Mapping[str, str] = Field(default_factory=dict)
    """The same with values from files: names of headers with the file that holds the value of each; read again when it
    changes. For values that are secrets."""
    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """How large an answer may be, in MiB after unpacking; a series takes about 150 bytes. A larger one is an error, and
    the last answer counts until it is too old."""

    @property
    def access(self) -> Access:
        """Credentials and TLS of its HTTP client."""
        basic = self.basic_auth
        return Access(
            username=basic.username if basic else "",
            password_file=basic.password_file if basic else "",
            bearer_token_file=self.bearer_token_file,
            ca_file=self.ca_file,
            insecure_skip_verify=self.insecure_skip_verify,
            headers=self.headers,
            header_files=self.header_files,
        )


class NamedQuery(Section):
    """A query that policies may name, and that is served as a Pods or External metric without a policy."""

    name: str
    """The metric's name: letters, digits, `_`, `-`, `.` and `:`. Not one of the adapter's own."""
    server: str
    """The server that answers it, by name."""
    query: str = Field(min_length=1)
    """PromQL. `$namespace` and `$workload` stand for those of the policy that asks; a query without them is asked once
    for all policies, so keep the namespace and pod labels: `sum by (namespace, pod) (…)`."""
    scope: Literal["Pods", "Service"] = "Pods"
    """`Pods`: one series a pod. `Service`: one number for the whole service."""
    namespace_label: str = Field(default="namespace", min_length=1)
    """The label that holds the pod's namespace."""
    pod_label: str = Field(default="pod", min_length=1)
    """The label that holds the pod's name (scope `Pods`)."""
    max_age_seconds: Seconds = 90
    """A point older than this is no sample."""
    interval_seconds: Seconds = 15
    """How often it is asked."""
    window_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None
    """How far back its values reach from their time. Default: the longest range in `query`, plus its longest offset;
    the window of a recording rule cannot be seen there, so name it here. The load of a pod that left counts until
    samples began later, so that old samples do not shrink a service again and again."""


class PrometheusSettings(Section):
    """Any number of Prometheus servers, and the queries they answer."""

    inline_queries: bool = False
    """Whether a policy may bring PromQL of its own. Whoever may write policies then reads all these servers hold."""
    servers: tuple[PrometheusServer, ...] = ()
    """The servers."""
    queries: tuple[NamedQuery, ...] = ()
    """The named queries."""


class CompanionFeatures(Section):
    """What the companion may write; each has rights of its own in the manifests. With all of them off it only reads."""

    status: bool = True
    """Whether policies get a status: conditions, counts, the decision, and what replicas have to remember together."""
    events: bool = True
    """Whether policies get Events: on scaling, and when a condition has changed for longer than a moment."""
    fast_scale_up: bool = False
    """Whether the counts of policies with `fastScaleUp: true` are raised before the HPA's next sync, as far as its
    `behavior` allows at that moment."""
    deletion_cost: bool = False
    """Whether pulled-out pods of policies with `pulledOut.deleteFirst: true` are marked to be deleted first; this needs
    the right to patch pods."""
    hpa_wiring: bool = False
    """Whether the HPAs of policies with `hpaWiring: Enforce` get tolerance 0, and scaling policies that hold nothing
    back before the policy does, and keep them. It needs the right to patch HPAs."""


class CompanionSettings(Section):
    """The companion, of which one replica leads."""

    namespace: str = Field(default_factory=own_namespace, min_length=1)
    """Namespace of the Lease. Default: as for `server.tls.namespace`."""
    lease: str = Field(default="effective-load-companion", min_length=1)
    """Name of the Lease by which the leader is elected."""
    writes_per_second: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 15
    """How many requests that write are sent to the API server at most, scaling left aside. Statuses alone take one for
    every 120 policies: with more than a thousand policies set it to a sixtieth of their number."""
    features: CompanionFeatures = CompanionFeatures()
    """What the companion may write."""
    version_mismatch_seconds: Seconds = 600
    """How long serving pods may run more than one version while no rollout moves on, before that is said."""
    production: Production = Production()
    """Which namespaces are production."""
    notifications: Notifications = Notifications()
    """Whom it tells of scaling and of trouble."""


class Settings(Section):
    """The whole file."""

    server: ServerSettings = Field(default_factory=ServerSettings)
    """The metrics API itself. *Needs a restart.*"""
    telemetry: TelemetrySettings = TelemetrySettings()
    """The adapter's own metrics. *Needs a restart.*"""
    logging: Logging = Logging()
    """What is logged."""
    kubernetes: Kubernetes = Kubernetes()
    """Which part of the cluster is watched, and what its API does not tell. *Needs a restart.*"""
    resource_metrics: ResourceMetricsSettings = ResourceMetricsSettings()
    """CPU and memory from metrics.k8s.io."""
    prometheus: PrometheusSettings = PrometheusSettings()
    """Prometheus servers and queries."""
    answers: AnswersSettings = AnswersSettings()
    """Answers of all sources together."""
    companion: CompanionSettings = Field(default_factory=CompanionSettings)
    """The companion. *`namespace` and `lease` need a restart.*"""
    registries: tuple[Annotated[Registry, Field(discriminator="type")], ...] = ()
    """Service registries that policies may name."""


def load(path: str | Path) -> Settings:
    """Read and check the settings file. Raises SettingsError with every fault in it."""
    return parse(_read(Path(path)).decode("utf-8", errors="replace"))


def parse(text: str) -> Settings:
    """Check the text of a settings file. Raises SettingsError with every fault in it; empty text is all defaults."""
    document = _document(text)
    faults = list(spanning_faults(document))
    try:
        settings = Settings.model_validate_json(json.dumps(document), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        faults[:0] = [_fault(detail) for detail in error.errors(include_url=False)]
        raise SettingsError(faults, _TITLE) from None
    if faults:
        raise SettingsError(faults, _TITLE)
    return settings


def needs_restart(running: Settings, wanted: Settings) -> tuple[str, ...]:
    """The keys that differ but are only read at the start (`server.port`, …), sorted."""
    before, after = dict(_leaves(running)), dict(_leaves(wanted))
    return tuple(sorted(key for key in before if before[key] != after[key] and _is_read_once(key)))


def _is_read_once(key: str) -> bool:
    return any(f"{key}.".startswith(f"{once}.") for once in RESTART)


class SettingsFile:
    """A settings file that may change under way, by rewriting or by a ConfigMap's symlink swap: content is compared."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: bytes | None = None

    def changed(self) -> Settings | None:
        """The settings if the content is new since the last call (the first included), else None.

        Raises SettingsError for a broken or missing file, once per content; the caller keeps what it has. Reads a file.
        """
        try:
            content = _read(self.path)
        except SettingsError:
            if self._notice(b""):
                raise
            return None
        if not self._notice(b"read" + content):
            return None
        return parse(content.decode("utf-8", errors="replace"))

    def _notice(self, content: bytes) -> bool:
        digest = hashlib.sha256(content).digest()
        new = digest != self._seen
        self._seen = digest
        return new


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        # The whole path: a value would be cut.
        raise SettingsError([Fault("", None, f"{path} cannot be read ({reason}); check --settings")], _TITLE) from error


def _document(text: str) -> Mapping[str, Any]:
    try:
        document = document_text.read(text)
    except document_text.TextError as error:
        raise SettingsError(map(_without_secrets, error.faults), _TITLE) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError([Fault("", document, "write a mapping of sections, such as `server:`")], _TITLE)
    return document


def _without_secrets(fault: Fault) -> Fault:
    """The fault of a text, without a value that may be a secret or hold one."""
    hidden = isinstance(fault.value, dict | list) or _SECRETIVE.search(fault.path)
    return replace(fault, value=None) if hidden else fault


def _fault(detail: ErrorDetails) -> Fault:
    location, section = _place(detail["loc"])
    known = tuple(field.alias or name for name, field in section.model_fields.items()) if section else ()
    path = path_of(location)
    # What was found is shown unless it may be a secret that was put in the wrong place.
    hidden = detail["type"] in {"missing", *TAG_FAULTS} or _SECRETIVE.search(path)
    return Fault(path, None if hidden else detail["input"], advice(detail, known))


def _place(location: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], type[BaseModel] | None]:
    """Where a fault stands in the file, and the section that it stands in.

    Where sections are told apart by their type, pydantic puts that into the location; in the file it is no key.
    """
    sections: list[type[BaseModel]] = [Settings]
    written: list[str | int] = []
    inside: type[BaseModel] | None = Settings
    for part in location:
        chosen = [one for one in sections if len(sections) > 1 and type_of(one) == part]
        if chosen:
            sections = chosen
            continue
        written.append(part)
        inside = sections[0] if len(sections) == 1 else inside
        if isinstance(part, str):
            field = next((f for one in sections for n, f in one.model_fields.items() if part in {f.alias, n}), None)
            sections = list(models_in(field.annotation)) if field else []
    return tuple(written), inside


def _leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        key = f"{prefix}{field.alias}"
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value
