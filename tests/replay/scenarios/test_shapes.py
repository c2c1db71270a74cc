"""Loads over time."""

from collections.abc import Callable

import pytest

from tests.replay.scenarios.catalog import constant, polyline, sawtooth, spells, step, valley


@pytest.mark.parametrize(
    ("shape", "points"),
    [
        pytest.param(
            polyline((10, 100), (20, 200)), {0: 100, 10: 100, 15: 150, 20: 200, 99: 200}, id="straight between points"
        ),
        pytest.param(polyline((0, 1), (10, 5), (10, 1)), {0: 1, 9.75: 4.9, 10: 1}, id="two points at one time: a jump"),
        pytest.param(step(1, 9, 5, 10), {4.9: 1, 5: 9, 9.9: 9, 10: 1}, id="a step is half open"),
        pytest.param(
            sawtooth(100, 200, period=10, begin=5), {0: 100, 5: 100, 10: 150, 14: 190, 15: 100}, id="a sawtooth"
        ),
        pytest.param(valley(10, 50, period=100), {0: 50, 25: 30, 50: 10, 100: 50}, id="deepest in the middle"),
        pytest.param(constant(7), {0: 7, 1e6: 7}, id="constant"),
        pytest.param(spells((10, 20), (30, 40)), {9: 0, 10: 1, 19.9: 1, 20: 0, 30: 1}, id="spells are half open"),
    ],
)
def test_a_load_over_time(shape: Callable[[float], float], points: dict[float, float]) -> None:
    assert [shape(at) for at in points] == pytest.approx(list(points.values()))
