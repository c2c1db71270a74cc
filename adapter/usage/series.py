"""The series of a query's results, found by selector and by pod.

The labels of a series hardly ever change, its value changes with each answer. So a `SeriesTable` numbers the label sets
of a query once, by the text that the server writes, and an answer adds only columns: values and times by that number.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from adapter.kube.selectors import LabelSelector
from adapter.load.quantity import QuantityError, parse_number
from adapter.load.samples import Point
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder

_MAX_ENDED = 1000
_SAFE_DIGITS = 12  # far below the limit of a quantity
_LABELS = Decoder(dict[str, str])


class Fill(NamedTuple):
    """The samples that a window holds, and those that a full one holds; None: not known."""

    samples: int
    full: int | None

    @property
    def share(self) -> float:
        """How full it is; 0 where that is not known."""
        return self.samples / self.full if self.full else 0.0


class Series(msgspec.Struct, frozen=True, gc=False):
    """A series: labels, value in nano-units, time of its newest input (epoch seconds), how full a partial window is."""

    labels: Mapping[str, str]
    value: int
    at: float
    partial: Fill | None = None


class LabelSet(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The labels of a series as JSON, with the number of the series, and that of its namespace and pod, in a table.

    `pod` is empty if the series belongs to none.
    """

    number: int
    place: int
    namespace: str
    pod: str
    text: bytes

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels, decoded at each call: few series are ever asked for by their labels."""
        return _LABELS.decode(self.text)


class SeriesGroup:
    """The label sets of one namespace. It only grows."""

    def __init__(self) -> None:
        self.sets: list[LabelSet] = []
        self.by_pod: dict[str, LabelSet] = {}
        """The first label set of each pod."""
        self.several: dict[str, list[LabelSet]] = {}
        """The label sets of pods with more than one."""

    def add(self, labels: LabelSet) -> None:
        """Append a label set."""
        self.sets.append(labels)
        if labels.pod:
            first = self.by_pod.setdefault(labels.pod, labels)
            if first is not labels:
                self.several.setdefault(labels.pod, [first]).append(labels)

    def of_pod(self, pod: str) -> Sequence[LabelSet]:
        """The label sets of one pod."""
        if pod in self.several:
            return self.several[pod]
        return (self.by_pod[pod],) if pod in self.by_pod else ()


class SeriesTable:
    """Numbers the label sets of one query's results, and their places: pairs of namespace and pod.

    It only grows, so that earlier results may still be read; replace it once `is_outgrown`. With an empty `pod_label`
    the series belong to no pod.
    """

    def __init__(self, namespace_label: str, pod_label: str) -> None:
        self._namespace_label = namespace_label
        self._pod_label = pod_label
        self._known: dict[bytes, LabelSet] = {}
        self._places: dict[str, dict[str, int]] = {}
        self.places: list[tuple[str, str]] = []
        """Namespace and pod of each place."""
        self.groups: dict[str, SeriesGroup] = {}
        self.time_rows: dict[bytes, int] = {}
        """By the labels of a time as JSON: its place times the number of selectors, plus its selector's number."""

    @property
    def size(self) -> int:
        """The number of label sets."""
        return len(self._known)

    def is_outgrown(self, live: int) -> bool:
        """Whether most of it are series that have ended; `live` is the number of the others."""
        return max(len(self._known), len(self.places), len(self.time_rows)) > 2 * live + _MAX_ENDED

    def label_sets(self, texts: Iterable[bytes]) -> list[LabelSet]:
        """The label sets with these texts. Raises msgspec.MsgspecError for a text that holds no labels."""
        found = []
        for text in texts:
            labels = self._known.get(text)
            if labels is None:
                place = self.place_of(_LABELS.decode(text))
                namespace, pod = self.places[place]
                labels = self._known[text] = LabelSet(len(self._known), place, namespace, pod, text)
                if namespace not in self.groups:
                    self.groups[namespace] = SeriesGroup()
                self.groups[namespace].add(labels)
            found.append(labels)
        return found

    def shared(self, text: bytes) -> bytes:
        """The same text, in memory once."""
        shared = self._known.get(text)
        return text if shared is None else shared.text

    def known_place(self, namespace: str, pod: str) -> int:
        """The number of a place; -1 if it has none."""
        return self._places.get(namespace, {}).get(pod, -1)

    def place_of(self, labels: Mapping[str, str]) -> int:
        """The number of the place that labels name."""
        namespace, pod = labels.get(self._namespace_label, ""), labels.get(self._pod_label, "")
        in_namespace = self._places.setdefault(namespace, {})
        if pod not in in_namespace:
            in_namespace[pod] = len(self.places)
            self.places.append((namespace, pod))
        return in_namespace[pod]


