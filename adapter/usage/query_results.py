"""Groups the samples of a query by namespace and pod, or takes the one number of a service. Pure.

Each value has the time of the samples that it was computed from, not the time of its evaluation (see `sample_times`).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from adapter.load.samples import Point, QuerySamples
from adapter.runtime.concurrency import Slices
from adapter.usage.ahead_dates import AheadDates
from adapter.usage.prometheus_api import Sample
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.sample_times import SampleTimes
from adapter.usage.series import Columns, Fill, LabelSet, SeriesList, SeriesTable, is_usable
from adapter.usage.windows import Windows

_STEP = 500


def new_table(query: InstantQuery) -> SeriesTable:
    """An empty table for the results of a query."""
    return SeriesTable(query.namespace_label, query.pod_label)


class Vector:
    """The answer to a query: its label sets, and their values as text. `at` is the time of its evaluation.

    What the answer says of `windows` goes to these.
    """

    def __init__(self, table: SeriesTable, windows: Windows | None = None) -> None:
        self.table = table
        self.sets: list[LabelSet] = []
        self.values: list[str | None] = []
        self.at: float | None = None
        self._windows = windows

    def __len__(self) -> int:
        return len(self.sets)

    def add(self, samples: Sequence[Sample]) -> None:
        """Append samples. Raises msgspec.MsgspecError where one has no labels."""
        if self._windows is not None:
            samples = self._windows.take(samples)
        self.sets += self.table.label_sets([bytes(sample.metric) for sample in samples])
        texts = [sample.value[1] for sample in samples if sample.value]
        self.values += [each if is_usable(each) else None for each in texts]
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


@dataclass(frozen=True, slots=True)
class _Shape:
    """What of a result depends on its label sets, and on whether any has a time, and not on any number."""

    sets: list[LabelSet]
    counts: Mapping[str, int]
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
    ahead: float = 0.0
    """How many seconds the dates of samples were ahead of this answer, at most."""

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
        return QuerySamples(total=total, reads=reads, max_age=max_age, fetched_at=self.fetched_at, ahead=self.ahead)


def _same(first: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two columns are equal; a shorter one lacks the series that were added since."""
    short, long = sorted((first, other), key=len)
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
    ahead: AheadDates | None = None,
) -> QueryResult:
    """Group samples by namespace and pod. NaN, infinite, negative and undated values are dropped.

    What does not depend on numbers is taken over from the `last` result where the series are the same.
    """
    dates = await times.column(vector.sets, slices)
    partial = {} if windows is None else await windows.column(vector.sets, vector.values, dates, slices)
    columns = await _columns(vector, dates, partial, slices)
    if ahead is not None:
        columns = replace(columns, times=ahead.clamped(range(len(columns.times)), columns.times, fetched_at))
    shape = last.shape if last is not None else None
    undated = len(dates) > 0 and all(at is None for at in dates)
    if shape is None or shape.undated != undated or shape.sets != vector.sets:
        shape = await _shape(query, vector, undated=undated, slices=slices)
    series = {namespace: SeriesList(group, columns) for namespace, group in vector.table.groups.items()}
    pods = {namespace: in_namespace.points for namespace, in_namespace in series.items() if namespace and shape.by_pod}
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
        ahead=ahead.seconds if ahead is not None else 0.0,
    )


async def _columns(
    vector: Vector, dates: Sequence[float | None], partial: Mapping[int, Fill], slices: Slices
) -> Columns:
    """The values and times by the numbers of the table; None of label sets without a sample."""
    values: list[str | None] = [None] * vector.table.size
    times: list[float | None] = [None] * vector.table.size
    for start in range(0, len(vector), _STEP):
        step = slice(start, start + _STEP)
        for labels, value, at in zip(vector.sets[step], vector.values[step], dates[step], strict=True):
            if value is not None and at is not None:
                values[labels.number] = value
                times[labels.number] = at
        await slices.breathe()
    return Columns(values, times, partial)


async def _shape(query: InstantQuery, vector: Vector, *, undated: bool, slices: Slices) -> _Shape:
    """Count the series of a result and find its faults."""
    # Inline PromQL does not declare its scope; the labels of its result show it.
    by_pod = query.by_pod if query.by_pod is not None else any(each.pod for each in vector.sets)
    write = f"write it as sum by ({query.namespace_label}, {query.pod_label}) (…)"
    counts: Counter[str] = Counter()
    pods: defaultdict[str, set[str]] = defaultdict(set)
    faults: dict[str, str] = {}
    for labels in vector.sets:
        namespace, pod = labels.namespace, labels.pod
        counts[namespace] += 1
        if pod and namespace:
            if pod in pods[namespace]:
                faults[namespace] = f"answers several series of pod {pod}; {write}"
            pods[namespace].add(pod)
        await slices.breathe()
    if by_pod:
        # Some series belong to no pod (cAdvisor's root cgroup); if none has the labels, the query is wrong.
        for namespace in counts.keys() - pods.keys() - {""}:
            faults[namespace] = f"its series lack the label {query.pod_label!r}; {write}"
        if counts.keys() == {""}:
            faults[""] = f"its series lack the label {query.namespace_label!r}; {write}"
    if undated and "" not in faults:
        of = f" of the same {query.namespace_label} and {query.pod_label}" if by_pod else ""
        faults[""] = f"no series that it reads has a sample{of} in the last {query.max_age:g} s"
    return _Shape(vector.sets, counts, faults, by_pod, undated)
