"""The reflector: listing, watching, the proof of life, and everything that may go wrong in between."""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import structlog
from aiohttp import web

from adapter.kube.errors import NotFound
from adapter.kube.reflector import Reflector
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.kube.conftest import Clock
from tests.kube.fake import COLLECTION, Answer, FakeApi, Watch, cut_short, hang_up, status, text
from tests.waiting import eventually


class Thing(msgspec.Struct):
    """What is kept of an object: enough to see that it changed."""

    metadata: dict[str, Any]
    color: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and (self.name, self.color) == (other.name, other.color)

    __hash__ = None  # type: ignore[assignment]

    @property
    def name(self) -> str:
        return str(self.metadata["name"])


_DECODER = msgspec.json.Decoder(Thing)
EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old", "metadata": {}}
"""What a watch receives whose version is forgotten."""


class Watched:
    """A reflector that runs, its events, what it decoded, and how long it wanted to sleep."""

    def __init__(self, session: Session, metrics: Metrics, **more: Any) -> None:
        self.events: asyncio.Queue[tuple[str | None, str | None]] = asyncio.Queue()
        self.decoded: list[str] = []
        self.slept: asyncio.Queue[float] = asyncio.Queue()
        self.wake = asyncio.Event()
        self.wake.set()
        self.reflector: Reflector[Thing] = Reflector(
            session,
            COLLECTION,
            self._decode,
            name="things",
            on_event=self._event,
            metrics=metrics,
            sleep=self._sleep,
            **more,
        )
        self.task = asyncio.create_task(self.reflector.run())

    def _decode(self, raw: msgspec.Raw) -> Thing:
        thing = _DECODER.decode(raw)
        self.decoded.append(thing.name)
        return thing

    def _event(self, old: Thing | None, new: Thing | None) -> None:
        self.events.put_nowait((old and f"{old.name} {old.color}", new and f"{new.name} {new.color}"))

    async def _sleep(self, seconds: float) -> None:
        self.slept.put_nowait(seconds)
        await asyncio.sleep(0)
        await self.wake.wait()

    async def next(self) -> tuple[str | None, str | None]:
        return await asyncio.wait_for(self.events.get(), 30)

    async def nap(self) -> float:
        """The next sleep between attempts."""
        return await asyncio.wait_for(self.slept.get(), 30)

    async def synced(self) -> None:
        await asyncio.wait_for(self.reflector.synced.wait(), 30)

    def colors(self) -> dict[str, str]:
        return {key: thing.color for key, thing in self.reflector.items.items()}

    def all_events(self) -> list[tuple[str | None, str | None]]:
        return [self.events.get_nowait() for _ in range(self.events.qsize())]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


Make = Callable[..., Watched]


@pytest.fixture
async def make(session: Session, metrics: Metrics) -> AsyncIterator[Make]:
    """Starts reflectors, by default over `session`; those over `timed` see the clocks that the test moves."""
    made: list[Watched] = []

    def begin(over: Session = session, **more: Any) -> Watched:
        made.append(Watched(over, metrics, **more))
        return made[-1]

    yield begin
    for one in made:
        await one.stop()


async def begun(api: FakeApi, make: Make, *over: Session) -> tuple[Watched, Watch]:
    """A reflector whose watch has shown the object `a`."""
    watched = make(*over)
    watch = await api.watch()
    watch.send("ADDED", api.put("a"))
    await watched.next()
    return watched, watch


def restarts(metrics: Metrics, reason: str) -> float:
    labels = {"resource": "things", "reason": reason}
    return metrics.registry.get_sample_value("effective_load_watch_restarts_total", labels) or 0.0


