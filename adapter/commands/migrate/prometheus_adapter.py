"""The rules by which prometheus-adapter turns a metric of an HPA into PromQL.

A rule names series (`seriesQuery`), what the API calls them (`name`), and the query as a template (`metricsQuery`).
Only templates that expand without guessing are translated. Which series exist only Prometheus knows: so all rules that
could give a metric are candidates.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import promql_parser as ast
import yaml

from adapter.commands.files import ManifestObject
from adapter.commands.migrate.read import Fields, Note, NoteKind, Refusal, checked, labels_of, one_number
from adapter.usage.promql import uses_variables

CONFIG_KEY = "config.yaml"
PLAIN_KEYS = ("rules", "externalRules", "resourceRules")
_TEMPLATE = re.compile(r"<<\s*\.(Series|LabelMatchers|GroupBy)\s*>>", re.ASCII)
_SELECTOR = re.compile(r"\s*(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)?\s*(?P<matchers>\{.*\})?\s*", re.ASCII | re.DOTALL)
_NAME_MATCHER = re.compile(r'__name__\s*(?P<sign>=~|!~|!=|=)\s*"(?P<value>[^"\\]*)"', re.ASCII)
_ONE_NAME = re.compile(r"\^?([A-Za-z_:][A-Za-z0-9_:]*)\$?", re.ASCII)
_CAPTURE = re.compile(r"\^?(?P<before>[A-Za-z0-9_:]*)\((?:\.\*|\.\+)\)(?P<after>[A-Za-z0-9_:]*)\$?", re.ASCII)
_REFERENCE = re.compile(r"\$(?:\{(\d)\}|(\d)(?!\w))", re.ASCII)
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SIGNS = {"In": "=~", "NotIn": "!~", "Exists": "!=", "DoesNotExist": "="}


class Candidate(NamedTuple):
    """A rule that may give a metric: its place, the PromQL, and what to know about the choice."""

    rule: str
    query: str
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedMetric:
    """A Pods, Object or External metric of an HPA. `matchers` are its selector as (label, sign, value)."""

    kind: str
    name: str
    selector: Mapping[str, Any]
    described: tuple[str, str, str] = ("", "", "")

    @classmethod
    def read(cls, source: Fields, kind: str) -> "ServedMetric":
        """Read the metric of a source. Raises Refusal."""
        metric, described = source.section("metric"), ("", "", "")
        if kind == "Object":
            of = source.section("describedObject")
            described = of.text("apiVersion"), of.text("kind", required=True), of.text("name", required=True)
        selector = metric.get("selector") or {}
        return cls(kind=kind, name=metric.text("name", required=True), selector=selector, described=described)

    def manifest(self) -> dict[str, Any]:
        """The metric as an HPA has it."""
        return {"name": self.name, **({"selector": dict(self.selector)} if self.selector else {})}

    def matchers(self) -> Iterator[str]:
        """Its selector as label matchers. Raises Refusal."""
        for label, value in (self.selector.get("matchLabels") or {}).items():
            yield _matcher(label, "=", value)
        for one in self.selector.get("matchExpressions") or ():
            values = "|".join(re.sub(r"([.+*?()\[\]{}|^$\\])", r"\\\1", value) for value in one.get("values") or ())
            yield _matcher(one["key"], _SIGNS[one["operator"]], values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. `labels` are its overrides by singular resource, `template` the label of every other resource."""

    path: str
    series_query: str
    filters: tuple[tuple[str, str], ...]
    labels: Mapping[str, str]
    template: str
    matches: str
    as_name: str
    metrics_query: str
    namespaced: bool

    @classmethod
    def read(cls, fields: Fields) -> "Rule":
        """Read a rule. Raises Refusal."""
        resources, name = fields.section("resources"), fields.section("name")
        overrides = resources.get("overrides") or {}
        filters = [
            (kind, section.text(kind))
            for section in fields.sections("seriesFilters")
            for kind in ("is", "isNot")
            if section.has(kind)
        ]
        return cls(
            path=fields.path,
            series_query=fields.text("seriesQuery"),
            filters=tuple(filters),
            labels={_singular(str(of.get("resource"))): label for label, of in overrides.items()},
            template=resources.text("template"),
            matches=name.text("matches"),
            as_name=name.text("as"),
            metrics_query=fields.text("metricsQuery") or "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
            namespaced=resources.text("namespaced", "true") != "false",
        )

    def label(self, resource: str, group: str = "") -> str:
        """The Prometheus label of a resource. Raises Refusal where the rule has none."""
        label = self.labels.get(resource)
        if label is None and self.template:
            parts = {"Group": group.replace(".", "_"), "Resource": resource}
            label = re.sub(r"<<\s*\.(Group|Resource)\s*>>", lambda match: parts[match[1]], self.template)
        if not label or not _LABEL.fullmatch(label):
            raise Refusal(f"its resources give no label of {resource}")
        return label

    @property
    def own_series(self) -> str:
        """The series that its seriesQuery names, empty where it is more than one, or a pattern."""
        query = _SELECTOR.fullmatch(self.series_query)
        if query is None:
            return ""
        if query["name"]:
            return query["name"]
        positive = [one for one in _NAME_MATCHER.finditer(query["matchers"] or "") if not one["sign"].startswith("!")]
        names = [_ONE_NAME.fullmatch(one["value"]) for one in positive]
        return names[0][1] if len(names) == 1 and names[0] else ""

    def series_of(self, metric: str) -> str:
        """The series that it serves under this name, empty where it serves none. Raises Refusal."""
        if own := self.own_series:
            return own if self._selects(own) and self._named(own) == metric else ""
        if self.as_name and not _REFERENCE.search(self.as_name):
            if self.as_name == metric and "<<.Series>>" not in self.metrics_query.replace(" ", ""):
                return metric  # its query does not ask for the series by name
            if self.as_name != metric:
                return ""
            raise Refusal(f"its seriesQuery names no single series, and name.as is always {metric}")
        capture = _CAPTURE.fullmatch(self.matches) if self.matches else None
        if not self.matches or self.as_name in {"$0", "${0}"}:
            series = metric if self.as_name in {"", "$0", "${0}", "$1", "${1}"} else ""
        elif capture is None:
            raise Refusal(f"its name.matches {self.matches!r} is more than one group with .* between fixed texts")
        else:
            references = list(_REFERENCE.finditer(self.as_name or "$1"))
            if len(references) != 1:
                raise Refusal(f"its name.as {self.as_name!r} has more than one reference to a group")
            [one] = references
            before, after = one.string[: one.start()], one.string[one.end() :]
            text = metric[len(before) : len(metric) - len(after)]
            series = f"{capture['before']}{text}{capture['after']}" if (one[1] or one[2]) == "1" else text
        return series if series and self._selects(series) and self._named(series) == metric else ""

    def _named(self, series: str) -> str:
        """The name that prometheus-adapter gives to a series; empty where the rule's expression does not match it."""
        found = re.search(self.matches or ".*", series)
        if found is None:
            return ""
        groups = (found[0], *(group or "" for group in found.groups()))
        template = self.as_name or ("$1" if len(groups) > 1 else "$0")
        return _REFERENCE.sub(lambda one: (*groups, *[""] * 9)[int(one[1] or one[2])], template)

    def _selects(self, series: str) -> bool:
        query = _SELECTOR.fullmatch(self.series_query)
        for matcher in _NAME_MATCHER.finditer((query and query["matchers"]) or ""):
            value = matcher["value"]
            fits = bool(re.fullmatch(value, series)) if "~" in matcher["sign"] else value == series
            if fits == matcher["sign"].startswith("!"):
                return False
        return all(bool(re.search(pattern, series)) is (kind == "is") for kind, pattern in self.filters if pattern)

    def query(self, series: str, metric: ServedMetric) -> str:
        """The PromQL of a metric in the HPA's own namespace, as a policy asks it. Raises Refusal."""
        matchers, is_custom = list(metric.matchers()), metric.kind != "External"
        if any(map(uses_variables, (self.metrics_query, *matchers, metric.described[2]))):
            raise Refusal("it holds $namespace or $workload, which a policy replaces")
        namespace, group, pod = "", "", ""
        if is_custom or (self.namespaced and (self.labels.get("namespace") or self.template)):
            namespace = self.label("namespace")
            matchers.insert(0, f'{namespace}="$namespace"')
        if metric.kind == "Pods":
            pod = self.label("pod")
            matchers.append(f'{pod}!=""')
            group = f"{namespace}, {pod}"
        elif is_custom:
            version, kind, name = metric.described
            group = namespace if kind == "Namespace" else self.label(_singular(kind), version.rpartition("/")[0])
            if kind != "Namespace":
                matchers.append(_matcher(group, "=", name))
        parts = {"Series": series, "LabelMatchers": ",".join(matchers), "GroupBy": group}
        text = _TEMPLATE.sub(lambda match: parts[match[1]], self.metrics_query)
        if "<<" in text:
            raise Refusal("its metricsQuery uses more than .Series, .LabelMatchers and .GroupBy")
        if metric.kind != "Pods":
            return one_number(text, variables=True)
        return self._by_pod(checked(text), namespace, pod)

    def _by_pod(self, text: str, namespace: str, pod: str) -> str:
        """The query with the labels by which a policy tells pods. Raises Refusal."""
        labels = labels_of(ast.parse(text))
        if labels is not None and pod not in labels:
            raise Refusal(f"its metricsQuery does not group by {pod}, so no value belongs to a pod")
        if labels is not None and namespace not in labels:
            if f'{namespace}="$namespace"' not in text:
                raise Refusal(f"its metricsQuery neither groups by {namespace} nor uses <<.LabelMatchers>>")
            text, namespace = f'label_replace({text}, "namespace", "$namespace", "", "")', "namespace"
        for new, old in (("namespace", namespace), ("pod", pod)):
            if new != old:
                text = f'label_replace({text}, "{new}", "$1", "{old}", "(.*)")'
        return checked(text)


