"""Whose turn it is to be asked about."""

import asyncio
from collections import Counter

import pytest

from adapter.registries.polling.schedule import STEPS, TOGETHER, PollSchedule
from adapter.registries.roster import ServiceKey


def keys(count: int) -> list[ServiceKey]:
    return [ServiceKey("r", f"s{number:03}") for number in range(count)]


async def test_new_services_come_first_and_together() -> None:
    turns = PollSchedule(10)
    every = keys(TOGETHER + 10)
    turns.change(every, every)
    assert list(turns.take()) == every[:TOGETHER]
    await turns.rest(asyncio.get_running_loop().time())  # without a pause
    assert list(turns.take()) == every[TOGETHER:]


@pytest.mark.parametrize("count", [1, 3, STEPS, STEPS + 1, 45, 500])
async def test_each_service_has_its_turn_once_in_an_interval(count: int) -> None:
    turns = PollSchedule(10)
    every = keys(count)
    turns.change(every, every)
    while len(turns.take()) == TOGETHER:
        pass
    asked = Counter(key for _ in range(min(count, STEPS)) for key in turns.take())
    assert asked.keys() == set(every)
    assert sum(asked.values()) < count + STEPS


async def test_a_service_that_is_let_go_has_no_turn() -> None:
    turns = PollSchedule(10)
    every = keys(4)
    turns.change(every, every)
    turns.take()
    turns.change([], every[:2])
    assert {key for _ in range(5) for key in turns.take()} == set(every[:2])


async def test_a_new_service_ends_the_wait() -> None:
    turns = PollSchedule(1000)
    every = keys(2)
    turns.change(every[:1], every[:1])
    turns.take()
    resting = asyncio.create_task(turns.rest(asyncio.get_running_loop().time()))
    await asyncio.sleep(0)
    turns.change(every[1:], every)
    await asyncio.wait_for(resting, 5)
    assert list(turns.take()) == every[1:]


async def test_without_services_it_waits_for_some() -> None:
    turns = PollSchedule(0.001)
    assert list(turns.take()) == []
    resting = asyncio.create_task(turns.rest(0.0))
    await asyncio.sleep(0.01)
    assert not resting.done()
    turns.change(keys(1), keys(1))
    await asyncio.wait_for(resting, 5)


async def test_namespaces_take_turns_among_new_services_and_among_known_ones() -> None:
    theirs, ours = keys(100), [ServiceKey("r", f"web{number}") for number in range(3)]
    turns = PollSchedule(10, lambda: dict.fromkeys(theirs, "evil") | dict.fromkeys(ours, "shop"))
    turns.change([*theirs, *ours], [*theirs, *ours])
    assert list(turns.take())[:6:2] == theirs[:3]
    turns = PollSchedule(10, lambda: dict.fromkeys(theirs, "evil") | dict.fromkeys(ours, "shop"))
    turns.change(theirs, theirs)
    turns.take()
    turns.change(ours, [*theirs, *ours])
    assert set(ours) < set(list(turns.take())[:6])


async def test_a_late_service_that_is_let_go_is_not_asked_about() -> None:
    turns = PollSchedule(10)
    every = keys(2)
    turns.change(every, every)
    turns.take()
    turns._put_off(set(every))
    turns.change([], every[1:])
    assert list(await turns.take_late()) == every[1:]
    assert list(turns.take()) == []