class TestList:
    async def test_first_list_is_an_event_for_each_object(self, api: FakeApi, make: Make) -> None:
        api.put("a", color="red")
        api.put("b", color="blue")
        watched = make()
        await watched.synced()
        assert watched.colors() == {"shop/a": "red", "shop/b": "blue"}
        assert watched.all_events() == [(None, "a red"), (None, "b blue")]

    async def test_page_that_is_too_large_is_requested_again_with_half(self, api: FakeApi, make: Make) -> None:
        for index in range(4):
            api.put(f"x{index}", padding="x" * 1_500_000)
        watched = make(page=4)
        await watched.synced()
        assert [query["limit"] for query in api.queries("list")] == ["4", "2", "2"]

    async def test_unreadable_object_leaves_the_others(self, api: FakeApi, make: Make, metrics: Metrics) -> None:
        api.put("a", color=5)
        api.put("b", color="blue")
        watched = make()
        with structlog.testing.capture_logs() as logs:
            await watched.synced()
        assert watched.colors() == {"shop/b": "blue"}
        assert [(one["key"], one["log_level"]) for one in logs if "key" in one] == [("shop/a", "warning")]
        unreadable = {"reason": "unreadable_object"}
        assert metrics.registry.get_sample_value("effective_load_errors_total", unreadable) == 1

    async def test_failed_list_is_tried_again(self, api: FakeApi, make: Make, metrics: Metrics) -> None:
        api.put("a")
        no_gzip, no_list = text("no gzip", **{"Content-Encoding": "gzip"}), text('{"metadata":{},"items":[]}')
        api.lists.extend([status(500, "InternalError"), cut_short, no_gzip, text("nonsense"), no_list])
        watched = make()
        await watched.synced()
        assert list(watched.reflector.items) == ["shop/a"]
        assert [restarts(metrics, reason) for reason in ("refused", "unreachable", "malformed")] == [1, 2, 2]
        assert watched.slept.qsize() == 5

    async def test_expired_continue_token_starts_a_fresh_list(self, api: FakeApi, make: Make) -> None:
        for index in range(5):
            api.put(f"x{index}")
        api.lists.extend([api.listed, status(410, "Expired")])
        watched = make(page=2)
        await watched.synced()
        assert len(watched.reflector.items) == 5
        assert [query.get("continue") for query in api.queries("list")] == [None, "2", None, "2", "4"]

    @pytest.mark.parametrize("answer", ["{}", '{"items":[]}', '{"metadata":{},"items":[]}'])
    async def test_answer_without_a_version_is_no_empty_list(self, api: FakeApi, make: Make, answer: str) -> None:
        api.put("a", color="red")
        watched = make()
        watch = await api.watch()
        api.lists.append(text(answer))
        watch.send("ERROR", EXPIRED)
        await api.watch()
        assert watched.colors() == {"shop/a": "red"}
        assert watched.all_events() == [(None, "a red")]

    async def test_fresh_list_is_an_event_for_each_difference(self, api: FakeApi, make: Make) -> None:
        for name, color in (("same", "red"), ("changed", "red"), ("gone", "red")):
            api.put(name, color=color)
        watched = make()
        watch = await api.watch()
        watched.all_events()
        watched.decoded.clear()
        api.put("changed", color="blue")
        api.put("new", color="red")
        api.remove("gone")
        watch.send("ERROR", EXPIRED)
        await api.watch()
        differences = [("changed red", "changed blue"), ("gone red", None), (None, "new red")]
        assert sorted(watched.all_events(), key=str) == differences
        assert sorted(watched.decoded) == ["changed", "new"]  # what has its old version is not decoded again

    async def test_old_copy_stays_until_the_new_list_is_complete(self, api: FakeApi, make: Make) -> None:
        for index in range(4):
            api.put(f"old{index}")
        watched = make(page=2)
        watch = await api.watch()
        api.objects.clear()
        for index in range(4):
            api.put(f"new{index}")
        proceed = asyncio.Event()

        async def second_page(request: web.Request) -> web.StreamResponse:
            await proceed.wait()
            return await api.listed(request)

        api.lists.extend([api.listed, second_page])
        watch.send("ERROR", EXPIRED)
        await eventually(lambda: watched.decoded[-1] == "new1")
        assert sorted(watched.reflector.items) == [f"shop/old{index}" for index in range(4)]
        proceed.set()
        await api.watch()
        assert sorted(watched.reflector.items) == [f"shop/new{index}" for index in range(4)]


