"""When garbage is collected."""

import asyncio
import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from adapter import garbage
from tests.waiting import eventually


@pytest.fixture(name="ran")
def _ran() -> Iterator[list[str]]:
    """The beginning and the end of each collection of all objects."""
    ran: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        ran.extend([phase] * (info["generation"] == 2))

    gc.callbacks.append(note)
    yield ran
    gc.callbacks.remove(note)
    gc.enable()  # what is frozen stays so, as the million objects that pytest has frozen


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize("is_old", [False, True])
async def test_cycles_are_collected_while_python_does_not_and_what_the_start_made_is_frozen(is_old: bool) -> None:
    """Old ones once there are a tenth more blocks of memory."""
    assert gc.isenabled()
    settled, made = asyncio.Event(), [list[int]() for _ in range(10_000)]
    collecting = asyncio.create_task(garbage.collect_garbage(settled))
    await eventually(lambda: not gc.isenabled())
    frozen = gc.get_freeze_count()
    settled.set()
    await eventually(lambda: gc.get_freeze_count() > frozen + len(made) // 2)
    node: Any = type("Node", (), {})()
    node.own, gone = node, weakref.ref(node)
    if is_old:
        await eventually(lambda: any(one is gone() for one in gc.get_objects(2)))
    del node
    grown = [object() for _ in range(sys.getallocatedblocks() // 2 * is_old)]
    async with asyncio.timeout(10):
        await eventually(lambda: gone() is None)
    del grown
    collecting.cancel()


@pytest.mark.parametrize(("is_settled", "fewer", "enough"), [(True, 1.09, 1.12), (False, 2.9, 3.1)])
async def test_all_objects_are_collected_at_a_tenth_more_blocks_and_in_a_start_at_three_times_as_many(
    monkeypatch: pytest.MonkeyPatch, ran: list[str], is_settled: bool, fewer: float, enough: float
) -> None:
    number, looks, settled = 1000.0, list[float](), asyncio.Event()

    def blocks() -> float:
        looks.append(number)
        return number

    monkeypatch.setattr("sys.getallocatedblocks", blocks)
    monkeypatch.setattr(garbage, "YOUNG_SECONDS", 0.001)
    monkeypatch.setattr(garbage, "START_SECONDS", 0.001)
    if is_settled:
        settled.set()
    collecting = asyncio.create_task(garbage.collect_garbage(settled))
    for after, times in ((1, 0), (fewer, 0), (enough, 1), (fewer * enough, 1), (enough**2, 2)):
        number = 1000 * after
        looks.clear()
        await eventually(lambda: len(looks) > 4)
        assert ran == ["start", "stop"] * times
    collecting.cancel()
