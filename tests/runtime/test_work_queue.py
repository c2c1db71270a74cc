"""Which key a worker gets next."""

import asyncio

import pytest

from adapter.runtime.work_queue import WorkQueue
from adapter.snapshot import Key

A, B, C = (Key("shop", name) for name in "abc")


async def assert_empty(queue: WorkQueue) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await queue.get()


async def drained(queue: WorkQueue, count: int) -> list[Key]:
    """So many, each done before the next one; there is no further one."""
    keys = []
    for _ in range(count):
        keys.append(await queue.get())
        queue.done(keys[-1])
    await assert_empty(queue)
    return keys


async def test_key_added_twice_is_handed_out_once_in_the_order_of_adding() -> None:
    queue = WorkQueue()
    queue.add([A, B])
    queue.add([A, C, B])
    assert await drained(queue, 3) == [A, B, C]


async def test_key_added_while_in_work_is_handed_out_again_after_done() -> None:
    queue = WorkQueue()
    queue.add([A])
    assert await queue.get() == A
    queue.add([A, B])
    assert await queue.get() == B
    await assert_empty(queue)
    queue.done(A)
    async with asyncio.timeout(1):
        assert await queue.get() == A


async def test_resync_comes_after_all_changes_and_once() -> None:
    queue = WorkQueue()
    queue.add([A, B], resync=True)
    queue.add([C, B])
    assert await drained(queue, 3) == [C, B, A]


async def test_discarded_key_is_not_handed_out() -> None:
    queue = WorkQueue()
    queue.add([A, B])
    queue.add([A], resync=True)
    queue.discard(A)
    queue.discard(C)
    assert await queue.get() == B
    await assert_empty(queue)


async def test_waiting_workers_are_woken() -> None:
    queue = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add([B, C])
    async with asyncio.timeout(1):
        assert {await one for one in waiting} == {B, C}
