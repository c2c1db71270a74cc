"""The annotations by which kube-metrics-adapter finds the PromQL of an HPA's metrics.

`metric-config.TYPE.NAME.COLLECTOR/KEY` configures one metric: KEY `query` holds the PromQL of collector `prometheus`.
"""

from collections.abc import Mapping

from adapter.commands.migrate import promql_text
from adapter.commands.migrate.native_hpa import Found, SelectedMetric
from adapter.commands.migrate.original import Fields, NoteKind, note_annotations
from adapter.commands.migrate.settings_part import SettingsPart
from adapter.settings.registries import url_faults

NAME = "kube-metrics-adapter"
PREFIX = "metric-config."
_COLLECTOR = "prometheus"
_LEGACY = "prometheus-query"
_QUERY_NAME = "query-name"
_PARTS = 3
_DIFFERENT = {
    "interval": "a policy's PromQL is asked every 15 s",
    "min-pod-ready-age": "no age is needed: a pod without a sample since it became Ready is filled in",
}
_TYPES = {"pods": "Pods", "object": "Object"}


class Annotations:
    """Finds queries among the annotations of one HPA."""

    def __init__(self, annotations: Mapping[str, str], root: Fields, part: SettingsPart) -> None:
        self._part = part
        self._notes = root.notes
        self._configs: dict[tuple[str, str, str], dict[str, str]] = {}
        self._keys: dict[tuple[str, str, str, str], str] = {}
        rest = {}
        for key, value in annotations.items():
            config, _, option = key.partition("/")
            parts = config.removeprefix(PREFIX).split(".")
            if not key.startswith(PREFIX) or len(parts) != _PARTS or not option or "/" in option:
                rest[key] = value
                continue
            name = (_TYPES.get(parts[0], "External"), parts[1], parts[2])
            self._configs.setdefault(name, {})[option] = value
            self._keys[(*name, option)] = key
        note_annotations(root.notes, rest)

    def served_by(self) -> str:
        """The adapter that serves the metrics today; empty where no annotation is for it."""
        return NAME if self._configs else ""

    def keep(self, metric: SelectedMetric) -> Mapping[str, str]:
        """The annotations of a metric that stays, which the new HPA has as well."""
        own = [name for name in self._keys if name[:2] == (metric.kind, metric.name)]
        return {self._keys.pop(name): self._configs[name[:3]][name[3]] for name in own}

    def close(self) -> None:
        """Note the annotations that no metric used."""
        for (kind, name, collector, option), key in self._keys.items():
            value = self._configs[kind, name, collector][option]
            if collector != _COLLECTOR:
                kept, sentence = NoteKind.LOST, f"belongs to collector {collector[:80]}, which is not Prometheus"
            else:
                kept, sentence = NoteKind.IRRELEVANT, f"is for no metric of the HPA, or for nothing that {NAME} reads"
            self._notes.add(kept, _annotation(key), value, sentence)

    def find(self, metric: SelectedMetric, fields: Fields) -> Found | str:
        """The query of a metric, or why there is none."""
        name = (metric.kind, metric.name, _COLLECTOR)
        config = self._configs.get(name)
        if config is None:
            collectors = [one for kind, known, one in self._configs if (kind, known) == name[:2]]
            return (
                f"collector {collectors[0][:80]} does not read Prometheus" if collectors else "no annotation is for it"
            )
        if metric.kind == "Pods":
            return "collector prometheus has no metrics of type Pods"
        option = metric.labels.get(_QUERY_NAME, "") if metric.name == _LEGACY else "query"
        key = self._keys.get((*name, option), f"{PREFIX}{metric.kind.lower()}.{metric.name}.{_COLLECTOR}/{option}")
        fault = promql_text.fault_of(_annotation(key), config.get(option, ""))
        if fault is not None:
            fields.faults.append(fault)
            return fault.advice
        if url := config.get("prometheus-server", ""):
            named = self._keys.get((*name, "prometheus-server"), "")
            fields.faults += url_faults(_annotation(named), url)
        if metric.labels or metric.expressions:
            fields.notes.add(
                NoteKind.IRRELEVANT, f"{fields.path}.metric.selector", dict(metric.labels),
                f"only tells {NAME} which collector and query are meant",
            )  # fmt: skip
        if metric.kind == "Object":
            fields.notes.add(
                NoteKind.IRRELEVANT, f"{fields.path}.describedObject", metric.described[2],
                "the query says by itself what it measures",
            )  # fmt: skip
        used = {option, "prometheus-server"} | ({"per-replica"} if metric.kind == "Object" else set())
        self._take(name, config, used)
        self._part.inline()
        server = self._part.server(url)
        query = {"promQL": promql_text.one_number(config[option]), "server": server}
        return Found(source={"query": query}, per_replica=metric.kind == "Object" and "per-replica" in config)

    def _take(self, name: tuple[str, str, str], config: Mapping[str, str], used: set[str]) -> None:
        """Note the annotations that work differently, and take them off those that no metric used."""
        for option, sentence in _DIFFERENT.items():
            if option in config and (*name, option) in self._keys:
                path = _annotation(self._keys[(*name, option)])
                self._notes.add(NoteKind.DIFFERS, path, config[option], sentence)
        for option in {*used, *_DIFFERENT}:
            self._keys.pop((*name, option), None)


def _annotation(key: str) -> str:
    return f"metadata.annotations[{key}]"
