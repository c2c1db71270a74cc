"""Groups the samples of a query by namespace and pod, or takes the one number of a service. Pure.

Each value has the time of the samples that it was computed from, not the time of its evaluation (see `sample_times`).
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adapter.load.quantity import QuantityError
from adapter.load.samples import Point, QuerySamples
from adapter.runtime.concurrency import Slices
from adapter.usage.prometheus_api import Sample
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.sample_times import SampleTimes
from adapter.usage.series import Columns, Fill, LabelSet, SeriesList, SeriesTable, sample_nano
from adapter.usage.windows import Windows

RELEASE_SECONDS = 5.0
"""How long a result may still be in use after a newer one replaced it."""
_MANY = 1000
_STEP = 500
_MAX_SHAPES = 4  # of selectors, that a new result is indexed for
_PLAIN = re.compile(r"[0-9]{1,12}(?:\.[0-9]+)?(?:,[0-9]{1,12}(?:\.[0-9]+)?)*", re.ASCII)
"""Numbers that need no further look, with commas between them."""


def new_table(query: InstantQuery) -> SeriesTable:
    """An empty table for the results of a query."""
    return SeriesTable(query.namespace_label, query.pod_label)


class Vector:
    """The answer to a query: its label sets, and their values as text. `at` is the time of its evaluation."""

    def __init__(self, table: SeriesTable) -> None:
        self.table = table
        self.sets: list[LabelSet] = []
        self.values: list[str | None] = []
        self.at: float | None = None

    def __len__(self) -> int:
        return len(self.sets)

    def add(self, samples: Sequence[Sample]) -> None:
        """Append samples. Raises msgspec.MsgspecError where one has no labels."""
        self.sets += self.table.label_sets([bytes(sample.metric) for sample in samples])
        self.values += _usable([sample.value[1] for sample in samples if sample.value])
        if self.at is None and samples and samples[0].value is not None:
            self.at = samples[0].value[0]

    async def separate(self, slices: Slices) -> None:
        """Number series with the same labels apart: Prometheus never answers such, what speaks its language may."""
        if len(set(self.sets)) == len(self.sets):
            return
        seen: dict[LabelSet, int] = {}
        for index, labels in enumerate(self.sets):
            number = seen[labels] = seen.get(labels, 0) + 1
            if number > 1:
                # White space that is another for each number: JSON with it is another text of the same meaning.
                [self.sets[index]] = self.table.label_sets(
                    [labels.text + f"{number:b}".translate({48: " ", 49: "\t"}).encode()]
                )
            await slices.breathe()


def _usable(values: list[str]) -> list[str | None]:
    """The values; None for NaN, infinite and negative ones and for what is no number."""
    together = ",".join(values)
    if _PLAIN.fullmatch(together) and together.count(",") == len(values) - 1:
        return [*values]
    return [value if _is_usable(value) else None for value in values]


def _is_usable(value: str) -> bool:
    try:
        sample_nano(value)
    except QuantityError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Shape:
    """What of a result depends on its label sets, and on which of them have no sample, and not on any number."""

    sets: list[LabelSet]
    without: list[LabelSet]
    counts: Mapping[str, int]
    usable: frozenset[str]
    """The namespaces with a sample."""
    faults: Mapping[str, str]
    by_pod: bool
    undated: bool
    """Whether no series has a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The result of a query by namespace (empty: series without that label).

    `counts` is the number of series, unusable values included; `faults` says why the result is unusable for a namespace
    (empty: for all). Times and values are in `columns`, by the numbers of `table`.
    """

    by_pod: bool
    fetched_at: float
    series: Mapping[str, SeriesList] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, Point]] = field(default_factory=dict)
    table: SeriesTable
    columns: Columns
    shape: _Shape
    live: int
    """The number of label sets in the answers."""
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of numbers for a service: the pods with a sample among those that were read, by namespace."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of series by namespace."""
        return self.shape.counts

    @property
    def faults(self) -> Mapping[str, str]:
        """Why the result is unusable, by namespace."""
        return self.shape.faults

    @property
    def is_outgrown(self) -> bool:
        """Whether the next result needs a new table, because most label sets of this one have ended."""
        return self.table.is_outgrown(self.live)

    def same(self, other: "QueryResult | None") -> bool:
        """Whether both have the same values, times and faults."""
        return (
            other is not None
            and self.table is other.table
            and self.faults == other.faults
            and _same(self.columns.values, other.columns.values)
            and _same(self.columns.times, other.columns.times)
            and self.columns.partial == other.columns.partial
            and self.reads == other.reads
        )

    def of(self, namespace: str, max_age: float) -> QuerySamples:
        """The samples for a service in this namespace, never those of another namespace."""
        fault = self.faults.get(namespace) or self.faults.get("")
        if not fault and not self.by_pod:
            count = self.counts.get(namespace, 0) + self.counts.get("", 0)
            fault = f"answers {count} series where one number is wanted; put sum(…) around it" if count > 1 else ""
        if fault:
            return QuerySamples(max_age=max_age, error=fault, fetched_at=self.fetched_at)
        if self.by_pod:
            return QuerySamples(pods=self.pods.get(namespace, {}), max_age=max_age, fetched_at=self.fetched_at)
        series = next(iter((*self.series.get(namespace, ()), *self.series.get("", ()))), None)
        total = Point(series.at, series.value, *(series.partial or ())) if series else None
        reads = self.reads.get(namespace, frozenset())
        return QuerySamples(total=total, reads=reads, max_age=max_age, fetched_at=self.fetched_at)

    def large(self) -> list[list[object]]:
        """The columns for `release`; empty if they hold few samples: nothing has to be freed for an ended series."""
        return [] if self.live <= _MANY else [list(self.columns.values), list(self.columns.times)]


