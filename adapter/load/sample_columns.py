"""The samples of a target's pods in one metric, as columns, which make the common case fast.

Nearly every sample is plain: present, fresh, newer than the pod's readiness, and not 0. A plain one is read in a few
steps. Every other one goes through all checks of `MetricReader.sample`, which gives the same result for a plain one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, overload

from adapter.load.assessment import PodAssessment
from adapter.load.effective_usage import MetricReader, PodSample
from adapter.load.memory import AHEAD_SECONDS, AheadSample, LastSample, SampleMemory
from adapter.load.pods import Pod


class StaticRow(NamedTuple):
    """What does not change with a pod's samples, for one metric.

    A sample is plain from `since` on (seconds), and if it has a value for each of `containers` (`container`: the only
    one, empty if there are several). `capacity` is what usage is divided by (0: the metric is no utilization).
    """

    uid: str
    name: str
    container: str
    containers: Sequence[str]
    since: float
    created_at: float
    capacity: int


def static_rows(reader: MetricReader, pods: Iterable[PodAssessment]) -> list[StaticRow]:
    """A row for each pod whose samples may be plain."""
    rows = []
    for pod in (one.pod for one in pods):
        containers, capacity, lack = reader.basis(pod)
        if lack or not (containers or reader.is_query):
            continue
        since = max(pod.started_at or 0.0, (pod.ready.since if pod.ready is not None else None) or 0.0)
        only = containers[0] if len(containers) == 1 else ""
        rows.append(StaticRow(pod.uid, pod.name, only, containers, since, pod.created_at, capacity or 0))
    return rows


@dataclass(slots=True)
class Column:
    """The samples of one group of pods: each list has one item for each pod with a sample that counts.

    `knows` are the times when the samples' windows ended at the latest. `gaps` are the pods without a sample.
    """

    uids: list[str] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    capacities: list[int] = field(default_factory=list)
    ats: list[float] = field(default_factory=list)
    knows: list[float] = field(default_factory=list)
    windows: list[float | None] = field(default_factory=list)
    gaps: list[PodSample] = field(default_factory=list)

    def add(self, sample: PodSample) -> None:
        """Add a pod, with its sample or as a gap."""
        if sample.usage is None or sample.at is None:
            self.gaps.append(sample)
            return
        self.uids.append(sample.pod.uid)
        self.values.append(sample.usage)
        self.capacities.append(sample.capacity or 0)
        self.ats.append(sample.at)
        self.knows.append(sample.knows_until or 0.0)
        self.windows.append(sample.window)


@dataclass(slots=True)
class Columns:
    """One metric of every running pod of a target; `others` are those that do not count for the load.

    `newest` (samples that counted), `ahead` and `zeros` are for the memory, by UID. `whole` has the complete samples of
    the pods for which they were requested. `measured` is False for a number for the whole service.
    """

    serving: Column = field(default_factory=Column)
    doubtful: Column = field(default_factory=Column)
    others: list[PodSample] = field(default_factory=list)
    newest: dict[str, LastSample] = field(default_factory=dict)
    ahead: dict[str, AheadSample] = field(default_factory=dict)
    zeros: frozenset[str] = frozenset()
    whole: dict[str, PodSample] = field(default_factory=dict)
    measured: bool = True

    def usage(self) -> dict[str, int]:
        """Usage by UID, of the pods that have a sample."""
        by_uid = {sample.pod.uid: sample.usage for sample in self.others if sample.usage is not None}
        for column in (self.serving, self.doubtful):
            by_uid |= zip(column.uids, column.values, strict=True)
        return by_uid

    def missing(self) -> dict[str, str]:
        """Why pods have no sample, by UID."""
        gaps = chain(self.serving.gaps, self.doubtful.gaps, self.others)
        return {sample.pod.uid: sample.missing for sample in gaps if sample.usage is None}


class ColumnReader:
    """Reads a metric of groups of pods into columns; `seen` is the memory of its samples."""

    def __init__(self, reader: MetricReader, seen: SampleMemory) -> None:
        self._reader = reader
        self._seen = seen
        self.columns = Columns()
        self._zeros: list[str] = []

    def finish(self) -> Columns:
        """All columns that were read."""
        self.columns.zeros = frozenset(self._zeros)
        return self.columns

    def others(self, pods: Iterable[PodAssessment]) -> None:
        """Read pods that do not count for the load; none of their samples is plain."""
        for pod in (one.pod for one in pods):
            sample = self._reader.sample(pod, self._seen)
            if sample.ahead is not None:
                self.columns.ahead[pod.uid] = sample.ahead
            self.columns.others.append(sample)

    def counted(
        self, column: Column, pods: Sequence[PodAssessment], rows: Sequence[StaticRow], whole: frozenset[str]
    ) -> None:
        """Read pods that count, with their rows. `whole`: the UIDs whose complete samples are kept."""
        apart = whole | self._seen.ahead.keys()
        if apart:
            rows = [row for row in rows if row.uid not in apart]
        plain = self._points(column, rows) if self._reader.is_query else self._usages(column, rows)
        if plain == len(pods):
            return
        read = set(column.uids)
        for pod in (one.pod for one in pods):
            if pod.uid not in read:
                sample = self._sample(column, pod)
                if pod.uid in whole:
                    self.columns.whole[pod.uid] = sample

    def _sample(self, column: Column, pod: Pod) -> PodSample:
        sample = self._reader.sample(pod, self._seen)
        if sample.newest is not None:
            self.columns.newest[pod.uid] = sample.newest
        if sample.ahead is not None:
            self.columns.ahead[pod.uid] = sample.ahead
        if sample.is_doubted_zero:
            self._zeros.append(pod.uid)
        column.add(sample)
        return sample

    def _usages(self, column: Column, rows: Iterable[StaticRow]) -> int:
        """Read the plain samples of metrics.k8s.io; return their number."""
        reader, newest, last = self._reader, self.columns.newest, self._seen.last
        usages, resource = reader.usages, reader.resource
        first, latest, ahead, warm = (
            reader.plain_from,
            reader.plain_until,
            reader.now + AHEAD_SECONDS,
            reader.warm_until,
        )
        put_uid, put_value, put_capacity = column.uids.append, column.values.append, column.capacities.append
        put_at, put_window = column.ats.append, column.windows.append
        for uid, name, container, containers, since, created_at, capacity in rows:
            usage = usages.get(name)
            if usage is None:
                continue
            at, amounts = usage.at, usage.containers
            if at < since or at < first or at > latest or created_at > warm:
                continue
            try:
                value = (
                    amounts[container][resource] if container else sum(amounts[each][resource] for each in containers)
                )
            except KeyError:
                continue
            if not value:
                continue
            before = last.get(uid)
            if before is None or before.at < at:
                newest[uid] = LastSample(at, value)
            elif before.at > ahead:
                continue
            else:
                newest[uid] = before
            put_uid(uid)
            put_value(value)
            put_capacity(capacity)
            put_at(at)
            put_window(usage.window)
        column.knows = list(column.ats)
        return len(column.uids)

    def _points(self, column: Column, rows: Iterable[StaticRow]) -> int:
        """Read the plain samples of a query; return their number."""
        reader, newest, last = self._reader, self.columns.newest, self._seen.last
        points = reader.points
        first, latest, ahead, warm = (
            reader.plain_from,
            reader.plain_until,
            reader.now + AHEAD_SECONDS,
            reader.warm_until,
        )
        for uid, name, _, _, since, created_at, capacity in rows:
            point = points.get(name)
            if point is None:
                continue
            at, value = point.at, point.value
            if at < since or at < first or at > latest or created_at > warm or not value:
                continue
            before = last.get(uid)
            if before is None or before.at < at:
                newest[uid] = LastSample(at, value)
            elif before.at > ahead:
                continue
            else:
                newest[uid] = before
            column.uids.append(uid)
            column.values.append(value)
            column.capacities.append(capacity)
            column.ats.append(at)
        column.knows = list(column.ats)
        column.windows = [reader.query_window] * len(column.ats)
        return len(column.uids)


def read_columns(
    reader: MetricReader,
    seen: SampleMemory,
    serving: tuple[Sequence[PodAssessment], Sequence[StaticRow]],
    doubtful: tuple[Sequence[PodAssessment], Sequence[StaticRow]],
    others: Iterable[PodAssessment],
    whole: frozenset[str] = frozenset(),
) -> Columns:
    """Read one metric of every running pod. `whole`: the UIDs of counted pods whose complete samples are kept."""
    columns = ColumnReader(reader, seen)
    columns.counted(columns.columns.serving, *serving, whole)
    columns.counted(columns.columns.doubtful, *doubtful, whole)
    columns.others(others)
    return columns.finish()


class PodAssessments(Sequence[PodAssessment]):
    """The pods of a target with their usage, which is added on first access: most assessments are never listed.

    `columns` are by metric name.
    """

    def __init__(self, pods: Sequence[PodAssessment], columns: Mapping[str, Columns]) -> None:
        self._pods = pods
        self._columns: Mapping[str, Columns] | None = columns

    def __len__(self) -> int:
        return len(self._pods)

    @overload
    def __getitem__(self, index: int) -> PodAssessment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PodAssessment]: ...
    def __getitem__(self, index: int | slice) -> PodAssessment | Sequence[PodAssessment]:
        return self._with_usage()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def _with_usage(self) -> Sequence[PodAssessment]:
        if self._columns is not None:
            usage = {name: columns.usage() for name, columns in self._columns.items()}
            missing = {name: columns.missing() for name, columns in self._columns.items()}
            self._pods = [_add_usage(one, usage, missing) for one in self._pods]
            self._columns = None
        return self._pods


def _add_usage(
    one: PodAssessment, usage: Mapping[str, Mapping[str, int]], missing: Mapping[str, Mapping[str, str]]
) -> PodAssessment:
    uid = one.pod.uid
    lacks = {name: by_pod[uid] for name, by_pod in missing.items() if uid in by_pod}
    used = {name: by_pod[uid] for name, by_pod in usage.items() if uid in by_pod}
    return one._replace(usage=used, missing=lacks or one.missing)
