"""The samples of a target's pods in one metric, as columns, which make the common case fast.

Nearly every sample is plain: present, fresh, newer than the pod's readiness, and not 0. Blocks of pods with plain
samples alone are read column by column. A block with any other sample is read pod by pod, and a sample that is not
plain goes through all checks of `MetricReader.sample`, which gives the same result for a plain one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from adapter.load.assessment import PodAssessment
from adapter.load.effective_usage import MetricReader, PodSample
from adapter.load.memory import AHEAD_SECONDS, AheadSample, LastSample, SampleMemory
from adapter.load.pods import Pod
from adapter.load.samples import PodUsage, Point
from adapter.load.spec import Metric
from adapter.load.steps import AT_ONCE, Steps, collected, mapped, sorted_in_steps
from adapter.load.usage_columns import Block, UsageColumns

_CHECKED_AT_ONCE = 256
"""Samples that are read with all checks in one step."""
_last_sample = partial(tuple.__new__, LastSample)
"""A LastSample of a pair: without the call in Python that `LastSample(…)` takes."""
_time, _window = attrgetter("at"), attrgetter("window")


class StaticRow(NamedTuple):
    """What does not change with a pod's samples, for one metric.

    A sample is plain from `since` on (seconds), and if it has a value for each of `containers` (`container`: the only
    one, empty if there are several). `capacity` is what usage is divided by (0: the metric is no utilization).
    """

    pod: Pod
    uid: str
    name: str
    container: str
    containers: Sequence[str]
    since: float
    created_at: float
    capacity: int


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Static rows as columns. `container` is the only one of every row, empty if they have several.

    `since` and `created_at` are the latest ones.
    """

    rows: Sequence[StaticRow]
    uids: Sequence[str]
    names: Sequence[str]
    capacities: Sequence[int]
    container: str
    since: float
    created_at: float


class MetricRows(NamedTuple):
    """The static rows of a metric: of the pods that serve, and of the doubtful ones."""

    metric: Metric
    serving: Sequence[RowBlock]
    doubtful: Sequence[RowBlock]


def static_rows(
    reader: MetricReader, pods: Iterable[PodAssessment], known: Iterable[RowBlock] = ()
) -> Steps[Sequence[RowBlock]]:
    """A row for each pod whose samples may be plain, in blocks. Young pods share the last ones.

    `known` blocks are of the same metric: a pod that is still the same object keeps its row.
    """
    before: dict[str, StaticRow] = {}
    for block in known:
        before |= zip(block.uids, block.rows, strict=True)
        yield
    rows = yield from collected(_rows(reader, pods, before))
    rows = yield from sorted_in_steps(rows, _plain_since)
    return (yield from _blocks(rows))


def renewed_rows(
    reader: MetricReader, anew: Iterable[PodAssessment], known: Iterable[RowBlock], changed: frozenset[str]
) -> Steps[Sequence[RowBlock]]:
    """The rows of a group of pods, from the `known` blocks of this metric and group.

    `changed`: the UIDs of the pods that changed or are gone; `anew` are those of them that are in the group now. Blocks
    without any of them stay; small ones are filled up.
    """
    blocks, rows = [], []
    for block in known:
        if len(block.rows) > AT_ONCE // 2 and changed.isdisjoint(block.uids):
            blocks.append(block)
        else:
            rows += [row for row in block.rows if row.uid not in changed]
            yield
    rows += _rows(reader, anew, {})
    rows.sort(key=_plain_since)
    yield
    return [*blocks, *(yield from _blocks(rows))]


def _blocks(rows: Sequence[StaticRow]) -> Steps[list[RowBlock]]:
    return (yield from mapped(_block, (rows[first : first + AT_ONCE] for first in range(0, len(rows), AT_ONCE)), 1))


def _rows(reader: MetricReader, pods: Iterable[PodAssessment], before: Mapping[str, StaticRow]) -> Iterator[StaticRow]:
    for pod in (one.pod for one in pods):
        row = before.get(pod.uid)
        if row is None or row.pod is not pod:
            row = _static_row(reader, pod)
        if row is not None:
            yield row


