"""Makes values.schema.json and the README of the chart from values.yaml, its comments, and the adapter's settings."""

import functools
import json
import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from adapter.settings import Settings
from adapter.settings.base import Section, models_in
from tools.chart_templates import CHART
from tools.reference import field_docs

Schema = dict[str, Any]

WRITTEN_BY_THE_CHART = {"ServerSettings": ("tls",), "CompanionSettings": ("namespace", "lease")}
_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1}
_SWITCH: Schema = {"type": "boolean"}
_FREE: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _FREE}
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_ISSUER: Schema = {
    "type": "object",
    "properties": {"group": _NAME, "kind": _NAME, "name": _NAME},
    "additionalProperties": False,
    "if": {"minProperties": 1},
    "then": {"required": ["kind", "name"]},
}
_IDENTITIES: Schema = {
    "type": "object",
    "properties": {key: {"type": "integer", "minimum": 1} for key in ("runAsUser", "runAsGroup", "fsGroup")},
    "additionalProperties": False,
}
_RESOURCES: Schema = {
    "type": "object",
    "properties": {"requests": _FREE, "limits": _FREE},
    "additionalProperties": False,
}


def _workload(component: str) -> dict[str, Schema]:
    """The values of a Deployment."""
    # By these Deployments, Services and policies select the pods.
    fixed = {"name": "effective-load", "component": component, "part-of": "effective-load"}
    labels = {f"app.kubernetes.io/{name}": {"const": value} for name, value in fixed.items()}
    return {
        # The quota has room for these, twice.
        "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
        "podDisruptionBudget.maxUnavailable": {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,2}%$|^100%$"}]
        },
        "resources": _RESOURCES,
        "priorityClassName": _TEXT,
        "affinity": _FREE,
        "dnsConfig": _FREE,
        "podLabels": {**_TEXTS, "properties": labels},
        **dict.fromkeys(("serviceAccount.annotations", "nodeSelector", "podAnnotations"), _TEXTS),
        **dict.fromkeys(("tolerations", "extraEnv", "extraVolumes", "extraVolumeMounts"), _OBJECTS),
        "podDisruptionBudget.enabled": _SWITCH,
    }


