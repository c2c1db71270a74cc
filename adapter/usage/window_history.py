"""Values over a window (a rate, an average) while their samples are missing, and while the window fills again.

Prometheus extrapolates a rate to the ends of its window only where samples reach to within 1.1 of their mean distance
from them, otherwise by half that distance, and divides by the whole window all the same (`extrapolatedRate`). So an
unchanged load reads

- less and less while a target is not scraped: the same samples, in a window that moved on;
- a fraction of itself after that, until the window holds no gap any more.

Neither is news of a lower load. So a value without a newer sample stays, and one whose window may hold a gap is at
least the last one before it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from adapter.runtime.slices import Slices
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.series import LabelSet, SeriesTable, sample_nano

LONGEST_GAP_SECONDS = 900.0
"""After a longer one a series is a new one: what it was then says nothing of the load now."""
_STEP = 500
_MOST_TABLES = 8
_POLLS, _DISTANCES = 2.2, 1.5
"""Polling intervals and usual distances between samples: what is larger than both is a gap. A poll that is missed, or
late by its jitter, is none.
"""


@dataclass(slots=True)
class _Known:
    """Columns by the numbers of a table.

    `usual`: the largest distance between samples in about a window (whole seconds; 0: not known). `full_at`: when the
    window of a series holds no gap any more. `newest`: the time of the newest sample (both in epoch seconds).
    """

    table: SeriesTable
    values: list[str | None] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    usual: list[int] = field(default_factory=list)
    full_at: dict[int, float] = field(default_factory=dict)
    newest: float = 0.0

    def copy(self) -> "_Known":
        more = self.table.size - len(self.values)
        return _Known(
            self.table,
            [*self.values, *[None] * more],
            [*self.times, *[None] * more],
            [*self.usual, *[0] * more],
            dict(self.full_at),
            self.newest,
        )


class WindowHistory:
    """The last value and time of each series of a query; those that left the answers stay for LONGEST_GAP_SECONDS.

    Made for each answer, with the history of the one before.
    """

    def __init__(self, table: SeriesTable, before: "WindowHistory | None" = None) -> None:
        self.known: _Known
        self.earlier: tuple[_Known, ...]
        """What was known with the tables before this one, the latest first."""
        if before is None or before.known.table is not table:
            self.known = _Known(table).copy()
            known = () if before is None or not before.known.newest else (before.known,)
            self.earlier = (*known, *(() if before is None else before.earlier))[:_MOST_TABLES]
        else:
            self.known, self.earlier = before.known.copy(), before.earlier

    async def keep(
        self,
        query: InstantQuery,
        sets: Sequence[LabelSet],
        values: list[str | None],
        dates: Sequence[float | None],
        slices: Slices,
        *,
        may_rise: bool,
    ) -> None:
        """Replace values that say nothing new by the last ones, and remember them.

        A value of several selectors has the time of the oldest, so newer samples of the others may be in it: with
        `may_rise` a larger value with the same time is taken. One with an earlier time (of another replica of the
        server, or of a series that has ended) only if it is larger.
        """
        for start in range(0, len(sets), _STEP):
            for index, labels in enumerate(sets[start : start + _STEP], start):
                at = dates[index]
                if at is not None:
                    values[index] = self._next(query, labels, values[index], at, may_rise=may_rise)
            await slices.breathe()
        newest = self.known.newest
        self.earlier = tuple(each for each in self.earlier if newest - each.newest <= LONGEST_GAP_SECONDS)

    def _next(
        self, query: InstantQuery, labels: LabelSet, value: str | None, at: float, *, may_rise: bool
    ) -> str | None:
        known, number = self.known, labels.number
        last_at = known.times[number]
        if last_at is None and self.earlier:
            last_at = self._recall(number, labels.text)
        if last_at is not None and last_at - at > min(query.span, LONGEST_GAP_SECONDS):  # the server's clock went back
            known.full_at.pop(number, None)
            last_at = None
        if last_at is not None:
            if at > last_at:
                self._note_distance(query, number, at, at - last_at)
            if at <= last_at or (value is not None and number in known.full_at):
                last = known.values[number]
                rises = value is not None and (last is None or sample_nano(value) > sample_nano(last))
                value = value if rises and (may_rise or at != last_at) else last
                at = max(at, last_at)
        known.values[number], known.times[number] = value, at
        known.newest = max(known.newest, at)
        return value

    def _note_distance(self, query: InstantQuery, number: int, at: float, distance: float) -> None:
        """Learn the usual distance between samples, or note that the window holds a gap until it has passed it."""
        known = self.known
        usual = known.usual[number]
        limit = max(_POLLS * query.interval, _DISTANCES * usual)
        if distance > LONGEST_GAP_SECONDS:
            known.full_at.pop(number, None)
            known.usual[number] = 0
        elif usual and distance > limit:
            known.full_at[number] = at + query.span
            known.usual[number] = int(min(distance, 2 * limit))
        else:
            # It fades by half in each window: of samples of several targets, most distances are a part of each one's.
            known.usual[number] = max(int(distance) + 1, int(usual * 0.5 ** (distance / query.span)))
            if at >= known.full_at.get(number, math.inf):
                del known.full_at[number]

    def _recall(self, number: int, text: bytes) -> float | None:
        """Take over what was known of a series by its number in a table before; returns the time of its sample."""
        known = self.known
        for earlier in self.earlier:
            before = earlier.table.number(text)
            if before < len(earlier.times) and earlier.times[before] is not None:
                known.values[number], known.times[number] = earlier.values[before], earlier.times[before]
                known.usual[number] = earlier.usual[before]
                if before in earlier.full_at:
                    known.full_at[number] = earlier.full_at[before]
                break
        return known.times[number]
