"""Makes the templates of the chart that hold no values from the manifests, so that each rule is written once.

`python -m tests.checks --write` renews them. Templates with values (Deployments, settings, certificates, network
policies) are written by hand; a test compares what all of them render with what kustomize renders.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "effective-load"
MANIFESTS = ROOT / "manifests"

SELF_SIGNED = 'eq .Values.tls.source "SelfSigned"'
COMPANION = ".Values.companion.enabled"
_MADE = "{{- /* Made from manifests/ by `python -m tests.checks --write`. */}}\n"
_KEEP = """\
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""
_ANNOTATIONS = """\
  {{- with .Values.dashboards.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
"""
_RUNBOOKS = "https://effective-load.io/runbooks"


@dataclass(frozen=True)
class Source:
    """A file of `manifests/`, or all that a component's kustomization names, and when its objects are rendered."""

    path: str
    when: str = ""
    only: dict[str, str] = field(default_factory=dict)
    """Conditions of single objects, by name."""
    added: tuple[tuple[str, str], ...] = ()
    """Lines that are added before the first occurrence of a line in each object."""
    replaced: tuple[tuple[str, str], ...] = ()
    """Texts that are a value."""


def feature(name: str, setting: str) -> Source:
    """The rights of something that the companion does, which a setting switches on."""
    return Source(f"components/companion-{name}", f"and {COMPANION} .Values.settings.companion.{setting}")


def labelled(name: str, **more: tuple[tuple[str, str], ...]) -> Source:
    """A component with a switch, and with values for further labels and annotations of its objects."""
    labels = f"    {{{{- with .Values.{name}.labels }}}}\n    {{{{- toYaml . | nindent 4 }}}}\n    {{{{- end }}}}\n"
    added = (("    app.kubernetes.io/name: effective-load\n", labels), *more.pop("added", ()))
    return Source(f"components/{name}", f".Values.{name}.enabled", added=added, **more)


TEMPLATES: dict[str, tuple[Source, ...]] = {
    "namespace": (Source("base/namespace.yaml", ".Values.namespace.create"),),
    "crd": (Source("crd/watermarkpolicies.yaml", ".Values.crds.enabled", added=(("  labels:\n", _KEEP),)),),
    "rbac": (
        Source("base/serviceaccount.yaml"),
        Source(
            "base/rbac.yaml",
            only=dict.fromkeys(("effective-load-apiservices", "effective-load-certificates"), SELF_SIGNED),
        ),
        Source("base/rbac-readers.yaml"),
    ),
    "service": (Source("base/secret.yaml", SELF_SIGNED), Source("base/service.yaml")),
    "poddisruptionbudget": (Source("base/poddisruptionbudget.yaml"),),
    "external-metrics": (
        Source("components/external-metrics/rbac.yaml", f"and .Values.settings.server.externalMetrics ({SELF_SIGNED})"),
    ),
    "registry-push": (Source("components/registry-push", 'include "effective-load.isPushed" .'),),
    "upstreams": (Source("components/upstreams", ".Values.settings.upstreams"),),
    "monitoring": (labelled("monitoring"),),
    "alerts": (labelled("alerts", replaced=((_RUNBOOKS, "{{ $.Values.alerts.runbooks }}"),)),),
    "dashboards": (labelled("dashboards", added=(("  labels:\n", _ANNOTATIONS),)),),
    "companion-base": tuple(
        Source(f"components/companion/{name}.yaml", COMPANION)
        for name in ("serviceaccount", "rbac", "lease", "poddisruptionbudget")
    ),
    "companion-features": (
        feature("status", "features.status"),
        feature("events", "features.events"),
        feature("fast-scale-up", "features.fastScaleUp"),
        feature("deletion-cost", "features.deletionCost"),
        feature("hpa-wiring", "features.hpaWiring"),
        feature("namespaces", "production.label"),
    ),
}


def files() -> dict[Path, partial[str]]:
    """What makes each of these templates, by its path."""
    return {CHART / "templates" / f"{name}.yaml": partial(template, name) for name in TEMPLATES}


def template(name: str) -> str:
    """The text of one template."""
    parts = (part for source in TEMPLATES[name] for part in _objects(source))
    return _MADE + "".join(parts)


def _objects(source: Source) -> Iterator[str]:
    texts = [text for path in _paths(MANIFESTS / source.path) for text in _documents(path)]
    names = {_name(text) for text in texts}
    if lost := source.only.keys() - names:
        raise ValueError(f"manifests/{source.path} has no object {sorted(lost)}")
    for text in texts:
        name = _name(text)
        yield _wrapped(_with_lines(text, source), " ".join(filter(None, (source.when, source.only.get(name)))))


def _with_lines(text: str, source: Source) -> str:
    for line, more in source.added:
        if f"\n{line}" not in text:
            raise ValueError(f"manifests/{source.path}: {_name(text)} has no line {line!r}")
        text = text.replace(f"\n{line}", f"\n{more}{line}", 1)
    for old, new in source.replaced:
        if old not in text:
            raise ValueError(f"manifests/{source.path}: {_name(text)} has no {old}")
        text = text.replace(old, new)
    return text


def _wrapped(text: str, when: str) -> str:
    return f"{{{{- if {when} }}}}\n---\n{text}{{{{- end }}}}\n" if when else f"---\n{text}"


def _paths(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    named = yaml.safe_load((path / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    return [path / one for one in named]


def _documents(path: Path) -> list[str]:
    """The objects in a file as texts, with their comments, and with the release's namespace."""
    texts = re.split(r"^---\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [_in_namespace(_escaped(text)) for text in texts]


def _escaped(text: str) -> str:
    """The text with what Helm would take for its own."""
    return text.replace("{{", '{{ "{{" }}')


def _in_namespace(text: str) -> str:
    text = re.sub(r"^( *(?:- )?namespace:) effective-load$", r"\1 {{ .Release.Namespace }}", text, flags=re.MULTILINE)
    text = text.replace(
        "kind: Namespace\nmetadata:\n  name: effective-load\n",
        "kind: Namespace\nmetadata:\n  name: {{ .Release.Namespace }}\n",
    )
    return text.replace("system:serviceaccount:effective-load:", "system:serviceaccount:{{ .Release.Namespace }}:")


def _name(text: str) -> str:
    found = re.search(r"^metadata:\n  name: (\S+)$", text, re.MULTILINE)
    return found[1] if found else ""
