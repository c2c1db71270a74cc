"""The API server's clock, slices, single flights."""

import asyncio
import email.utils
import gc
import weakref

import pytest

from adapter.kube.session import ServerClock
from adapter.runtime.single_flight import SingleFlight
from adapter.runtime.slices import freeze_live_objects


class Hands:
    """A clock to turn by hand."""

    def __init__(self, monotonic: float = 100.0, wall: float = 1_000_000.0) -> None:
        self.monotonic = monotonic
        self.wall = wall

    def clock(self) -> ServerClock:
        return ServerClock(lambda: self.monotonic, lambda: self.wall)

    def pass_(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds


def date(seconds: float) -> str:
    return email.utils.formatdate(seconds, usegmt=True)


class TestServerClock:
    def test_until_the_server_was_heard_this_machine_s_clock_counts(self) -> None:
        hands = Hands()
        clock = hands.clock()
        hands.pass_(7)
        assert clock.now() == 1_000_007
        assert clock.skew == 0.0

    def test_it_follows_the_server_s_clock_and_runs_on_between_answers(self) -> None:
        hands = Hands()
        clock = hands.clock()
        clock.observe(date(2_000_000))
        hands.pass_(10)
        assert clock.now() == 2_000_010.5  # a header is half a second behind on average

    def test_the_skew_says_how_far_this_machine_is_ahead(self) -> None:
        hands = Hands()
        clock = hands.clock()
        clock.observe(date(1_000_000 - 60))
        assert clock.skew == 59.5

    def test_this_machine_s_clock_may_be_set_without_effect(self) -> None:
        hands = Hands()
        clock = hands.clock()
        clock.observe(date(2_000_000))
        hands.wall += 86_400
        assert clock.now() == 2_000_000.5

    def test_one_wrong_header_among_many_does_not_move_it(self) -> None:
        hands = Hands()
        clock = hands.clock()
        for second in range(9):
            clock.observe(date(2_000_000 + second) if second != 4 else date(5_000_000))
            hands.pass_(1)
        assert abs(clock.now() - 2_000_009.5) < 0.001

    def test_a_server_whose_clock_was_set_is_followed_once_most_answers_agree(self) -> None:
        hands = Hands()
        clock = hands.clock()
        for _ in range(15):
            clock.observe(date(2_000_000))
        for _ in range(8):
            clock.observe(date(3_000_000))
        assert clock.now() == 3_000_000.5

    @pytest.mark.parametrize("header", ["", "yesterday", "Sat, 99 Nov 2026 00:00:00 GMT"])
    def test_an_unreadable_header_is_passed_over(self, header: str) -> None:
        clock = Hands().clock()
        clock.observe(header)
        assert clock.now() == 1_000_000


class TestSparing:
    def test_what_lives_is_spared_full_passes_and_freed_as_ever(self) -> None:
        class Node:
            pass

        kept, dropped = Node(), Node()
        gone = weakref.ref(dropped)
        before = gc.get_freeze_count()
        freeze_live_objects()
        try:
            assert gc.get_freeze_count() > before
            assert not any(one is kept for one in gc.get_objects())
            del dropped
            assert gone() is None
        finally:
            gc.unfreeze()


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


class TestSingleFlight:
    async def test_callers_who_ask_together_share_one_flight(self) -> None:
        flights: SingleFlight[str, str] = SingleFlight()
        question = Question()
        callers = [asyncio.create_task(flights.join("a", question)) for _ in range(5)]
        await question.started.wait()
        question.answer.set_result("yes")
        assert await asyncio.gather(*callers) == ["yes"] * 5
        assert question.asked == 1

    async def test_different_keys_fly_apart(self) -> None:
        flights: SingleFlight[str, str] = SingleFlight()
        one, other = Question(), Question()
        one.answer.set_result("one")
        other.answer.set_result("other")
        answers = await asyncio.gather(flights.join("a", one), flights.join("b", other))
        assert answers == ["one", "other"]

    async def test_a_cancelled_waiter_leaves_the_flight_to_the_others(self) -> None:
        flights: SingleFlight[str, str] = SingleFlight()
        question = Question()
        first = asyncio.create_task(flights.join("a", question))
        second = asyncio.create_task(flights.join("a", question))
        await question.started.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        question.answer.set_result("yes")
        assert await second == "yes"

    async def test_an_error_is_everybody_s_and_the_next_asks_again(self) -> None:
        flights: SingleFlight[str, str] = SingleFlight()
        question = Question()
        callers = [asyncio.create_task(flights.join("a", question)) for _ in range(2)]
        await question.started.wait()
        question.answer.set_exception(LookupError("no"))
        assert [type(answer) for answer in await asyncio.gather(*callers, return_exceptions=True)] == [LookupError] * 2
        again = Question()
        again.answer.set_result("yes")
        assert await flights.join("a", again) == "yes"

    async def test_an_error_that_nobody_waits_for_disturbs_nobody(self) -> None:
        flights: SingleFlight[str, str] = SingleFlight()
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        question = Question()
        question.answer.set_exception(LookupError("no"))
        task = flights.begin("a", question)
        await asyncio.wait([task])
        del task
        assert complaints == []

    async def test_closing_ends_what_is_under_way(self) -> None:
        flights: SingleFlight[str, str] = SingleFlight()
        task = flights.begin("a", Question())
        await flights.close()
        assert task.cancelled()
