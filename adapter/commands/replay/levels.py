"""Finds the level (a target or a high watermark) at which an autoscaler has a certain risk, in few plays."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import exp, log
from typing import NamedTuple

from adapter.commands.replay.service import Summary

_NOTHING = 1e-7
"""A risk below this is none."""
SLACK = 1.01
"""Risks within 1 % are the same."""
_HOUR = 3600

Play = Callable[[Sequence[Fraction]], Sequence[Summary]]
"""Plays levels, as shares of what they are measured in, in one pass over the history."""
Risk = Callable[[Summary], float]


class Level(NamedTuple):
    """A level, as a share of what it is measured in, and what it takes there."""

    share: float
    pod_hours: float
    flaps: float


def risk_of(summary: Summary) -> float:
    """The share of the load beyond the capacity; without a capacity, the share of the time over the high watermark."""
    return summary.share_over if summary.shortfall is None else summary.shortfall


def search_levels(
    play: Play, risks: Sequence[float], first: Sequence[Fraction], rounds: int, risk: Risk = risk_of
) -> dict[Fraction, Summary]:
    """Plays levels around those that have just these risks (0 to 1); `first` are the levels of the first pass.

    Risk grows with the level about as a power of it, so between two levels that were played its logarithm is a
    straight line; each round plays where that line meets the risks.
    """
    played = dict(zip(first, play(first), strict=True))
    for _ in range(rounds):
        wanted = set()
        for aim in risks:
            ends = _ends(played, aim, risk)
            if ends is None or ends[0] == ends[1]:
                continue
            low, high, aimed_at = (log(max(one, _NOTHING)) for one in (*(risk(played[end]) for end in ends), aim))
            share = 0.5  # from a level without any risk no line can be drawn
            if low > log(_NOTHING):  # not too near to either end, so that the other one moves as well
                share = min(0.85, max(0.15, (aimed_at - low) / (high - low)))
            below, above = map(log, ends)
            wanted.add(Fraction(round(1000 * exp(below + share * (above - below))), 1000))
        new = sorted(wanted - played.keys())
        played |= dict(zip(new, play(new) if new else (), strict=True))
    return played


def level_at(played: Mapping[Fraction, Summary], wanted: float, risk: Risk = risk_of) -> Level | None:
    """The level at which an autoscaler has just this risk; None where the least level has more.

    By time between two levels: what an autoscaler needs that is at one for a part of the time and at the other for the
    rest. Across a level at which it ceases to act (a target at the limit), nearly all of that is the safe one.
    """
    ends = _ends(played, wanted, risk)
    if ends is None:
        return None
    (below, above), (first, second) = ends, (played[ends[0]], played[ends[1]])
    share = 0.0 if below == above else (wanted - risk(first)) / (risk(second) - risk(first))

    def mean(low: float, high: float) -> float:
        return low + share * (high - low)

    return Level(
        mean(float(below), float(above)),
        mean(first.pod_seconds, second.pod_seconds) / _HOUR,
        mean(first.flaps, second.flaps),
    )


def highest_safe(played: Mapping[Fraction, Summary], wanted: float) -> Fraction | None:
    """The highest level that was played and up to which all have at most this risk."""
    ends = _ends(played, wanted, risk_of)
    return None if ends is None else ends[0]


def _ends(played: Mapping[Fraction, Summary], wanted: float, risk: Risk) -> tuple[Fraction, Fraction] | None:
    """The highest level up to which every level is safe enough, and the next one; twice the last if all are."""
    levels = sorted(played)
    if risk(played[levels[0]]) > wanted * SLACK:
        return None
    for below, above in pairwise(levels):
        if risk(played[above]) > wanted * SLACK:
            return below, above
    return levels[-1], levels[-1]