async def release(result: list[list[object]]) -> None:
    """Free the columns of a large result in slices, some time after a newer one replaced it.

    Freeing that many objects at once blocks the loop; the delay lets all users change to the newer result first.
    """
    await asyncio.sleep(RELEASE_SECONDS)
    slices = Slices()
    for column in result:
        while column:
            del column[-_STEP:]
            await slices.breathe()


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two columns are equal; a shorter one lacks the series that were added since."""
    short, long = sorted((one, other), key=len)
    return long[: len(short)] == short and not any(each is not None for each in long[len(short) :])


async def build_result(
    query: InstantQuery,
    vector: Vector,
    times: SampleTimes,
    fetched_at: float,
    slices: Slices,
    *,
    windows: Windows | None = None,
    last: QueryResult | None = None,
) -> QueryResult:
    """Group samples by namespace and pod. NaN, infinite, negative and undated values are dropped.

    Requests are likely to use the selectors that they used on the `last` result, so the new one is indexed for them.
    """
    dates = await times.column(vector.sets, slices)
    partial = {} if windows is None else await windows.column(vector.sets, vector.values, dates, slices)
    columns, without = await _columns(vector, dates, partial, slices)
    shape = last.shape if last is not None else None
    undated = len(dates) > 0 and all(at is None for at in dates)
    if shape is None or shape.undated != undated or shape.sets != vector.sets or shape.without != without:
        shape = await _Shaper(query, vector).shape(without, undated=undated, slices=slices)
    series = {
        namespace: SeriesList(group, columns)
        for namespace, group in vector.table.groups.items()
        if namespace in shape.usable
    }
    if last is not None and last.table is not vector.table:
        for namespace, one in series.items():
            if (earlier := last.series.get(namespace)) is not None:
                await one.prepare(earlier.shapes[-_MAX_SHAPES:], slices)
    pods = {namespace: one.points for namespace, one in series.items() if namespace and shape.by_pod}
    return QueryResult(
        by_pod=shape.by_pod,
        fetched_at=fetched_at,
        series=series,
        pods=pods,
        table=vector.table,
        columns=columns,
        shape=shape,
        live=max(len(vector), len(times)),
        reads={} if shape.by_pod else await times.pods(query.window or query.max_age, slices),
    )


async def _columns(
    vector: Vector, dates: Sequence[float | None], partial: Mapping[int, Fill], slices: Slices
) -> tuple[Columns, list[LabelSet]]:
    """The values and times by the numbers of the table, and the label sets without a sample."""
    values: list[str | None] = [None] * vector.table.size
    times: list[float | None] = [None] * vector.table.size
    without: list[LabelSet] = []
    for start in range(0, len(vector), _STEP):
        step = slice(start, start + _STEP)
        for labels, value, at in zip(vector.sets[step], vector.values[step], dates[step], strict=True):
            if value is None or at is None:
                without.append(labels)
            else:
                values[labels.number] = value
                times[labels.number] = at
        await slices.breathe()
    return Columns(values, times, partial), without


class _Shaper:
    """Counts the series of a result and finds its faults."""

    def __init__(self, query: InstantQuery, vector: Vector) -> None:
        self._query = query
        self._sets = vector.sets
        # Inline PromQL does not declare its scope; the labels of its result show it.
        self._by_pod = query.by_pod if query.by_pod is not None else any(each.pod for each in vector.sets)
        self._seen: dict[str, set[str]] = {}
        self._counts: dict[str, int] = {}
        self._faults: dict[str, str] = {}

    async def shape(self, without: list[LabelSet], *, undated: bool, slices: Slices) -> _Shape:
        lacking = set(without)
        usable: set[str] = set()
        for labels in self._sets:
            self._add(labels.namespace, labels.pod)
            if labels not in lacking:
                usable.add(labels.namespace)
            await slices.breathe()
        if self._by_pod:
            await self._find_missing_labels(slices)
        if undated and "" not in self._faults:
            of = f" of the same {self._query.namespace_label} and {self._query.pod_label}" if self._by_pod else ""
            self._faults[""] = f"no series that it reads has a sample{of} in the last {self._query.max_age:g} s"
        for seen in self._seen.values():
            while seen:
                seen.pop()
                await slices.breathe()
        return _Shape(self._sets, without, self._counts, frozenset(usable), self._faults, self._by_pod, undated)

    def _add(self, namespace: str, pod: str) -> None:
        self._counts[namespace] = self._counts.get(namespace, 0) + 1
        if pod and namespace:
            seen = self._seen.setdefault(namespace, set())
            if pod in seen:
                self._faults[namespace] = f"answers several series of pod {pod}; write it as {self._by()}"
            seen.add(pod)

    async def _find_missing_labels(self, slices: Slices) -> None:
        """Some series belong to no pod (cAdvisor's root cgroup); if none has the labels, the query is wrong."""
        query = self._query
        if self._counts and self._counts.keys() == {""}:
            self._faults[""] = f"its series lack the label {query.namespace_label!r}; write it as {self._by()}"
        lacking = f"its series lack the label {query.pod_label!r}; write it as {self._by()}"
        for namespace in self._counts:
            if namespace and namespace not in self._seen:
                self._faults[namespace] = lacking
            await slices.breathe()

    def _by(self) -> str:
        return f"sum by ({self._query.namespace_label}, {self._query.pod_label}) (…)"
