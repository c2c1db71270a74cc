"""Garbage is collected in steps whose length follows the work."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.runtime import garbage
from adapter.runtime.garbage import (
    AIM_SECONDS,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    collect_in_steps,
    full_pause,
    next_pause,
)


@pytest.fixture
def own_collector() -> Iterator[None]:
    yield
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


@pytest.mark.parametrize(("took", "pause"), [(0.0, 15), (0.005, 15), (0.02, 20), (0.285, 285), (2.0, 300)])
def test_full_collections_take_a_thousandth_of_the_time_and_never_stay_away(took: float, pause: float) -> None:
    assert full_pause(took) == pytest.approx(pause)


@pytest.mark.usefixtures("own_collector")
async def test_what_lived_for_a_while_is_freed_by_the_next_full_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "SHORTEST_FULL_SECONDS", 0.2)
    freed, loop = asyncio.Event(), asyncio.get_running_loop()
    collecting = asyncio.create_task(collect_in_steps())
    await asyncio.sleep(0)
    node = Node()
    kept = weakref.ref(node, lambda _: loop.call_soon(freed.set))
    while not any(one is node for one in gc.get_objects(2)):  # noqa: ASYNC110  the collector tells nobody
        await asyncio.sleep(0.01)
    del node
    async with asyncio.timeout(5):
        await freed.wait()
    assert kept() is None
    collecting.cancel()
