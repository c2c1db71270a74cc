"""The rules by which prometheus-adapter turns a metric of an HPA into PromQL.

A rule names series (`seriesQuery`), what the API calls them (`name`), and the query as a template (`metricsQuery`). The
templates are filled in for the HPA's metric as prometheus-adapter does for a request of it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from adapter.migrate import promql_text
from adapter.migrate.native_hpa import Found, SelectedMetric
from adapter.migrate.notes import NoteKind, Notes
from adapter.migrate.original import Document, Fields, note_annotations
from adapter.migrate.series_name import Unclear, selects, series_of
from adapter.migrate.settings_part import SettingsPart
from adapter.runtime import document_text
from adapter.runtime.faults import Fault
from adapter.usage.promql import uses_variables

NAME = "prometheus-adapter"
_CONFIG_KEY = "config.yaml"
_MOST_RULES = 500
_LONGEST_TEXT = 8192
_SIGNS = {"In": "=~", "NotIn": "!~", "Exists": "!=", "DoesNotExist": "="}
_TEMPLATE = re.compile(r"<<\s*\.(Series|LabelMatchers|GroupBy)\s*>>", re.ASCII)
_GROUP_RESOURCE = re.compile(r"<<\s*\.(Group|Resource)\s*>>", re.ASCII)
_PLURAL = {"pods": "pod", "namespaces": "namespace"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. `overrides` are labels by singular resource and group, `filters` (is, isNot) for series names."""

    path: str
    series_query: str
    filters: tuple[tuple[str, str], ...] = ()
    overrides: Mapping[tuple[str, str], str] = field(default_factory=dict)
    template: str = ""
    matches: str = ""
    as_name: str = ""
    metrics_query: str = ""
    namespaced: bool = True

    def label(self, resource: str, group: str = "") -> str:
        """The Prometheus label of a resource, empty where the rule has none."""
        known = self.overrides.get((resource, group))
        if known is not None or not self.template:
            return known or ""
        parts = {"Group": group.replace(".", "_"), "Resource": resource}
        return _GROUP_RESOURCE.sub(lambda match: parts[match[1]], self.template)


@dataclass(slots=True)
class Rules:
    """The rules of one configuration: for Pods and Object metrics, and for External ones.

    `evaluations` is how many more times a rule may be held against a metric: all their products could take very long.
    """

    custom: tuple[Rule, ...] = ()
    external: tuple[Rule, ...] = ()
    evaluations: int = 50_000


def is_rules(document: Document) -> bool:
    """Whether an object is a configuration of prometheus-adapter, plain or in a ConfigMap."""
    if document.kind == "ConfigMap":
        data = document.data.get("data")
        return isinstance(data, Mapping) and _CONFIG_KEY in data
    return not document.kind and ("rules" in document.data or "externalRules" in document.data)


def read_rules(document: Document, faults: list[Fault], notes: Notes) -> Rules:
    """Read a configuration."""
    if document.kind != "ConfigMap":
        return _read(Fields(document.data, "", faults, notes))
    path = f"data[{_CONFIG_KEY}]"
    text = document.data["data"][_CONFIG_KEY]
    try:
        data = document_text.read_document(text) if isinstance(text, str) else None
    except document_text.TextError as error:
        faults += [Fault(f"{path}.{one.path}".rstrip("."), one.value, one.advice) for one in error.faults]
        return Rules()
    return _read(Fields({} if data is None else data, path, faults, notes))


def _read(root: Fields) -> Rules:
    if isinstance(root.get("rules"), Mapping):
        root.fault("rules", None, "is a mapping, as in Helm values; give the ConfigMap that the chart makes of them")
        return Rules()
    rules = Rules(
        tuple(_rule(one) for one in root.sections("rules", _MOST_RULES)),
        tuple(_rule(one) for one in root.sections("externalRules", _MOST_RULES)),
    )
    root.irrelevant(
        "serve metrics.k8s.io (kubectl top); the policy reads cpu and memory there as before", "resourceRules"
    )
    root.rest(NAME)
    return rules


def _rule(fields: Fields) -> Rule:
    resources, name = fields.section("resources"), fields.section("name")
    overrides = {}
    given = resources.get("overrides")
    for label, of in given.items() if isinstance(given, Mapping) and len(given) <= _MOST_RULES else ():
        one = Fields(of, f"{resources.at('overrides')}.{label}", fields.faults, fields.notes)
        resource = one.text("resource", required="a resource, such as pod")
        overrides[_singular(resource), one.text("group") if one.get("group") else ""] = str(label)
        one.rest("overrides")
    filters = []
    for one in fields.sections("seriesFilters", 50):
        filters += [(kind, _text(one, kind)) for kind in ("is", "isNot") if one.has(kind)]
        one.rest("seriesFilters")
    fields.irrelevant("replaces characters of label values that Kubernetes cannot have", "labelValueReplacements")
    rule = Rule(
        path=fields.path,
        series_query=_text(fields, "seriesQuery"),
        filters=tuple(filters),
        overrides=overrides,
        template=_text(resources, "template"),
        matches=_text(name, "matches"),
        as_name=_text(name, "as"),
        metrics_query=_text(fields, "metricsQuery") or "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        namespaced=resources.flag("namespaced", default=True),
    )
    for one, of in ((resources, "resources"), (name, "name"), (fields, "rules")):
        one.rest(of)
    return rule


def _text(fields: Fields, key: str) -> str:
    return fields.text(key, longest=_LONGEST_TEXT) if fields.get(key) not in (None, "") else ""


def _singular(resource: str) -> str:
    lower = resource.lower()
    return _PLURAL.get(lower, lower[:-1] if lower.endswith("s") and not lower.endswith("ss") else lower)


