"""Several servers of one registry."""

import asyncio

import pytest

from adapter.registries.client import Failover, base_urls, refusal
from adapter.runtime.outbound import Reply
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongRegistryAnswer,
)

A, B, C = "http://a", "http://b", "http://c"


class Servers:
    """Peers whose answers the test sets: an error is raised, all else is the answer."""

    def __init__(self, *servers: str) -> None:
        self.peers = Failover(base_urls(servers))
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


@pytest.mark.parametrize("error", [SourceUnreachable("no answer"), SourceFailing("HTTP 500")])
async def test_a_server_that_fails_is_left_for_the_next_and_not_come_back_to(error: SourceError) -> None:
    servers = Servers(A, B, C)
    servers.faults = {A: error}
    assert await servers.ask() == B
    servers.faults = {}
    assert await servers.ask() == B


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
