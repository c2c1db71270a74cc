"""How many samples the windows of a query hold, and how many they would without a gap, as its server says.

Prometheus divides by the whole window however few samples it holds, so after a gap an unchanged load reads a fraction
of itself. With each poll the server is asked how many samples the windows hold: first only how many series have how
many, which says in nearly every poll that all are full, then by pod. How many a full one holds follows from the scrape
interval. That is learned from the times of some series' samples, not from counts: of a target that fails every now and
then only the shortest distances are its interval.
"""

import functools
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from adapter.load.samples import UNCOUNTED
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import QueryRejected, WrongAnswer
from adapter.usage.prometheus_api import OnSamples, Sample
from adapter.usage.promql import (
    COUNT_LABEL,
    INPUT_LABEL,
    is_pod_name,
    parse_inputs,
    scrapes_query,
    with_counts,
)
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.series import Fill, LabelSet

MOST_PODS = 500
"""Pods whose samples' times are asked for at once."""
_SCRAPES, _WINDOWS = 24.0, 3.0
"""Times are asked for so many scrapes back, but for no more than so many windows."""
_ALIKE = 1.1
_SPREAD = 1.5
"""Distances of an irregular target, such as one whose samples bring their own times, differ by that much."""
_FEW = 3
"""Distances between the samples of a series, from which an interval is learned."""
_ROUNDING = 0.05
_POLLS, _DISTANCES = 2.2, 1.5
"""Polling intervals and usual distances between samples: what is larger than both is a gap."""
_UNSURE_WINDOWS = 2.0
_STEP = 500
_MARK = INPUT_LABEL.encode()
_LABELS = Decoder(dict[str, str])

AskRange = Callable[[str, OnSamples], Awaitable[None]]
"""Sends a query that is a range selector, and passes its samples on."""
Place = tuple[str, str]
"""A namespace and a pod."""


UNKNOWN = Fill(UNCOUNTED, None)
_NEVER = range(0)
_SHARE = attrgetter("share")


class _Seen(NamedTuple):
    """The time of a series' newest sample, its distance from the one before, and until when its window is unknown.

    `value` is what was first read with that sample; as the window empties after it, it reads less.
    """

    at: float
    distance: float
    unsure_until: float
    value: str | None


