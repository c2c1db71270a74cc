import asyncio

from adapter.evaluation.delay_queue import DelayQueue
from adapter.snapshot import Key

A, B = Key("shop", "a"), Key("shop", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(marks: DelayQueue) -> list[Key]:
    found = []
    while (key := marks.take()) is not None:
        found.append(key)
    return found


def test_a_first_mark_is_due_at_once() -> None:
    marks = DelayQueue(Clock())
    marks.mark(A)
    assert taken(marks) == [A]


def test_a_mark_for_later_is_due_then_and_an_earlier_one_overtakes_it() -> None:
    clock = Clock()
    marks = DelayQueue(clock)
    marks.mark(A, after=30)
    marks.mark(B, after=30)
    marks.mark(A)
    assert taken(marks) == [A]
    clock.now += 29.9
    assert taken(marks) == []
    clock.now += 0.1
    assert taken(marks) == [B]


async def test_who_waits_can_be_cancelled_at_the_very_moment_in_which_a_mark_comes() -> None:
    marks = DelayQueue(asyncio.get_running_loop().time)
    marks.mark(B, after=60)

    async def work() -> None:
        while True:
            await marks.wait()
            marks.take()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    marks.mark(A)
    working.cancel()
    done, _ = await asyncio.wait({working}, timeout=1)
    assert done == {working}


def test_marks_while_one_is_pending_are_one() -> None:
    marks = DelayQueue(Clock())
    for _ in range(5):
        marks.mark(A)
    assert taken(marks) == [A]


def test_a_policy_is_taken_at_most_once_in_half_a_second() -> None:
    clock = Clock()
    marks = DelayQueue(clock)
    marks.mark(A)
    marks.take()
    marks.mark(A)
    assert marks.take() is None
    clock.now += 0.49
    assert marks.take() is None
    clock.now += 0.01
    assert marks.take() == A


def test_the_oldest_mark_comes_first() -> None:
    marks = DelayQueue(Clock())
    marks.mark(B)
    marks.mark(A)
    assert taken(marks) == [B, A]


def test_a_policy_that_waits_for_its_turn_does_not_hold_up_others() -> None:
    marks = DelayQueue(Clock())
    marks.mark(A)
    marks.take()
    marks.mark(A)
    marks.mark(B)
    assert taken(marks) == [B]


def test_a_forgotten_policy_is_new_again() -> None:
    marks = DelayQueue(Clock())
    marks.mark(A)
    marks.take()
    marks.forget(A)
    marks.mark(A)
    assert marks.take() == A


async def test_waiting_ends_with_a_mark() -> None:
    marks = DelayQueue(asyncio.get_running_loop().time)
    waiting = asyncio.create_task(marks.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    marks.mark(A)
    await asyncio.wait_for(waiting, 5)


async def test_waiting_ends_when_a_mark_becomes_due() -> None:
    marks = DelayQueue(asyncio.get_running_loop().time, spacing=0.02)
    marks.mark(A)
    marks.take()
    marks.mark(A)
    await asyncio.wait_for(marks.wait(), 5)
    await asyncio.wait_for(marks.wait(), 5)
    assert marks.take() == A


async def test_waiting_returns_at_once_where_something_is_due() -> None:
    marks = DelayQueue(asyncio.get_running_loop().time)
    marks.mark(A)
    await asyncio.wait_for(marks.wait(), 5)
    assert marks.take() == A


def test_what_must_not_wait_overtakes_its_own_later_turn_and_is_taken_once() -> None:
    clock = Clock()
    marks = DelayQueue(clock)
    marks.mark(A)
    marks.take()
    marks.mark(A)
    marks.mark(A, soon=True)
    clock.now += 0.05
    assert marks.take() == A
    clock.now += 0.5
    assert marks.take() is None


def test_what_must_not_wait_is_one_of_many_at_once_too() -> None:
    clock = Clock()
    marks = DelayQueue(clock)
    marks.mark(A, soon=True)
    marks.take()
    for _ in range(3):
        marks.mark(A, soon=True)
    clock.now += 0.04
    assert marks.take() is None
    clock.now += 0.01
    assert taken(marks) == [A]


async def test_waiting_ends_for_what_overtakes() -> None:
    marks = DelayQueue(asyncio.get_running_loop().time, spacing=60)
    marks.mark(A)
    marks.take()
    marks.mark(A)
    asyncio.get_running_loop().call_soon(lambda: marks.mark(A, soon=True))
    await asyncio.wait_for(marks.wait(), 5)
    assert marks.take() == A
