"""A ZooKeeper source that runs, and what Dubbo, Curator and Spring Cloud write for the pods of its service."""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

from adapter.load.pods import PodState
from adapter.load.roster import Roster
from adapter.registries.roster import ServiceKey
from adapter.registries.zookeeper.source import ZooKeeperSource
from adapter.settings.registries import ZooKeeperRegistry
from harness.registries.zookeeper import ZooKeeper
from tests.registries.trust import Clock, Ears, Service, book, follow

REGISTRY = "zk"
INTERFACE, APPLICATION, SPRING = "DubboInterface", "DubboApplication", "Curator"
LAYOUTS = (INTERFACE, APPLICATION, SPRING)
RULES = "/dubbo/config/dubbo"
PORT = 8080


class _Telling(Clock):
    """A clock that tells of being read, which it is at each answer and each confirmation."""

    def __init__(self) -> None:
        super().__init__()
        self.read = asyncio.Event()

    def __call__(self) -> float:
        self.read.set()
        return super().__call__()


class Followed:
    """One service in a ZooKeeper, and four pods (`web-0` … at 10.0.0.10 …) that register under it."""

    def __init__(self, address: str, layout: str, service: str, **settings: Any) -> None:
        self.key = ServiceKey(REGISTRY, service, **settings.pop("place", {}))
        fixed = {"name": REGISTRY, "type": "ZooKeeper", "servers": (address,), "layout": layout}
        times = {"timeout_seconds": 3, "session_seconds": 10}  # a busy machine takes none of them for an outage
        self.settings = ZooKeeperRegistry(**{**fixed, **times, **settings})
        self.clock, self.ears = _Telling(), Ears()
        self.book = book(REGISTRY, self.clock, self.ears)
        self.source = ZooKeeperSource(self.settings, self.book)
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
        """How many instances the last valid answer has; -1 without one."""
        found = self.book.roster(self.key)
        return len(found.instances) if found is not None and found.valid else -1

    async def until(self, told: Callable[[], object], seconds: float = 40) -> None:
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

    async def until_alive(self, seconds: float = 20) -> None:
        """Wait until the list has a sign of life beside it."""
        async with asyncio.timeout(seconds):
            while not self.roster.alive:
                self.clock.read.clear()
                await self.clock.read.wait()

    def serving(self) -> int:
        """How many pods serve."""
        return sum(state is PodState.SERVING for state in self.pods.look().values())

    def aged(self, seconds: int) -> set[str]:
        """Let so much time pass in which the last answers are confirmed every 10 s; who was out meanwhile."""
        out: set[str] = set()
        for _ in range(seconds // 10):
            self.clock.jump(10)
            self.book.confirm()
            out.update(self.pods.out())
        return out


@contextlib.asynccontextmanager
async def following(server: ZooKeeper | str, layout: str, service: str, **settings: Any) -> AsyncIterator[Followed]:
    """Follow a service while the block runs. `settings` are those of the registry; `place` fields of the key."""
    address = server.address if isinstance(server, ZooKeeper) else server
    followed = Followed(address, layout, service, **settings)
    follow(followed, [followed.key])
    async with running(followed.source):
        yield followed


@contextlib.asynccontextmanager
async def running(source: ZooKeeperSource) -> AsyncIterator[None]:
    """Let a source run while the block does."""
    task = asyncio.create_task(source.run())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Pods:
    """The pods' processes, which register with a session of their own. Blocking calls, made in a thread."""

    def __init__(self, client: Any, layout: str, service: str = "", *, top: str = "") -> None:
        self.client, self.layout, self.top = client, layout, top
        kind = "com.shop.Order" if layout == INTERFACE else "order"
        self.service = service or f"{kind}{secrets.token_hex(4)}"
        self.nodes: dict[int, str] = {}

    @property
    def folder(self) -> str:
        """Where the instances are."""
        below = f"/dubbo/{self.service}/providers" if self.layout == INTERFACE else f"/services/{self.service}"
        return self.top + below

    async def register(self, *numbers: int, **more: Any) -> None:
        """Register these pods, by default all four. `more` are parameters of a provider, or metadata."""
        for number in numbers or range(4):
            await asyncio.to_thread(self._register, number, more)

    async def change(self, number: int, **more: Any) -> None:
        """Register a pod otherwise: a document is written over, a provider's node is replaced."""
        if self.layout == INTERFACE:
            await self.deregister(number)
            await self.register(number, **more)
        else:
            await asyncio.to_thread(self.client.set, self.nodes[number], self._document(number, more))

    async def deregister(self, *numbers: int) -> None:
        """Remove these pods' nodes."""
        for number in numbers:
            await asyncio.to_thread(self.client.delete, self.nodes.pop(number))

    async def rule(self, path: str, body: bytes = b"") -> None:
        """Write a rule: a persistent node."""
        await asyncio.to_thread(self._put, path, body)

    async def remove(self, path: str) -> None:
        """Remove a rule."""
        await asyncio.to_thread(self.client.delete, path)

    def override(self, url: str) -> str:
        """Where a rule of Dubbo 2 stands."""
        return f"{self.top}/dubbo/{self.service}/configurators/{quote(url, safe='')}"

    def _put(self, path: str, body: bytes) -> None:
        if self.client.exists(path):
            self.client.set(path, body)
        else:
            self.client.create(path, body, makepath=True)

    def _register(self, number: int, more: dict[str, Any]) -> None:
        if self.layout == INTERFACE:
            name, body = quote(provider_url(number, self.service, **more), safe=""), b"10.0.0.1"
        else:
            name, body = f"10.0.0.{10 + number}:{PORT}", self._document(number, more)
        self.nodes[number] = f"{self.folder}/{name}"
        self.client.create(self.nodes[number], body, ephemeral=True, makepath=True)

    def _document(self, number: int, more: dict[str, Any]) -> bytes:
        return document(f"10.0.0.{10 + number}", self.service, self.layout, **more)


def provider_url(number: int, interface: str, **more: Any) -> str:
    """A provider as Dubbo writes it, before it is encoded."""
    usual = {
        "anyhost": "true",
        "application": "shop",
        "dubbo": "2.0.2",
        "dynamic": "true",
        "interface": interface,
        "methods": "place,cancel",
        "side": "provider",
        "timestamp": str(int(time.time() * 1000)),
    }
    query = "&".join(f"{key}={value}" for key, value in {**usual, **more}.items())
    return f"dubbo://10.0.0.{10 + number}:{PORT}/{interface}?{query}"


def document(address: str, service: str, layout: str, *, enabled: bool = True, **metadata: Any) -> bytes:
    """An instance as Curator writes it for Spring Cloud or for Dubbo."""
    maker = {
        SPRING: "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance",
        APPLICATION: "org.apache.dubbo.registry.zookeeper.ZookeeperInstance",
    }[layout]
    usual = {"instance_status": "UP"} if layout == SPRING else {"dubbo.metadata.storage-type": "local"}
    content = {
        "name": service,
        "id": f"{address}:{PORT}",
        "address": address,
        "port": PORT,
        "sslPort": None,
        "payload": {"@class": maker, "id": "1", "name": service, "metadata": {**usual, **metadata}},
        "registrationTimeUTC": int(time.time() * 1000),
        "serviceType": "DYNAMIC",
        "uriSpec": None,
        "enabled": enabled,
    }
    return json.dumps(content).encode()
