import asyncio

from adapter.runtime.fairness import DelayQueue
from adapter.snapshot import Key

A, B = Key("shop", "a"), Key("shop", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def popped(queue: DelayQueue) -> list[Key]:
    return list(iter(queue.pop, None))


def test_a_policy_that_is_added_first_is_due_at_once() -> None:
    queue = DelayQueue(Clock())
    queue.add(A)
    assert popped(queue) == [A]


def test_a_delayed_policy_is_due_then_unless_it_is_added_for_an_earlier_time() -> None:
    clock = Clock()
    queue = DelayQueue(clock)
    queue.add_after(A, 30)
    queue.add_after(B, 30)
    queue.add(A)
    assert popped(queue) == [A]
    clock.now += 29.9
    assert popped(queue) == []
    clock.now += 0.1
    assert popped(queue) == [B]


async def test_a_wait_can_be_cancelled_in_the_moment_in_which_a_policy_is_added() -> None:
    queue = DelayQueue(asyncio.get_running_loop().time)
    queue.add_after(B, 60)

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


def test_a_policy_that_is_queued_already_is_not_queued_again() -> None:
    queue = DelayQueue(Clock())
    for _ in range(5):
        queue.add(A)
    assert popped(queue) == [A]


def test_a_policy_is_popped_at_most_once_in_half_a_second() -> None:
    clock = Clock()
    queue = DelayQueue(clock)
    queue.add(A)
    queue.pop()
    queue.add(A)
    assert queue.pop() is None
    clock.now += 0.49
    assert queue.pop() is None
    clock.now += 0.01
    assert queue.pop() == A


def test_policies_are_popped_in_the_order_in_which_they_were_added() -> None:
    queue = DelayQueue(Clock())
    queue.add(B)
    queue.add(A)
    assert popped(queue) == [B, A]


def test_a_policy_that_is_not_due_yet_does_not_hold_up_others() -> None:
    queue = DelayQueue(Clock())
    queue.add(A)
    queue.pop()
    queue.add(A)
    queue.add(B)
    assert popped(queue) == [B]


def test_a_forgotten_policy_has_no_spacing() -> None:
    queue = DelayQueue(Clock())
    queue.add(A)
    queue.pop()
    queue.forget(A)
    queue.add(A)
    assert queue.pop() == A


async def test_wait_returns_when_a_policy_is_added() -> None:
    queue = DelayQueue(asyncio.get_running_loop().time)
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.add(A)
    await asyncio.wait_for(waiting, 5)


async def test_wait_returns_when_a_policy_becomes_due() -> None:
    queue = DelayQueue(asyncio.get_running_loop().time, spacing=0.02)
    queue.add(A)
    queue.pop()
    queue.add(A)
    await asyncio.wait_for(queue.wait(), 5)
    await asyncio.wait_for(queue.wait(), 5)
    assert queue.pop() == A


async def test_wait_returns_at_once_if_a_policy_is_due() -> None:
    queue = DelayQueue(asyncio.get_running_loop().time)
    queue.add(A)
    await asyncio.wait_for(queue.wait(), 5)
    assert queue.pop() == A


def test_an_expedited_policy_replaces_its_later_time_and_is_popped_once() -> None:
    clock = Clock()
    queue = DelayQueue(clock)
    queue.add(A)
    queue.pop()
    queue.add(A)
    queue.add(A, expedited=True)
    clock.now += 0.05
    assert queue.pop() == A
    clock.now += 0.5
    assert queue.pop() is None


def test_expedited_additions_in_a_burst_are_one() -> None:
    clock = Clock()
    queue = DelayQueue(clock)
    queue.add(A, expedited=True)
    queue.pop()
    for _ in range(3):
        queue.add(A, expedited=True)
    clock.now += 0.04
    assert queue.pop() is None
    clock.now += 0.01
    assert popped(queue) == [A]


async def test_wait_returns_for_an_expedited_policy() -> None:
    queue = DelayQueue(asyncio.get_running_loop().time, spacing=60)
    queue.add(A)
    queue.pop()
    queue.add(A)
    asyncio.get_running_loop().call_soon(lambda: queue.add(A, expedited=True))
    await asyncio.wait_for(queue.wait(), 5)
    assert queue.pop() == A


def test_a_namespace_delays_the_policy_of_another_by_one_however_many_it_has() -> None:
    queue = DelayQueue(Clock())
    crowd = [Key("crowd", f"p{number}") for number in range(5000)]
    for key in crowd:
        queue.add(key)
    for key in (A, Key("cart", "c"), B):
        queue.add(key)
    assert popped(queue) == [crowd[0], A, Key("cart", "c"), crowd[1], B, *crowd[2:]]


def test_a_policy_that_comes_back_at_the_time_of_an_item_that_was_replaced_is_handed_out_once() -> None:
    clock = Clock()
    queue = DelayQueue(clock, spacing=0)
    queue.add_after(A, 10)
    queue.add_after(A, 5)
    clock.now += 5
    assert popped(queue) == [A]
    queue.add_after(A, 5)
    clock.now += 5
    assert popped(queue) == [A]
