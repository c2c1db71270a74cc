"""Long work gives way to others, and one question at a time is asked for a key."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from adapter.runtime.concurrency import SingleFlight, Slices, one_ahead


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


class Question:
    """Something to ask once: counts how often it is asked, and answers when told."""

    def __init__(self) -> None:
        self.asked = 0
        self.started = asyncio.Event()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        self.asked += 1
        self.started.set()
        return await self.answer


@pytest.fixture
def flights() -> SingleFlight[str, str]:
    return SingleFlight({})


async def test_concurrent_callers_share_one_flight(flights: SingleFlight[str, str]) -> None:
    question = Question()
    callers = [asyncio.create_task(flights.join("a", question)) for _ in range(5)]
    await question.started.wait()
    question.answer.set_result("yes")
    assert await asyncio.gather(*callers) == ["yes"] * 5
    assert question.asked == 1


async def test_cancelled_waiter_does_not_cancel_the_flight(flights: SingleFlight[str, str]) -> None:
    question = Question()
    first = asyncio.create_task(flights.join("a", question))
    second = asyncio.create_task(flights.join("a", question))
    await question.started.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    question.answer.set_result("yes")
    assert await second == "yes"


async def test_error_reaches_every_waiter_and_is_not_kept(flights: SingleFlight[str, str]) -> None:
    question = Question()
    callers = [asyncio.create_task(flights.join("a", question)) for _ in range(2)]
    await question.started.wait()
    question.answer.set_exception(LookupError("no"))
    assert [type(answer) for answer in await asyncio.gather(*callers, return_exceptions=True)] == [LookupError] * 2
    again = Question()
    again.answer.set_result("yes")
    assert await flights.join("a", again) == "yes"


async def test_error_without_a_waiter_is_not_reported(flights: SingleFlight[str, str]) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    question = Question()
    waiter = asyncio.create_task(flights.join("a", question))
    await question.started.wait()
    waiter.cancel()
    await asyncio.wait([waiter])
    question.answer.set_exception(LookupError("no"))
    for _ in range(3):
        await asyncio.sleep(0)  # until the flight has landed
    del question
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize(
    "begin", [lambda refuse: SingleFlight({}).join("a", refuse), lambda refuse: anext(one_ahead(refuse))]
)
async def test_error_is_freed_without_a_garbage_collection(begin: Callable[..., Awaitable[str]]) -> None:
    """An API server that is down for minutes fails thousands of requests, each with its frames, or half of a list."""

    class RefusedError(Exception):
        pass

    async def refuse(_before: str | None = None) -> str:
        raise RefusedError

    gc.disable()
    try:
        with pytest.raises(RefusedError) as caught:
            await begin(refuse)
        gone = weakref.ref(caught.value)
        del caught
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()
