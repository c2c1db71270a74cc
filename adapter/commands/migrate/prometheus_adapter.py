"""The rules by which prometheus-adapter turns a metric of an HPA into PromQL.

A rule names series (`seriesQuery`), what the API calls them (`name`), and the query as a template (`metricsQuery`). The
templates are filled in for the HPA's metric as prometheus-adapter does for a request of it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.commands.migrate import queries
from adapter.commands.migrate.original import (
    Document,
    Fields,
    NoteKind,
    Notes,
    Resolver,
    SelectedMetric,
    note_annotations,
)
from adapter.commands.migrate.queries import SettingsPart
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

_CAPTURE = re.compile(r"\^?(?P<before>[A-Za-z0-9_:]*)\((?P<inner>\.\*|\.\+)\)(?P<after>[A-Za-z0-9_:]*)\$?", re.ASCII)
_REFERENCE = re.compile(r"\$(?:\{(\d)\}|(\d))", re.ASCII)
_SELECTOR = re.compile(r"\s*(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)?\s*(?P<matchers>\{.*\})?\s*", re.ASCII | re.DOTALL)
_NAME_MATCHER = re.compile(r'__name__\s*(?P<sign>=~|!~|!=|=)\s*"(?P<value>[^"\\]*)"', re.ASCII)
_SERIES = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


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
        label = self.overrides.get((resource, group))
        if label is not None or not self.template:
            return label or ""
        parts = {"Group": group.replace(".", "_"), "Resource": resource}
        return _GROUP_RESOURCE.sub(lambda match: parts[match[1]], self.template)

    def series_of(self, metric: str) -> str:
        """The series that the rule serves under this name, empty where it serves none. Raises Unclear."""
        series = series_of(self.matches, self.as_name, metric, self.series_query)
        if not series or not selects(self.series_query, self.filters, series):
            return ""
        if not _SERIES.fullmatch(series):  # the HPA's author chose it: it must not go on as PromQL of its own
            raise Unclear(f"the series would be {series[:60]!r}, which is no name of one")
        return series


@dataclass(frozen=True, slots=True)
class AdapterRules:
    """The rules of one configuration: for Pods and Object metrics, and for External ones."""

    custom: tuple[Rule, ...] = ()
    external: tuple[Rule, ...] = ()


def is_rules(document: Document) -> bool:
    """Whether an object is a configuration of prometheus-adapter, plain or in a ConfigMap."""
    if document.kind == "ConfigMap":
        data = document.data.get("data")
        return isinstance(data, Mapping) and _CONFIG_KEY in data
    return not document.kind and ("rules" in document.data or "externalRules" in document.data)


def read_rules(document: Document, faults: list[Fault], notes: Notes) -> AdapterRules:
    """Read a configuration."""
    root = Fields(document.data, "", faults, notes)
    if document.kind == "ConfigMap":
        path, text = f"data[{_CONFIG_KEY}]", document.data["data"][_CONFIG_KEY]
        try:
            data = document_text.read_document(text) if isinstance(text, str) else None
        except document_text.TextError as error:
            faults += [fault.within(path) for fault in error.faults]
            return AdapterRules()
        root = Fields({} if data is None else data, path, faults, notes)
    if isinstance(root.get("rules"), Mapping):
        root.fault("rules", None, "is a mapping, as in Helm values; give the ConfigMap that the chart makes of them")
        return AdapterRules()
    rules = AdapterRules(
        tuple(_rule(section) for section in root.sections("rules", _MOST_RULES)),
        tuple(_rule(section) for section in root.sections("externalRules", _MOST_RULES)),
    )
    root.rest()
    return rules


def _rule(fields: Fields) -> Rule:
    resources, name = fields.section("resources"), fields.section("name")

    def text(section: Fields, key: str) -> str:
        return section.optional_text(key, longest=_LONGEST_TEXT)

    overrides = {}
    given = resources.get("overrides")
    for label, of in given.items() if isinstance(given, Mapping) and len(given) <= _MOST_RULES else ():
        part = Fields(of, f"{resources.at('overrides')}.{label}", fields.faults, fields.notes)
        resource = part.text("resource", required="a resource, such as pod")
        overrides[_singular(resource), part.text("group") if part.get("group") else ""] = str(label)
        part.rest()
    filters = []
    for section in fields.sections("seriesFilters", 50):
        filters += [(kind, text(section, kind)) for kind in ("is", "isNot") if section.has(kind)]
        section.rest()
    rule = Rule(
        path=fields.path,
        series_query=text(fields, "seriesQuery"),
        filters=tuple(filters),
        overrides=overrides,
        template=text(resources, "template"),
        matches=text(name, "matches"),
        as_name=text(name, "as"),
        metrics_query=text(fields, "metricsQuery") or "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        namespaced=resources.flag("namespaced", default=True),
    )
    for part in (resources, name, fields):
        part.rest()
    return rule


def _singular(resource: str) -> str:
    lower = resource.lower()
    return _PLURAL.get(lower, lower[:-1] if lower.endswith("s") and not lower.endswith("ss") else lower)


class RulesResolver(Resolver):
    """Finds queries among the rules (None: there are none in the input), for the HPAs of one namespace."""

    def __init__(
        self, rules: AdapterRules | None, annotations: Mapping[str, str], root: Fields, part: SettingsPart
    ) -> None:
        self._rules = rules
        self._part = part
        note_annotations(root.notes, annotations)

    def served_by(self) -> str:
        """The adapter that serves the metrics today."""
        return NAME if self._rules else ""

    def find(self, metric: SelectedMetric, fields: Fields) -> Mapping[str, Any] | str:
        """The query of a metric, or why there is none."""
        if self._rules is None:
            return "there are no rules of prometheus-adapter in the input"
        rules = self._rules.external if metric.kind == "External" else self._rules.custom
        unclear = ""
        for rule in rules:
            try:
                series = rule.series_of(metric.name)
            except Unclear as error:
                unclear = unclear or f"{rule.path} may be for it, but {error}"
                continue
            if series:
                break
        else:
            return unclear or "no rule is for it"
        try:
            text = _filled(rule, series, metric)
        except Unclear as error:
            return f"{rule.path} is for it, but {error}"
        fault = queries.syntax_fault(f"{rule.path}.metricsQuery", text)
        if fault is not None or len(text) > queries.LONGEST:
            return f"{rule.path}.metricsQuery becomes no PromQL that a policy can have: {fault or 'it is too long'}"
        self._part.inline()
        fields.notes.add(
            NoteKind.TO_DO, fields.path, metric.name,
            f"{rule.path} does not say which Prometheus it asks (flag --prometheus-url of {NAME}): write its address "
            "into the settings that come along",
        )  # fmt: skip
        return {"query": {"promQL": text, "server": self._part.server("")}}


def _filled(rule: Rule, series: str, metric: SelectedMetric) -> str:
    """The rule's query for the HPA's own namespace. Raises Unclear."""
    version, described_kind, described_name = metric.described
    values = [value for _, _, those in metric.expressions for value in those]
    if any(map(uses_variables, (rule.metrics_query, *metric.labels.values(), *values, described_name))):
        raise Unclear("it or the metric's selector holds $namespace or $workload, which a policy's PromQL replaces")
    namespace_label, is_custom = rule.label("namespace"), metric.kind != "External"
    matchers, group, pod_label = list(_selector(metric)), "", ""
    if is_custom and not namespace_label:
        raise Unclear("it has no label for namespaces (resources)")
    if is_custom or (rule.namespaced and namespace_label):
        matchers.insert(0, f'{_checked(namespace_label)}="$namespace"')
    if metric.kind == "Pods":
        pod_label = _checked(rule.label("pod"))
        matchers.append(f'{pod_label}!=""')
        group = f"{namespace_label}, {pod_label}"
    elif is_custom and described_kind == "Namespace":
        group = namespace_label
    elif is_custom:
        group = _checked(rule.label(_singular(described_kind), version.rpartition("/")[0]))
        matchers.append(queries.matcher(group, "=", described_name))
    parts = {"Series": series, "LabelMatchers": ",".join(matchers), "GroupBy": group}
    text = _TEMPLATE.sub(lambda match: parts[match[1]], rule.metrics_query)
    if "<<" in text:
        raise Unclear("its metricsQuery uses more than .Series, .LabelMatchers and .GroupBy")
    if pod_label:
        return queries.renamed(text, {"namespace": namespace_label, "pod": pod_label})
    return queries.one_number(text)


def _checked(label: str) -> str:
    if not _LABEL.fullmatch(label):
        raise Unclear("its resources give no label for it")
    return label


def _selector(metric: SelectedMetric) -> Iterator[str]:
    for label, value in metric.labels.items():
        yield queries.matcher(_checked(label), "=", value)
    for label, operator, values in metric.expressions:
        if operator not in _SIGNS:
            raise Unclear(f"{operator[:40]!r} is no operator of a selector")
        alternatives = "|".join(re.sub(r"([.+*?()\[\]{}|^$\\])", r"\\\1", value) for value in values)
        yield queries.matcher(_checked(label), _SIGNS[operator], alternatives)


class Unclear(Exception):  # noqa: N818  it is no error of the program: a rule that only its own adapter can evaluate
    """A rule cannot be evaluated here; the text says why, without the rule's name."""


