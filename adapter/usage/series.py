"""The series of one namespace in the result of a query, found by selector and by pod."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import msgspec

from adapter.kube.label_index import LabelIndex, Shape
from adapter.kube.selectors import LabelSelector
from adapter.load.samples import Point
from adapter.runtime.slices import Slices

_MAX_CACHED_SELECTORS = 64


class Series(msgspec.Struct, frozen=True, gc=False):
    """A series: labels, value in nano-units, time of its newest input (epoch seconds)."""

    labels: Mapping[str, str]
    value: int
    at: float


class SeriesList(Sequence[Series]):
    """Series in the order of the result. `add` fills it before the first read.

    `of_pod` finds series by the label `pod_label`; without one they belong to no pod.
    """

    def __init__(self, pod_label: str = "", series: Iterable[Series] = ()) -> None:
        self._pod_label = pod_label
        self._all: list[Series] = []
        self._by_pod: dict[str, Series] = {}
        self._several: dict[str, list[Series]] = {}
        self._index: LabelIndex[int, Series] = LabelIndex(lambda: enumerate(self._all))
        self._repeated: dict[LabelSelector, tuple[Series, ...]] = {}
        for each in series:
            self.add(each)

    def add(self, series: Series) -> None:
        """Append a series."""
        self._all.append(series)
        pod = series.labels.get(self._pod_label) if self._pod_label else None
        if not pod:
            return
        first = self._by_pod.setdefault(pod, series)
        if first is not series:
            self._several.setdefault(pod, [first]).append(series)

    @overload
    def __getitem__(self, index: int) -> Series: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Series]: ...
    def __getitem__(self, index: int | slice) -> Series | Sequence[Series]:
        return self._all[index]

    def __iter__(self) -> Iterator[Series]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the selectors that requests used."""
        return self._index.shapes

    async def prepare(self, shapes: Iterable[Shape], slices: Slices) -> None:
        """Index the series for selectors of these shapes, so that the first request need not."""
        await self._index.prepare(shapes, slices)

    def selected(self, selector: LabelSelector | None) -> Collection[Series]:
        """The series that the selector matches; without a selector all."""
        return self._all if selector is None else self._index.selected(selector)

    @property
    def points(self) -> Mapping[str, Point]:
        """The value of each pod; of a pod with several series the first."""
        return _Points(self._by_pod)

    def of_pod(self, pod: str) -> Sequence[Series]:
        """The series of one pod."""
        several = self._several.get(pod)
        if several is not None:
            return several
        only = self._by_pod.get(pod)
        return () if only is None else (only,)

    def of_repeated_pods(self, selector: LabelSelector | None) -> Sequence[Series]:
        """The matching series of pods with several matching series; empty for a correct query."""
        if not self._several:
            return ()
        selector = selector or LabelSelector()
        repeated = self._repeated.get(selector)
        if repeated is None:
            if len(self._repeated) >= _MAX_CACHED_SELECTORS:
                self._repeated.clear()
            repeated = self._repeated[selector] = self._of_repeated_pods(selector)
        return repeated

    def _of_repeated_pods(self, selector: LabelSelector) -> tuple[Series, ...]:
        own = {
            pod: [each for each in several if selector.matches(each.labels)] for pod, several in self._several.items()
        }
        repeated = {pod for pod, several in own.items() if len(several) > 1}
        if not repeated:
            return ()
        return tuple(
            each for each in self._all if each.labels.get(self._pod_label) in repeated and selector.matches(each.labels)
        )


class _Points(Mapping[str, Point]):
    """A view of series by pod as points; copies would double the memory."""

    __slots__ = ("_series",)

    def __init__(self, series: Mapping[str, Series]) -> None:
        self._series = series

    def __getitem__(self, pod: str) -> Point:
        series = self._series[pod]
        return Point(series.at, series.value)

    def __contains__(self, pod: object) -> bool:
        return pod in self._series

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        return repr(dict(self))


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
