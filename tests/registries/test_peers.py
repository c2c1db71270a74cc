"""Several servers of one registry."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.registries.client import Failover, refusal, send
from adapter.runtime.answer_budget import Limit
from adapter.runtime.outbound import Access, Client, Reply
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongAnswer,
    WrongRegistryAnswer,
)

A, B, C = "http://a", "http://b", "http://c"


class Servers:
    """Peers whose answers the test sets: an error is raised, all else is the answer."""

    def __init__(self, *servers: str) -> None:
        self.switches: list[str] = []
        self.peers = Failover(servers, lambda: self.switches.append(self.peers.current))
        self.faults: dict[str, SourceError] = {}
        self.asked: list[str] = []

    async def ask(self) -> str:
        return await self.peers.ask(self._answer)

    async def _answer(self, server: str) -> str:
        self.asked.append(server)
        await asyncio.sleep(0)
        if server in self.faults:
            raise self.faults[server]
        return server


async def test_the_first_server_is_asked_until_it_fails() -> None:
    servers = Servers(f"{A}/", B)
    assert [await servers.ask(), await servers.ask()] == [A, A]
    assert servers.switches == []


@pytest.mark.parametrize("error", [SourceUnreachable("no answer"), SourceFailing("HTTP 500")])
async def test_a_server_that_fails_is_left_for_the_next_and_not_come_back_to(error: SourceError) -> None:
    servers = Servers(A, B, C)
    servers.faults = {A: error}
    assert await servers.ask() == B
    servers.faults = {}
    assert await servers.ask() == B
    assert servers.switches == [B]


@pytest.mark.parametrize("error", [NotAuthenticated("401"), NotAllowed("403"), WrongRegistryAnswer("no JSON")])
async def test_a_refusal_is_not_put_to_another_server(error: SourceError) -> None:
    servers = Servers(A, B)
    servers.faults = {A: error}
    with pytest.raises(type(error)):
        await servers.ask()
    assert servers.asked == [A]


async def test_each_server_is_asked_once_before_the_last_ones_error_is_raised() -> None:
    servers = Servers(A, B, C)
    servers.faults = {one: SourceUnreachable(one) for one in (A, B, C)}
    with pytest.raises(SourceUnreachable, match="http://c"):
        await servers.ask()
    assert servers.asked == [A, B, C]


async def test_questions_side_by_side_leave_a_server_once() -> None:
    servers = Servers(A, B, C)
    servers.faults = {A: SourceUnreachable("no answer")}
    assert await asyncio.gather(*(servers.ask() for _ in range(5))) == [B] * 5
    assert servers.switches == [B]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, NotAuthenticated),
        (403, NotAllowed),
        (429, SourceFailing),
        (500, SourceFailing),
        (503, SourceFailing),
        (302, WrongRegistryAnswer),
        (404, WrongRegistryAnswer),
        (410, WrongRegistryAnswer),
    ],
)
def test_a_status_that_is_no_answer_becomes_its_error_with_the_registrys_words(
    status: int, kind: type[SourceError]
) -> None:
    error = refusal(Reply(status, {}, b" ACL\n not  found "))
    assert type(error) is kind
    assert str(error) == f"HTTP {status}: ACL not found"
    assert str(refusal(Reply(status, {}, b""))) == f"HTTP {status}"


async def fetched(handler: Callable[[web.Request], object], **more: int) -> Reply:
    app = web.Application()
    app.router.add_get("/", handler)  # type: ignore[arg-type]
    async with TestServer(app) as server:
        client = Client(Access(), timeout=5, **more)
        try:
            return await send(client, "GET", str(server.make_url("/")))
        finally:
            await client.close()


async def test_an_answer_of_any_status_is_a_reply() -> None:
    async def gone(_request: web.Request) -> web.Response:
        return web.Response(status=410, text="use v3", headers={"X-Index": "7"})

    reply = await fetched(gone)
    assert (reply.status, reply.body, reply.headers["x-index"]) == (410, b"use v3", "7")


async def test_an_answer_that_is_too_large_is_wrong() -> None:
    async def huge(_request: web.Request) -> web.Response:
        return web.Response(body=b" " * 2048)

    with pytest.raises(WrongAnswer, match="larger"):
        await fetched(huge, limit=Limit(1024))


async def test_a_server_that_cannot_be_reached_is_named() -> None:
    client = Client(Access(), timeout=5)
    with pytest.raises(SourceUnreachable, match=r"http://127\.0\.0\.1:1/x"):
        await send(client, "GET", "http://127.0.0.1:1/x")
    await client.close()
