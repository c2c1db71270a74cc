"""Go's numbers on amd64, as far as the controller's arithmetic shows them."""

import math

MAX_INT32, MIN_INT32 = 2**31 - 1, -(2**31)
MAX_INT64 = 2**63 - 1
_NANO_PER_MILLI = 1_000_000


def int32(value: float) -> int:
    """`int32(value)` of a float: truncated; the smallest integer where the value does not fit."""
    if not math.isfinite(value) or not MIN_INT32 <= math.trunc(value) <= MAX_INT32:
        return MIN_INT32
    return math.trunc(value)


def ceil_int32(value: float) -> int:
    """`int32(math.Ceil(value))`."""
    return int32(float(math.ceil(value)) if math.isfinite(value) else value)


def ceil_int64(value: float) -> int:
    """`int64(math.Ceil(value))`; the smallest integer where the value does not fit."""
    if not math.isfinite(value) or not -(2**63) <= math.ceil(value) < 2**63:
        return -(2**63)
    return math.ceil(value)


def wrap_int32(value: int) -> int:
    """`int32(value)` of an integer: the low 32 bits."""
    return (value + 2**31) % 2**32 - 2**31


def wrap_int64(value: int) -> int:
    """The low 64 bits of a sum or product."""
    return (value + 2**63) % 2**64 - 2**63


def quotient(dividend: int, divisor: int) -> int:
    """Integer division, truncated toward zero."""
    result = abs(dividend) // abs(divisor)
    return result if (dividend < 0) == (divisor < 0) else -result


def divide(dividend: float, divisor: float) -> float:
    """Float division, with infinities and NaN for a divisor of 0."""
    if divisor:
        return dividend / divisor
    return math.nan if not dividend or math.isnan(dividend) else math.copysign(math.inf, dividend)


def milli(nano: int) -> int:
    """`Quantity.MilliValue`: milli-units, rounded away from zero, from nano-units."""
    return -(-nano // _NANO_PER_MILLI) if nano >= 0 else nano // _NANO_PER_MILLI
