"""A Eureka source that runs, the pods whose service it follows, and a Eureka that says what a test tells it."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.load.roster import Roster
from adapter.registries.eureka.source import EurekaSource
from adapter.registries.roster import ServiceKey
from adapter.settings.registries import EurekaRegistry
from harness.registries.eureka import EurekaServer
from tests.registries.trust import Clock, Ears, Service, book, follow

REGISTRY = "eureka"


class Pulse(Clock):
    """A clock that tells when it is read, as it is at each answer, also where nothing has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.read = asyncio.Event()

    def __call__(self) -> float:
        self.read.set()
        return super().__call__()


class Bell(Ears):
    """An `on_change` that wakes those who wait for the clock to be read."""

    def __init__(self, clock: Pulse) -> None:
        super().__init__()
        self._clock = clock

    def __call__(self, key: ServiceKey) -> None:
        super().__call__(key)
        self._clock.read.set()


class Followed:
    """One service in a Eureka, and four pods (`web-0` … at 10.0.0.10 …) that register under it."""

    def __init__(self, servers: Iterable[str], service: str, **settings: Any) -> None:
        self.key = ServiceKey(REGISTRY, service)
        named = {"name": REGISTRY, "type": "Eureka", "servers": tuple(servers)}
        self.settings = EurekaRegistry(**{**named, "interval_seconds": 0.1, "timeout_seconds": 5, **settings})
        self.clock = Pulse()
        self.ears = Bell(self.clock)
        self.book = book(REGISTRY, self.clock, self.ears)
        self.source = EurekaSource(self.settings, self.book)
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
    def statuses(self) -> dict[str, str]:
        """The status of each instance by its id, in the last valid answer."""
        found = self.book.roster(self.key)
        return {one.metadata["instanceId"]: one.status for one in found.instances} if found is not None else {}

    @property
    def listed(self) -> int:
        """How many instances the last valid answer has; -1 where there is none."""
        found = self.book.roster(self.key)
        return len(found.instances) if found is not None and found.valid else -1

    def reconnected(self) -> bool:
        """Whether the roster tells of a reconnect, or of a restart."""
        return self.roster.reconnected_at is not None

    async def until(self, told: Callable[[], object], seconds: float = 30) -> None:
        """Wait until that is so; looked at whenever something may have come."""
        try:
            async with asyncio.timeout(seconds):
                while not told():
                    self.clock.read.clear()
                    await self.clock.read.wait()
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

    async def asked_again(self) -> None:
        """Wait for one more valid answer."""
        last = self.roster.at
        await self.until(lambda: self.roster.at > last)

    async def aged(self, seconds: int) -> set[str]:
        """Let so much time pass in which the server goes on answering every 10 s; who was out meanwhile."""
        out: set[str] = set()
        for _ in range(seconds // 10):
            self.clock.jump(10)
            await self.asked_again()
            out.update(self.pods.out())
        return out


@contextlib.asynccontextmanager
async def following(*servers: str, service: str = "web", **settings: Any) -> AsyncIterator[Followed]:
    """Follow a service while the block runs. `settings` are those of the registry."""
    followed = Followed(servers, service, **settings)
    follow(followed, [followed.key])
    task = asyncio.create_task(followed.source.run())
    try:
        yield followed
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def register_pods(eureka: EurekaServer, service: str, count: int = 4, **more: Any) -> None:
    """Register the pods of `Followed` with a Eureka."""
    for number in range(count):
        eureka.register(service, f"{service}-{number}", f"10.0.0.{10 + number}", **more)


def instance(number: int, status: str = "UP", *, action: str = "ADDED", **more: Any) -> dict[str, Any]:
    """An instance of pod `web-<number>`, as Eureka writes it."""
    return {
        "instanceId": f"web-{number}",
        "hostName": f"web-{number}",
        "app": "WEB",
        "ipAddr": f"10.0.0.{10 + number}",
        "status": status,
        "overriddenStatus": "UNKNOWN",
        "port": {"$": 8080, "@enabled": "true"},
        "securePort": {"$": 8443, "@enabled": "false"},
        "leaseInfo": {"renewalIntervalInSecs": 30, "durationInSecs": 90},
        "metadata": {},
        "actionType": action,
        **more,
    }


def hash_of(apps: dict[str, list[dict[str, Any]]]) -> str:
    """Eureka's hash of these applications."""
    counts = Counter(one["status"] for of_one in apps.values() for one in of_one)
    return "".join(f"{status}_{count}_" for status, count in sorted(counts.items()))


class FakeEureka:
    """Answers from `apps` (instances by application) and `changes` (the same, in deltas); both with the hash of `apps`.

    `asked` are the paths that came. `handlers` take the place of an answer, by path; `hash` that of the hash.
    """

    def __init__(self) -> None:
        self.apps: dict[str, list[dict[str, Any]]] = {}
        self.changes: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.handlers: dict[str, Callable[[], web.Response]] = {}
        self.hash: str | None = None
        application = web.Application()
        application.router.add_get("/eureka/{path:.*}", self._answer)
        self.server = TestServer(application)

    async def __aenter__(self) -> Self:
        await self.server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()

    @property
    def url(self) -> str:
        return str(self.server.make_url("/eureka"))

    @property
    def lists(self) -> int:
        """How often the whole list was asked for."""
        return self.asked.count("apps/")

    @property
    def deltas(self) -> int:
        """How often the delta was asked for."""
        return self.asked.count("apps/delta")

    def answer(self, apps: dict[str, list[dict[str, Any]]]) -> web.Response:
        """These applications, as Eureka would write them."""
        rows = [{"name": name, "instance": instances} for name, instances in apps.items()]
        code = hash_of(self.apps) if self.hash is None else self.hash
        return raw({"applications": {"versions__delta": "1", "apps__hashcode": code, "application": rows}})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        self.asked.append(path)
        if path in self.handlers:
            return self.handlers[path]()
        return self.answer(self.changes if path == "apps/delta" else self.apps)


def raw(document: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(text=json.dumps(document), status=status, content_type="application/json")
