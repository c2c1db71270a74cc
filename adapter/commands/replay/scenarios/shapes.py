"""Load over time: pure functions from seconds since the beginning to the load of the whole service (milli-units)."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

Shape = Callable[[float], float]


def constant(level: float) -> Shape:
    """The same load all the time."""
    return lambda _: level


def polyline(*points: tuple[float, float]) -> Shape:
    """Straight lines between (seconds, load); constant before the first point and after the last one.

    Two points at the same time are a jump.
    """

    def shape(at: float) -> float:
        if at < points[0][0]:
            return points[0][1]
        for (begin, low), (end, high) in pairwise(points):
            if begin <= at < end:
                return low + (high - low) * (at - begin) / (end - begin)
        return points[-1][1]

    return shape


def step(low: float, high: float, begin: float, end: float) -> Shape:
    """`high` in [begin, end), `low` otherwise."""
    return lambda at: high if begin <= at < end else low


def sawtooth(low: float, high: float, period: float, begin: float = 0.0) -> Shape:
    """From `begin` on the load rises from `low` to `high` within each period, and falls at once."""
    return lambda at: low + (high - low) * ((at - begin) % period) / period if at >= begin else low


def valley(low: float, high: float, period: float) -> Shape:
    """A cosine: `high` at the beginning and the end of each period, `low` in its middle."""
    return lambda at: (high + low) / 2 + (high - low) / 2 * math.cos(2 * math.pi * at / period)


def spells(*ranges: tuple[float, float]) -> Callable[[float], bool]:
    """Whether a time lies in one of the ranges [begin, end)."""
    kept: Sequence[tuple[float, float]] = ranges
    return lambda at: any(begin <= at < end for begin, end in kept)
