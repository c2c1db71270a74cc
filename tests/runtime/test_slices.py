"""Long work on the event loop: whoever waits for the loop waits for one slice, however many tasks there are."""

import asyncio
import contextlib
import gc
import itertools
import weakref

from adapter.runtime.concurrency import Slices, turn
from adapter.runtime.garbage import freeze_live_objects


class Passes:
    """Counts the passes of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self.count += 1
        self._handle = self._loop.call_soon(self._next)

    def close(self) -> None:
        self._handle.cancel()


async def begins(passes: Passes, found: list[int], times: int) -> None:
    slices = Slices(seconds=0.0)  # each is over at once
    for _ in range(times):
        await slices.breathe()
        found.append(passes.count)


async def test_tasks_with_long_work_begin_a_slice_in_every_third_pass_of_the_loop() -> None:
    """A request is read in one pass and answered in the next: it waits for one slice, not for two."""
    with contextlib.closing(Passes()) as passes:
        found: list[int] = []
        await asyncio.gather(*(begins(passes, found, 20) for _ in range(5)))
    assert len(found) == 100
    assert min(after - before for before, after in itertools.pairwise(found)) == 3


async def test_turns_are_taken_in_the_order_of_asking() -> None:
    found: list[int] = []

    async def work(number: int) -> None:
        for _ in range(3):
            await turn()
            found.append(number)

    await asyncio.gather(*map(work, range(4)))
    assert found == [0, 1, 2, 3] * 3


async def test_a_slice_is_not_interrupted_before_it_is_over() -> None:
    with contextlib.closing(Passes()) as passes:
        slices = Slices(seconds=60.0)
        await slices.breathe()
        began = passes.count
        for _ in range(100):
            await slices.breathe()
        assert passes.count == began


async def test_who_is_cancelled_while_waiting_gives_up_its_turn() -> None:
    waiting = [asyncio.create_task(turn()) for _ in range(5)]
    await asyncio.sleep(0)
    for task in (waiting[0], waiting[1], waiting[4]):
        task.cancel()
    async with asyncio.timeout(5):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        await turn()
    assert [isinstance(end, asyncio.CancelledError) for end in ended] == [True, True, False, False, True]


async def test_the_next_slice_begins_after_the_others_ran() -> None:
    slices = Slices(60.0)
    ran = asyncio.Event()
    asyncio.get_running_loop().call_soon(ran.set)
    await slices.breathe()
    assert ran.is_set()


def test_every_loop_has_turns_of_its_own() -> None:
    asyncio.run(turn())
    asyncio.run(turn())


class TestFreezing:
    def test_live_objects_are_exempt_from_full_collections_and_still_freed_by_reference_count(self) -> None:
        class Node:
            pass

        kept, dropped = Node(), Node()
        gone = weakref.ref(dropped)
        before = gc.get_freeze_count()
        freeze_live_objects()
        assert gc.get_freeze_count() > before
        assert not any(one is kept for one in gc.get_objects())
        del dropped
        assert gone() is None
