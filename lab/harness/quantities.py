"""Kubernetes quantities as exact numbers, independent of the adapter under test."""

from fractions import Fraction

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}


def number(quantity: str) -> Fraction:
    """The value of "1500m", "2", "64Mi" or "1e3"."""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if quantity.endswith(suffix):
            return Fraction(quantity[: -len(suffix)]) * _SUFFIXES[suffix]
    return Fraction(quantity)
