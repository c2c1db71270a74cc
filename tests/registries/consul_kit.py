"""A Consul source that runs, and the pods whose service it follows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from adapter.load.roster import Roster
from adapter.registries.consul.source import ConsulSource
from adapter.registries.roster import ServiceKey
from adapter.settings.registries import ConsulRegistry
from harness.registries.consul import Consul
from tests.registries.trust import Clock, Ears, Service, book, follow

REGISTRY = "consul"


class Followed:
    """One service in a Consul, and four pods (`web-0` … at 10.0.0.10 …) that register under it."""

    def __init__(self, servers: Sequence[str], service: str, **settings: Any) -> None:
        self.key = ServiceKey(REGISTRY, service, **settings.pop("place", {}))
        self.settings = ConsulRegistry(
            **{"name": REGISTRY, "type": "Consul", "servers": tuple(servers), "timeout_seconds": 2, **settings}
        )
        self.clock, self.ears = Clock(), Ears()
        self.book = book(REGISTRY, self.clock, self.ears)
        self.source = ConsulSource(self.settings, self.book)
        self.pods = Service(self.book, self.key, self.clock)

    @property
    def roster(self) -> Roster:
        """What is known of the service. It must be known."""
        found = self.book.roster(self.key)
        assert found is not None
        return found

    @property
    def error(self) -> str:
        """Why the last answer is not valid, or none came since; empty where all is well."""
        trouble = self.book.trouble(self.key)
        return trouble.sentence if trouble is not None else ""

    @property
    def listed(self) -> int:
        """How many instances the last valid answer has."""
        found = self.book.roster(self.key)
        return len(found.instances) if found is not None and found.valid else -1

    async def until(self, told: Callable[[], object], seconds: float = 30) -> None:
        """Wait until that is so; looked at after each change that the source tells."""
        try:
            await self.ears.until(lambda: bool(told()), seconds)
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s; last: {self.book.roster(self.key)}") from None

    async def until_listed(self, count: int) -> None:
        """Wait until so many instances are listed, and nothing is wrong."""
        await self.until(lambda: self.listed == count and not self.error)

    async def until_out(self, *names: str) -> None:
        """Wait until exactly these pods are out."""
        await self.until(lambda: self.pods.out() == list(names))

    async def until_error(self, words: str) -> None:
        """Wait until the error holds these words."""
        await self.until(lambda: words in self.error)

    def aged(self, seconds: int) -> set[str]:
        """Let so much time pass in which the last answers are confirmed every 10 s; who was out meanwhile."""
        out: set[str] = set()
        for _ in range(seconds // 10):
            self.clock.jump(10)
            self.book.confirm()
            out.update(self.pods.out())
        return out


@contextlib.asynccontextmanager
async def following(servers: Consul | Iterable[str], service: str, **settings: Any) -> AsyncIterator[Followed]:
    """Follow a service while the block runs. `settings` are those of the registry; `place` fields of the key."""
    urls = [servers.url] if isinstance(servers, Consul) else list(servers)
    followed = Followed(urls, service, **settings)
    follow(followed, [followed.key])
    task = asyncio.create_task(followed.source.run())
    try:
        yield followed
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def register_pods(consul: Consul, service: str, count: int = 4, **more: object) -> None:
    """Register the pods of `Followed` with a Consul."""
    for number in range(count):
        consul.register(service, f"{service}-{number}", f"10.0.0.{10 + number}", **more)
