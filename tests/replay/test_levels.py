"""The highest safe level is found in few plays."""

from collections.abc import Sequence
from fractions import Fraction

import pytest

from adapter.commands.replay.levels import highest_safe, search_levels
from adapter.commands.replay.service import Summary

HOUR = 3600.0
LEVELS = tuple(Fraction(percent, 100) for percent in (15, 35, 60, 85, 100))


def figures(risk: float) -> Summary:
    return Summary(HOUR, 0, 0, risk, 0, 0, 0, 0, HOUR, 1, 1)


def found(risk_at, wanted: float, rounds: int) -> tuple[Fraction | None, int]:
    """The level for a risk by level, and how many were played."""
    played: list[Fraction] = []

    def play(shares: Sequence[Fraction]) -> list[Summary]:
        played.extend(shares)
        return [figures(risk_at(share)) for share in shares]

    safe = highest_safe(search_levels(play, wanted, LEVELS, rounds), wanted)
    assert len(played) == len(set(played))
    return safe, len(played)


@pytest.mark.parametrize("shortfall", [0.0001, 0.001, 0.005, 0.04])
def test_the_level_of_a_shortfall_that_is_a_power_of_it_is_found_in_a_few_plays(shortfall: float) -> None:
    safe, plays = found(lambda share: 0.05 * float(share) ** 6, shortfall, 4)
    assert safe is not None
    assert float(safe) == pytest.approx((shortfall / 0.05) ** (1 / 6), rel=0.02)
    assert plays <= len(LEVELS) + 4


def test_where_no_level_is_safe_enough_there_is_none() -> None:
    assert found(lambda _: 0.5, 0.1, 2) == (None, len(LEVELS))


def test_where_every_level_is_safe_the_highest_one_is_the_level() -> None:
    assert found(lambda _: 0.0, 0.1, 2) == (1, len(LEVELS))


@pytest.mark.parametrize("edge", [41, 55, 83, 99])
def test_the_highest_safe_level_is_found_within_two_percent(edge: int) -> None:
    safe, _ = found(lambda share: 0.5 if share > Fraction(edge, 100) else 0.0, 0.0, 6)
    assert safe is not None
    assert 0 <= Fraction(edge, 100) - safe < Fraction(2, 100)
