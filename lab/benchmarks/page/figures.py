"""How figures are written, and how fast they grow."""

import math
import operator
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Pairs = Sequence[tuple[float, float]]

COMPARISONS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "<=": ("≤", operator.le),
    "<": ("<", operator.lt),
    ">=": ("≥", operator.ge),
    ">": (">", operator.gt),
    "==": ("=", operator.eq),
}
"""By the sign in a template: the sign on the page, and the comparison of a value with its limit."""


def figure(value: float, digits: int = 2) -> str:
    """A number with so many significant digits, and no digit before the point left out: 0.16, 1.5, 16, 20,000."""
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, decimals)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded)))) if rounded else decimals  # 0.0999 is 0.10
    return f"{rounded:,.{decimals}f}"


def percent(share: float, digits: int = 2) -> str:
    """A share of 1 in percent: 0.129 is 13 %."""
    return f"{figure(100 * float(share), digits)} %"


def pairs(rows: Iterable[Mapping[str, Any]], x: str, y: str) -> list[tuple[float, float]]:
    """The pairs of two keys of each row, where both are there."""
    return [(row[x], row[y]) for row in rows if row.get(x) is not None and row.get(y) is not None]


def columns(table: Mapping[str, Sequence[float]], x: str, y: str) -> list[tuple[float, float]]:
    """The pairs of two columns of a table that is stored by column."""
    return list(zip(table[x], table[y], strict=True))


def exponent(points: Pairs) -> float:
    """The exponent b of y = a · x^b, by least squares of the logarithms; of a straight line it is 1.

    ValueError: fewer than two different x, or a figure that is not above 0.
    """
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression([x for x, _ in logs], [y for _, y in logs]).slope
