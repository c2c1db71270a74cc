"""Values over a window (a rate, an average) while their samples are missing, and while the window fills again.

Prometheus extrapolates a rate to the ends of its window only where samples reach to within 1.1 of their mean distance
from them, otherwise by half that distance, and divides by the whole window all the same (`extrapolatedRate`). So an
unchanged load reads

- less and less while a target is not scraped: the same samples, in a window that moved on;
- a fraction of itself after that, until the window holds no gap any more.

Neither is news of a lower load. So a value without a newer sample stays, and one whose window may hold a gap is at
least the last one before it, as far as the gap can explain the difference: one of a tenth of the window hides no more
than a tenth of the load.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.load.quantity import NANO
from adapter.runtime.slices import Slices
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.series import LabelSet, SeriesTable, sample_nano

LONGEST_GAP_SECONDS = 900.0
"""After a longer one what a series was before says nothing of the load now: it has no value until its window is
full.
"""
_STEP = 500
_POLLS, _DISTANCES = 2.2, 1.5
"""Polling intervals and usual distances between samples: what is larger than both is a gap. A poll that is missed, or
late by its jitter, is none.
"""
_LEARNED = 1 / 3
"""Share of the window: a larger distance becomes usual only if it is repeated."""
_REPEATS = 2
_ALIKE = 1.1
"""Distances that differ by more are no repetition: scrapes are regular, and outages are not."""
_FADES = 3.0
_LONGEST_HOLD = 2 * LONGEST_GAP_SECONDS
_EXPLAINED = 1 / 2
"""Share of the window: what a larger gap leaves of a rate is too little to tell the load from."""
_MOST_TABLES = 8


class _Gap(NamedTuple):
    """The gaps in a window: since when, until when it holds one (epoch seconds).

    `missing`: how much of the window they were together (seconds) at the end of the last one. `latest`: the latest
    distance between samples; `repeats`: how often it has followed one like it.
    """

    since: float
    until: float
    missing: float
    latest: float
    repeats: int = 0

    def next(self, distance: float) -> "_Gap":
        """With one more distance."""
        alike = distance <= _ALIKE * self.latest and self.latest <= _ALIKE * distance
        return _Gap(self.since, self.until, self.missing, distance, self.repeats + 1 if alike else 0)

    def and_another(self, at: float, span: float) -> "_Gap":
        """The latest distance is a gap, too, that ends at this time; the window holds a part of those before it."""
        before = max(0.0, min(self.missing, self.until - at))
        return _Gap(self.since, at + span, self.latest + before, self.latest, self.repeats)

    def is_cadence(self, at: float, span: float) -> bool:
        """Whether such distances seem to be usual by now."""
        # A rate of fewer than two samples in its window has no value.
        return (self.repeats >= _REPEATS and int(self.latest) <= span / 2) or at - self.since > _LONGEST_HOLD


@dataclass(slots=True)
class _Known:
    """Columns by the numbers of a table.

    `usual`: the largest distance between samples in about a window (whole seconds; 0: not known). `uneven`: when a
    distance was much smaller (epoch seconds). `gaps`: those in the windows now. `late`: the age (seconds) of samples
    when they are first seen, of series where it is more than a missed poll explains. `newest`: the time of the newest
    sample (epoch seconds).
    """

    table: SeriesTable
    values: list[str | None] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    usual: list[int] = field(default_factory=list)
    uneven: list[float] = field(default_factory=list)
    gaps: dict[int, _Gap] = field(default_factory=dict)
    late: dict[int, float] = field(default_factory=dict)
    newest: float = 0.0

    def copy(self) -> "_Known":
        more = self.table.size - len(self.values)
        return _Known(
            self.table,
            [*self.values, *[None] * more],
            [*self.times, *[None] * more],
            [*self.usual, *[0] * more],
            [*self.uneven, *[0.0] * more],
            dict(self.gaps),
            dict(self.late),
            self.newest,
        )


class WindowHistory:
    """The last value and time of each series of a query; those that left the answers stay for LONGEST_GAP_SECONDS.

    Made for each answer, with the history of the one before.
    """

    def __init__(self, table: SeriesTable, before: "WindowHistory | None" = None) -> None:
        self.distance: float = 0.0 if before is None else before.distance
        """Between the newest samples of the last two answers with newer ones."""
        self.newest: float = 0.0 if before is None else before.newest
        self.full_at: float = 0.0 if before is None else before.full_at
        """When the windows of all series are full again after a long gap, or after the server lost samples."""
        self.lost_until: float = 0.0 if before is None else before.lost_until
        """Samples until then may be lost."""
        self.evaluated_at: float = 0.0 if before is None else before.evaluated_at
        """The time of the last answer's evaluation."""
        self.dates: Sequence[float | None] = ()
        """The times of the last answer's series."""
        self.has_forgotten: bool = before is not None and before.has_forgotten
        """Whether tables have ended, so that a series that seems to be new may come back after a long gap."""
        self.known: _Known
        self.earlier: tuple[_Known, ...]
        """What was known with the tables before this one, the latest first."""
        if before is None or before.known.table is not table:
            self.known = _Known(table).copy()
            known = () if before is None or not before.known.newest else (before.known,)
            self.earlier = (*known, *(() if before is None else before.earlier))
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
        evaluated_at: float,
        may_rise: bool,
        has_lost: bool,
    ) -> None:
        """Replace values that say nothing new by the last ones, and remember them.

        `has_lost`: the server lacks samples that it had at the last answer, as one without a volume that was killed.

        A value of several selectors has the time of the oldest, so newer samples of the others may be in it: with
        `may_rise` a larger value with the same time is taken. One with an earlier time (of another replica of the
        server, or of a series that has ended) only if it is larger.
        """
        window_end = evaluated_at - query.behind
        if has_lost:
            self.lost_until = self.evaluated_at - query.behind
            self.full_at = max(self.full_at, window_end + query.span)
        self.evaluated_at, self.dates = evaluated_at, dates
        newest = max(filter(None, dates), default=0.0)
        self._note_newest(query, newest)
        near, full_at = _POLLS * query.interval, self.full_at
        early, lost_until = window_end - near, self.lost_until
        last_values, times, usual, gaps = self.known.values, self.known.times, self.known.usual, self.known.gaps
        for start in range(0, len(sets), _STEP):
            for index, labels in enumerate(sets[start : start + _STEP], start):
                at, value, number = dates[index], values[index], labels.number
                if at is None:
                    continue
                last_at = times[number]
                if (
                    last_at is None
                    or value is None
                    or at < full_at
                    or at < early
                    or not 0 < at - last_at <= near
                    or not at - last_at <= usual[number] <= at - last_at + 2
                    or number in gaps
                    or last_at <= lost_until
                ):
                    values[index] = self._next(query, labels, value, at, may_rise=may_rise)
                else:  # nearly always: a sample at the usual distance
                    last_values[number], times[number] = value, at
            await slices.breathe()
        self.known.newest = newest or self.known.newest
        kept = [each for each in self.earlier if newest - each.newest <= LONGEST_GAP_SECONDS][:_MOST_TABLES]
        self.has_forgotten |= len(kept) < len(self.earlier)
        self.earlier = tuple(kept)

    def _note_newest(self, query: InstantQuery, newest: float) -> None:
        """Note a long gap in the samples of all series: some of them are not known any more when they come back."""
        if self.newest - newest > LONGEST_GAP_SECONDS and newest:  # the server's clock went back
            self.newest, self.full_at = newest, newest + query.span
        distance = newest - self.newest
        if distance <= 0:
            return
        if self.distance and distance > max(LONGEST_GAP_SECONDS, _DISTANCES * self.distance):
            self.full_at = newest + query.span
        self.distance = distance if self.newest else 0.0
        self.newest = newest

    def _next(
        self, query: InstantQuery, labels: LabelSet, value: str | None, at: float, *, may_rise: bool
    ) -> str | None:
        known, number = self.known, labels.number
        last_at = known.times[number]
        if last_at is None and self.earlier:
            last_at = self._recall(number, labels.text)
        full_at = self.full_at if last_at is None else 0.0
        # A sample is dated no earlier than its largest age, unless the server's clock went back.
        went_back = last_at is not None and last_at - at > max(min(query.span, LONGEST_GAP_SECONDS), query.max_age)
        if went_back or at < full_at or (last_at is None and self.has_forgotten):
            full_at = max(full_at, at + query.span)
        if at < full_at:
            known.gaps[number] = _Gap(at, full_at, query.span, 0.0)
            last_at, value = None, None
        if last_at is None:
            self._note_late(query, number, at)
        elif at > last_at:
            value = self._newer(query, number, value, at, at - last_at)
        else:
            last = known.values[number]
            filling = last is None and number in known.gaps
            if value is None or filling or not (may_rise or at != last_at) or not _is_more(value, last):
                value = last
            at = last_at
        known.values[number], known.times[number] = value, at
        return value

    def _newer(self, query: InstantQuery, number: int, value: str | None, at: float, distance: float) -> str | None:
        """The value of a newer sample."""
        known = self.known
        self._note_distance(query, number, at, distance)
        if at - distance <= self.lost_until:
            self._note_lost(query, number, at, distance)
        for gap in (known.gaps.get(number), self._note_late(query, number, at)):
            if value is not None and gap is not None:
                value = _through(gap, at, query.span, known.values[number], value)
        return value

    def _note_distance(self, query: InstantQuery, number: int, at: float, distance: float) -> None:
        """Learn the usual distance between samples, or note that the window holds a gap until it has passed it.

        A large distance that is repeated is no gap: the interval has changed. Those that are small in the window become
        usual anyway, step by step: the distances of several targets are uneven. Where all were large and this one is
        not, the interval has become shorter: among samples that are denser, the distances before are gaps.
        """
        known = self.known
        usual, gap = known.usual[number], known.gaps.get(number)
        steady = at - distance - known.uneven[number]
        if not usual or usual > _DISTANCES * distance:
            known.uneven[number] = at
        # A window of fewer than two samples has no rate, so a distance that is not known yet is at most half of it.
        limit = max(_POLLS * query.interval, _DISTANCES * usual if usual else query.span / 2)
        gap = None if gap is None else gap.next(distance)
        if distance > LONGEST_GAP_SECONDS:
            known.gaps.pop(number, None)
            if distance > limit and (usual or gap is None or not gap.repeats):
                known.gaps[number] = _Gap(at, at + query.span, distance, distance)
                known.values[number] = None
            else:
                known.usual[number] = int(distance) + 1
            return
        if distance > limit and (gap is None or not gap.is_cadence(at, query.span)):
            first = _Gap(at, at + query.span, distance, distance)
            known.gaps[number] = first if gap is None else gap.and_another(at, query.span)
            if gap is not None or not usual:  # one gap says nothing of the interval
                known.usual[number] = max(usual, int(min(distance, limit, _LEARNED * query.span)))
            return
        if usual > max(_POLLS * query.interval, _DISTANCES * distance) and steady > _REPEATS * usual and gap is None:
            known.gaps[number] = _Gap(at, at - distance + query.span, usual, distance)
            known.usual[number] = int(distance) + 1
            return
        # It fades by half in so many windows: of samples of several targets, most distances are a part of each one's.
        known.usual[number] = max(int(distance) + 1, int(usual * 0.5 ** (distance / (_FADES * query.span))))
        if gap is not None:
            if at < gap.until:
                known.gaps[number] = gap
            else:
                del known.gaps[number]

    def _note_lost(self, query: InstantQuery, number: int, at: float, distance: float) -> None:
        """Note that all of the window before this sample may be missing.

        A server that loses its samples again and again never fills it: what a series was before says nothing then.
        """
        gap = self.known.gaps.get(number, _Gap(at, at, 0.0, distance))
        self.known.gaps[number] = gap._replace(until=at + query.span, missing=query.span)
        if at - gap.since > _LONGEST_HOLD:
            self.known.values[number] = None

    def _note_late(self, query: InstantQuery, number: int, at: float) -> _Gap | None:
        """The gap between a new sample and the end of the window; None if it is not larger than usual.

        So it is where polls failed as well as scrapes: no poll saw the sample while the window still ended with it.
        """
        late, limit = self.evaluated_at - query.behind - at, _POLLS * query.interval
        before = self.known.late.pop(number, 0.0)
        usual = max(late, before / 2)
        if usual > limit:
            self.known.late[number] = usual
        return _Gap(at, math.inf, late, late) if late > max(limit, _DISTANCES * before) else None

    def _recall(self, number: int, text: bytes) -> float | None:
        """Take over what was known of a series by its number in a table before; returns the time of its sample."""
        known = self.known
        for earlier in self.earlier:
            before = earlier.table.number(text)
            if before < len(earlier.times) and earlier.times[before] is not None:
                known.values[number], known.times[number] = earlier.values[before], earlier.times[before]
                known.usual[number], known.uneven[number] = earlier.usual[before], earlier.uneven[before]
                if before in earlier.gaps:
                    known.gaps[number] = earlier.gaps[before]
                if before in earlier.late:
                    known.late[number] = earlier.late[before]
                break
        return known.times[number]


def _is_more(value: str, last: str | None) -> bool:
    return last is None or sample_nano(value) > sample_nano(last)


def _through(gap: _Gap, at: float, span: float, last: str | None, value: str) -> str | None:
    """The value, or the last one as far as the gap explains that the value is lower; None if there is no last one."""
    if last is None or value == last:
        return last
    kept, read = sample_nano(last), sample_nano(value)
    lacking = min(gap.missing, gap.until - at) / span
    if read >= kept or lacking <= 0:
        return value
    if lacking > _EXPLAINED:
        return last
    most = int(read / (1 - lacking))
    return last if most >= kept else f"{most // NANO}.{most % NANO:09}"
