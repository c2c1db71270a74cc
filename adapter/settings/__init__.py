"""The settings file: YAML with camelCase keys, every key optional, every fault reported at once."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic.alias_generators import to_snake
from pydantic_core import ErrorDetails

from adapter.runtime import document_text
from adapter.runtime.faults import Fault, FaultyDocument, closest, path_of
from adapter.settings.base import UNIQUE_NAMES, RefusedError, Section, models_in, type_of
from adapter.settings.companion import CompanionFeatures as CompanionFeatures
from adapter.settings.companion import CompanionSettings as CompanionSettings
from adapter.settings.registries import Registry
from adapter.settings.server import Kubernetes as Kubernetes
from adapter.settings.server import Logging, TelemetrySettings
from adapter.settings.server import NamedQuery as NamedQuery
from adapter.settings.server import PrometheusServer as PrometheusServer
from adapter.settings.server import PrometheusSettings as PrometheusSettings
from adapter.settings.server import ResourceMetricsSettings as ResourceMetricsSettings
from adapter.settings.server import ServerSettings as ServerSettings
from adapter.settings.server import Upstream as Upstream
from adapter.settings.server import UpstreamsSettings as UpstreamsSettings
from adapter.settings.server import own_namespace as own_namespace

RESTART = (
    "server.address",
    "server.port",
    "server.tls",
    "telemetry",
    "kubernetes",
    "upstreams",
    "companion.namespace",
    "companion.lease",
    "companion.leaseSeconds",
)
"""Sections and keys that are read once, so that a change needs a restart. All others apply while running."""

_SECRETIVE = re.compile(r"(?i)auth|password|token|secret|headers|\.urls")
_TITLE = "the settings cannot be used"
_WRITE_TYPE = f"write one of {', '.join(map(type_of, get_args(Registry)))}"
_ADVICE = {
    "missing": "is missing and has no default; write one",
    "model_type": "write a mapping of keys",
    "model_attributes_type": "write a mapping of keys",
    "string_too_short": "may not be empty",
    "too_short": "may not be empty",
    "union_tag_not_found": f"has no type; {_WRITE_TYPE}",
}


class SettingsError(FaultyDocument):
    """The settings file cannot be used; `faults` has every fault in it."""


class Settings(Section):
    """The whole file."""

    server: ServerSettings = Field(default_factory=ServerSettings)
    """The metrics API itself. *`address`, `port` and `tls` need a restart.*"""
    telemetry: TelemetrySettings = TelemetrySettings()
    """The adapter's own metrics. *Needs a restart.*"""
    logging: Logging = Logging()
    """What is logged."""
    kubernetes: Kubernetes = Kubernetes()
    """Which part of the cluster is watched, and the HPA controller's tolerance. *Needs a restart.*"""
    resource_metrics: ResourceMetricsSettings = ResourceMetricsSettings()
    """CPU and memory from metrics.k8s.io."""
    prometheus: PrometheusSettings = PrometheusSettings()
    """Prometheus servers and queries."""
    upstreams: UpstreamsSettings = UpstreamsSettings()
    """The adapters behind this one, with the metrics that are not its own. *Needs a restart.*"""
    companion: CompanionSettings = Field(default_factory=CompanionSettings)
    """The companion. *`namespace`, `lease` and `leaseSeconds` need a restart.*"""
    registries: Annotated[tuple[Annotated[Registry, Field(discriminator="type")], ...], UNIQUE_NAMES] = ()
    """Service registries that policies may name."""

    def _faults(self) -> Iterator[Fault]:
        if self.upstreams.external is not None and not self.server.external_metrics:
            advice = "is unused while server.externalMetrics is false; set it to true or remove this section"
            yield Fault("upstreams.external", None, advice)


def load_settings(path: str | Path) -> Settings:
    """Reads and checks the settings file. Raises SettingsError with every fault in it."""
    return parse_settings(_read(Path(path)).decode("utf-8", errors="replace"))


def parse_settings(text: str) -> Settings:
    """Checks the text of a settings file; empty text is all defaults. Raises SettingsError with every fault in it."""
    try:
        document = document_text.read_document(text)
    except document_text.TextError as error:
        # The value may be a secret, or hold one.
        raise SettingsError((replace(fault, value=None) for fault in error.faults), _TITLE) from error
    document = {} if document is None else document
    if not isinstance(document, dict):
        raise SettingsError([Fault("", document, "write a mapping of sections, such as `server:`")], _TITLE)
    try:
        return Settings.model_validate_json(json.dumps(document), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        faults = (fault for detail in error.errors(include_url=False) for fault in _faults(detail))
        raise SettingsError(faults, _TITLE) from None


def needs_restart(running: Settings, wanted: Settings) -> tuple[str, ...]:
    """The changed keys among `RESTART`."""
    fields = ((key, attrgetter(to_snake(key))) for key in RESTART)
    return tuple(key for key, field in fields if field(running) != field(wanted))


class SettingsFile:
    """A settings file that may change, by rewriting or by a ConfigMap's symlink swap: content is compared."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: bytes | str | None = None
        """The content at the last call, or why it could not be read."""

    def changed(self) -> Settings | None:
        """The settings if the content changed since the last call (the first included), else None.

        Raises SettingsError for a broken or missing file, once per content; the caller keeps its settings. It blocks.
        """
        before = self._seen
        try:
            self._seen = content = _read(self.path)
        except SettingsError as error:
            self._seen = str(error)
            if self._seen == before:
                return None
            raise
        return None if content == before else parse_settings(content.decode("utf-8", errors="replace"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise SettingsError([Fault("", None, f"{path} cannot be read ({reason}); check --settings")], _TITLE) from error


def _faults(detail: ErrorDetails) -> Iterator[Fault]:
    """One of pydantic's errors as faults with path, value and remedy."""
    location, section = _place(detail["loc"])
    kind, path = detail["type"], path_of(location)
    error = detail.get("ctx", {}).get("error")
    if isinstance(error, RefusedError):
        for fault in error.faults:
            inner = f".{fault.path}" if path and fault.path[:1] not in {"", "["} else fault.path
            yield replace(fault, path=path + inner)
        return
    if kind == "too_short" and detail["input"]:  # pydantic does not count invalid items, which are errors already
        return
    match kind:
        case "extra_forbidden":
            keys = [field.alias or name for name, field in section.model_fields.items()]
            advice = f"there is no such key{closest(str(location[-1]), keys)}; there are {', '.join(keys)}"
        case "union_tag_invalid":
            advice = f"has an unknown type ({detail['ctx']['tag']}); {_WRITE_TYPE}"
        case _:
            advice = _ADVICE.get(kind) or detail["msg"].replace("Input should be", "must be")
    # The value is shown unless it may be a misplaced secret.
    hidden = kind in {"missing", "union_tag_not_found", "union_tag_invalid"} or _SECRETIVE.search(path)
    yield Fault(path, None if hidden else detail["input"], advice)


def _place(location: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], type[BaseModel]]:
    """The path of an error in the file, and the innermost section on it.

    After the index of a registry pydantic names the type that it chose, which is not a key of the file.
    """
    section: type[BaseModel] = Settings
    choices: dict[str | int, type[BaseModel]] = {}
    written: list[str | int] = []
    for part in location:
        if part in choices:
            section, choices = choices[part], {}
            continue
        written.append(part)
        field = next((one for name, one in section.model_fields.items() if part in {one.alias, name}), None)
        inner = list(models_in(field.annotation)) if field else []
        if len(inner) == 1:
            (section,) = inner
        choices = {type_of(kind): kind for kind in inner} or choices
    return tuple(written), section
