"""Finds the highest share of its target at which an autoscaler has at most a certain risk, in few plays."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import exp, log

from adapter.commands.replay.service import Summary

_NOTHING = 1e-7
"""A risk below this is none."""
_SLACK = 1.01
"""Risks within 1 % are the same."""

Play = Callable[[Sequence[Fraction]], Sequence[Summary]]
"""Plays levels, as shares of what they are measured in, in one pass over the history."""


def risk_of(summary: Summary) -> float:
    """The share of the load beyond the capacity; without a capacity, the share of the time over the high watermark."""
    return summary.share_over if summary.shortfall is None else summary.shortfall


def search_levels(play: Play, wanted: float, first: Sequence[Fraction], rounds: int) -> dict[Fraction, Summary]:
    """Plays levels around the one that has just this risk (0 to 1); `first` are the levels of the first pass.

    Risk grows with the level about as a power of it, so between two levels that were played its logarithm is a
    straight line; each round plays where that line meets the risk.
    """
    played = dict(zip(first, play(first), strict=True))
    for _ in range(rounds):
        ends = _ends(played, wanted)
        if ends is None or ends[0] == ends[1]:
            break
        low, high, aim = (log(max(one, _NOTHING)) for one in (*(risk_of(played[end]) for end in ends), wanted))
        share = 0.5  # from a level without any risk no line can be drawn
        if low > log(_NOTHING):  # not too near to either end, so that the other one moves as well
            share = min(0.85, max(0.15, (aim - low) / (high - low)))
        below, above = map(log, ends)
        level = Fraction(round(1000 * exp(below + share * (above - below))), 1000)
        if level in played:
            break
        (played[level],) = play([level])
    return played


def highest_safe(played: Mapping[Fraction, Summary], wanted: float) -> Fraction | None:
    """The highest level that was played and up to which all have at most this risk."""
    ends = _ends(played, wanted)
    return None if ends is None else ends[0]


def _ends(played: Mapping[Fraction, Summary], wanted: float) -> tuple[Fraction, Fraction] | None:
    """The highest level up to which every level is safe enough, and the next one; twice the last if all are."""
    levels = sorted(played)
    if risk_of(played[levels[0]]) > wanted * _SLACK:
        return None
    for below, above in pairwise(levels):
        if risk_of(played[above]) > wanted * _SLACK:
            return below, above
    return levels[-1], levels[-1]
