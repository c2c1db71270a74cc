"""What a Polaris says that a real one cannot be made to say."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

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
    """Answers everything at `url` with the status and body that a test sets."""

    def __init__(self) -> None:
        self.status, self.body, self.url = 200, json.dumps(LIST), ""
        self.asked: list[Any] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
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


async def test_missing_fields_and_another_order_are_not_evidence(fake: Fake, world: Followed) -> None:
    assert world.pods.out() == []
    first, second = world.listing.instances
    assert (first.ip, second.ip) == ("10.0.0.10", "10.0.0.11")
    assert (second.healthy, second.isolated, second.weight) == (True, False, None)
    assert (first.metadata, first.registered_at) == ({"k": "v"}, None)
    reported = len(world.changes.received)
    fake.body = json.dumps({**LIST, "instances": LIST["instances"][::-1]})
    await world.until_confirmed()
    await world.until_confirmed()
    assert len(world.changes.received) == reported


async def test_last_revision_is_sent_and_no_change_confirms(fake: Fake, world: Followed) -> None:
    await world.until_confirmed()
    fake.body = json.dumps({"code": 200001})
    await world.until_confirmed()
    assert world.listed == 2
    assert fake.asked[0] == {"type": 1, "service": {"name": "shop", "namespace": "default", "revision": ""}}
    assert {question["service"]["revision"] for question in fake.asked[1:]} == {"r1"}


@pytest.mark.parametrize(
    ("code", "named"), [(200000, {"name": "cart"}), (200001, {"name": "cart"}), (200000, {"namespace": "other"})]
)
async def test_answer_about_another_service_is_an_error(
    fake: Fake, world: Followed, code: int, named: dict[str, str]
) -> None:
    service = {"name": "shop", "namespace": "default", "revision": "r2", **named}
    fake.body = json.dumps({"code": code, "service": service, "instances": []})
    await world.until_error("the answer is of")
    assert world.listed == 2


async def test_alias_is_answered_by_its_target(fake: Fake) -> None:
    named = {"name": "shop", "namespace": "default"}
    service = {"name": "shop-v2", "namespace": "default", "revision": "r2"}
    fake.body = json.dumps({**LIST, "service": service, "aliasFor": named})
    async with following(fake.url) as world:
        await world.until_listed(2)


async def test_no_change_for_the_whole_list_is_an_error(fake: Fake) -> None:
    fake.body = json.dumps({"code": 200001})
    async with following(fake.url) as world:
        await world.until_error("it answers 'no change' to a request for the whole list")


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
async def test_answer_without_a_list_leaves_the_last_one(
    fake: Fake, world: Followed, status: int, body: str, words: str
) -> None:
    with world.pods.nothing_changes():
        fake.status, fake.body = status, body
        await world.until_error(words)
        assert world.listed == 2
    fake.status, fake.body = 200, json.dumps(LIST)
    await world.until(lambda: not world.error)


@pytest.mark.parametrize(
    ("status", "code", "asks_the_next"),
    [(500, 500000, True), (500, 429002, True), (500, 403003, True), (401, 401001, False)],
)
async def test_next_server_is_asked_after_trouble_and_not_after_a_refusal(
    fake: Fake, status: int, code: int, asks_the_next: bool
) -> None:
    async with serving() as first, following(first.url, fake.url) as world:
        first.status, first.body = status, json.dumps({"code": code, "info": "x"})
        await world.until(lambda: world.error or world.listed == 2)
    assert bool(fake.asked) is asks_the_next
    assert not asks_the_next or len(first.asked) == 1