class Windows:
    """How full the windows of one query's series are. It lives as long as the query is polled."""

    def __init__(self, query: InstantQuery) -> None:
        inputs = parse_inputs(query.text)
        self._query = query
        self._windows = inputs.windows
        self._alternatives = inputs.alternatives
        self._readable = not inputs.uncounted
        self.refusal: QueryRejected | None = None
        """Why the server did not tell at the last poll."""
        self._counts: list[dict[Place, int]] = [{} for _ in self._windows]
        self._intervals: list[dict[Place, float]] = [{} for _ in self._windows]
        self._usual: list[float | None] = [None for _ in self._windows]
        """Scrape intervals by place, and that of most places."""
        self._steady: list[range] | None = None
        """What full windows hold, if all were full at the last poll and their scrapes alike."""
        self._held: list[set[int]] = [set() for _ in self._windows]
        """The numbers of samples that windows held at this poll."""
        self._learned_at = float("-inf")
        self._overfull: dict[tuple[int, Place], int] = {}
        """Places that were asked for because their windows held more samples than full ones, with these numbers."""
        self._explained: dict[tuple[int, Place], int] = {}
        """Numbers of samples that are more than a full window holds at usual, although the interval is the same."""
        self._seen: dict[bytes, _Seen] = {}

    @property
    def are_unknown(self) -> bool:
        """Whether nobody can tell how full they are: the query has subqueries, or the server refused the question."""
        return not self._readable or self.refusal is not None

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """The seconds of each window with the scrape interval of most of its series, where that is known."""
        pairs = zip(self._windows, self._usual, strict=True)
        return [(window.seconds, usual) for window, usual in pairs if usual is not None]

    # --- asking ---

    @property
    def _are_asked(self) -> bool:
        return bool(self._windows) and self._readable and self.refusal is None

    def begin(self) -> None:
        """Begin a poll."""
        self.refusal = None

    def question(self) -> str:
        """The text of the query, together with the question for its windows."""
        self._counts = [{} for _ in self._windows]
        self._held = [set() for _ in self._windows]
        if not self._are_asked:
            return self._query.text
        return with_counts(self._query.text, self._windows, () if self._steady is not None else self._query.labels)

    def refuse(self, error: QueryRejected) -> bool:
        """Note that the server refused the question; False if it was that for the values alone."""
        if not self._are_asked:
            return False
        self.refusal = error
        return True

    def take(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Take what an answer says of windows; the others are values."""
        if not self._are_asked:
            return samples
        values = []
        try:
            for sample in samples:
                if _MARK not in bytes(sample.metric):
                    values.append(sample)
                    continue
                labels = _LABELS.decode(bytes(sample.metric))
                number, held = int(labels.get(INPUT_LABEL, "")), labels.get(COUNT_LABEL)
                count = int(held or (sample.value[1] if sample.value else ""))
                self._held[number].add(count)
                if held is None:
                    self._counts[number][self._place(labels)] = count
        except (msgspec.MsgspecError, ValueError, IndexError) as error:
            raise WrongAnswer(f"the samples of windows are not what was asked for: {error}") from error
        return values

    def is_answered(self) -> bool:
        """Whether the answer says enough; if not, ask again: windows that are not all full are asked for by place."""
        if self._are_asked and self._steady is not None:
            for held, regular in zip(self._held, self._steady, strict=True):
                if not held or not all(count in regular for count in held):
                    self._steady = None
                    return False
        return True

    async def learn(self, ask: AskRange, at: float) -> None:
        """Learn the scrape intervals of some places whose counts no regular scrape explains, once in a window.

        A place whose window holds more than a full one is asked for at once: its gaps would be taken for full windows.
        `at` is the time of the answer (epoch seconds). Raises SourceError.
        """
        if not self._are_asked or self._steady is not None:
            return
        is_due = at >= self._learned_at + max(window.seconds for window in self._windows)
        overfull = {
            (number, place): count
            for number, counts in enumerate(self._counts)
            for place, count in counts.items()
            if self._is_overfull(number, place, count)
        }
        asked = self._overfull
        if is_due or None in self._usual or any(count > asked.get(key, 0) for key, count in overfull.items()):
            for number, window in enumerate(self._windows):
                counts, intervals = self._counts[number], self._intervals[number]
                odd = [each for each, count in counts.items() if count not in self._regular(number, each)]
                if not odd:
                    continue
                odd.sort(key=intervals.__contains__)
                pods = sorted({pod for _, pod in odd[:MOST_PODS] if is_pod_name(pod)})
                seconds = window.seconds * min(_WINDOWS, _SCRAPES / max(counts.values()))
                distances: defaultdict[Place, list[float]] = defaultdict(list)
                add = functools.partial(self._add_distances, distances)
                await ask(scrapes_query(window, seconds, self._query.pod_label, pods), add)
                self._intervals[number] = {place: interval for place, interval in intervals.items() if place in counts}
                self._note(number, distances)
                self._learned_at = at
            # What was asked for a window ago: by now, the times would have shown a shorter interval.
            explained = self._explained | {key: count for key, count in overfull.items() if is_due and key in asked}
            self._explained = {key: count for key, count in explained.items() if key[1] in self._counts[key[0]]}
            self._overfull = overfull if is_due else asked | overfull
        steady: list[range] = []
        for number, counts in enumerate(self._counts):
            regular = {self._regular(number, place) for place in counts}
            steady += regular
            if len(regular) != 1 or not all(count in steady[-1] for count in counts.values()):
                return
        self._steady = steady

    def _add_distances(self, distances: defaultdict[Place, list[float]], samples: Iterable[Sample]) -> None:
        for sample in samples:
            apart = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(sample.values or ())]
            if len(apart) >= _FEW:  # of fewer all may be gaps
                distances[self._place(_LABELS.decode(bytes(sample.metric)))] += apart

    def _note(self, number: int, distances: Mapping[Place, list[float]]) -> None:
        """Take over what is shorter than it was, and what is longer only where the scrapes are regular.

        A target that fails every now and then has longer distances, too.
        """
        together = [each for apart in distances.values() for each in apart]
        if not together:
            return
        usual, intervals = self._usual[number] or _interval(together), self._intervals[number]
        for place, apart in distances.items():
            interval, usual_interval = _interval(apart), intervals.get(place, usual)
            if not usual_interval / _ALIKE < interval < usual_interval * _ALIKE:
                self._explained.pop((number, place), None)
            if max(apart) <= _SPREAD * min(apart):
                self._explained[number, place] = self._counts[number].get(place, 0)
            if max(apart) <= _ALIKE * interval or interval <= _ALIKE * usual_interval:
                intervals[place] = interval
        self._usual[number] = statistics.median_low(intervals.values()) if intervals else usual

    def _regular(self, number: int, place: Place) -> range:
        """How many samples a window without a gap holds; an empty range where that is not known.

        One that the interval does not divide holds one more at times. More than that is a shorter interval.
        """
        interval = self._intervals[number].get(place, self._usual[number])
        if interval is None:
            return _NEVER
        intervals = self._windows[number].seconds / interval
        return range(max(1, int(intervals + _ROUNDING)), max(1, math.ceil(intervals - _ROUNDING)) + 1)

    def _is_overfull(self, number: int, place: Place, count: int) -> bool:
        """Whether the window holds more samples than a full one would, and no times have explained that yet.

        Its interval is shorter than it was, or was learned while targets failed: nobody knows whether it is full.
        """
        return count >= self._regular(number, place).stop and count > self._explained.get((number, place), 0)

    def _place(self, labels: Mapping[str, str]) -> Place:
        return labels.get(self._query.namespace_label, ""), labels.get(self._query.pod_label, "")

    # --- answers ---

    async def column(
        self, sets: Sequence[LabelSet], values: Sequence[str | None], dates: Sequence[float | None], slices: Slices
    ) -> dict[int, Fill]:
        """How full the windows of these series are, by the numbers of their label sets; a full one is left out."""
        partial: dict[int, Fill] = {}
        if self.are_unknown:
            seen: dict[bytes, _Seen] = {}
            for labels, value, at in zip(sets, values, dates, strict=True):
                if at is not None:
                    seen[labels.text] = newest = self._after(self._seen.get(labels.text), at, value)
                    has_sunk = value and newest.value and float(value) < float(newest.value)
                    if at < newest.unsure_until or has_sunk:
                        partial[labels.number] = UNKNOWN
                await slices.breathe()
            self._seen = seen
            return partial
        self._seen = {}
        if not self._windows or self._steady is not None:
            return partial
        by_namespace = [self._by_namespace(number) for number in range(len(self._windows))]
        for start in range(0, len(sets), _STEP):
            for labels in sets[start : start + _STEP]:
                fill = self._fill(labels, by_namespace)
                if fill is not None and (fill.full is None or fill.samples < fill.full):
                    partial[labels.number] = fill
            await slices.breathe()
        return partial

    def _fill(self, labels: LabelSet, by_namespace: Sequence[Mapping[str, Fill]]) -> Fill | None:
        """The least full of the windows that a value was computed from; None where there is none."""
        fills = []
        for number, counts in enumerate(self._counts):
            fill = self._of_place(number, (labels.namespace, labels.pod)) or self._of_place(number, ("", labels.pod))
            if fill is None and not (labels.pod and any(pod for _, pod in counts)):
                # Nobody's in particular: a total, or series that another selector gives their pods.
                in_all = by_namespace[number]
                fill = in_all.get(labels.namespace) or min(in_all.values(), key=_SHARE, default=None)
            if fill is not None:
                fills.append(fill)
            elif not self._alternatives:
                return UNKNOWN
        least = min(fills, key=_SHARE, default=None)
        if least is not None and least.full is not None and not labels.pod and least.samples - 1 < least.full / 2:
            # The series of a pod that left, came or missed a scrape; what others show still counts on the way up.
            return least._replace(full=None)
        return least

    def _of_place(self, number: int, place: Place) -> Fill | None:
        count = self._counts[number].get(place)
        if count is None:
            return None
        is_unknown = self._is_overfull(number, place, count)
        return Fill(count, None if is_unknown else self._regular(number, place).start or None)

    def _by_namespace(self, number: int) -> dict[str, Fill]:
        """The least full window of each namespace."""
        least: dict[str, Fill] = {}
        for place in self._counts[number]:
            fill = self._of_place(number, place) or UNKNOWN
            least[place[0]] = min(least.get(place[0], fill), fill, key=_SHARE)
        return least

    def _after(self, last: _Seen | None, at: float, value: str | None) -> _Seen:
        """What is known of a series whose samples cannot be counted: its window may hold a gap that its dates show."""
        unsure_until = at + _UNSURE_WINDOWS * self._query.window
        if last is None or at < last.at:
            return _Seen(at, 0.0, unsure_until, value)
        if at == last.at:
            return last
        distance = at - last.at
        is_gap = distance > max(_POLLS * self._query.interval, _DISTANCES * last.distance)
        return _Seen(at, distance, unsure_until if is_gap and last.distance else last.unsure_until, value)


def lowest_share(seconds: float, interval: float) -> float:
    """What share of an unchanged rate a full window reads at worst.

    Prometheus extrapolates to an end of the window by 1.1 of the samples' distance at most, else by half of it.
    """
    full = max(1, int(seconds / interval + _ROUNDING))
    return 1.0 if seconds - full * interval < (_ALIKE - 1) * interval else (full - 0.5) * interval / seconds


def _interval(distances: Sequence[float]) -> float:
    """The middle of the shortest distances between samples. Longer ones are gaps, a few shorter ones are jitter."""
    ordered = sorted(distances)
    shortest = ordered[len(ordered) // 8]
    return statistics.median_low([each for each in ordered if each <= _SPREAD * shortest])
