"""Kubernetes quantities: parsed exactly (fractions, nano-units) and written in canonical form.

The grammar and the canonical form are those of `k8s.io/apimachinery/pkg/api/resource`: a decimal number with a binary
suffix (Ki … Ei), a decimal suffix (n, u, m, none, k … E) or an exponent; written without a fraction, with the largest
suffix that divides.
"""

import functools
import math
import re
from fractions import Fraction

NANO = 10**9
"""Nano-units in one unit."""

_LIMIT, _LIMIT_DIGITS = (1 << 63) - 1, 19
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BY_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_USUAL, _USUAL_LENGTH = (("n", 1), ("Ki", NANO << 10)), 17  # metrics-server's, of 50,000 pods: a fifth of the time
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?",
    re.ASCII,
)
_LONGEST = 64


class QuantityError(ValueError):
    """The text is no usable quantity; the message names the text and an example."""


@functools.lru_cache(1024)  # most policies use the same few watermarks and tolerances
def parse_quantity(text: str) -> Fraction:
    """Parse a quantity exactly, with its sign.

    Raises QuantityError for anything outside the grammar (NaN and infinities too) and beyond ±(2^63 − 1).
    """
    digits, exponent = _read(text)
    return Fraction(digits) * Fraction(10) ** exponent


def parse_nano(text: str) -> int:
    """Parse a non-negative quantity to nano-units, rounded up as the API server does."""
    for suffix, factor in _USUAL if len(text) <= _USUAL_LENGTH and text.isascii() else ():
        if text.endswith(suffix) and (whole := text.removesuffix(suffix)).isdecimal():
            return int(whole) * factor
    digits, exponent = _read(text)
    if digits < 0:
        raise QuantityError(f"{text} is negative; a load never is")
    exponent += 9
    return digits * int(10**exponent) if exponent >= 0 else -(-digits // int(10**-exponent))


def _read(text: str) -> tuple[int, int]:
    """A quantity as a whole number and the power of ten that it is multiplied by."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(f"{text[:_LONGEST]!r} is not a quantity; write a number such as 1200m, 0.5 or 300Mi")
    sign, number, suffix = match.groups("")
    whole, _, fraction = number.partition(".")
    digits = int(f"{sign}{whole}{fraction}") * _BINARY.get(suffix, 1)
    exponent = 0 if suffix in _BINARY else _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    exponent -= len(fraction)
    if abs(digits) * 10 ** max(exponent, 0) > _LIMIT * 10 ** max(-exponent, 0):
        raise QuantityError(f"{text!r} is beyond what a quantity can hold (2^63 - 1)")
    return digits, exponent


def parse_number(text: str) -> int:
    """Parse a sample as Prometheus prints it (`1.5`, `1e+06`, `NaN`) to nano-units.

    Raises QuantityError for NaN, infinities, negative values and those beyond a quantity: such a point is no sample.
    """
    whole, _, rest = text.partition(".")
    if len(whole) < _LIMIT_DIGITS and len(rest) < _LIMIT_DIGITS and text.isascii() and (whole + rest).isdecimal():
        return int(whole + rest[:9].ljust(9, "0")) + bool(rest[9:].strip("0"))  # as nearly all samples are
    if text.lower().lstrip("+-") in {"nan", "inf"}:
        raise QuantityError(f"{text!r} is not a number that can be acted on")
    return parse_nano(text)


def nano_text(nano: Fraction | int) -> str:
    """Canonical text of nano-units, rounded down to a whole number."""
    return _canonical(math.floor(nano), -9)


def milli_text(milli: int) -> str:
    """Canonical text of a whole number of milli-units: 1500 → "1500m", 3000 → "3"."""
    return _canonical(milli, -3)


def percent_text(ratio: Fraction) -> str:
    """A ratio as a percentage, such as 2.5 %."""
    return f"{float(100 * ratio):g} %"


def approximate_float(value: Fraction) -> float:
    """The float that Kubernetes uses for a quantity (`AsApproximateFloat64` in `k8s.io/apimachinery/pkg/api/resource`).

    That is the number before its suffix times a power of ten, which may be next to the nearest float. Any other value
    is no quantity, and converted exactly.
    """
    for suffix in ("1", "0.001", "0.000001", "0.000000001"):
        number = value / Fraction(suffix)
        if number.denominator == 1:
            return float(number) * float(suffix)
    return float(value)


def _canonical(count: int, exponent: int) -> str:
    if count == 0:
        return "0"
    while exponent < 18 and count % 1000 == 0:
        count //= 1000
        exponent += 3
    return f"{count}{_BY_EXPONENT[exponent]}"
