"""Loads over time."""

import pytest

from adapter.commands.replay.scenarios.catalog import constant, polyline, sawtooth, spells, step, valley


def test_a_polyline_is_straight_between_its_points_and_constant_beyond_them() -> None:
    shape = polyline((10, 100), (20, 200))
    assert [shape(at) for at in (0, 10, 15, 20, 99)] == [100, 100, 150, 200, 200]


def test_two_points_at_one_time_are_a_jump() -> None:
    shape = polyline((0, 1), (10, 5), (10, 1))
    assert [shape(at) for at in (0, 9.75, 10)] == [1, 4.9, 1]


def test_a_step_is_high_from_its_begin_until_before_its_end() -> None:
    assert [step(1, 9, 5, 10)(at) for at in (4.9, 5, 9.9, 10)] == [1, 9, 9, 1]


def test_a_sawtooth_rises_within_each_period_and_falls_at_once() -> None:
    shape = sawtooth(100, 200, period=10, begin=5)
    assert [shape(at) for at in (0, 5, 10, 14, 15)] == [100, 100, 150, 190, 100]


def test_a_valley_is_deepest_in_the_middle_of_its_period() -> None:
    shape = valley(10, 50, period=100)
    assert [shape(at) for at in (0, 25, 50, 100)] == pytest.approx([50, 30, 10, 50])


def test_a_constant_does_not_change() -> None:
    assert {constant(7)(at) for at in (0, 1e6)} == {7}


def test_spells_are_half_open() -> None:
    silent = spells((10, 20), (30, 40))
    assert [silent(at) for at in (9, 10, 19.9, 20, 30)] == [False, True, True, False, True]
