"""Several servers of one registry, and one service that is polled: its tags and its pace."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from adapter.load.roster import Instance, Roster
from adapter.registries.servers import Polled, Servers, path_segment, poll
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


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    made = Asked(f"{A}/", B, C)
    yield made
    await made.servers.close()


@pytest.mark.parametrize("error", [SourceUnreachable("no answer"), SourceFailing("HTTP 500")])
async def test_server_that_fails_is_left_for_the_next_one_for_good(asked: Asked, error: SourceError) -> None:
    assert [await asked.ask(), await asked.ask()] == [A, A]
    asked.faults = {A: error}
    assert await asked.ask() == B
    asked.faults = {}
    assert await asked.ask() == B


@pytest.mark.parametrize("error", [NotAuthenticated("401"), NotAllowed("403"), WrongAnswer("no JSON")])
async def test_refusal_is_not_asked_of_another_server(asked: Asked, error: SourceError) -> None:
    asked.faults = {A: error}
    with pytest.raises(type(error)):
        await asked.ask()
    assert asked.asked == [A]


async def test_each_server_is_asked_once_before_the_last_error_is_raised(asked: Asked) -> None:
    asked.faults = {one: SourceUnreachable(one) for one in (A, B, C)}
    with pytest.raises(SourceUnreachable, match="http://c"):
        await asked.ask()
    assert asked.asked == [A, B, C]


async def test_concurrent_questions_leave_a_server_once(asked: Asked) -> None:
    asked.faults = {A: SourceUnreachable("no answer")}
    assert await asyncio.gather(*(asked.ask() for _ in range(5))) == [B] * 5


@pytest.mark.parametrize("service", ["", ".", ".."])
def test_service_is_never_another_path(service: str) -> None:
    with pytest.raises(SourceError, match="cannot be the name of a service"):
        path_segment(service)
    assert path_segment("a/../b?c#d%2e") == "a%2F..%2Fb%3Fc%23d%252e"


# --- polls ---

ONE, TWO = (Roster((Instance(ip=ip),)) for ip in ("10.0.0.1", "10.0.0.2"))


class Registry:
    """Gives what a test says, in turn, and the last of it from then on; `tags` are those that came."""

    def __init__(self, *said: Polled | None) -> None:
        self.said = list(said)
        self.tags: list[str] = []

    async def ask(self, tag: str) -> Polled | None:
        self.tags.append(tag)
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]

    @contextlib.asynccontextmanager
    async def polled(self, interval: float = 0.01, **more: float) -> AsyncIterator[AsyncIterator[Roster]]:
        async with contextlib.aclosing(poll(interval, self.ask, **more)) as answers:
            yield answers


async def test_unchanged_answer_is_confirmed_by_its_tag() -> None:
    registry = Registry(Polled(ONE, "a"), None, Polled(TWO, "b"), None)
    async with registry.polled() as answers:
        found = [await anext(answers) for _ in range(4)]
    assert found == [ONE, ONE, TWO, TWO]
    assert found[1] is found[0]
    assert registry.tags == ["", "a", "a", "b"]


async def test_tag_is_left_out_once_it_is_old() -> None:
    registry = Registry(Polled(ONE, "a"))
    async with registry.polled(tag_seconds=0) as answers:
        for _ in range(3):
            await anext(answers)
    assert registry.tags == ["", "", ""]


async def test_service_is_asked_about_once_in_an_interval() -> None:
    loop = asyncio.get_running_loop()
    async with Registry(Polled(ONE)).polled(0.1) as answers:
        await anext(answers)
        await anext(answers)  # the second question comes at a random time
        began = loop.time()
        for _ in range(5):
            await anext(answers)
    assert loop.time() - began >= 0.4