@dataclass(frozen=True, slots=True)
class AdapterRules:
    """The rules of one configuration: for Pods and Object metrics, and for External ones."""

    custom: tuple[Rule, ...] = ()
    external: tuple[Rule, ...] = ()

    def candidates(self, metric: ServedMetric) -> list[Candidate]:
        """What may give the metric. Of rules that give the same series the last counts, as in prometheus-adapter."""
        found: dict[str, tuple[Rule, Candidate]] = {}
        for rule in self.external if metric.kind == "External" else self.custom:
            try:
                if not (series := rule.series_of(metric.name)):
                    continue
                candidate = Candidate(rule.path, rule.query(series, metric))
            except (Refusal, re.error):
                continue
            if series in found:
                first = found[series][0].path
                remark = f"{first} and {rule.path} both give it; prometheus-adapter uses the last, as here"
                candidate = candidate._replace(remark=remark)
            found[series] = rule, candidate
        named = [candidate for rule, candidate in found.values() if rule.own_series]
        others = [candidate for rule, candidate in found.values() if not rule.own_series]
        if len(named) == 1 and others:
            skipped = ", ".join(one.rule for one in others)
            remark = (
                f"{named[0].rule} names its series and is taken; {skipped} could give it from series of other names"
            )
            named = [named[0]._replace(remark=remark)]
        return named or others

    def reasons(self, metric: ServedMetric) -> str:
        """Why no rule gives the metric."""
        faults = []
        for rule in self.external if metric.kind == "External" else self.custom:
            try:
                if series := rule.series_of(metric.name):
                    rule.query(series, metric)
            except Refusal as refusal:
                faults.append(f"{rule.path} may be for it, but {refusal}")
            except re.error as error:
                faults.append(f"{rule.path} holds an expression that is not readable here ({error})")
        if metric.kind == "External" and not faults:
            swapped = AdapterRules(external=self.custom).candidates(replace(metric))
            if swapped:
                faults.append(f"{swapped[0].rule} would give it, but External metrics come from externalRules")
        return "; ".join(faults) or "no rule is for it"


