"""What a Polaris says that a real one cannot be made to say."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.registries.polaris_kit import following

LIST: dict[str, Any] = {
    "code": 200000,
    "service": {"revision": "r1"},
    "instances": [
        {"id": "b", "host": "10.0.0.11", "port": 8080, "weight": None, "healthy": None, "isolate": None},
        {"id": "a", "host": "10.0.0.10", "port": 8080, "weight": 100, "healthy": True, "metadata": {"k": "v"}},
    ],
}


class Fake:
    """Answers everything with the status and body that a test sets."""

    def __init__(self) -> None:
        self.status, self.body = 200, json.dumps(LIST)
        self.asked: list[Any] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        return web.Response(status=self.status, text=self.body)


@pytest.fixture
async def fakes() -> AsyncIterator[Callable[[], Any]]:
    servers = []

    async def make() -> tuple[Fake, str]:
        fake, app = Fake(), web.Application()
        app.router.add_post("/v1/Discover", fake.answer)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return fake, str(server.make_url("/"))

    yield make
    for server in servers:
        await server.close()


async def test_what_is_not_said_of_an_instance_is_no_evidence_and_their_order_does_not_count(fakes: Any) -> None:
    fake, url = await fakes()
    async with following(url) as world:
        await world.until_listed(2)
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


async def test_the_revision_that_was_heard_last_is_asked_with(fakes: Any) -> None:
    fake, url = await fakes()
    async with following(url) as world:
        await world.until_listed(2)
        await world.until_confirmed()
        fake.body = json.dumps({"code": 200001})
        await world.until_confirmed()
        assert world.listed == 2
        asked = [question["service"]["revision"] for question in fake.asked]
    assert asked[0] == ""
    assert set(asked[1:]) == {"r1"}
    assert fake.asked[0] == {"type": 1, "service": {"name": "shop", "namespace": "default", "revision": ""}}


async def test_every_two_minutes_it_is_asked_without_a_revision(fakes: Any) -> None:
    fake, url = await fakes()
    async with following(url) as world:
        await world.until_listed(2)
        fake.body = json.dumps({"code": 200001})
        await world.until_confirmed()
        world.clock.jump(121)  # "not modified" for ever, as of a server that mixed two services up
        await world.until(lambda: "to a request for the whole list" in world.error)
        assert fake.asked[-1]["service"]["revision"] == ""
        fake.body = json.dumps(LIST)
        await world.until(lambda: not world.error)


@pytest.mark.parametrize(
    ("code", "named"), [(200000, {"name": "cart"}), (200001, {"name": "cart"}), (200000, {"namespace": "other"})]
)
async def test_an_answer_about_another_service_is_not_taken(fakes: Any, code: int, named: dict[str, str]) -> None:
    fake, url = await fakes()
    async with following(url) as world:
        await world.until_listed(2)
        service = {"name": "shop", "namespace": "default", "revision": "r2", **named}
        fake.body = json.dumps({"code": code, "service": service, "instances": []})
        await world.until(lambda: "the answer is of" in world.error)
        assert world.listed == 2


async def test_an_alias_is_answered_for_by_what_it_stands_for(fakes: Any) -> None:
    fake, url = await fakes()
    named = {"name": "shop", "namespace": "default"}
    service = {"name": "shop-v2", "namespace": "default", "revision": "r2"}
    fake.body = json.dumps({**LIST, "service": service, "aliasFor": named})
    async with following(url) as world:
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
async def test_what_is_no_list_leaves_the_last_one(fakes: Any, status: int, body: str, words: str) -> None:
    fake, url = await fakes()
    async with following(url) as world:
        await world.until_listed(2)
        with world.pods.nothing_changes():
            fake.status, fake.body = status, body
            await world.until(lambda: words in world.error)
            assert world.listed == 2
        fake.status, fake.body = 200, json.dumps(LIST)
        await world.until(lambda: not world.error)


@pytest.mark.parametrize("code", [500000, 429002, 403003])
async def test_a_server_in_trouble_is_left_for_the_next(fakes: Any, code: int) -> None:
    first, one = await fakes()
    second, other = await fakes()
    first.status, first.body = 500, json.dumps({"code": code, "info": "x"})
    async with following(one, other) as world:
        await world.until_listed(2)
    assert len(first.asked) == 1
    assert second.asked


async def test_a_refusal_is_not_put_to_the_next(fakes: Any) -> None:
    first, one = await fakes()
    second, other = await fakes()
    first.status, first.body = 401, json.dumps({"code": 401001, "info": "x"})
    async with following(one, other) as world:
        await world.until(lambda: world.error)
    assert not second.asked
