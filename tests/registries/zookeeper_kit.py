"""A ZooKeeper source that runs, and what Dubbo, Curator and Spring Cloud write for the pods of its service."""

import asyncio
import json
import secrets
import time
from typing import Any
from urllib.parse import quote

from lab.harness.registries.zookeeper import ZooKeeper
from tests.registries.kit import FollowedService, follow

INTERFACE, APPLICATION, SPRING = "DubboInterface", "DubboApplication", "Curator"
RULES = "/dubbo/config/dubbo"
PORT = 8080


def following(server: ZooKeeper | str, layout: str, service: str, **settings: Any) -> FollowedService:
    """Follows a service while the block runs."""
    address = server.address if isinstance(server, ZooKeeper) else server
    return follow("ZooKeeper", address, service, layout=layout, **settings)


class Processes:
    """The pods' processes, which register with a session of their own. Blocking calls, made in a thread."""

    def __init__(self, client: Any, layout: str, service: str = "") -> None:
        self.client, self.layout = client, layout
        kind = "com.shop.Order" if layout == INTERFACE else "order"
        self.service = service or f"{kind}{secrets.token_hex(4)}"
        self.nodes: dict[int, str] = {}

    @property
    def folder(self) -> str:
        """Where the instances are."""
        return f"/dubbo/{self.service}/providers" if self.layout == INTERFACE else f"/services/{self.service}"

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
        return f"/dubbo/{self.service}/configurators/{quote(url, safe='')}"

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
