"""The series of one namespace in a query's answer, found by selector and by pod."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import overload

import msgspec

from adapter.kube.label_index import LabelIndex, Shape
from adapter.kube.selectors import LabelSelector
from adapter.load.samples import Point
from adapter.runtime.slices import Slices

_MOST_SELECTORS = 64


class Series(msgspec.Struct, frozen=True, gc=False):
    """One series: its labels, its value in nano-units, the time of its newest input (seconds)."""

    labels: Mapping[str, str]
    value: int
    at: float


class SeriesList(Sequence[Series]):
    """Series in the order of the answer. Filled once by `add`, and complete before it is read.

    `pod_label` names the label by which `of_pod` finds them; without one they belong to no pod.
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
        """Take in the next one."""
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
        """The shapes of the selectors that were asked for."""
        return self._index.shapes

    async def prepare(self, shapes: Iterable[Shape], slices: Slices) -> None:
        """Make ready for selectors of these shapes, so that the first request need not."""
        await self._index.prepare(shapes, slices)

    def selected(self, selector: LabelSelector | None) -> Collection[Series]:
        """The series that the selector matches, all without one."""
        return self._all if selector is None else self._index.selected(selector)

    @property
    def points(self) -> Mapping[str, Point]:
        """The values of the pods: of those that have several series the first."""
        return _Points(self._by_pod)

    def of_pod(self, pod: str) -> Sequence[Series]:
        """The series of one pod."""
        found = self._several.get(pod)
        if found is not None:
            return found
        only = self._by_pod.get(pod)
        return () if only is None else (only,)

    def of_repeated_pods(self, selector: LabelSelector | None) -> Sequence[Series]:
        """All series that the selector matches of the pods that have several: none, where the query is a good one."""
        if not self._several:
            return ()
        selector = selector or LabelSelector()
        found = self._repeated.get(selector)
        if found is None:
            if len(self._repeated) >= _MOST_SELECTORS:
                self._repeated.clear()
            found = self._repeated[selector] = self._of_repeated_pods(selector)
        return found

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
    """Series by pod, seen as points: a second copy of each would cost as much memory as the first."""

    __slots__ = ("_series",)

    def __init__(self, series: Mapping[str, Series]) -> None:
        self._series = series

    def __getitem__(self, pod: str) -> Point:
        found = self._series[pod]
        return Point(found.at, found.value)

    def __contains__(self, pod: object) -> bool:
        return pod in self._series

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        return repr(dict(self))
