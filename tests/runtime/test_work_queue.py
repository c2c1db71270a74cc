"""Which key a worker gets next, and when."""

import asyncio

import pytest

from adapter.runtime.work_queue import WorkQueue
from adapter.snapshot import Key

A, B, C = (Key("shop", name) for name in "abc")


class Times:
    """The event loop's clock, which stands still until a test moves it on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self._now)

    async def pass_(self, seconds: float) -> None:
        self._now += seconds
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def drained(queue: WorkQueue[Key]) -> list[Key]:
    """All that are due, each done before the next one."""
    keys = []
    while queue.ready:
        keys.append(await queue.get())
        queue.done(keys[-1])
    return keys


def add(queue: WorkQueue[Key], *keys: Key) -> None:
    for key in keys:
        queue.add(key)


async def test_key_added_twice_is_handed_out_once_in_the_order_of_adding() -> None:
    queue = WorkQueue[Key]()
    add(queue, A, B, A, C, B)
    assert await drained(queue) == [A, B, C]


async def test_key_added_while_in_work_is_handed_out_again_after_done() -> None:
    queue = WorkQueue[Key]()
    queue.add(A)
    assert await queue.get() == A
    add(queue, A, B)
    assert await drained(queue) == [B]
    queue.done(A)
    assert await drained(queue) == [A]


async def test_resync_comes_after_all_changes_and_once() -> None:
    queue = WorkQueue[Key]()
    queue.resync([A, B])
    add(queue, C, B)
    assert await drained(queue) == [C, B, A]


async def test_discarded_key_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    times, queue = Times(monkeypatch), WorkQueue[Key]()
    add(queue, A, B)
    queue.add(C, 1)
    queue.resync([A])
    queue.discard(A)
    queue.discard(C)
    await times.pass_(2)
    assert await drained(queue) == [B]


async def test_waiting_workers_are_woken() -> None:
    queue = WorkQueue[Key]()
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    add(queue, B, C)
    queue.add(A, 0.01)
    async with asyncio.timeout(5):
        assert {await one for one in waiting} == {A, B, C}


async def test_delayed_key_is_due_then_or_at_an_earlier_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times, queue = Times(monkeypatch), WorkQueue[Key]()
    queue.add(A, 30)
    queue.add(B, 30)
    queue.add(A)
    queue.add(B, 40)
    assert await drained(queue) == [A]
    await times.pass_(29.9)
    assert await drained(queue) == []
    await times.pass_(0.2)
    assert await drained(queue) == [B]


async def test_key_has_at_most_one_turn_in_its_spacing_unless_that_is_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    times, queue = Times(monkeypatch), WorkQueue[Key](spacing=0.5)
    add(queue, A, B)
    assert await drained(queue) == [A, B]
    add(queue, A, C)
    assert await drained(queue) == [C]
    await times.pass_(0.4)
    assert await drained(queue) == []
    await times.pass_(0.2)
    assert await drained(queue) == [A]
    queue.add(B)
    assert await queue.get() == B
    queue.done(B, spaced=False)
    queue.add(B)
    assert await drained(queue) == [B]
