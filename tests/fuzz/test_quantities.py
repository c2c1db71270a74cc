"""Faulty quantities: every decoder reads them exactly or refuses them."""

import contextlib
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import strategies as st

from adapter.kube import pods
from adapter.load import quantity
from adapter.load.quantity import QuantityError
from adapter.usage import series
from tests.fuzz.kit import fuzz
from tests.fuzz.spoil import STRANGE, TEXTS

PIECES = [
    *"0123456789+-.eEnumkMGTPKi%_ \t\n", "Ki", "Ei", "e999", "e-999", "E+", "1e", "NaN", "inf", "²", "٣", "\x00",
    "\ud800", "9" * 70,
]  # fmt: skip
READERS: dict[str, Callable[[str], Fraction | int | None]] = {
    "parse": quantity.parse_quantity,
    "parse_nano": quantity.parse_nano,
    "parse_number": quantity.parse_number,
    "of a pod": lambda text: pods.resource_amounts({"cpu": text}).get("cpu"),
    "of Prometheus": series.sample_nano,
}


def agree(text: str) -> None:
    """Asserts that all decoders give the same value for a valid quantity, and refuse any other text."""
    found: dict[str, Fraction | int | None] = {}
    quantity.parse_quantity.cache_clear()
    for name, read in READERS.items():
        with contextlib.suppress(QuantityError):
            found[name] = read(text)
    exact = found.pop("parse", None)
    if exact is None:
        assert not [name for name, value in found.items() if value is not None and name != "of Prometheus"]
    elif exact >= 0:
        assert {value for name, value in found.items()} == {-(-exact * quantity.NANO // 1)}


@pytest.mark.parametrize("text", sorted({*TEXTS, *(one for one in STRANGE if isinstance(one, str))}))
def test_a_strange_text_is_read_or_refused_by_all_alike(text: str) -> None:
    for shown in (text, text * 3, f"1{text}", f"{text}m", f"-{text}", f"1e{text}"):
        agree(shown)


@fuzz(600, text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_read_or_refused_by_all_alike(text: str) -> None:
    agree(text)