class TestWatch:
    async def test_watch_resumes_at_the_list_and_shows_changes(self, api: FakeApi, make: Make) -> None:
        api.put("b")
        watched = make()
        watch = await api.watch()
        assert await watched.next() == (None, "b ")
        assert watch.query["resourceVersion"] == str(api.version)
        assert watch.query["allowWatchBookmarks"] == "true"
        assert 50 <= int(watch.query["timeoutSeconds"]) <= 60
        watch.send("ADDED", api.put("a", color="red"))
        assert await watched.next() == (None, "a red")
        watch.send("MODIFIED", api.put("a", color="blue"))
        assert await watched.next() == ("a red", "a blue")
        assert watched.colors() == {"shop/a": "blue", "shop/b": ""}
        watch.send("DELETED", api.remove("a"))
        assert await watched.next() == ("a blue", None)
        assert watched.colors() == {"shop/b": ""}

    @pytest.mark.parametrize("bookmark", [False, True])
    async def test_ended_watch_resumes_from_the_last_event(self, api: FakeApi, make: Make, *, bookmark: bool) -> None:
        watched = make()
        watch = await api.watch()
        watch.send(*(("BOOKMARK", api.bookmark()) if bookmark else ("ADDED", api.put("a"))))
        watch.end()
        assert (await api.watch()).query["resourceVersion"] == str(api.version)
        assert len(api.queries("list")) == 1
        assert watched.slept.empty()
        assert watched.events.qsize() == (not bookmark)

    async def test_chosen_errors_end_the_reflector(self, api: FakeApi, session: Session, metrics: Metrics) -> None:
        reflector = Reflector(session, COLLECTION, _DECODER.decode, name="things", metrics=metrics)
        api.lists.append(status(404, "NotFound"))
        with pytest.raises(NotFound):
            await asyncio.wait_for(reflector.run(until=(NotFound,)), 30)


class TestTrouble:
    @pytest.mark.parametrize(
        ("answers", "lists", "naps"),
        [
            ([status(410, "Gone")], 2, 1),
            ([status(410, "Gone")] * 4, 5, 4),
            ([text("")] * 3, 1, 3),
            ([status(504, "Timeout", "Too large resource version")] * 3, 2, 3),
            ([status(503, "ServiceUnavailable")] * 2, 1, 2),
        ],
        ids=["410 in the answer", "410 without end", "ends at once", "etcd was restored", "server restarts"],
    )
    async def test_refused_watch_is_listed_only_where_that_helps(
        self, api: FakeApi, make: Make, answers: list[Answer], lists: int, naps: int
    ) -> None:
        """The version lies in a restored etcd's future: it answers 504 for ever."""
        api.watches.extend(answers)
        watched = make()
        await api.watch()
        assert (len(api.queries("list")), watched.slept.qsize()) == (lists, naps)

    async def test_version_that_expired_in_an_outage_is_listed_at_once_and_proves_nothing(
        self, api: FakeApi, make: Make, timed: Session, clock: Clock
    ) -> None:
        """After an outage of 8 s the wait for the next attempt may be 16 s, and the server is well."""
        watched, watch = await begun(api, make, timed)
        proven = watched.reflector.proven_at
        api.watches.extend([hang_up] * 4)
        clock.pass_(10)
        watch.end()
        api.lists.append(status(503, "ServiceUnavailable"))
        watch, naps = await api.watch(), watched.slept.qsize()
        watched.wake.clear()
        watch.send("ERROR", EXPIRED)
        await eventually(lambda: watched.slept.qsize() == naps + 1)  # after the list
        assert naps
        assert (len(api.queries("list")), watched.reflector.proven_at) == (2, proven)
        watched.wake.set()

    async def test_forbidden_watch_names_the_right_and_keeps_the_copy(self, api: FakeApi, make: Make) -> None:
        watched, watch = await begun(api, make)
        watched.wake.clear()
        api.watches.append(status(403, "Forbidden", 'User "x" cannot watch resource "things"'))
        watch.end()
        await watched.nap()
        assert 'cannot watch resource "things"' in str(watched.reflector.trouble)
        assert watched.colors() == {"shop/a": ""}

    async def test_too_many_requests_are_waited_out_for_30_s_at_most(self, api: FakeApi, make: Make) -> None:
        api.watches.append(status(429, "TooManyRequests", headers={"Retry-After": "4"}))
        api.watches.append(status(429, "TooManyRequests", headers={"Retry-After": "4000"}))
        watched = make()
        await api.watch()
        assert 4 <= await watched.nap() <= 4.5
        assert await watched.nap() == 30
        assert len(api.queries("list")) == 1


