"""What kube-metrics-adapter reads: the annotations by which it finds the PromQL of an HPA's metrics, and schedules.

`metric-config.TYPE.NAME.COLLECTOR/KEY` configures one metric: KEY `query` holds the PromQL of collector `prometheus`.
By a ScalingSchedule an Object metric of an HPA has a value at certain times.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from adapter.commands.migrate import queries
from adapter.commands.migrate.original import (
    Document,
    Fields,
    Found,
    NoteKind,
    Resolver,
    SelectedMetric,
    note_annotations,
)
from adapter.commands.migrate.queries import SettingsPart
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

API_GROUP = "zalando.org"
SCHEDULE_KINDS = ("ScalingSchedule", "ClusterScalingSchedule")
_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_ZONE = "Europe/Berlin"
"""That of a period without one."""
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_MOST = 20
_LONGEST_NAME = 63


class Annotations(Resolver):
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
        own_keys = [name for name in self._keys if name[:2] == (metric.kind, metric.name)]
        return {self._keys.pop(name): self._configs[name[:3]][name[3]] for name in own_keys}

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
            collectors = [config for kind, config_name, config in self._configs if (kind, config_name) == name[:2]]
            return (
                f"collector {collectors[0][:80]} does not read Prometheus" if collectors else "no annotation is for it"
            )
        if metric.kind == "Pods":
            return "collector prometheus has no metrics of type Pods"
        option = metric.labels.get(_QUERY_NAME, "") if metric.name == _LEGACY else "query"
        key = self._keys.get((*name, option), f"{PREFIX}{metric.kind.lower()}.{metric.name}.{_COLLECTOR}/{option}")
        fault = queries.fault_of(_annotation(key), config.get(option, ""))
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
        for other, sentence in _DIFFERENT.items():
            if other in config and (*name, other) in self._keys:
                path = _annotation(self._keys[(*name, other)])
                self._notes.add(NoteKind.DIFFERS, path, config[other], sentence)
        for used in (option, "prometheus-server", *_DIFFERENT, *["per-replica"] * (metric.kind == "Object")):
            self._keys.pop((*name, used), None)
        self._part.inline()
        server = self._part.server(url)
        query = {"promQL": queries.one_number(config[option]), "server": server}
        return Found(source={"query": query}, per_replica=metric.kind == "Object" and "per-replica" in config)


def _annotation(key: str) -> str:
    return f"metadata.annotations[{key}]"


def is_schedule(document: Document) -> bool:
    """Whether an object of the input is a ScalingSchedule."""
    return document.kind in SCHEDULE_KINDS and document.group == API_GROUP


class ScalingSchedules:
    """The ScalingSchedules of the input. `named` are the places of those that an HPA names."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._found: dict[tuple[str, str, str], Document] = {}
        self.named: set[str] = set()
        for document in documents:
            namespace = "" if document.kind == SCHEDULE_KINDS[1] else str(document.metadata.get("namespace") or "")
            self._found[document.kind, namespace, str(document.metadata.get("name"))] = document

    def read(
        self, kind: str, namespace: str, name: str, per_pod: Fraction, source: Fields, first: int = 0
    ) -> list[dict[str, Any]]:
        """The schedules of a policy from the one that a metric describes; `per_pod` is the metric's averageValue.

        Their names are numbered from `first`. Notes in `source`, the metric, what has no equivalent.
        """
        document = self._found.get((kind, "" if kind == SCHEDULE_KINDS[1] else namespace, name))
        if document is None:
            advice = f"its times become schedules where {kind} {name} is in the input too; it is left out"
            source.notes.add(NoteKind.LOST, source.path, name, advice)
            return []
        self.named.add(document.place)
        root = Fields(document.data, source.path, source.faults, source.notes)
        spec = root.section("spec")
        source.notes.add(
            NoteKind.DIFFERS, source.path, name,
            "a schedule is a least count from its start to its end; the fading in and out before and after it has no "
            "equivalent",
        )  # fmt: skip
        rows: list[dict[str, Any]] = []
        for section in spec.sections("schedules", _MOST):
            rows += _row(section, f"{name[: _LONGEST_NAME - 3]}-{first + len(rows)}", per_pod)
        return rows


def _row(fields: Fields, name: str, per_pod: Fraction) -> Iterator[dict[str, Any]]:
    value, minutes = fields.optional_integer("value", 0, 2**53), fields.integer("durationMinutes", 0, 0, 527_040)
    if fields.get("type") != "Repeating":
        advice = f"it happens once ({fields.get('date')}), and schedules repeat: where it is to come, write one by hand"
        fields.notes.add(NoteKind.LOST, fields.path, fields.get("type"), advice)
        return
    period = fields.section("period")
    start, end = (_TIME.fullmatch(str(period.get(key) or "")) for key in ("startTime", "endTime"))
    days = [_DAYS.index(day) for day in period.sequence("days", len(_DAYS)) if day in _DAYS]
    if start is None or not days or not value:
        fields.notes.add(NoteKind.LOST, fields.path, None, "it has no startTime (HH:MM), no days or no value")
        return
    if end is not None:
        minutes = max(minutes, 60 * (int(end[1]) - int(start[1])) + int(end[2]) - int(start[2]))
    if not minutes:
        fields.notes.add(NoteKind.LOST, fields.path, None, "it lasts no time but the fading in and out")
        return
    if not period.get("timezone"):
        period.note(NoteKind.DIFFERS, "timezone", f"kube-metrics-adapter takes {_ZONE}")
    yield {
        "name": name,
        "cron": f"{int(start[2])} {int(start[1])} * * {','.join(map(str, sorted(set(days))))}",
        "timeZone": str(period.get("timezone") or _ZONE),
        "durationSeconds": 60 * minutes,
        "minReplicas": math.ceil(value / per_pod),
    }
