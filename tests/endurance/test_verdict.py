"""The verdict of the long run finds leaks that are planted, and none in what only goes up and down."""

import random
from collections.abc import Callable

import pytest

from lab.endurance.verdict import BOUNDS, judge, judge_all, together

HOUR = [minute / 2 for minute in range(120)]
WARM_UP = 10.0
_STEADY = {"memory": 82.0, "blocks": 700_000, "tasks": 60, "sockets": 24, "threads": 6}


def _series(value: Callable[[float], float]) -> list[tuple[float, float]]:
    return [(minute, value(minute)) for minute in HOUR]


def _row(minute: float, **changes: float) -> dict[str, float]:
    return {"minute": minute, **_STEADY, "log": 9000, **changes}


@pytest.mark.parametrize(
    ("quantity", "grows"),
    [
        ("memory", lambda minute: 82 + 0.1 * minute),
        ("blocks", lambda minute: 700_000 + 15 * 60 * minute),
        ("tasks", lambda minute: 60 + minute // 9),
        ("sockets", lambda minute: 24 + minute // 10),
        ("threads", lambda minute: 6 + minute // 12),
        ("log", lambda minute: 9000 + 100 * minute),
    ],
)
def test_a_planted_leak_is_found_in_the_noise(quantity: str, grows: Callable[[float], float]) -> None:
    noise = random.Random(2)
    points = [(minute, value * noise.gauss(1, 0.01)) for minute, value in _series(grows)]
    verdict = judge("adapter", quantity, points, WARM_UP)
    assert not verdict.flat
    assert verdict.line().startswith("GROWS")


@pytest.mark.parametrize("quantity", BOUNDS)
def test_what_goes_up_and_down_is_flat(quantity: str) -> None:
    noise = random.Random(2)
    middle = {**_STEADY, "log": 9000}[quantity]
    points = _series(lambda minute: middle * (1 + 0.05 * (minute % 5) / 5) * noise.gauss(1, 0.01))
    verdict = judge("adapter", quantity, points, WARM_UP)
    assert verdict.flat, verdict.line()
    assert verdict.line().startswith("flat")


def test_a_warm_up_may_grow_as_it_likes_and_what_shrinks_is_no_leak() -> None:
    assert judge("adapter", "memory", _series(lambda minute: min(80, 8 * minute)), WARM_UP).flat
    assert judge("adapter", "memory", _series(lambda minute: 90 - 0.5 * minute), WARM_UP).flat


def test_what_grows_is_named_with_its_process() -> None:
    steady = [_row(minute) for minute in HOUR]
    louder = [_row(minute, log=9000 + 100 * minute) for minute in HOUR]
    growing = [one for one in judge_all({"adapter": steady, "companion": louder}, WARM_UP) if not one.flat]
    assert [(one.process, one.quantity) for one in growing] == [("companion", "log")]


def test_two_processes_that_take_turns_are_flat_together() -> None:
    first = [_row(minute, tasks=45 if minute < 30 else 33) for minute in HOUR]
    second = [_row(minute, tasks=33 if minute < 30 else 45) for minute in HOUR]
    both = together([first, second])
    assert both[3]["minute"] == first[3]["minute"]
    assert {one["tasks"] for one in both} == {78}
    assert all(one.flat for one in judge_all({"companions": both}, WARM_UP))
