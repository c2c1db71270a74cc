"""Reads ScalingSchedules of kube-metrics-adapter, by which an Object metric of an HPA has a value at certain times."""

import math
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from adapter.commands.migrate.original import Document, Fields, NoteKind

API_GROUP = "zalando.org"
KINDS = ("ScalingSchedule", "ClusterScalingSchedule")
_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_ZONE = "Europe/Berlin"
"""That of a period without one."""
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_MOST = 20
_LONGEST_NAME = 63


def is_one(document: Document) -> bool:
    """Whether an object of the input is a ScalingSchedule."""
    version = document.data.get("apiVersion")
    return document.kind in KINDS and isinstance(version, str) and version.startswith(f"{API_GROUP}/")


class ScalingSchedules:
    """The ScalingSchedules of the input. `named` are the places of those that an HPA names."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._found: dict[tuple[str, str, str], Document] = {}
        self.named: set[str] = set()
        for document in documents:
            metadata = document.data.get("metadata")
            known = metadata if isinstance(metadata, dict) else {}
            namespace = "" if document.kind == KINDS[1] else str(known.get("namespace") or "")
            self._found[document.kind, namespace, str(known.get("name"))] = document

    def read(
        self, kind: str, namespace: str, name: str, per_pod: Fraction, source: Fields, first: int = 0
    ) -> list[dict[str, Any]]:
        """The schedules of a policy from the one that a metric describes; `per_pod` is the metric's averageValue.

        Their names are numbered from `first`. Notes in `source`, the metric, what has no equivalent.
        """
        document = self._found.get((kind, "" if kind == KINDS[1] else namespace, name))
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
    value, minutes = (
        fields.optional_integer("value", 0, 2**53),
        fields.optional_integer("durationMinutes", 0, 527_040) or 0,
    )
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
