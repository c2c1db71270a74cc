"""When a key is handed out, and how often."""

import asyncio

import pytest

from adapter.runtime.work_queue import DelayQueue
from adapter.snapshot import Key
from tests.runtime.conftest import Clock

A, B = Key("shop", "a"), Key("shop", "b")


@pytest.fixture
def queue(clock: Clock) -> DelayQueue:
    return DelayQueue(clock)


def popped(queue: DelayQueue) -> list[Key]:
    return list(iter(queue.pop, None))


def add_again(queue: DelayQueue) -> DelayQueue:
    """The policy A was popped just now, and is queued once more."""
    queue.add(A)
    assert queue.pop() == A
    queue.add(A)
    return queue


def test_keys_are_due_at_once_in_the_order_of_adding(queue: DelayQueue) -> None:
    for key in (B, A, A, B):
        queue.add(key)
    assert popped(queue) == [B, A]


def test_delayed_key_is_due_then_or_at_an_earlier_time(clock: Clock, queue: DelayQueue) -> None:
    queue.add(A, 30)
    queue.add(B, 30)
    queue.add(A)
    assert popped(queue) == [A]
    clock.now += 29.9
    assert popped(queue) == []
    clock.now += 0.1
    assert popped(queue) == [B]


def test_key_is_popped_at_most_once_in_half_a_second(clock: Clock, queue: DelayQueue) -> None:
    add_again(queue)
    queue.add(B)
    assert popped(queue) == [B]
    clock.now += 0.49
    assert queue.pop() is None
    clock.now += 0.01
    assert queue.pop() == A


class TestWait:
    """In the loop's own time."""

    async def test_wait_returns_when_a_key_is_added(self) -> None:
        queue = DelayQueue(asyncio.get_running_loop().time)
        waiting = asyncio.create_task(queue.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.add(A)
        await asyncio.wait_for(waiting, 5)
        assert queue.pop() == A

    async def test_wait_returns_when_a_key_becomes_due(self) -> None:
        queue = add_again(DelayQueue(asyncio.get_running_loop().time, spacing=0.02))
        await asyncio.wait_for(queue.wait(), 5)
        await asyncio.wait_for(queue.wait(), 5)
        assert queue.pop() == A

    async def test_wait_can_be_cancelled_while_a_key_is_added(self) -> None:
        queue = DelayQueue(asyncio.get_running_loop().time)
        queue.add(B, 60)

        async def work() -> None:
            while True:
                await queue.wait()
                queue.pop()

        working = asyncio.create_task(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        queue.add(A)
        working.cancel()
        done, _ = await asyncio.wait({working}, timeout=1)
        assert done == {working}
