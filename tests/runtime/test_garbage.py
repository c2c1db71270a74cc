"""Garbage is collected in steps whose length follows the work."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.runtime.garbage import (
    AIM_SECONDS,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    collect_in_steps,
    next_full,
    next_pause,
)


@pytest.fixture
def own_collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.usefixtures("own_collector")
async def test_what_refers_to_itself_is_freed_and_python_collects_nothing_by_itself() -> None:
    freed = asyncio.Event()
    loop = asyncio.get_running_loop()
    collecting = asyncio.create_task(collect_in_steps())
    await asyncio.sleep(0)
    kept = weakref.ref(Node(), lambda _: loop.call_soon(freed.set))
    assert not gc.isenabled()
    async with asyncio.timeout(5):
        await freed.wait()
    assert kept() is None
    collecting.cancel()


@given(st.floats(SHORTEST_SECONDS, LONGEST_SECONDS), st.floats(0, 1))
def test_the_next_collection_would_take_the_aim_as_far_as_pauses_may_change(pause: float, took: float) -> None:
    after = next_pause(pause, took)
    assert SHORTEST_SECONDS <= after <= LONGEST_SECONDS
    if SHORTEST_SECONDS < after < LONGEST_SECONDS:
        assert took / pause * after == pytest.approx(AIM_SECONDS)


def test_full_collections_come_later_while_they_free_little() -> None:
    seconds = [300.0]
    for freed in (0, 5, 9_999, 0, 0, 10_000, 0):
        seconds.append(next_full(seconds[-1], freed))
    assert seconds == [300, 600, 1200, 2400, 3600, 3600, 300, 600]
