"""The rules by which prometheus-adapter turns a metric of an HPA into PromQL.

A rule names series (`seriesQuery`), what the API calls them (`name`), and the query as a template (`metricsQuery`).
Which series exist only Prometheus knows: so all rules that could give a metric are candidates.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import promql_parser as ast

from adapter.commands.files import ManifestObject
from adapter.commands.migrate.queries import checked, labels_of, one_number
from adapter.commands.migrate.read import Fields, Note, NoteKind, Refusal
from adapter.policy.documents import mapping_at
from adapter.runtime import document_text
from adapter.usage.promql import uses_variables

_CONFIG_KEY = "config.yaml"
_TEMPLATE = re.compile(r"<<\s*\.(Series|LabelMatchers|GroupBy)\s*>>", re.ASCII)
_SERIES = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*", re.ASCII)
_SELECTOR = re.compile(r"\s*([A-Za-z_:][A-Za-z0-9_:]*)?\s*(\{.*\})?\s*", re.ASCII | re.DOTALL)
_NAME_MATCHER = re.compile(r'__name__\s*(=~|!~|!=|=)\s*"([^"\\]*)"', re.ASCII)
_REFERENCE = re.compile(r"\$(?:\{(\d)\}|(\d)(?!\w))", re.ASCII)
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Candidate(NamedTuple):
    """A rule that may give a metric: its place, the PromQL, and what to know about the choice."""

    rule: str
    query: str
    remark: str = ""


class ServedMetric(NamedTuple):
    """A Pods, Object or External metric of an HPA of this namespace (empty: not known), with its selector."""

    kind: str
    name: str
    selector: Mapping[str, Any]
    namespace: str

    def matchers(self) -> list[str]:
        """The selector as matchers of PromQL. Raises Refusal."""
        if others := [key for key, value in self.selector.items() if value and key != "matchLabels"]:
            raise Refusal(f"the metric's selector has {', '.join(others)}; write its PromQL by hand")
        given = self.selector.get("matchLabels") or {}
        if odd := [label for label in given if not _LABEL.fullmatch(label)]:
            raise Refusal(f"the selector's label {odd[0]!r} is not a label of Prometheus")
        escaped = {label: str(value).replace("\\", "\\\\").replace('"', '\\"') for label, value in given.items()}
        return [f'{label}="{value}"' for label, value in escaped.items()]


class Rule(NamedTuple):
    """One rule. `labels` are its overrides by singular resource, `template` the label of every other resource.

    `own_series` is the series that its seriesQuery names, empty where that is a pattern.
    """

    path: str
    own_series: str
    names: Sequence[tuple[str, str]]
    filters: Sequence[tuple[str, str]]
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
        overrides = resources.section("overrides")
        query = _SELECTOR.fullmatch(fields.text("seriesQuery"))
        names = [("=", query[1])] if query and query[1] else _NAME_MATCHER.findall(query[2] or "" if query else "")
        exact = [value.removeprefix("^").removesuffix("$") for sign, value in names if not sign.startswith("!")]
        filters = [(kind, one.text(kind)) for one in fields.sections("seriesFilters") for kind in ("is", "isNot")]
        return cls(
            path=fields.path,
            own_series=exact[0] if len(exact) == 1 and _SERIES.fullmatch(exact[0]) else "",
            names=names,
            filters=[one for one in filters if one[1]],
            labels={overrides.section(label).text("resource").lower().removesuffix("s"): label for label in overrides},
            template=resources.text("template"),
            matches=name.text("matches"),
            as_name=name.text("as"),
            metrics_query=fields.text("metricsQuery") or "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
            namespaced=resources.flag("namespaced", True),
        )

    def query(self, metric: ServedMetric) -> tuple[str, str]:
        """The series of a metric and its PromQL in the HPA's own namespace, both empty where the rule is not for it.

        Raises Refusal.
        """
        series = self._series_of(metric.name)
        if not series:
            return "", ""
        matchers, namespace, pod, by_pod = metric.matchers(), "", "", metric.kind == "Pods"
        if any(map(uses_variables, (self.metrics_query, *matchers))):
            raise Refusal("it holds $namespace or $workload, which a policy replaces")
        if by_pod or (self.namespaced and (self.labels.get("namespace") or self.template)):
            namespace = self._label("namespace")
            own, of_selector = metric.namespace, f'{namespace}="{metric.namespace}"'
            if own and (named := (metric.selector.get("matchLabels") or {}).get(namespace, own)) != own:
                raise Refusal(f"the selector's {namespace} {named} is not the HPA's, which the rule asks for as well")
            matchers = [f'{namespace}="$namespace"', *(one for one in matchers if one != of_selector)]
        if by_pod:
            pod = self._label("pod")
            matchers.append(f'{pod}!=""')
        parts = {"Series": series, "LabelMatchers": ",".join(matchers), "GroupBy": f"{namespace}, {pod}" * by_pod}
        text = _TEMPLATE.sub(lambda match: parts[match[1]], self.metrics_query)
        if "<<" in text:
            raise Refusal("its metricsQuery uses more than .Series, .LabelMatchers and .GroupBy")
        return series, self._by_pod(checked(text), namespace, pod) if by_pod else one_number(text, variables=True)

    def _series_of(self, metric: str) -> str:
        """The series that it serves under this name, empty where it serves none. Raises Refusal."""
        series = self.own_series
        if not series and self.as_name and not _REFERENCE.search(self.as_name):
            if self.as_name == metric and ".Series" in self.metrics_query:
                raise Refusal(f"its seriesQuery names no single series, and name.as is always {metric}")
            return metric if self.as_name == metric else ""  # its query does not ask for the series by name
        if not series:
            # The other way round: the metric without the fixed parts of name.as is the group of name.matches.
            parts = _REFERENCE.split(self.as_name or "$1")
            text = metric.removeprefix(parts[0]).removesuffix(parts[-1])
            series = re.sub(r"\(\.[*+]\)", lambda _: text, self.matches.removeprefix("^").removesuffix("$")) or text
        if not _SERIES.fullmatch(series):
            raise Refusal(f"its name.matches {self.matches!r} is more than one group with .* between fixed texts")
        return series if self._selects(series) and self._named(series) == metric else ""

    def _named(self, series: str) -> str:
        """The name that prometheus-adapter gives to a series; empty where the rule's expression does not match it."""
        found = re.search(self.matches or ".*", series)
        if found is None:
            return ""
        groups = [found[0], *(group or "" for group in found.groups()), *[""] * 9]
        template = self.as_name or ("$1" if found.groups() else "$0")
        return _REFERENCE.sub(lambda one: groups[int(one[1] or one[2])], template)

    def _selects(self, series: str) -> bool:
        fits = (
            (bool(re.fullmatch(value, series)) if "~" in sign else value == series) is not sign.startswith("!")
            for sign, value in self.names
        )
        return all(fits) and all(bool(re.search(one, series)) is (kind == "is") for kind, one in self.filters)

    def _label(self, resource: str) -> str:
        """The Prometheus label of a resource. Raises Refusal where the rule has none."""
        made = re.sub(r"<<\s*\.Resource\s*>>", resource, self.template)
        label = self.labels.get(resource, re.sub(r"<<\s*\.Group\s*>>", "", made))
        if not _LABEL.fullmatch(label):
            raise Refusal(f"its resources give no label of {resource}")
        return label

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


