"""The settings file: YAML with camelCase keys, every key optional, every fault reported at once.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from adapter.runtime import document_text
from adapter.runtime.faults import Fault, FaultyDocument, closest, path_of
from adapter.settings.base import (
    Section,
    age_faults,
    default_of,
    is_number,
    models_in,
    raw_items,
    raw_section,
    repeated_faults,
    type_of,
)
from adapter.settings.companion import CompanionSettings, label_faults, route_faults
from adapter.settings.registries import Registry, registry_faults
from adapter.settings.server import (
    UPSTREAM_GROUPS,
    Logging,
    ServerSettings,
    TelemetrySettings,
    Upstream,
    UpstreamsSettings,
    tls_faults,
    upstream_faults,
)
from adapter.settings.sources import (
    AnswersSettings,
    Kubernetes,
    PrometheusServer,
    PrometheusSettings,
    ResourceMetricsSettings,
    query_faults,
    server_faults,
)

RESTART = (
    "server.address",
    "server.port",
    "server.tls",
    "telemetry",
    "kubernetes",
    "companion.namespace",
    "companion.lease",
)
"""Sections and keys that are read once, so that a change needs a restart. All others apply while running."""

_SECRETIVE = re.compile(r"(?i)auth|password|token|secret|headers|\.urls")
_TITLE = "the settings cannot be used"
_TAG_FAULTS = ("union_tag_not_found", "union_tag_invalid")
_WRITE_TYPE = f"write one of {', '.join(map(type_of, get_args(Registry)))}"
_MAPPING = "write a mapping of keys"
_ADVICE = {
    "missing": "is missing and has no default; write one",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
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
    answers: AnswersSettings = AnswersSettings()
    """Answers of all sources together."""
    upstreams: UpstreamsSettings = UpstreamsSettings()
    """The adapters behind this one, who answer the metrics that are not its own."""
    companion: CompanionSettings = Field(default_factory=CompanionSettings)
    """The companion. *`namespace` and `lease` need a restart.*"""
    registries: tuple[Annotated[Registry, Field(discriminator="type")], ...] = ()
    """Service registries that policies may name."""


def load_settings(path: str | Path) -> Settings:
    """Reads and checks the settings file. Raises SettingsError with every fault in it."""
    return parse_settings(_read(Path(path)).decode("utf-8", errors="replace"))


def parse_settings(text: str) -> Settings:
    """Checks the text of a settings file; empty text is all defaults. Raises SettingsError with every fault in it."""
    try:
        document = document_text.read_document(text)
    except document_text.TextError as error:
        # A value that may be a secret, or hold one, is not shown.
        shown = (
            replace(fault, value=None)
            if isinstance(fault.value, dict | list) or _SECRETIVE.search(fault.path)
            else fault
            for fault in error.faults
        )
        raise SettingsError(shown, _TITLE) from error
    document = {} if document is None else document
    if not isinstance(document, dict):
        raise SettingsError([Fault("", document, "write a mapping of sections, such as `server:`")], _TITLE)
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
    """The changed keys that are read only at the start (`server.port`, …), sorted."""
    before, after = dict(_leaves(running)), dict(_leaves(wanted))
    keys = before.keys() | after.keys()  # a section that is left out has no keys of its own
    changed = (key for key in keys if before.get(key) != after.get(key))
    return tuple(sorted(key for key in changed if any(f"{key}.".startswith(f"{once}.") for once in RESTART)))


class SettingsFile:
    """A settings file that may change, by rewriting or by a ConfigMap's symlink swap: content is compared."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: tuple[bytes, bool] | None = None
        """The content at the last call, and whether it could be read."""

    def changed(self) -> Settings | None:
        """The settings if the content changed since the last call (the first included), else None.

        Raises SettingsError for a broken or missing file, once per content; the caller keeps its settings. Blocks on
        the file.
        """
        content, fault = b"", None
        try:
            content = _read(self.path)
        except SettingsError as error:
            fault = error
        before, self._seen = self._seen, (content, fault is None)
        if self._seen == before:
            return None
        if fault is not None:
            raise fault
        return parse_settings(content.decode("utf-8", errors="replace"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        # The path stands in the sentence: a value would be cut.
        raise SettingsError([Fault("", None, f"{path} cannot be read ({reason}); check --settings")], _TITLE) from error


def _fault(detail: ErrorDetails) -> Fault:
    """A fault that the types found, with what to do about it."""
    location, section = _place(detail["loc"])
    kind, path = detail["type"], path_of(location)
    match kind:
        case "extra_forbidden":
            keys = [field.alias or name for name, field in section.model_fields.items()] if section else []
            advice = f"there is no such key{closest(str(detail['loc'][-1]), keys)}; there are {', '.join(keys)}"
        case "union_tag_invalid":
            advice = f"has a type that is not known ({detail['ctx']['tag']}); {_WRITE_TYPE}"
        case _:
            advice = _ADVICE.get(kind) or detail["msg"].replace("Input should be", "must be")
    # The value is shown unless it may be a misplaced secret.
    hidden = kind in {"missing", *_TAG_FAULTS} or _SECRETIVE.search(path)
    return Fault(path, None if hidden else detail["input"], advice)


def _place(location: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], type[BaseModel] | None]:
    """The path of a fault in the file, and its section.

    Where `type` selects the section, pydantic puts the type into the location; it is not a key of the file.
    """
    sections: list[type[BaseModel]] = [Settings]
    written: list[str | int] = []
    inside: type[BaseModel] | None = Settings
    for part in location:
        chosen = [section for section in sections if len(sections) > 1 and type_of(section) == part]
        if chosen:
            sections = chosen
            continue
        written.append(part)
        inside = sections[0] if len(sections) == 1 else inside
        if isinstance(part, str):
            field = next(
                (f for section in sections for n, f in section.model_fields.items() if part in {f.alias, n}), None
            )
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


def spanning_faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of the raw document that span keys. Wrongly typed parts are left to pydantic."""
    yield from tls_faults(raw_section(document, "server", "tls"))
    yield from age_faults("resourceMetrics", raw_section(document, "resourceMetrics"), ResourceMetricsSettings)
    prometheus = raw_section(document, "prometheus")
    servers, queries = raw_items(prometheus, "servers"), raw_items(prometheus, "queries")
    yield from repeated_faults("prometheus.servers", servers)
    yield from repeated_faults("prometheus.queries", queries)
    for index, server in servers:
        yield from server_faults(f"prometheus.servers[{index}]", server)
    for index, query in queries:
        yield from query_faults(f"prometheus.queries[{index}]", query, [s.get("name") for _, s in servers])
    yield from upstream_faults(document)
    yield from _total_faults(document)

    label = raw_section(document, "companion", "production").get("label")
    yield from label_faults("companion.production.label", label)
    routes = raw_items(raw_section(document, "companion", "notifications"), "routes")
    yield from repeated_faults("companion.notifications.routes", routes)
    for index, route in routes:
        yield from route_faults(f"companion.notifications.routes[{index}]", route)
    for index, registry in raw_items(document, "registries"):
        yield from registry_faults(f"registries[{index}]", registry)
    yield from repeated_faults("registries", raw_items(document, "registries"))


def _total_faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of limits of one answer that exceed the budget of all answers."""
    total = raw_section(document, "answers").get("maxTotalMiB", default_of(AnswersSettings, "max_total_mib"))
    by_type = {type_of(kind): kind for kind in get_args(Registry) if "max_answer_mib" in kind.model_fields}
    servers = raw_items(raw_section(document, "prometheus"), "servers")
    upstreams = raw_section(document, "upstreams")
    sections: list[tuple[str, Mapping[str, Any], type[Section]]] = [
        ("resourceMetrics", raw_section(document, "resourceMetrics"), ResourceMetricsSettings),
        *(
            (f"registries[{index}]", registry, by_type[str(registry["type"])])
            for index, registry in raw_items(document, "registries")
            if str(registry.get("type")) in by_type
        ),
        *((f"prometheus.servers[{index}]", server, PrometheusServer) for index, server in servers),
        *((f"upstreams.{key}", raw_section(upstreams, key), Upstream) for key in UPSTREAM_GROUPS if key in upstreams),
    ]
    for path, section, kind in sections:
        limit = section.get("maxAnswerMiB", default_of(kind, "max_answer_mib"))
        if is_number(limit) and is_number(total) and limit > total:
            yield Fault(f"{path}.maxAnswerMiB", limit, f"must not be more than answers.maxTotalMiB ({total})")
