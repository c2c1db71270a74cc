"""Several servers of one registry, and statuses as errors."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from adapter.registries.servers import Servers, path_segment, refusal
from adapter.runtime.http import Reply
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongAnswer,
)
from adapter.settings.registries import ConsulRegistry

A, B, C = "http://a", "http://b", "http://c"


class Asked:
    """Servers whose answers the test sets: an error of `faults` is raised, all else is the server's address."""

    def __init__(self, *servers: str) -> None:
        self.servers = Servers(ConsulRegistry(name="consul", type="Consul", servers=servers))
        self.faults: dict[str, SourceError] = {}
        self.asked: list[str] = []

    async def ask(self) -> str:
        return await self.servers.ask(self._answer)

    async def _answer(self, server: str) -> str:
        self.asked.append(server)
        await asyncio.sleep(0)
        if server in self.faults:
            raise self.faults[server]
        return server


Make = Callable[..., Asked]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes servers, which are closed in the end."""
    made: list[Asked] = []

    def one(*servers: str) -> Asked:
        made.append(Asked(*servers))
        return made[-1]

    yield one
    for each in made:
        await each.servers.close()


async def test_first_server_is_asked_until_it_fails(make: Make) -> None:
    asked = make(f"{A}/", B)
    assert [await asked.ask(), await asked.ask()] == [A, A]


@pytest.mark.parametrize("error", [SourceUnreachable("no answer"), SourceFailing("HTTP 500")])
async def test_server_that_fails_is_left_for_the_next_one_for_good(make: Make, error: SourceError) -> None:
    asked = make(A, B, C)
    asked.faults = {A: error}
    assert await asked.ask() == B
    asked.faults = {}
    assert await asked.ask() == B


@pytest.mark.parametrize("error", [NotAuthenticated("401"), NotAllowed("403"), WrongAnswer("no JSON")])
async def test_refusal_is_not_asked_of_another_server(make: Make, error: SourceError) -> None:
    asked = make(A, B)
    asked.faults = {A: error}
    with pytest.raises(type(error)):
        await asked.ask()
    assert asked.asked == [A]


async def test_each_server_is_asked_once_before_the_last_error_is_raised(make: Make) -> None:
    asked = make(A, B, C)
    asked.faults = {one: SourceUnreachable(one) for one in (A, B, C)}
    with pytest.raises(SourceUnreachable, match="http://c"):
        await asked.ask()
    assert asked.asked == [A, B, C]


async def test_concurrent_questions_leave_a_server_once(make: Make) -> None:
    asked = make(A, B, C)
    asked.faults = {A: SourceUnreachable("no answer")}
    assert await asyncio.gather(*(asked.ask() for _ in range(5))) == [B] * 5


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, NotAuthenticated),
        (403, NotAllowed),
        (429, SourceFailing),
        (500, SourceFailing),
        (503, SourceFailing),
        (302, WrongAnswer),
        (404, WrongAnswer),
        (410, WrongAnswer),
    ],
)
def test_status_without_a_list_is_an_error_that_quotes_the_registry(status: int, kind: type[SourceError]) -> None:
    error = refusal(Reply(status, {}, b" ACL\n not  found "))
    assert type(error) is kind
    assert str(error) == f"HTTP {status}: ACL not found"
    assert str(refusal(Reply(status, {}, b""))) == f"HTTP {status}"


def test_quoted_text_is_short() -> None:
    assert len(str(refusal(Reply(500, {}, b"a" * 5000)))) == len("HTTP 500: ") + 200


@pytest.mark.parametrize("service", ["", ".", ".."])
def test_service_is_never_another_path(service: str) -> None:
    with pytest.raises(SourceError, match="cannot be the name of a service"):
        path_segment(service)
    assert path_segment("a/../b?c#d%2e") == "a%2F..%2Fb%3Fc%23d%252e"