TYPES: dict[str, Schema] = {
    "image.repository": {
        "type": "string",
        "pattern": "^([a-z0-9.-]+(:[0-9]+)?/)?[a-z0-9._-]+(/[a-z0-9._-]+)*$",  # no tag, no REGISTRY
    },
    "image.tag": {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.pullSecrets": {"type": "array", "items": _NAME},
    "secrets.registries": _NAME,
    "secrets.notifications": _NAME,
    "tls.source": {"enum": ["SelfSigned", "CertManager", "Secret"]},
    "tls.secret": _TEXT,
    "tls.caBundle": {"type": "string", "pattern": "^($|-----BEGIN CERTIFICATE-----)"},
    "tls.issuerRef": _ISSUER,
    **{f"server.{key}": schema for key, schema in _workload("server").items()},
    **{f"companion.{key}": schema for key, schema in _workload("companion").items()},
    "podSecurityContext": _IDENTITIES,
    "commonLabels": {**_TEXTS, "propertyNames": {"not": {"pattern": "^app.kubernetes.io/(name|component|part-of)$"}}},
    "monitoring.interval": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
    "alerts.runbooks": {"type": "string", "pattern": "^https?://.*[^/]$"},
    **dict.fromkeys(("commonAnnotations", "dashboards.annotations"), _TEXTS),
    **dict.fromkeys(("rbac.create", "rbac.namespaced", "crds.keep", "namespace.create", "server.hostNetwork"), _SWITCH),
    **{
        f"{part}.enabled": _SWITCH
        for part in ("companion", "crds", "resourceQuota", "networkPolicies", "monitoring", "alerts", "dashboards")
    },
    **{f"{part}.labels": _TEXTS for part in ("monitoring", "alerts", "dashboards")},
    **{
        f"networkPolicies.{peers}": _OBJECTS
        for peers in ("apiServers.from", "apiServers.to", "dns.to", "monitoring.from", "sources", "notifications")
    },
}
"""The schema of each value but the settings'."""

_README = """\
# The chart effective-load

<!-- Made from values.yaml by `python -m tools.checks --write`. -->

It renders the objects of [manifests/](../../manifests), which a test compares one by one.
[docs/install.md](../../docs/install.md) shows installation, upgrade and removal.

```sh
helm install effective-load charts/effective-load --namespace effective-load --create-namespace
```

Names of objects are fixed, whatever the release is called: a cluster has one server for custom.metrics.k8s.io. Values
are checked against `values.schema.json`, the whole settings file included; an unknown key is refused.

## Values

| value | default | what it says |
|---|---|---|
"""


def defaults() -> Schema:
    """The chart's values."""
    values: Schema = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return values


def comments() -> dict[str, str]:
    """The comment above each key of values.yaml, by the key's path."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    block: list[str] = []
    for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
        if comment := re.match(r" *# (.*)", line):
            block.append(comment[1])
        elif key := re.match(r"( *)([\w./]+):", line):
            path = [one for one in path if one[0] < len(key[1])] + [(len(key[1]), key[2])]
            if block:
                found[".".join(name for _, name in path)] = " ".join(block)
            block = []
        else:
            block = []
    return found


def readme() -> str:
    """The chart's README: one row a value that has a description and holds no other such value."""
    described = comments()
    rows = []
    for path, text in described.items():
        holds_others = any(other.startswith(f"{path}.") for other in described)
        shown = f"**`{path}`** |" if holds_others else f"`{path}` | `{json.dumps(at(defaults(), path))}`"
        escaped = text.replace("|", "\\|")
        rows.append(f"| {shown} | {escaped} |")
    return _README + "\n".join(rows) + "\n"


def at(values: Schema, path: str) -> Any:
    """The value at a path."""
    return functools.reduce(operator.getitem, path.split("."), values)


def schema() -> str:
    """The schema of the values, as JSON."""
    root = _section(defaults(), "", comments())
    # What the chart's defaults have is required: templates read it.
    root["properties"]["settings"] = {
        "description": comments()["settings"],
        "allOf": [{"$ref": "#/$defs/Settings"}, _required(defaults()["settings"])],
    }
    # What a chart that includes this one hands on.
    root["properties"]["global"] = {"type": "object", "description": "Of a chart that includes this one; not read."}
    whole = Settings.model_json_schema(by_alias=True)
    sections: Schema = {"Settings": {key: value for key, value in whole.items() if key != "$defs"}, **whole["$defs"]}
    models = {model.__name__: model for model in _models()}
    definitions = {name: _clean(one, models.get(name)) for name, one in sections.items()}
    # Draft 7 is what every Helm 3 reads.
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart effective-load"}
    return json.dumps({**head, **root, "$defs": definitions}, indent=2, ensure_ascii=False) + "\n"


def _section(values: Schema, prefix: str, described: dict[str, str]) -> Schema:
    properties: Schema = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        inner = TYPES.get(path)
        if path != "settings":
            own = {"description": described[path]} if path in described else {}
            properties[key] = {**own, **(inner or _section(value, f"{path}.", described))}
    return {
        "type": "object",
        "properties": properties,
        # All have defaults; a null would take one away, and a template would trip over it.
        "required": [*values],
        "additionalProperties": False,
    }


def _required(values: Schema) -> Schema:
    inner = {key: _required(value) for key, value in values.items() if isinstance(value, dict)}
    if "port" in values:
        inner["port"] = {"minimum": 1}  # 0, any free one, is no port of a container
    return {"required": [*values], **({"properties": inner} if inner else {})}


def _models() -> Iterator[type[Section]]:
    waiting: list[type[Section]] = [Settings]
    seen: set[type[Section]] = set()
    while waiting:
        model = waiting.pop()
        if model not in seen:
            seen.add(model)
            yield model
            for field in model.model_fields.values():
                waiting += [one for one in models_in(field.annotation) if issubclass(one, Section)]


def _clean(section: Schema, model: type[Section] | None) -> Schema:
    cleaned: Schema = _without_titles(section)
    if model is None:
        return cleaned
    documented = field_docs(model)
    for name, field in model.model_fields.items():
        key = str(field.alias)
        if name in WRITTEN_BY_THE_CHART.get(model.__name__, ()):
            del cleaned["properties"][key]
        elif name in documented:
            described = {"description": " ".join(documented[name].split())}
            cleaned["properties"][key] = {**described, **_only_type(cleaned["properties"][key])}
    return cleaned


def _only_type(value: Schema) -> Schema:
    """Without the default, which the settings have, and with each alternative of a list told apart by its type."""
    value = {key: inner for key, inner in value.items() if key != "default"}
    items = value.get("items", {})
    if "discriminator" in items:
        mapping = items["discriminator"]["mapping"]
        cases = [
            {"if": {"properties": {"type": {"const": name}}}, "then": {"$ref": where}}
            for name, where in mapping.items()
        ]
        kinds = {"type": "object", "required": ["type"], "properties": {"type": {"enum": [*mapping]}}}
        value["items"] = {**kinds, "allOf": cases}
    return value


def _without_titles(value: Any) -> Any:
    if isinstance(value, dict):
        is_names = "title" in value and isinstance(value["title"], dict)
        return {key: _without_titles(inner) for key, inner in value.items() if key != "title" or is_names}
    return [_without_titles(one) for one in value] if isinstance(value, list) else value


def files() -> dict[Path, Callable[[], str]]:
    """What makes each of these files, by its path."""
    return {CHART / "values.schema.json": schema, CHART / "README.md": readme}
