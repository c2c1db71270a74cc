"""One service that is polled: its tags and its pace."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from adapter.load.roster import Instance, Roster
from adapter.registries.servers import Polled, poll
from adapter.runtime.source_errors import SourceError, SourceUnreachable

ONE, TWO = (Roster((Instance(ip=ip),)) for ip in ("10.0.0.1", "10.0.0.2"))


class Registry:
    """Gives what a test says, in turn, and the last of it from then on; `tags` are those that came."""

    def __init__(self, *said: Polled | SourceError | None) -> None:
        self.said = list(said)
        self.tags: list[str] = []

    async def ask(self, tag: str) -> Polled | None:
        self.tags.append(tag)
        said = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(said, SourceError):
            raise said
        return said

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


async def test_error_is_raised_to_the_reader() -> None:
    async with Registry(SourceUnreachable("refused")).polled() as answers:
        with pytest.raises(SourceUnreachable):
            await anext(answers)


async def test_service_is_asked_about_once_in_an_interval() -> None:
    loop = asyncio.get_running_loop()
    async with Registry(Polled(ONE)).polled(0.1) as answers:
        await anext(answers)
        await anext(answers)  # the second question comes at a random time
        began = loop.time()
        for _ in range(5):
            await anext(answers)
    assert loop.time() - began >= 0.4
