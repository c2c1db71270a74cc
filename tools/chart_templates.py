"""Makes the templates of the chart that hold no values from the manifests, so that each rule is written once.

`python -m tools.checks --write` renews them. Templates with values (Deployments, settings, certificates, network
policies) and that of the dashboards are written by hand; a test compares what all render with what kustomize renders.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "effective-load"
MANIFESTS = ROOT / "manifests"

SELF_SIGNED = 'eq .Values.tls.source "SelfSigned"'
COMPANION = ".Values.companion.enabled"
_MADE = "{{- /* Made from manifests/ by `python -m tools.checks --write`. */}}\n"
_RBAC = frozenset({"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
_IN_EACH_NAMESPACE = frozenset({"effective-load-server", "effective-load-scales", "effective-load-companion"})
"""The bindings, besides those of features, that reach no further than the namespaces with `rbac.namespaced`."""
_LABELS = """\
    {{- with $.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
"""
_RUNBOOKS = "https://github.com/OWNER/effective-load/blob/v0.1.0/docs/runbooks"


@dataclass(frozen=True)
class Source:
    """A file of `manifests/`, or all that a component's kustomization names, and when its objects are rendered."""

    path: str
    when: str = ""
    only: dict[str, str] = field(default_factory=dict)
    """Conditions of single objects, by name."""
    labels: str = ""
    """A value with further labels of its objects."""
    annotations: str = ""
    """An expression for further annotations of its objects."""
    replaced: tuple[tuple[str, str], ...] = ()
    """Texts that are a value."""


def feature(name: str, setting: str) -> Source:
    """The rights of something that the companion does, which a setting switches on."""
    return Source(f"components/companion-{name}", f"and {COMPANION} .Values.settings.companion.{setting}")


def labelled(name: str, *replaced: tuple[str, str]) -> Source:
    """A component with a switch, and with a value for further labels of its objects."""
    where = f".Values.{name}"
    return Source(f"components/{name}", f"{where}.enabled", labels=f"{where}.labels", replaced=replaced)


_KEEP = 'ternary (dict "helm.sh/resource-policy" "keep") (dict) $.Values.crds.keep'


def workload(component: str, path: str, when: str = "") -> Source:
    """An object of a Deployment's own: its account, or its disruption budget."""
    values = f"$.Values.{component}"
    if "serviceaccount" in path:
        return Source(path, when, annotations=f"{values}.serviceAccount.annotations")
    replaced = (
        ("  maxUnavailable: 1\n", f"  maxUnavailable: {{{{ {values}.podDisruptionBudget.maxUnavailable }}}}\n"),
    )
    enabled = f"{values}.podDisruptionBudget.enabled"
    return Source(path, f"and {when} {enabled}" if when else enabled, replaced=replaced)


TEMPLATES: dict[str, tuple[Source, ...]] = {
    "namespace": (Source("base/namespace.yaml", ".Values.namespace.create"),),
    "crd": (Source("crd/watermarkpolicies.yaml", ".Values.crds.enabled", annotations=_KEEP),),
    "rbac": (
        workload("server", "base/serviceaccount.yaml"),
        Source(
            "base/rbac.yaml",
            only=dict.fromkeys(("effective-load-apiservices", "effective-load-certificates"), SELF_SIGNED),
        ),
        Source("base/rbac-readers.yaml"),
        Source("base/admission.yaml", SELF_SIGNED),
    ),
    "service": (Source("base/secret.yaml", SELF_SIGNED), Source("base/service.yaml")),
    "poddisruptionbudget": (workload("server", "base/poddisruptionbudget.yaml"),),
    "external-metrics": (
        Source("components/external-metrics/rbac.yaml", f"and .Values.settings.server.externalMetrics ({SELF_SIGNED})"),
    ),
    "upstreams": (Source("components/upstreams", ".Values.settings.upstreams"),),
    "monitoring": (labelled("monitoring", ("interval: 30s", "interval: {{ $.Values.monitoring.interval }}")),),
    "alerts": (labelled("alerts", (_RUNBOOKS, "{{ $.Values.alerts.runbooks }}")),),
    "companion-base": (
        workload("companion", "components/companion/serviceaccount.yaml", COMPANION),
        *(Source(f"components/companion/{name}.yaml", COMPANION) for name in ("rbac", "lease")),
        workload("companion", "components/companion/poddisruptionbudget.yaml", COMPANION),
    ),
    "companion-features": (
        feature("status", "features.status"),
        feature("events", "features.events"),
        feature("fast-scale-up", "features.fastScaleUp"),
        feature("deletion-cost", "features.deletionCost"),
        feature("hpa-configuration", "features.hpaConfiguration"),
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
    """Each object of a source as it is rendered, with its condition."""
    path = MANIFESTS / source.path
    listed = [""]
    if path.is_dir():
        listed = yaml.safe_load((path / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    texts = [text for name in listed for text in _documents(path / name)]
    if lost := source.only.keys() - {_kind_and_name(text)[1] for text in texts}:
        raise ValueError(f"manifests/{source.path} has no object {sorted(lost)}")
    for text in texts:
        kind, name = _kind_and_name(text)
        is_feature = name.startswith("effective-load-companion-")
        is_bound = kind == "ClusterRoleBinding" and (name in _IN_EACH_NAMESPACE or is_feature)
        conditions = [source.when, source.only.get(name, ""), ".Values.rbac.create" if kind in _RBAC else ""]
        conditions = [f"({one})" if " " in one else one for one in conditions if one]
        when = f"and {' '.join(conditions)}" if len(conditions) > 1 else "".join(conditions).strip("()")
        rendered = _with_values(_bound(text) if is_bound else text, name, source)
        rendered = rendered if is_bound else f"---\n{rendered}"
        yield f"{{{{- if {when} }}}}\n{rendered}{{{{- end }}}}\n" if when else rendered


def _with_values(text: str, name: str, source: Source) -> str:
    """The text with labels, annotations and texts that are values."""
    labels = _LABELS
    if source.labels:
        labels += _LABELS.replace("$.Values.commonLabels", f"${source.labels}")
    common = "$.Values.commonAnnotations"
    annotations = f"merge (dict) ({source.annotations}) {common}" if source.annotations else common
    block = f"  {{{{- with {annotations} }}}}\n  annotations:\n    {{{{- toYaml . | nindent 4 }}}}\n  {{{{- end }}}}\n"
    if "\n  annotations:\n" in text:  # the object's own
        own = "  annotations:\n"
        text = text.replace(f"\n{own}", f"\n{own}{_LABELS.replace('commonLabels', 'commonAnnotations')}", 1)
        block = ""
    for old, new in (("\n  labels:\n", f"\n{block}  labels:\n{labels}"), *source.replaced):
        if old not in text:
            raise ValueError(f"manifests/{source.path}: {name} has no {old.strip()}")
        text = text.replace(old, new)
    return text


def _bound(text: str) -> str:
    """A binding to the cluster, or with `rbac.namespaced` one in each namespace of the settings."""
    head, _, rest = text.partition("  name: ")
    name, _, rest = rest.partition("\n")
    head = head.replace("kind: ClusterRoleBinding", "kind: {{ if . }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}")
    where = "  {{- with . }}\n  namespace: {{ . }}\n  {{- end }}\n"
    start = '{{- range include "effective-load.boundNamespaces" $ | fromJsonArray }}\n---\n'
    return f"{start}{head}  name: {name}\n{where}{rest}{{{{- end }}}}\n"


def _documents(path: Path) -> list[str]:
    """The objects in a file as texts, with their comments, and with the release's namespace."""
    # Helm would take `{{` for its own.
    whole, release = path.read_text(encoding="utf-8").replace("{{", '{{ "{{" }}'), "{{ $.Release.Namespace }}"
    whole = re.sub(r"^( *(?:- )?namespace:) effective-load$", rf"\1 {release}", whole, flags=re.MULTILINE)
    head = "kind: Namespace\nmetadata:\n  name: "
    whole = whole.replace(f"{head}effective-load\n", f"{head}{release}\n")
    whole = whole.replace("system:serviceaccount:effective-load:", f"system:serviceaccount:{release}:")
    return re.split(r"^---\n", whole, flags=re.MULTILINE)


def _kind_and_name(text: str) -> tuple[str, str]:
    found = re.search(r"^kind: (\S+)\n.*?^metadata:\n  name: (.+?)$", text, re.MULTILINE | re.DOTALL)
    return (found[1], found[2]) if found else ("", "")