def series_of(matches: str, as_name: str, metric: str, series_query: str) -> str:
    """The series that is called `metric` in the API, empty where there is none. Raises Unclear."""
    capture = _CAPTURE.fullmatch(matches) if matches else None
    if capture is None:
        return _without_capture(matches, as_name, metric, series_query)
    references = list(_REFERENCE.finditer(as_name or "$1"))
    if len(references) != 1:
        raise Unclear(f"its name.as {as_name[:60]!r} has not exactly one reference to a group")
    [one] = references
    before, after = one.string[: one.start()], one.string[one.end() :]
    text = metric[len(before) : len(metric) - len(after)]
    if f"{before}{text}{after}" != metric or (capture["inner"] == ".+" and not text):
        return ""
    if int(one[1] or one[2]) == 1:
        return f"{capture['before']}{text}{capture['after']}"
    return text if text.startswith(capture["before"]) and text.endswith(capture["after"]) else ""


def _without_capture(matches: str, as_name: str, metric: str, series_query: str) -> str:
    """The series of a rule whose name has no group: the metric's own name, or the one series of a fixed name."""
    if not as_name or as_name in {"$0", "${0}"}:
        if "(" in matches:
            raise Unclear(f"its name.matches {matches[:60]!r} is more than one group with .* between fixed texts")
        return metric if not matches or _search(matches, metric) else ""
    if _REFERENCE.search(as_name):
        raise Unclear(f"its name.as {as_name[:60]!r} refers to a group that cannot be told from the metric's name")
    if as_name != metric:
        return ""
    named = _SELECTOR.fullmatch(series_query)
    if named is None or not named["name"]:
        raise Unclear("its seriesQuery names no single series")
    return named["name"]


def selects(series_query: str, filters: Iterable[tuple[str, str]], series: str) -> bool:
    """Whether the series is among those that the rule selects. Raises Unclear."""
    query = _SELECTOR.fullmatch(series_query)
    if query is None:
        raise Unclear("its seriesQuery is no plain selector of series")
    if query["name"] and query["name"] != series:
        return False
    for matcher in _NAME_MATCHER.finditer(query["matchers"] or ""):
        value, is_regex = matcher["value"], "~" in matcher["sign"]
        fits = _search(f"^({value})$", series) if is_regex else value == series
        if fits == matcher["sign"].startswith("!"):
            return False
    return all(_search(pattern, series) is (kind == "is") for kind, pattern in filters if pattern)


def _search(pattern: str, text: str) -> bool:
    """Whether an expression is found in the text. Raises Unclear."""
    try:
        return re.search(pattern, text, re.ASCII) is not None
    except re.error:
        raise Unclear(f"the expression {pattern[:60]!r} is not one") from None