class RulesResolver:
    """Finds queries among the rules, for the HPAs of one namespace."""

    def __init__(self, rules: Rules, annotations: Mapping[str, str], root: Fields, part: SettingsPart) -> None:
        self._rules = rules
        self._part = part
        note_annotations(root.notes, annotations)

    def served_by(self) -> str:
        """The adapter that serves the metric today."""
        return NAME

    def keep(self, metric: SelectedMetric) -> Mapping[str, str]:  # noqa: ARG002  it has no annotations
        """Nothing: the rules are the adapter's own."""
        return {}

    def close(self) -> None:
        """Rules that this HPA does not use are for others."""

    def find(self, metric: SelectedMetric, fields: Fields) -> Found | str:
        """The query of a metric, or why there is none."""
        rules = self._rules.external if metric.kind == "External" else self._rules.custom
        unclear = ""
        self._rules.evaluations -= len(rules)
        if self._rules.evaluations < 0:
            fields.fault(
                "metric", metric.name, "there are too many metrics and rules for one run; give fewer HPAs at a time"
            )
            return "there are too many rules"
        for rule in rules:
            try:
                series = _series(rule, metric.name)
            except Unclear as error:
                unclear = unclear or f"{rule.path} may be for it, but {error}"
                continue
            if series:
                return self._found(rule, series, metric, fields)
        return unclear or "no rule is for it"

    def _found(self, rule: Rule, series: str, metric: SelectedMetric, fields: Fields) -> Found | str:
        try:
            text = _filled(rule, series, metric)
        except Unclear as error:
            return f"{rule.path} is for it, but {error}"
        fault = promql_text.syntax_fault(f"{rule.path}.metricsQuery", text)
        if fault is not None or len(text) > promql_text.LONGEST:
            return f"{rule.path}.metricsQuery becomes no PromQL that a policy can have: {fault or 'it is too long'}"
        self._part.inline()
        self._note(metric, fields, rule)
        return Found(source={"query": {"promQL": text, "server": self._part.server("")}})

    def _note(self, metric: SelectedMetric, fields: Fields, rule: Rule) -> None:
        fields.notes.add(
            NoteKind.TO_DO, fields.path, metric.name,
            f"{rule.path} does not say which Prometheus it asks (flag --prometheus-url of {NAME}): write its address "
            "into the settings that come along",
        )  # fmt: skip


def _series(rule: Rule, name: str) -> str:
    """The series that the rule serves under this name, empty where it serves none. Raises Unclear."""
    series = series_of(rule.matches, rule.as_name, name, rule.series_query)
    if not series or not selects(rule.series_query, rule.filters, series):
        return ""
    if not promql_text.is_series(series):  # the HPA's author chose it: it must not go on as PromQL of its own
        raise Unclear(f"the series would be {series[:60]!r}, which is no name of one")
    return series


def _filled(rule: Rule, series: str, metric: SelectedMetric) -> str:
    """The rule's query for the HPA's own namespace. Raises Unclear."""
    if any(map(uses_variables, (rule.metrics_query, *_values(metric)))):
        raise Unclear("it or the metric's selector holds $namespace or $workload, which a policy's PromQL replaces")
    namespace_label = rule.label("namespace")
    matchers, group = list(_selector(metric)), ""
    if metric.kind == "External":
        if rule.namespaced and namespace_label:
            matchers.insert(0, f'{_checked(namespace_label)}="$namespace"')
    else:
        if not namespace_label:
            raise Unclear("it has no label for namespaces (resources)")
        matchers.insert(0, f'{_checked(namespace_label)}="$namespace"')
        if metric.kind == "Pods":
            pod_label = _checked(rule.label("pod"))
            matchers.append(f'{pod_label}!=""')
            group = f"{namespace_label}, {pod_label}"
        else:
            group, own = _described(rule, metric)
            matchers += own
    parts = {"Series": series, "LabelMatchers": ",".join(matchers), "GroupBy": group}
    if max(map(len, parts.values())) > promql_text.LONGEST:
        raise Unclear("its labels are too long for a query")
    text = _TEMPLATE.sub(lambda match: parts[match[1]], rule.metrics_query)
    if "<<" in text:
        raise Unclear("its metricsQuery uses more than .Series, .LabelMatchers and .GroupBy")
    if metric.kind == "Pods":
        return promql_text.renamed(text, {"namespace": namespace_label, "pod": rule.label("pod")})
    return promql_text.one_number(text)


def _described(rule: Rule, metric: SelectedMetric) -> tuple[str, list[str]]:
    """The label of the described object, and its matcher."""
    version, kind, name = metric.described
    if kind == "Namespace":
        return rule.label("namespace"), []
    label = _checked(rule.label(_singular(kind), version.rpartition("/")[0]))
    return label, [promql_text.matcher(label, "=", name)]


def _checked(label: str) -> str:
    if not promql_text.is_label(label):
        raise Unclear("its resources give no label for it")
    return label


def _values(metric: SelectedMetric) -> Iterator[str]:
    """The texts of an HPA that become values of labels."""
    yield from metric.labels.values()
    for _, _, values in metric.expressions:
        yield from values
    yield metric.described[2]


def _selector(metric: SelectedMetric) -> Iterator[str]:
    for label, value in metric.labels.items():
        yield promql_text.matcher(_checked(label), "=", value)
    for label, operator, values in metric.expressions:
        if operator not in _SIGNS:
            raise Unclear(f"{operator[:40]!r} is no operator of a selector")
        yield promql_text.matcher(_checked(label), _SIGNS[operator], _alternatives(values) if values else "")


def _alternatives(values: Sequence[str]) -> str:
    return "|".join(re.sub(r"([.+*?()\[\]{}|^$\\])", r"\\\1", one) for one in values)
