"""A Polaris source that runs, and the pods whose service it follows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from adapter.load.roster import Roster
from adapter.registries.polaris.source import PolarisSource
from adapter.registries.roster import ServiceKey
from adapter.settings.registries import PolarisRegistry
from harness.registries.polaris import Polaris
from tests.registries.trust import Clock, Ears, Service, book, follow

REGISTRY = "polaris"


class Pods:
    """The pods `web-0` … at 10.0.0.10 …, as Polaris' own API registers and pulls them out."""

    def __init__(self, polaris: Polaris, service: str, namespace: str = "default") -> None:
        self._polaris, self._place = polaris, {"service": service, "namespace": namespace}

    def register(self, *numbers: int, **more: object) -> None:
        """Register these pods."""
        self._call("POST", "", numbers, **more)

    def change(self, *numbers: int, **fields: object) -> None:
        """Change registrations: `isolate`, `healthy`, `weight`, `metadata`."""
        self._call("PUT", "", numbers, **fields)

    def isolate(self, number: int, *, isolate: bool) -> None:
        """Isolate a pod by its host, as the console does, or put it back."""
        one = {**self._place, "host": f"10.0.0.{10 + number}", "isolate": isolate}
        self._polaris.call("PUT", "/naming/v1/instances/isolate/host", [one])

    def deregister(self, *numbers: int) -> None:
        """Take these pods' registrations away."""
        self._call("POST", "/delete", numbers)

    def _call(self, method: str, path: str, numbers: tuple[int, ...], **fields: object) -> None:
        instances = [{**self._place, "host": f"10.0.0.{10 + n}", "port": 8080, **fields} for n in numbers]
        self._polaris.call(method, f"/naming/v1/instances{path}", instances)


class Followed:
    """One service in a Polaris, and four pods that register under it."""

    def __init__(self, *servers: str, service: str = "shop", namespace: str = "", **settings: Any) -> None:
        self.key = ServiceKey(REGISTRY, service, namespace)
        given = {"name": REGISTRY, "type": "Polaris", "servers": servers, "interval_seconds": 0.2, **settings}
        self.settings = PolarisRegistry(**given)
        self.clock, self.ears = Clock(), Ears()
        self.book = book(REGISTRY, self.clock, self.ears)
        self.source = PolarisSource(self.settings, self.book)
        self.pods = Service(self.book, self.key, self.clock)

    @property
    def roster(self) -> Roster:
        """What is known of the service. It must be known."""
        found = self.book.roster(self.key)
        assert found is not None
        return found

    @property
    def error(self) -> str:
        """Why there is no valid answer, or none since; empty where all is well."""
        trouble = self.book.trouble(self.key)
        return trouble.sentence if trouble is not None else ""

    @property
    def listed(self) -> list[str]:
        """The addresses of the last valid answer."""
        found = self.book.roster(self.key)
        return [one.ip for one in found.instances] if found is not None and found.valid else []

    async def until(self, told: Callable[[], object], seconds: float = 20) -> None:
        """Wait until that is so; looked at after each change that the source tells."""
        try:
            await self.ears.until(lambda: bool(told()), seconds)
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s; last: {self.book.roster(self.key)}") from None

    async def until_listed(self, count: int) -> None:
        """Wait until so many are listed, and nothing is wrong."""
        await self.until(lambda: len(self.listed) == count and not self.error)

    async def until_out(self, *names: str) -> None:
        """Wait until exactly these pods are out."""
        await self.until(lambda: self.pods.out() == list(names))

    async def confirmed(self) -> None:
        """Wait until the last answer was confirmed, or replaced."""
        before = self.roster.at
        async with asyncio.timeout(20):
            while self.roster.at <= before:  # noqa: ASYNC110  a confirmation is no change, so nobody tells of it
                await asyncio.sleep(0.05)

    def aged(self, seconds: int) -> set[str]:
        """Let so much time pass in which answers are confirmed every 10 s; who was out meanwhile."""
        out: set[str] = set()
        for _ in range(seconds // 10):
            self.clock.jump(10)
            self.book.confirm()
            out.update(self.pods.out())
        return out


@contextlib.asynccontextmanager
async def following(*servers: str, **more: Any) -> AsyncIterator[Followed]:
    """A source that runs and follows the service of four pods; the clock is the book's."""
    world = Followed(*servers, **more)
    follow(world, [world.key])
    task = asyncio.create_task(world.source.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
