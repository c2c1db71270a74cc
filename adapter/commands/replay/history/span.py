"""The stretch of time that a history covers: a grid of moments, in parts that one range query can answer."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from adapter.commands.replay.history.range_client import MOST_POINTS
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.times import format_time, parse_time

DAY = 86_400_000
MOST_IN_ALL = 20_000_000
"""Moments of one history: ten years at 15 s."""
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d|w)", re.ASCII)
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY, "w": 7 * DAY}
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,3})?", re.ASCII)
_MOMENT = "write a time such as 2026-01-31T08:00:00Z, seconds since the epoch, now, or 7d for 7 days ago"
_TITLE = "the span of the history cannot be used"


class Span(NamedTuple):
    """The moments first, first + step, … last, in milliseconds since the epoch; all are multiples of the step.

    So the parts of overlapping spans with the same step are the same, and what was read for one serves the other.
    """

    first: int
    last: int
    step: int

    def __len__(self) -> int:
        """The number of moments."""
        return (self.last - self.first) // self.step + 1

    def moments(self) -> Iterator[float]:
        """The moments in seconds since the epoch."""
        return (at / 1000 for at in range(self.first, self.last + 1, self.step))

    def parts(self) -> Iterator["Span"]:
        """Consecutive spans of at most a day, and of at most as many moments as a range query may have."""
        length = max(1, min(DAY // self.step, MOST_POINTS)) * self.step
        first = self.first
        while first <= self.last:
            last = min((first // length + 1) * length - self.step, self.last)
            yield Span(first, last, self.step)
            first = last + self.step

    def __str__(self) -> str:
        """The first and the last moment, to the second."""
        return f"{format_time(self.first / 1000)} to {format_time(self.last / 1000)}"


def read_span(start: str, end: str, step: str, now: float) -> Span:
    """The span of `--from`, `--to` and `--step`; `now` in seconds since the epoch. Raises FaultyDocument.

    A moment is as in `read_moment`.
    """
    faults: list[Fault] = []
    moments = []
    for option, text in (("--from", start), ("--to", end)):
        moments.append(_moment(text, now))
        if moments[-1] is None:
            faults.append(Fault(option, text, _MOMENT))
    every = _milliseconds(step)
    if not every:
        faults.append(Fault("--step", step, "write a duration above 0, such as 15s"))
    first, last = moments
    if not faults and every and first is not None and last is not None:
        span = Span(-(-first // every) * every, last // every * every, every)
        if span.last <= span.first:
            faults.append(Fault("--from", start, f"must be earlier than --to ({end}) by a step or more"))
        elif len(span) > MOST_IN_ALL:
            advice = f"makes {len(span):,} moments; take a longer step or a shorter time, at most {MOST_IN_ALL:,}"
            faults.append(Fault("--step", step, advice))
        else:
            return span
    raise FaultyDocument(faults, _TITLE)


def read_moment(option: str, text: str, now: float) -> float:
    """The moment of an option, in seconds since the epoch: an RFC 3339 time, such seconds, `now`, or a duration ago.

    Raises FaultyDocument.
    """
    moment = _moment(text, now)
    if moment is None:
        raise FaultyDocument([Fault(option, text, _MOMENT)], _TITLE)
    return moment / 1000


def _moment(text: str, now: float) -> int | None:
    if text == "now":
        return round(now * 1000)
    if (ago := _milliseconds(text)) is not None:
        return round(now * 1000) - ago
    at = float(text) if _SECONDS.fullmatch(text) else parse_time(text)
    return None if at is None else round(at * 1000)


def _milliseconds(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    return round(float(match[1]) * _UNITS[match[2]]) if match else None
