"""The series of a query's results: by namespace, with their labels, and found by selector and by pod."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from adapter.kube.selectors import LabelSelector
from adapter.load.quantity import parse_number
from adapter.load.samples import Point
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder

_SAFE_DIGITS = 12  # far below the limit of a quantity
_LABELS = Decoder(dict[str, str])


class Series(msgspec.Struct, frozen=True, gc=False):
    """A series: its labels as JSON, its pod (empty: none), and its sample."""

    text: bytes
    pod: str
    point: Point

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels, decoded at each call: few series are ever asked for by their labels."""
        return _LABELS.decode(self.text)

    @property
    def value(self) -> int:
        """The value in nano-units."""
        return self.point.value

    @property
    def at(self) -> float:
        """The time of its newest input (epoch seconds)."""
        return self.point.at


class SeriesList(Iterable[Series]):
    """The series of one namespace that have a sample in one result."""

    def __init__(self, series: Sequence[Series] = ()) -> None:
        self._series = series
        self._by_pod: dict[str, list[Series]] | None = None

    def __iter__(self) -> Iterator[Series]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeriesList) and self._series == other._series

    __hash__ = None  # type: ignore[assignment]

    async def select(self, selector: LabelSelector | None, slices: Slices) -> Sequence[Series]:
        """The series that the selector matches; without a selector all."""
        if selector is None or not selector.requirements:
            return self._series
        found = []
        for series in self._series:
            if selector.matches(series.labels):
                found.append(series)
            await slices.breathe()
        return found

    def of_pod(self, pod: str) -> Sequence[Series]:
        """The series of one pod."""
        if self._by_pod is None:
            self._by_pod = {}
            for series in self._series:
                self._by_pod.setdefault(series.pod, []).append(series)
        return self._by_pod.get(pod, ())

    def of_repeated_pods(self, selector: LabelSelector | None) -> Sequence[Series]:
        """The matching series of pods with several matching series; empty for a correct query."""
        counts = Counter(series.pod for series in self._series if series.pod)
        several = [series for series in self._series if counts[series.pod] > 1]
        matching = [series for series in several if selector is None or selector.matches(series.labels)]
        counts = Counter(series.pod for series in matching)
        return [series for series in matching if counts[series.pod] > 1]


def sample_nano(text: str) -> int:
    """`parse_number`, with a fast path for plain digits."""
    whole, _, fraction = text.partition(".")
    if not (whole.isdecimal() and text.isascii() and len(whole) <= _SAFE_DIGITS and (fraction or "0").isdecimal()):
        return parse_number(text)
    return int(whole + fraction[:9].ljust(9, "0")) + (fraction[9:].strip("0") != "")


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
