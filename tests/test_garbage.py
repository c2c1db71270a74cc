"""When garbage is collected."""

import asyncio
import gc
import sys
import weakref

import pytest

from adapter.garbage import collect_garbage
from tests.waiting import eventually


@pytest.mark.parametrize("is_old", [False, True])
async def test_cycles_are_collected_while_python_does_not(is_old: bool) -> None:
    """Old ones once there are a tenth more blocks of memory."""

    class Node:
        own: "Node"

    settled = asyncio.Event()
    settled.set()
    assert gc.isenabled()
    collecting = asyncio.create_task(collect_garbage(settled))
    await eventually(lambda: not gc.isenabled())
    try:
        node = Node()
        node.own, gone = node, weakref.ref(node)
        if is_old:
            await eventually(lambda: any(one is gone() for one in gc.get_objects(2)))
        del node
        grown = [object() for _ in range(sys.getallocatedblocks() // 2 * is_old)]
        async with asyncio.timeout(10):
            await eventually(lambda: gone() is None)
        del grown
    finally:
        collecting.cancel()
        gc.enable()
        gc.unfreeze()
