"""Whose turn it is to be asked about."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from adapter.registries.polling import STEPS, TOGETHER, PollSchedule
from adapter.registries.polling_pool import Answers, Unanswered

from adapter.registries.source import ServiceKey
from adapter.runtime.http1 import RawReply, Request


def keys(count: int) -> list[ServiceKey]:
    return [ServiceKey("r", f"s{number:03}") for number in range(count)]


class Silent:
    """A server that answers nothing in time."""

    async def ask(self, requests: Sequence[Request], _read: object, *, seconds: float | None) -> Answers[RawReply]:
        return Answers([Unanswered.LATE] * len(requests), {})


async def as_it_is(_number: int, reply: RawReply) -> RawReply:
    return reply


async def test_new_services_come_first_and_together() -> None:
    schedule = PollSchedule(10)
    every = keys(TOGETHER + 10)
    schedule.follow(dict.fromkeys(every, "shop"))
    assert list(schedule.pop()) == every[:TOGETHER]
    await schedule.rest(asyncio.get_running_loop().time())  # without a pause
    assert list(schedule.pop()) == every[TOGETHER:]


@pytest.mark.parametrize("count", [1, 3, STEPS, STEPS + 1, 45, 500])
async def test_each_service_has_its_turn_once_in_an_interval(count: int) -> None:
    schedule = PollSchedule(10)
    every = keys(count)
    schedule.follow(dict.fromkeys(every, "shop"))
    while len(schedule.pop()) == TOGETHER:
        pass
    asked = Counter(key for _ in range(min(count, STEPS)) for key in schedule.pop())
    assert asked.keys() == set(every)
    assert sum(asked.values()) < count + STEPS


async def test_a_service_that_is_let_go_has_no_turn() -> None:
    schedule = PollSchedule(10)
    every = keys(4)
    schedule.follow(dict.fromkeys(every, "shop"))
    schedule.pop()
    schedule.follow(dict.fromkeys(every[:2], "shop"))
    assert {key for _ in range(5) for key in schedule.pop()} == set(every[:2])


async def test_a_new_service_ends_the_wait() -> None:
    schedule = PollSchedule(1000)
    every = keys(2)
    schedule.follow(dict.fromkeys(every[:1], "shop"))
    schedule.pop()
    resting = asyncio.create_task(schedule.rest(asyncio.get_running_loop().time()))
    await asyncio.sleep(0)
    schedule.follow(dict.fromkeys(every, "shop"))
    await asyncio.wait_for(resting, 5)
    assert list(schedule.pop()) == every[1:]


async def test_without_services_it_waits_for_some() -> None:
    schedule = PollSchedule(0.001)
    assert list(schedule.pop()) == []
    resting = asyncio.create_task(schedule.rest(0.0))
    await asyncio.sleep(0.01)
    assert not resting.done()
    schedule.follow(dict.fromkeys(keys(1), "shop"))
    await asyncio.wait_for(resting, 5)


async def test_namespaces_take_schedule_among_new_services_and_among_known_ones() -> None:
    theirs, ours = keys(100), [ServiceKey("r", f"web{number}") for number in range(3)]
    schedule = PollSchedule(10)
    schedule.follow(dict.fromkeys(theirs, "evil") | dict.fromkeys(ours, "shop"))
    assert list(schedule.pop())[:6:2] == theirs[:3]
    schedule = PollSchedule(10)
    schedule.follow(dict.fromkeys(theirs, "evil"))
    schedule.pop()
    schedule.follow(dict.fromkeys(theirs, "evil") | dict.fromkeys(ours, "shop"))
    assert set(ours) < set(list(schedule.pop())[:6])


async def test_a_late_service_that_is_let_go_is_not_asked_about() -> None:
    schedule = PollSchedule(10)
    every = keys(2)
    schedule.follow(dict.fromkeys(every, "shop"))
    schedule.pop()
    await schedule.ask(Silent(), every, [Request("GET", "/")] * 2, as_it_is, late=False)  # type: ignore[arg-type]
    schedule.follow(dict.fromkeys(every[1:], "shop"))
    assert list(await schedule.pop_late()) == every[1:]
    assert list(schedule.pop()) == []
