"""The samples of a target's pods in one metric, as columns: what is the same for all pods is looked at once.

Nearly every sample is plain: there, fresh, newer than the pod's readiness, and not 0. Such a one is read in a few
steps; every other one is held against all rules, by `Meter.sample`, which gives the same for a plain one.
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
    """What of a pod does not change with its samples, for one metric.

    A sample is plain from `since` on, where that of `containers` (`container`: the only one) is there. `capacity` is
    what usage is divided by (0: it is not).
    """

    uid: str
    name: str
    container: str
    containers: Sequence[str]
    since: float
    created_at: float
    capacity: int


def static_rows(meter: MetricReader, pods: Iterable[PodAssessment]) -> list[StaticRow]:
    """A row for each pod whose samples may be plain."""
    found = []
    for assessed in pods:
        pod = assessed.pod
        containers, capacity, lacking = meter.basis(pod)
        if lacking or not (containers or meter.is_query):
            continue
        since = max(pod.started_at or 0.0, (pod.ready.since if pod.ready is not None else None) or 0.0)
        only = containers[0] if len(containers) == 1 else ""
        found.append(StaticRow(pod.uid, pod.name, only, containers, since, pod.created_at, capacity or 0))
    return found


@dataclass(slots=True)
class Column:
    """The samples of one group of pods that count: each list has one item for each pod with a sample.

    `knows` are the latest moments that the samples can know of. `gaps` are the pods without one.
    """

    uids: list[str] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    capacities: list[int] = field(default_factory=list)
    ats: list[float] = field(default_factory=list)
    knows: list[float] = field(default_factory=list)
    windows: list[float | None] = field(default_factory=list)
    gaps: list[PodSample] = field(default_factory=list)

    def add(self, sample: PodSample) -> None:
        """One more pod."""
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

    `newest` (samples that counted), `ahead` and `zeros` are for memory, by UID. `whole` are the samples of those pods
    that they were asked for. `measured` is False for a number that is the whole service's.
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
        known = {sample.pod.uid: sample.usage for sample in self.others if sample.usage is not None}
        for column in (self.serving, self.doubtful):
            known |= zip(column.uids, column.values, strict=True)
        return known

    def missing(self) -> dict[str, str]:
        """Why pods have no sample, by UID."""
        gaps = chain(self.serving.gaps, self.doubtful.gaps, self.others)
        return {sample.pod.uid: sample.missing for sample in gaps if sample.usage is None}


class ColumnReader:
    """Reads a metric off groups of pods into columns; `seen` is what is remembered of its samples."""

    def __init__(self, meter: MetricReader, seen: SampleMemory) -> None:
        self._meter = meter
        self._seen = seen
        self.columns = Columns()
        self._zeros: list[str] = []

    def finish(self) -> Columns:
        """All that was read."""
        self.columns.zeros = frozenset(self._zeros)
        return self.columns

    def others(self, pods: Iterable[PodAssessment]) -> None:
        """Pods that do not count: nothing of theirs is plain."""
        for assessed in pods:
            sample = self._meter.sample(assessed.pod, self._seen)
            if sample.ahead is not None:
                self.columns.ahead[assessed.pod.uid] = sample.ahead
            self.columns.others.append(sample)

    def counted(
        self, column: Column, pods: Sequence[PodAssessment], known: Sequence[StaticRow], strange: frozenset[str]
    ) -> None:
        """Pods that count, with their rows; those that are `strange` have to be held against all rules."""
        apart = strange | self._seen.ahead.keys()
        if apart:
            known = [row for row in known if row.uid not in apart]
        plain = self._points(column, known) if self._meter.is_query else self._usages(column, known)
        if plain == len(pods):
            return
        read = set(column.uids)
        for assessed in pods:
            if assessed.pod.uid not in read:
                sample = self._sample(column, assessed.pod)
                if assessed.pod.uid in strange:
                    self.columns.whole[assessed.pod.uid] = sample

    def _sample(self, column: Column, pod: Pod) -> PodSample:
        sample = self._meter.sample(pod, self._seen)
        if sample.newest is not None:
            self.columns.newest[pod.uid] = sample.newest
        if sample.ahead is not None:
            self.columns.ahead[pod.uid] = sample.ahead
        if sample.is_doubted_zero:
            self._zeros.append(pod.uid)
        column.add(sample)
        return sample

    def _usages(self, column: Column, known: Iterable[StaticRow]) -> int:
        """Read the plain samples of metrics.k8s.io; how many there were."""
        meter, newest, last = self._meter, self.columns.newest, self._seen.last
        usages, resource = meter.usages, meter.resource
        first, latest, ahead, warm = meter.plain_from, meter.plain_until, meter.now + AHEAD_SECONDS, meter.warm_until
        put_uid, put_value, put_capacity = column.uids.append, column.values.append, column.capacities.append
        put_at, put_window = column.ats.append, column.windows.append
        for uid, name, container, containers, since, created_at, capacity in known:
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

    def _points(self, column: Column, known: Iterable[StaticRow]) -> int:
        """Read the plain samples of a query; how many there were."""
        meter, newest, last = self._meter, self.columns.newest, self._seen.last
        points = meter.points
        first, latest, ahead, warm = meter.plain_from, meter.plain_until, meter.now + AHEAD_SECONDS, meter.warm_until
        for uid, name, _, _, since, created_at, capacity in known:
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
        column.windows = [meter.query_window] * len(column.ats)
        return len(column.uids)


def read_columns(
    meter: MetricReader,
    seen: SampleMemory,
    serving: tuple[Sequence[PodAssessment], Sequence[StaticRow]],
    doubtful: tuple[Sequence[PodAssessment], Sequence[StaticRow]],
    others: Iterable[PodAssessment],
    strange: frozenset[str] = frozenset(),
) -> Columns:
    """One metric of every running pod. `strange` pods' samples are wanted whole, whatever their samples."""
    reader = ColumnReader(meter, seen)
    reader.counted(reader.columns.serving, *serving, strange)
    reader.counted(reader.columns.doubtful, *doubtful, strange)
    reader.others(others)
    return reader.finish()


class PodAssessments(Sequence[PodAssessment]):
    """The pods of a target with their usage, which is put together once somebody looks: hardly anybody does.

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
        return self._put_together()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def _put_together(self) -> Sequence[PodAssessment]:
        if self._columns is not None:
            usage = {name: found.usage() for name, found in self._columns.items()}
            missing = {name: found.missing() for name, found in self._columns.items()}
            self._pods = [_with_usage(assessed, usage, missing) for assessed in self._pods]
            self._columns = None
        return self._pods


def _with_usage(
    assessed: PodAssessment, usage: Mapping[str, Mapping[str, int]], missing: Mapping[str, Mapping[str, str]]
) -> PodAssessment:
    uid = assessed.pod.uid
    lacks = {name: by_pod[uid] for name, by_pod in missing.items() if uid in by_pod}
    used = {name: by_pod[uid] for name, by_pod in usage.items() if uid in by_pod}
    return assessed._replace(usage=used, missing=lacks or assessed.missing)