def _static_row(reader: MetricReader, pod: Pod) -> StaticRow | None:
    containers, capacity, lack = reader.basis(pod)
    if lack or not (containers or reader.is_query):
        return None
    since = max(pod.started_at or 0.0, (pod.ready.since if pod.ready is not None else None) or 0.0)
    only = containers[0] if len(containers) == 1 else ""
    return StaticRow(pod, pod.uid, pod.name, only, containers, since, pod.created_at, capacity or 0)


def _plain_since(row: StaticRow) -> float:
    return max(row.since, row.created_at)


def _block(rows: Sequence[StaticRow]) -> RowBlock:
    _, uids, names, only, _, sinces, created, capacities = zip(*rows, strict=True)
    container = only[0] if len(set(only)) == 1 else ""
    return RowBlock(rows, uids, names, capacities, container, max(sinces), max(created))


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
    _sums: tuple[int, int] | None = None

    @property
    def ends(self) -> Iterator[tuple[float, float]]:
        """When each sample's window ended at the latest, and its length (seconds)."""
        return zip(self.knows, (window or 0.0 for window in self.windows), strict=True)

    def sums(self) -> tuple[int, int]:
        """The sums of the values and of the capacities, once all pods are added."""
        if self._sums is None:
            self._sums = sum(self.values), sum(self.capacities)
        return self._sums

    def began_at(self) -> float | None:
        """The earliest beginning of a sample's window (seconds); None without samples."""
        lengths = set(self.windows)
        if len(lengths) == 1:  # the windows of nearly every source are all equal
            return min(self.knows) - (lengths.pop() or 0.0)
        return min((knows - window for knows, window in self.ends), default=None)

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
        self._latest_known = reader.now + AHEAD_SECONDS
        self.columns = Columns()
        self._zeros: list[str] = []

    def finish(self) -> Columns:
        """All columns that were read."""
        self.columns.zeros = frozenset(self._zeros)
        return self.columns

    def others(self, pods: Iterable[PodAssessment]) -> Steps[None]:
        """Read pods that do not count for the load; none of their samples is plain."""
        for index, pod in enumerate(one.pod for one in pods):
            if index % _CHECKED_AT_ONCE == _CHECKED_AT_ONCE - 1:
                yield
            sample = self._reader.sample(pod, self._seen)
            if sample.ahead is not None:
                self.columns.ahead[pod.uid] = sample.ahead
            self.columns.others.append(sample)

    def counted(
        self, column: Column, pods: Sequence[PodAssessment], blocks: Sequence[RowBlock], whole: frozenset[str]
    ) -> Steps[None]:
        """Read pods that count, with their rows. `whole`: the UIDs whose complete samples are kept."""
        apart = whole | self._seen.ahead.keys()
        for block in blocks:
            is_whole = bool(apart) and not apart.isdisjoint(block.uids)
            if is_whole or not self._read_block(column, block):
                self._read_rows(column, [row for row in block.rows if row.uid not in apart] if is_whole else block.rows)
            yield
        column.knows = list(column.ats)
        if len(column.uids) == len(pods):
            return
        read = set(column.uids)
        for index, pod in enumerate(one.pod for one in pods if one.pod.uid not in read):
            if index % _CHECKED_AT_ONCE == _CHECKED_AT_ONCE - 1:
                yield
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

    def _read_block(self, column: Column, block: RowBlock) -> bool:
        """Read a block with plain samples alone; False, and nothing is read, where one is not plain."""
        reader = self._reader
        if block.created_at > reader.warm_until:
            return False
        if not reader.is_query and isinstance(reader.usages, UsageColumns):
            read = reader.usages.block(
                block.names, block.container or [row.containers for row in block.rows], reader.resource
            )
        else:
            read = self._sample_block(block)
        if read is None:
            return False
        ats, values, windows = read
        if min(ats) < max(block.since, reader.plain_from) or max(ats) > reader.plain_until or not all(values):
            return False
        newest = self._newest(block.uids, ats, values)
        if newest is None:
            return False
        self.columns.newest.update(zip(block.uids, newest, strict=True))
        column.uids += block.uids
        column.values += values
        column.capacities += block.capacities
        column.ats += ats
        column.windows += windows
        return True

    def _sample_block(self, block: RowBlock) -> Block | None:
        """Times, values and windows of the samples of a block's pods; None where one is missing."""
        reader = self._reader
        source: Mapping[str, PodUsage | Point] = reader.points if reader.is_query else reader.usages
        samples = list(map(source.get, block.names))
        try:
            ats: list[float] = list(map(_time, samples))
            values = self._values(samples, block)
        except (AttributeError, KeyError):  # no sample, or none of a container
            return None
        return ats, values, [reader.query_window] * len(ats) if reader.is_query else list(map(_window, samples))

    def _values(self, samples: Sequence[Any], block: RowBlock) -> list[int]:
        """The values of these samples. Raises KeyError where a container has none."""
        if self._reader.is_query:
            return [sample.value for sample in samples]
        container, resource = block.container, self._reader.resource
        if container:
            return [sample.containers[container][resource] for sample in samples]
        return [
            sum([sample.containers[each][resource] for each in row.containers])
            for sample, row in zip(samples, block.rows, strict=True)
        ]

    def _newest(self, uids: Sequence[str], ats: Sequence[float], values: Sequence[int]) -> list[LastSample] | None:
        """The newest samples that counted, these or those in the memory; None where one there is from the future."""
        last = self._seen.last
        pairs = zip(map(last.get, uids), ats, values, strict=True)
        newest = [
            _last_sample((at, value)) if before is None or before.at < at else before for before, at, value in pairs
        ]
        return newest if max(map(_time, newest)) <= self._latest_known else None

    def _read_rows(self, column: Column, rows: Iterable[StaticRow]) -> None:
        """Read the plain samples among these."""
        last = self._seen.last
        for row in rows:
            sample = self._plain(row)
            if sample is None:
                continue
            at, value, window = sample
            before = last.get(row.uid)
            if before is None or before.at < at:
                self.columns.newest[row.uid] = LastSample(at, value)
            elif before.at > self._latest_known:
                continue
            else:
                self.columns.newest[row.uid] = before
            column.uids.append(row.uid)
            column.values.append(value)
            column.capacities.append(row.capacity)
            column.ats.append(at)
            column.windows.append(window)

    def _plain(self, row: StaticRow) -> tuple[float, int, float | None] | None:
        """Time, value and window of a plain sample; None where it is not plain."""
        reader = self._reader
        if not reader.is_query and isinstance(reader.usages, UsageColumns):
            return self._plain_usage(reader.usages, row)
        sample = (reader.points if reader.is_query else reader.usages).get(row.name)
        if sample is None:
            return None
        at = sample.at
        if not max(row.since, reader.plain_from) <= at <= reader.plain_until or row.created_at > reader.warm_until:
            return None
        if isinstance(sample, Point):
            return (at, sample.value, reader.query_window) if sample.value else None
        try:
            value = sum(sample.containers[each][reader.resource] for each in row.containers)
        except KeyError:
            return None
        return (at, value, sample.window) if value else None

    def _plain_usage(self, usages: UsageColumns, row: StaticRow) -> tuple[float, int, float | None] | None:
        reader, index = self._reader, usages.rows.get(row.name)
        if index is None:
            return None
        at = usages.ats[index]
        if not max(row.since, reader.plain_from) <= at <= reader.plain_until or row.created_at > reader.warm_until:
            return None
        value = usages.total(index, row.containers, reader.resource)
        return (at, value, usages.windows[index]) if value else None


def read_columns(
    reader: MetricReader,
    seen: SampleMemory,
    serving: tuple[Sequence[PodAssessment], Sequence[RowBlock]],
    doubtful: tuple[Sequence[PodAssessment], Sequence[RowBlock]],
    others: Iterable[PodAssessment],
    whole: frozenset[str] = frozenset(),
) -> Steps[Columns]:
    """Read one metric of every running pod. `whole`: the UIDs of counted pods whose complete samples are kept."""
    columns = ColumnReader(reader, seen)
    yield from columns.counted(columns.columns.serving, *serving, whole)
    yield from columns.counted(columns.columns.doubtful, *doubtful, whole)
    yield from columns.others(others)
    return columns.finish()
