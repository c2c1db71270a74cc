"""Long work gives way to others, and garbage is collected while it does."""

import asyncio
import gc
import weakref

import pytest

from adapter.runtime.concurrency import Slices, run_all
from adapter.runtime.garbage import collect_at_set_times


async def test_used_up_slice_lets_a_request_be_answered() -> None:
    answered = asyncio.Event()

    async def request() -> None:
        await asyncio.sleep(0)  # read
        await asyncio.sleep(0)  # handled
        answered.set()

    answering = asyncio.create_task(request())
    await Slices(0.0).breathe()
    assert answered.is_set()
    await answering


async def test_slice_that_is_not_used_up_keeps_the_loop() -> None:
    slices, others = Slices(60.0), asyncio.Event()
    await slices.breathe()
    asyncio.get_running_loop().call_soon(others.set)
    await slices.breathe()
    assert not others.is_set()


async def test_first_error_ends_all_and_is_raised_itself() -> None:
    async def fails() -> None:
        raise LookupError("no")

    async def hangs() -> None:
        await asyncio.Event().wait()

    with pytest.raises(LookupError, match="no"):
        await run_all(hangs(), fails())


async def test_cycles_are_collected_while_python_does_not() -> None:
    class Node:
        own: "Node"

    collecting = asyncio.create_task(collect_at_set_times())
    await asyncio.sleep(0)
    try:
        assert not gc.isenabled()
        node = Node()
        node.own, gone = node, weakref.ref(node)
        del node
        async with asyncio.timeout(10):
            while gone() is not None:  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.01)
    finally:
        collecting.cancel()
        gc.enable()
        gc.unfreeze()
