"""Quantities, compared with the kubernetes package's parser where that is as strict as the API server."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity as client_parse_quantity

from adapter.load.quantity import NANO, QuantityError, milli_text, nano_text, parse_nano, parse_number, parse_quantity

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
LARGEST = 2**63 - 1

numbers = st.one_of(
    st.integers(0, 10**12).map(str),
    st.decimals(0, 10**6, allow_nan=False, allow_infinity=False, places=6).map(lambda d: f"{d:f}"),
)
quantities = st.builds(lambda sign, number, suffix: sign + number + suffix, st.sampled_from(["", "+", "-"]), numbers,
                       st.sampled_from(SUFFIXES))  # fmt: skip


def oracle(text: str) -> Fraction:
    """The other reader's value, with enough digits to be exact."""
    with localcontext(prec=100):
        return Fraction(client_parse_quantity(text))  # type: ignore[no-untyped-call]


@given(quantities)
def test_quantities_are_parsed_as_by_the_kubernetes_client(text: str) -> None:
    try:
        value = parse_quantity(text)
    except QuantityError:
        assert abs(oracle(text)) > LARGEST
    else:
        assert value == oracle(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1 ", " 1", "1 m", "m", ".", "+", "-", "--1", "1.2.3", "1,5", "1_000", "0x10", "1m5", "1mm"),
        *("1K", "1ki", "1mi", "1B", "1KB", "1%", "1e", "1e+", "1e1.5", "1e3m", "1e1000", "NaN", "nan", "Inf", "+Inf"),
        *("-Infinity", "infinity", "١", "１", "1\n", "1\x00", "True", "None"),
        *("9223372036854775808", "9.3E", "1e19", "8Ei"),
        *("1" * 65, "9" * 10_000, "-1e400"),
    ],
)
def test_an_unusable_quantity_is_refused_and_named(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        parse_quantity(text)
    assert repr(text[:64]) in str(refused.value)
    assert len(str(refused.value)) < 200


@given(st.integers(0, LARGEST))
def test_written_quantities_are_canonical_and_read_as_they_were(nano: int) -> None:
    text = nano_text(nano)
    assert parse_nano(text) == nano
    assert parse_quantity(milli_text(nano)) * 1000 == nano
    digits = text.rstrip("numkMGTPE")
    assert "." not in text
    assert digits == str(int(digits))
    # No larger suffix would do: three zeros at the end would have become one.
    assert text == "0" or int(digits) % 1000 != 0 or text.endswith("E")


@given(st.decimals(0, 10**9, places=12))
def test_fractions_of_a_nano_unit_are_rounded_up(value: Decimal) -> None:
    nano = parse_nano(f"{value:f}")
    assert Fraction(nano - 1, NANO) < Fraction(value) <= Fraction(nano, NANO)


@given(st.floats(0, 2**63 - 1024, allow_subnormal=False))
def test_a_float_as_prometheus_prints_it_is_read_to_the_nearest_nano_unit_above(value: float) -> None:
    for text in (repr(value), f"{value:e}", f"{value:E}"):
        exact = Fraction(Decimal(text))
        assert Fraction(parse_number(text), NANO) - exact < Fraction(1, NANO)
        assert Fraction(parse_number(text), NANO) >= exact