class AdapterRules(NamedTuple):
    """The rules of one configuration: for Pods metrics, and for External ones."""

    custom: Sequence[Rule]
    external: Sequence[Rule]


def candidates(rules: Sequence[AdapterRules], metric: ServedMetric) -> tuple[list[Candidate], str]:
    """What may give the metric, or why nothing does.

    Of rules that give the same series the last counts, as in prometheus-adapter; a rule that names its series is
    preferred.
    """
    if metric.kind == "Object":
        return [], "it is of another object than the pods; write it as PromQL by hand"
    is_external = metric.kind == "External"
    named, others, faults = dict[str, Candidate](), dict[str, Candidate](), list[str]()
    for rule in (rule for one in rules for rule in (one.external if is_external else one.custom)):
        try:
            series, query = rule.query(metric)
        except Refusal as refusal:
            faults.append(f"{rule.path} may be for it, but {refusal}")
            continue
        except re.error as error:
            faults.append(f"{rule.path} holds an expression that is not readable here ({error})")
            continue
        known, remark = named if rule.own_series else others, ""
        if series in known:
            remark = f"{known[series].rule} and {rule.path} both give it; prometheus-adapter uses the last, as here"
        if series:
            known[series] = Candidate(rule.path, query, remark)
    found = list(named.values()) or list(others.values())
    if len(named) == 1 and others:
        skipped = ", ".join(one.rule for one in others.values())
        remark = f"{found[0].rule} names its series and is taken; {skipped} could give it from series of other names"
        found = [found[0]._replace(remark=remark)]
    where = "; External metrics come from externalRules" if is_external else ""
    if not rules:
        return [], "if prometheus-adapter serves it, give its ConfigMap as well; else write it as PromQL by hand"
    return found, "; ".join(faults) or f"no rule is for it{where}"


def is_rules(one: ManifestObject) -> bool:
    """Whether an object is the ConfigMap of prometheus-adapter."""
    text = str(mapping_at(one.data, "data").get(_CONFIG_KEY)) if one.kind == "ConfigMap" else ""
    return any(key in text for key in ("rules", "externalRules", "resourceRules"))


def read_rules(one: ManifestObject, notes: list[Note]) -> AdapterRules:
    """Read a configuration; a note names the keys that were not read. Raises Refusal."""
    text = one.data["data"][_CONFIG_KEY]
    if not isinstance(text, str):
        raise Refusal(f"data[{_CONFIG_KEY}]: must be a text, which holds the YAML (write {_CONFIG_KEY}: |)")
    try:
        root = Fields.of(document_text.read_document(text))
    except document_text.TextError as error:
        raise Refusal(f"data[{_CONFIG_KEY}]: is not YAML: {error}") from None
    rules = AdapterRules(*([Rule.read(rule) for rule in root.sections(key)] for key in ("rules", "externalRules")))
    if root.get("resourceRules"):
        root.note(NoteKind.KEPT, "", f"{one.file}: resourceRules: keep the adapter that serves metrics.k8s.io by these")
    root.name_unread(f"{one.file}: ")
    notes += root.notes
    return rules
