"""Which policy is planned for next."""

import asyncio

import pytest

from adapter.companion.work_queue import WorkQueue
from adapter.snapshot import Key

A, B, C = (Key("shop", name) for name in "abc")


async def drained(lane: WorkQueue, count: int) -> list[Key]:
    """So many as are taken one after the other; there is no further one."""
    taken = []
    for _ in range(count):
        async with lane.take() as key:
            taken.append(key)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), lane.take():
            pass
    return taken


async def test_each_is_taken_once_however_often_it_was_asked_for_in_the_order_of_asking() -> None:
    lane = WorkQueue()
    lane.add([A, B])
    lane.add([A, C, B])
    assert await drained(lane, 3) == [A, B, C]


async def test_one_that_is_asked_for_while_it_is_worked_on_comes_again_after_that() -> None:
    lane = WorkQueue()
    lane.add([A])
    async with lane.take() as key:
        assert key == A
        lane.add([A, B])
        async with lane.take() as other:
            assert other == B
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), lane.take():
                pass
    async with asyncio.timeout(1), lane.take() as key:
        assert key == A


async def test_what_may_wait_comes_after_what_may_not_and_once_only() -> None:
    lane = WorkQueue()
    lane.add([A, B], later=True)
    lane.add([C, B])
    assert await drained(lane, 3) == [C, B, A]


async def test_nobody_takes_what_was_dropped() -> None:
    lane = WorkQueue()
    lane.add([A, B])
    lane.add([A], later=True)
    lane.drop(A)
    lane.drop(C)
    async with lane.take() as key:
        assert key == B
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), lane.take():
            pass


async def test_whoever_waits_is_woken() -> None:
    lane = WorkQueue()

    async def take() -> Key:
        async with lane.take() as key:
            return key

    waiting = [asyncio.create_task(take()) for _ in range(2)]
    await asyncio.sleep(0)
    lane.add([B, C])
    async with asyncio.timeout(1):
        assert {await one for one in waiting} == {B, C}