def is_rules(one: ManifestObject) -> bool:
    """Whether an object is a configuration of prometheus-adapter, plain or in a ConfigMap."""
    if one.kind == "ConfigMap":
        text = (one.data.get("data") or {}).get(CONFIG_KEY, "")
        return any(key in text for key in PLAIN_KEYS)
    return not one.kind and any(key in one.data for key in PLAIN_KEYS)


def read_rules(one: ManifestObject) -> tuple[AdapterRules, list[Note]]:
    """Read a configuration, with the note on keys that were not read. Raises Refusal."""
    data: Any = one.data
    if one.kind == "ConfigMap":
        try:
            data = yaml.safe_load(one.data["data"][CONFIG_KEY])
        except yaml.YAMLError as error:
            raise Refusal(f"data[{CONFIG_KEY}]: is not YAML: {error}") from None
    root = Fields.of(data or {})
    if isinstance(data, Mapping) and isinstance(data.get("rules"), Mapping):
        raise Refusal("rules: is a mapping, as in Helm values; give the ConfigMap that the chart makes of them")
    rules = AdapterRules(
        tuple(Rule.read(section) for section in root.sections("rules")),
        tuple(Rule.read(section) for section in root.sections("externalRules")),
    )
    root.get("resourceRules")
    root.name_unread()
    return rules, [Note(NoteKind.UNREAD, "", None, f"{one.file}: {note.sentence}") for note in root.notes]


def _matcher(label: str, sign: str, value: str) -> str:
    if not _LABEL.fullmatch(label):
        raise Refusal(f"the selector's label {label!r} is not a label of Prometheus")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{label}{sign}"{escaped}"'


def _singular(resource: str) -> str:
    lower = resource.lower()
    return lower[:-1] if lower.endswith("s") and not lower.endswith("ss") else lower
