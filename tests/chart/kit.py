"""Renders the chart with Helm, and the manifests with the same switches."""

import functools
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from adapter.settings import parse_settings
from lab.harness import binaries
from lab.harness.adapter import merged
from tests.manifests.rendering import MANIFESTS, Object, identity, render_with
from tools.chart_templates import CHART

NAMESPACE = "effective-load"
NOBODY = [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
SERVING = "/etc/effective-load/serving"
FILES = {"mode": "Files", "certFile": f"{SERVING}/tls.crt", "keyFile": f"{SERVING}/tls.key", "injectCABundle": False}
_SORTED = {"volumes": "name", "volumeMounts": "mountPath", "ports": "name", "env": "name"}


@dataclass(frozen=True)
class Switch:
    """One thing to switch on: in the chart's values, and in an overlay of the manifests."""

    values: dict[str, Any]
    components: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    kind: str = ""
    """The kind of objects that an overlay has to delete where the switch is off."""


def _setting(components: Iterable[str], **settings: Any) -> Switch:
    return Switch({"settings": settings}, tuple(components), settings)


def _feature(component: str, key: str) -> Switch:
    return _setting((component,), companion={"features": {key: True}})


SWITCHES: dict[str, Switch] = {
    "namespace": Switch({"namespace": {"create": True}}, kind="Namespace"),
    "crds": Switch({"crds": {"enabled": True}}, kind="CustomResourceDefinition"),
    "quota": Switch({"resourceQuota": {"enabled": True}}, kind="ResourceQuota"),
    "companion": Switch({"companion": {"enabled": True}}, ("companion",)),
    "status": _feature("companion-status", "status"),
    "events": _feature("companion-events", "events"),
    "fastScaleUp": _feature("companion-fast-scale-up", "fastScaleUp"),
    "deletionCost": _feature("companion-deletion-cost", "deletionCost"),
    "hpaConfiguration": _feature("companion-hpa-configuration", "hpaConfiguration"),
    "external": _setting(("external-metrics",), server={"externalMetrics": True}),
    "upstreams": _setting(("upstreams",), upstreams={"custom": {"url": "https://prometheus-adapter.monitoring.svc"}}),
    "network": Switch(
        {"networkPolicies": {"enabled": True, "apiServers": {"from": NOBODY, "to": NOBODY}}}, ("network-policies",)
    ),
    "monitoring": Switch({"monitoring": {"enabled": True}}, ("monitoring",)),
    "alerts": Switch({"alerts": {"enabled": True}}, ("alerts",)),
    "dashboards": Switch({"dashboards": {"enabled": True}}, ("dashboards",)),
    "certManager": Switch({"tls": {"source": "CertManager"}}, ("cert-manager",), {"server": {"tls": FILES}}),
}
_ALL_OFF = {
    "crds": {"enabled": False},
    "resourceQuota": {"enabled": False},
    "companion": {"enabled": False},
    "settings": {"companion": {"features": {"status": False, "events": False}}},
}
DEFAULT = frozenset({"crds", "quota", "companion", "status", "events"})
"""What is on without a value."""
Combination = frozenset[str]


# --- the chart ---


@functools.cache
def helm() -> Path:
    """Helm, built where it is not there yet."""
    return binaries.ensure("helm")["helm"]


def run(*arguments: str | Path, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs Helm with these values on standard input; the caller looks at the status."""
    told = ("--values", "-") if values is not None else ()
    text = json.dumps(values) if values is not None else None
    return subprocess.run([helm(), *arguments, *told], input=text, capture_output=True, text=True, check=False)


def rendered(values: Mapping[str, Any] | None = None, *more: str, namespace: str = NAMESPACE) -> list[Object]:
    """The objects of the chart. Raises AssertionError with Helm's message where it refuses."""
    done = run("template", "release", CHART, "--namespace", namespace, *more, values=values or {})
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if item]


def values_of(combination: Combination) -> dict[str, Any]:
    """The chart's values for these switches and no other."""
    values: dict[str, Any] = _ALL_OFF
    for name in sorted(combination):
        values = merged(values, SWITCHES[name].values)
    return values


# --- the manifests ---


def overlay(combination: Combination) -> list[Object]:
    """The objects of an overlay with these switches and no other, as a person would write it."""
    on = [SWITCHES[name] for name in SWITCHES if name in combination]
    components = [name for switch in on for name in switch.components]
    with_companion = "companion" in combination
    components = [name for name in components if with_companion or not name.startswith("companion-")]
    objects = render_with(MANIFESTS / "base", components, [_settings(on)])
    absent = {switch.kind for name, switch in SWITCHES.items() if name not in combination}
    return [item for item in objects if item["kind"] not in absent]


def _settings(on: Iterable[Switch]) -> Object:
    settings = {"companion": {"features": {"status": False, "events": False}}}
    for switch in on:
        settings = merged(settings, switch.settings)
    metadata = {"name": "effective-load-settings", "namespace": NAMESPACE}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"settings.yaml": yaml.safe_dump(settings)}}


# --- both ---


def by_name(objects: Iterable[Object]) -> dict[tuple[str, str, str], Object]:
    """Normalised objects by kind, namespace and name, none of which may come twice."""
    found: dict[tuple[str, str, str], Object] = {}
    for item in objects:
        assert identity(item) not in found, f"{identity(item)} comes twice"
        found[identity(item)] = normalised(item)
    return found


SETTINGS_AT_START = "effective-load.io/settings-at-start"
"""The annotation of pods that replaces them where a setting that they read at the start changes; kustomize has none."""


def normalised(item: Object) -> Object:
    """The object without the order of lists that have a key, with its settings read, and without Helm's annotations."""
    item = _without_order(item)
    if item["kind"] == "Deployment" and SETTINGS_AT_START in item["spec"]["template"]["metadata"].get(
        "annotations", {}
    ):
        assert list(item["spec"]["template"]["metadata"].pop("annotations")) == [SETTINGS_AT_START]
    annotations = item["metadata"].get("annotations", {})
    own = {key: value for key, value in annotations.items() if not key.startswith("helm.sh/")}
    item["metadata"] = {key: value for key, value in item["metadata"].items() if key != "annotations"}
    if own:
        item["metadata"]["annotations"] = own
    if "settings.yaml" in item.get("data", {}):
        item["data"] = {**item["data"], "settings.yaml": parse_settings(item["data"]["settings.yaml"])}
    return item


def _without_order(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _without_order(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        items = [_without_order(item) for item in value]
        return sorted(items, key=lambda item: str(item.get(_SORTED[key]))) if key in _SORTED else items
    return value


def combinations() -> list[Combination]:
    """All switches, none, the default; each switch alone, and all but each.

    Each three switches have all their eight settings in these, and no object depends on more than three.
    """
    names = frozenset(SWITCHES)
    alone = [frozenset({name}) for name in SWITCHES]
    return [names, frozenset(), DEFAULT, *alone, *(names - one for one in alone)]
