"""Who is planned for next, and how long what was refused waits."""

import asyncio

import pytest

from adapter.companion.keyed_backoff import LONGEST_SECONDS, KeyedBackoff
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


def test_what_is_refused_waits_twice_as_long_each_time_up_to_five_minutes() -> None:
    patience, now, waits = KeyedBackoff(), 0.0, []
    for _ in range(12):
        patience.refused(A, "WriteStatus", "Forbidden", now)
        began = now
        while not patience.may(A, "WriteStatus", now):
            now += 1
        waits.append(now - began)
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, *[LONGEST_SECONDS] * 4]


def test_a_refusal_is_news_once_and_again_for_another_reason_or_after_success() -> None:
    patience = KeyedBackoff()
    assert [patience.refused(A, "x", reason, 0) for reason in ("Forbidden", "Forbidden", "TimedOut")] == [
        True, False, True,
    ]  # fmt: skip
    patience.done(A, "x")
    assert patience.may(A, "x", 0)
    assert patience.refused(A, "x", "TimedOut", 0)


def test_others_do_not_wait_for_it_and_nothing_is_kept_of_policies_that_are_gone() -> None:
    patience = KeyedBackoff()
    patience.refused(A, "x", "Forbidden", 0)
    assert patience.may(A, "y", 0)
    assert patience.may(B, "x", 0)
    patience.forget(A)
    assert patience.may(A, "x", 0)
    assert patience.reason(A, "x") is None
