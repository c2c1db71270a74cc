"""How figures are written, and how fast they grow."""

import math
import statistics
from collections.abc import Sequence


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


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The exponent b of y = a · x^b, by least squares of the logarithms; of a straight line it is 1.

    ValueError: fewer than two different x, or a figure that is not above 0.
    """
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression([x for x, _ in logs], [y for _, y in logs]).slope
