"""What a Polaris says that a real one cannot be made to say."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.registries.source import ServiceKey
from tests.registries.polaris_kit import Followed, following

LIST: dict[str, Any] = {
    "code": 200000,
    "service": {"revision": "r1"},
    "instances": [
        {"id": "b", "host": "10.0.0.11", "port": 8080, "weight": None, "healthy": None, "isolate": None},
        {"id": "a", "host": "10.0.0.10", "port": 8080, "weight": 100, "healthy": True, "metadata": {"k": "v"}},
    ],
}


class Fake:
    """Answers everything at `url` with the status and body that a test sets; of services that are `ill` with a 504,
    which takes `pause` seconds.
    """

    def __init__(self) -> None:
        self.status, self.body, self.url = 200, json.dumps(LIST), ""
        self.asked: list[Any] = []
        self.ill: set[str] = set()
        self.pause = 0.0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        if self.asked[-1]["service"]["name"] in self.ill:
            await asyncio.sleep(self.pause)
            return web.Response(status=504, text="gateway timeout")
        return web.Response(status=self.status, text=self.body)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Fake]:
    fake, app = Fake(), web.Application()
    app.router.add_post("/v1/Discover", fake.answer)
    async with TestServer(app) as server:
        fake.url = str(server.make_url("/"))
        yield fake


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    async with serving() as polaris:
        yield polaris


@pytest.fixture
async def world(fake: Fake) -> AsyncIterator[Followed]:
    async with following(fake.url) as followed:
        await followed.until_listed(2)
        yield followed


async def test_what_is_not_said_of_an_instance_is_no_evidence_and_their_order_does_not_count(
    fake: Fake, world: Followed
) -> None:
    assert world.pods.out() == []
    first, second = world.roster.instances
    assert (first.ip, second.ip) == ("10.0.0.10", "10.0.0.11")
    assert (second.healthy, second.isolated, second.weight) == (True, False, None)
    assert (first.metadata, first.registered_at) == ({"k": "v"}, None)
    told = len(world.changes.received)
    fake.body = json.dumps({**LIST, "instances": LIST["instances"][::-1]})
    await world.until_confirmed()
    await world.until_confirmed()
    assert len(world.changes.received) == told


async def test_the_revision_that_was_heard_last_is_asked_with_but_for_once_in_two_minutes(
    fake: Fake, world: Followed
) -> None:
    await world.until_confirmed()
    fake.body = json.dumps({"code": 200001})
    await world.until_confirmed()
    assert world.listed == 2
    assert fake.asked[0] == {"type": 1, "service": {"name": "shop", "namespace": "default", "revision": ""}}
    assert {question["service"]["revision"] for question in fake.asked[1:]} == {"r1"}
    world.clock.jump(121)  # "not modified" for ever, as of a server that mixed two services up
    await world.until_error("to a request for the whole list")
    assert fake.asked[-1]["service"]["revision"] == ""
    fake.body = json.dumps(LIST)
    await world.until(lambda: not world.error)


@pytest.mark.parametrize(
    ("code", "named"), [(200000, {"name": "cart"}), (200001, {"name": "cart"}), (200000, {"namespace": "other"})]
)
async def test_an_answer_about_another_service_is_not_taken(
    fake: Fake, world: Followed, code: int, named: dict[str, str]
) -> None:
    service = {"name": "shop", "namespace": "default", "revision": "r2", **named}
    fake.body = json.dumps({"code": code, "service": service, "instances": []})
    await world.until_error("the answer is of")
    assert world.listed == 2


async def test_an_alias_is_answered_for_by_what_it_stands_for(fake: Fake) -> None:
    named = {"name": "shop", "namespace": "default"}
    service = {"name": "shop-v2", "namespace": "default", "revision": "r2"}
    fake.body = json.dumps({**LIST, "service": service, "aliasFor": named})
    async with following(fake.url) as world:
        await world.until_listed(2)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, "<html>", "not an answer of Polaris' discovery API"),
        (200, '{"code": 200000}', "Polaris answers 200000"),
        (404, "not here", "HTTP 404: not here"),
        (500, json.dumps({"code": 500000, "info": "execute exception"}), "Polaris answers 500000: execute exception"),
        (502, "bad gateway", "HTTP 502"),
        (401, json.dumps({"code": 401001, "info": "invalid token"}), "invalid token; check tokenFile"),
        (403, json.dumps({"code": 403001, "info": "forbidden"}), "give the adapter's token the right"),
        (429, json.dumps({"code": 429002, "info": "too fast"}), "Polaris answers 429002: too fast"),
        (400, json.dumps({"code": 400100, "info": "bad"}), "Polaris answers 400100: bad"),
        (404, json.dumps({"code": 400202, "info": "not found"}), "Polaris knows no such service there"),
    ],
)
async def test_what_is_no_list_leaves_the_last_one(
    fake: Fake, world: Followed, status: int, body: str, words: str
) -> None:
    with world.pods.nothing_changes():
        fake.status, fake.body = status, body
        await world.until_error(words)
        assert world.listed == 2
    fake.status, fake.body = 200, json.dumps(LIST)
    await world.until(lambda: not world.error)


async def test_a_service_that_a_server_cannot_answer_is_no_error_of_others(
    fake: Fake,
) -> None:
    async with following(fake.url, interval_seconds=1) as world:
        await world.until_listed(2)
        ill = world.key._replace(service="ill")
        fake.ill = {"ill"}
        world.follow([world.key, ill])
        await world.until(lambda: "504" in world.error_of(ill))
        for _ in range(4):
            await world.until_confirmed()
            assert not world.error
            assert "504" in world.error_of(ill)


@pytest.mark.parametrize(("ill", "pause"), [(3, 0.0), (4, 0.6)], ids=["neighbours", "late together"])
async def test_services_that_are_asked_about_together_and_fail_are_no_fault_of_the_server(
    fake: Fake, ill: int, pause: float
) -> None:
    """Neighbours in the order of the names share a turn, and late services have turns of their own."""
    async with following(fake.url, service="shop-00", interval_seconds=1) as world:
        keys = [world.key._replace(service=f"shop-{number:02}") for number in range(16)]
        fake.ill, fake.pause = {key.service for key in keys[-ill:]}, pause
        world.follow(keys)
        await world.until(lambda: all("504" in world.error_of(key) for key in keys[-ill:]))
        for _ in range(3):
            last = {key: listed_at(world, key) for key in keys[:-ill]}
            await world.until(lambda last=last: all(listed_at(world, key) > at for key, at in last.items()))
            assert not any(world.error_of(key) for key in keys[:-ill])


def listed_at(world: Followed, key: ServiceKey) -> float:
    """The time of a service's last answer."""
    roster = world.book.roster(key)
    return roster.at if roster is not None and roster.valid else 0.0


@pytest.mark.parametrize(
    ("status", "code", "asks_the_next"),
    [(500, 500000, True), (500, 429002, True), (500, 403003, True), (401, 401001, False)],
)
async def test_the_next_server_is_asked_where_the_first_is_in_trouble_and_not_where_it_refuses(
    fake: Fake, status: int, code: int, asks_the_next: bool
) -> None:
    async with serving() as first, following(first.url, fake.url) as world:
        first.status, first.body = status, json.dumps({"code": code, "info": "x"})
        await world.until(lambda: world.error or world.listed == 2)
    assert bool(fake.asked) is asks_the_next
    assert not asks_the_next or len(first.asked) == 1