class TestProof:
    """When the copy was last known to be current, and for how long it may be believed."""

    async def test_list_proves_the_moment_of_its_first_request(
        self, api: FakeApi, make: Make, timed: Session, clock: Clock
    ) -> None:
        for index in range(4):
            api.put(f"x{index}")

        async def later(request: web.Request) -> web.StreamResponse:
            clock.pass_(50)
            return await api.listed(request)

        async def hangs(_request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        api.lists.extend([api.listed, later])
        api.watches.append(hangs)
        watched = make(timed, page=2)
        await watched.synced()
        assert (watched.reflector.confirmed_at, watched.reflector.proven_at) == (1000.0, 0.0)
        await watched.stop()

    async def test_connect_events_and_bookmarks_are_proofs(
        self, api: FakeApi, make: Make, timed: Session, clock: Clock, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("adapter.kube.session.MOST_SKEW_SECONDS", math.inf)  # the fake server's Date is of today
        watched, watch = await begun(api, make, timed)
        clock.pass_(10)
        watch.send("ADDED", api.put("b"))
        await eventually(lambda: watched.reflector.confirmed_at == 1010.0)
        clock.pass_(60)
        watch.send("BOOKMARK", api.bookmark())
        await eventually(lambda: watched.reflector.confirmed_at == 1070.0)
        clock.pass_(60)
        watch.end()
        again = await api.watch()
        await eventually(lambda: watched.reflector.confirmed_at == 1130.0)
        labels = {"resource": "things"}
        proof = metrics.registry.get_sample_value("effective_load_watch_last_proof_timestamp_seconds", labels)
        assert proof == 1130.0
        assert metrics.registry.get_sample_value("effective_load_watch_objects", labels) == 2
        again.end()

    async def test_silent_watch_reconnects_from_its_version(self, api: FakeApi, make: Make, metrics: Metrics) -> None:
        make(silence=0.9)
        watch = await api.watch()
        again = await api.watch()
        assert again.query["resourceVersion"] == watch.query["resourceVersion"]
        assert restarts(metrics, "silent") == 1
        assert len(api.queries("list")) == 1

    async def test_watch_after_a_long_silence_begins_with_a_list(
        self, api: FakeApi, make: Make, timed: Session, clock: Clock
    ) -> None:
        """A watch does not show when it has caught up."""
        watched, watch = await begun(api, make, timed)
        clock.pass_(91)
        assert watched.reflector.silent
        watch.cut()
        await api.watch()
        assert len(api.queries("list")) == 2
        assert not watched.reflector.silent

    async def test_clock_that_is_set_back_hides_no_silence(
        self, api: FakeApi, make: Make, timed: Session, clock: Clock
    ) -> None:
        watched, _ = await begun(api, make, timed)
        clock.wall -= 3600
        assert not watched.reflector.silent
        clock.pass_(91)
        assert watched.reflector.silent

    @pytest.mark.parametrize(("code", "answered"), [(403, True), (404, True), (503, False)])
    async def test_refused_list_is_an_answer(self, api: FakeApi, make: Make, code: int, *, answered: bool) -> None:
        api.lists.append(status(code, "Because"))
        watched = make()
        watched.wake.clear()
        await watched.nap()
        assert (watched.reflector.answered.is_set(), watched.reflector.synced.is_set()) == (answered, False)
        watched.wake.set()
        await watched.synced()
        assert watched.reflector.answered.is_set()


async def test_any_history_ends_in_the_state_of_the_server(api: FakeApi, make: Make) -> None:
    """The one thing that matters: whatever happens on the way, the copy becomes what the server has."""
    dice = random.Random(7)
    watched = make(page=3)

    async def settled() -> None:
        expected = {f"shop/{name}": item.get("color", "") for name, item in api.objects.items()}
        await eventually(lambda: watched.colors() == expected)

    for step in range(60):
        watch: Watch = await api.watch()
        for _ in range(dice.randint(0, 4)):
            name = f"x{dice.randint(0, 9)}"
            if name in api.objects and dice.random() < 0.4:
                watch.send("DELETED", api.remove(name))
            else:
                watch.send("MODIFIED", api.put(name, color=f"c{step}"))
        fault = dice.choice(["cut", "end", "expired", "silent change"])
        if fault == "silent change":  # the server forgets what happened: only a list can show it
            api.put(f"x{dice.randint(0, 9)}", color=f"s{step}")
        if fault in {"expired", "silent change"}:
            watch.send("ERROR", EXPIRED)
        else:
            watch.send("BOOKMARK", api.bookmark())
            if fault == "end":
                watch.end()
            else:
                await settled()
                watch.cut()
    await api.watch()
    await settled()