@dataclass(frozen=True, slots=True)
class Columns:
    """Values as text and times (epoch seconds) by the numbers of a table; None: that series has no sample.

    `partial` has the series whose windows are not full.
    """

    values: Sequence[str | None] = ()
    times: Sequence[float | None] = ()
    partial: Mapping[int, Fill] = field(default_factory=dict)

    def has(self, labels: LabelSet) -> bool:
        """Whether the series has a sample."""
        return labels.number < len(self.values) and self.values[labels.number] is not None

    def point(self, labels: LabelSet) -> Point | None:
        """The sample of the series."""
        number = labels.number
        text = self.values[number] if number < len(self.values) else None
        if text is None:
            return None
        at = self.times[number]
        return None if at is None else Point(at, sample_nano(text), *self.partial.get(number, ()))

    def series(self, sets: Iterable[LabelSet]) -> Iterator[Series]:
        """Those that have a sample."""
        for labels in sets:
            if (point := self.point(labels)) is not None:
                yield Series(labels.labels, point.value, point.at, self.partial.get(labels.number))


class SeriesList(Iterable[Series]):
    """The series of one namespace that have a sample in one result."""

    def __init__(self, group: SeriesGroup | None = None, columns: Columns | None = None) -> None:
        self._group = group or SeriesGroup()
        self._columns = columns or Columns()
        self._all: list[Series] | None = None
        self._several: list[list[Series]] | None = None

    def __iter__(self) -> Iterator[Series]:
        return self._columns.series(self._group.sets)

    def __len__(self) -> int:
        return sum(map(self._columns.has, self._group.sets))

    async def select(self, selector: LabelSelector | None, slices: Slices) -> Sequence[Series]:
        """The series that the selector matches; without a selector all."""
        if selector is not None and selector.requirements:
            matching = []
            for labels in list(self._group.sets):
                if selector.matches(labels.labels):
                    matching.append(labels)
                await slices.breathe()
            return await self._decoded(matching, slices)
        if self._all is None:
            self._all = await self._decoded(list(self._group.sets), slices)
        return self._all

    async def _decoded(self, sets: Iterable[LabelSet], slices: Slices) -> list[Series]:
        found: list[Series] = []
        for labels in sets:
            found += self._columns.series((labels,))
            await slices.breathe()
        return found

    @property
    def points(self) -> Mapping[str, Point]:
        """The value of each pod; of a pod with several series the first."""
        return _Points(self._group, self._columns)

    def of_pod(self, pod: str) -> Sequence[Series]:
        """The series of one pod."""
        return tuple(self._columns.series(self._group.of_pod(pod)))

    def of_repeated_pods(self, selector: LabelSelector | None) -> Sequence[Series]:
        """The matching series of pods with several matching series; empty for a correct query."""
        if self._several is None:
            live = (list(self._columns.series(sets)) for sets in self._group.several.values())
            self._several = [series for series in live if len(series) > 1]
        selector = selector or LabelSelector()
        matching = ([each for each in series if selector.matches(each.labels)] for series in self._several)
        return [each for series in matching if len(series) > 1 for each in series]


class _Points(Mapping[str, Point]):
    """A view of series by pod as points; a value is parsed only if it is asked for."""

    __slots__ = ("_columns", "_group")

    def __init__(self, group: SeriesGroup, columns: Columns) -> None:
        self._group = group
        self._columns = columns

    def get(self, pod: str, default: object = None) -> "Point | None":  # type: ignore[override]
        """The point of a pod; a pod without one costs no exception."""
        for labels in self._group.of_pod(pod):
            if (point := self._columns.point(labels)) is not None:
                return point
        return default  # type: ignore[return-value]

    def __getitem__(self, pod: str) -> Point:
        point = self.get(pod)
        if point is None:
            raise KeyError(pod)
        return point

    def __contains__(self, pod: object) -> bool:
        return isinstance(pod, str) and any(map(self._columns.has, self._group.of_pod(pod)))

    def __iter__(self) -> Iterator[str]:
        return filter(self.__contains__, self._group.by_pod)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


def sample_nano(text: str) -> int:
    """`parse_number`, with a fast path for plain digits."""
    whole, _, fraction = text.partition(".")
    if not (whole.isdecimal() and text.isascii() and len(whole) <= _SAFE_DIGITS and (fraction or "0").isdecimal()):
        return parse_number(text)
    return int(whole + fraction[:9].ljust(9, "0")) + (fraction[9:].strip("0") != "")


def is_usable(text: str) -> bool:
    """Whether a value counts; NaN, infinite and negative ones do not, nor does what is no number."""
    try:
        sample_nano(text)
    except QuantityError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedQueryResult:
    """The last result of a named query without variables: its series by namespace (empty: series without that label).

    Samples count for `max_age` seconds. `error` says why the last poll gave no result; the result before it stays until
    its samples are too old. `fetched_at` is epoch seconds.
    """

    name: str
    by_pod: bool
    pod_label: str = "pod"
    namespace_label: str = "namespace"
    max_age: float = 90.0
    series: Mapping[str, SeriesList] = field(default_factory=dict)
    fetched_at: float | None = None
    error: str | None = None
