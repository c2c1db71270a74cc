"""A platform that answers with documents, the example of one in the docs, and a service that is followed there."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from adapter.settings.registries import HttpRegistry
from lab.harness.processes import Component, Server, free_ports
from tests.registries.kit import FollowedService

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "http_registry.py"
TOKEN = "secret"


def said(*listed: Mapping[str, object], **more: object) -> dict[str, Any]:
    return {"complete": True, "instances": list(listed), **more}


def out(number: int, **more: object) -> dict[str, object]:
    return {"ip": f"10.0.0.{10 + number}", "state": "out", **more}


class Platform:
    """Answers every service with `answer`, or with `status` where that is set; remembers what it was asked."""

    def __init__(self) -> None:
        self.answer: Any = said()
        self.status = 200
        self.url = ""
        self.etag = ""
        self.asked: list[web.Request] = []
        self.news = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        self.news.set()
        if self.status != 200:
            return web.Response(status=self.status, text="not now")
        headers = {"ETag": self.etag} if self.etag else {}
        if self.etag and request.headers.get("If-None-Match") == self.etag:
            return web.Response(status=304, headers=headers)
        named = {"service": request.query.get("service", "")}
        body = self.answer if isinstance(self.answer, str) else json.dumps(named | self.answer)
        return web.Response(text=body, headers=headers)

    async def questions(self, count: int) -> list[web.Request]:
        """The next so many."""
        before = len(self.asked)
        async with asyncio.timeout(20):
            while len(self.asked) < before + count:
                self.news.clear()
                await self.news.wait()
        return self.asked[before:]


def reply(body: str, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


class ByteServer:
    """Answers each request at `url` with bytes that the test gives by the request's number and path."""

    def __init__(self, answering: Callable[[int, str], bytes]) -> None:
        self._answering = answering
        self.url = ""
        self._count = 0
        self._asked = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()

    async def requests(self, count: int) -> None:
        """Return after so many further requests."""
        last = self._count + count
        async with asyncio.timeout(20):
            while self._count < last:
                self._asked.clear()
                await self._asked.wait()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                writer.write(self._answering(self._count, head.split(" ")[1]))
                self._count += 1
                self._asked.set()
                await writer.drain()
        writer.close()


class Example(Server):
    """The example of a platform in the docs, run as its reader would: with TLS and a token, which is in `token`."""

    def __init__(self, certificate: Path, key: Path, folder: Path) -> None:
        [port] = free_ports(1)
        self.url, self.folder, self.token = f"https://127.0.0.1:{port}/instances", folder, folder / "token"
        self.token.write_text(TOKEN)
        self.wipe()

        def listens() -> bool:
            with socket.create_connection(("127.0.0.1", port), timeout=2):
                return True

        command: list[str | Path] = [
            sys.executable,
            "-u",
            EXAMPLE,
            folder / "services.json",
            str(port),
            certificate,
            key,
        ]
        env = {**os.environ, "TOKEN": TOKEN}
        self.component = Component("example", command, folder / "log", ready=listens, env=env)

    def start(self) -> None:
        self.component.start()
        self.component.wait_ready()

    def say(self, service: str, instance: Mapping[str, object]) -> None:
        """Let the service have this instance of a pod, in the place of its earlier one."""
        self.services.setdefault(service, {})[str(instance["pod"])] = instance
        self._write()

    def wipe(self) -> None:
        """Let it know no service."""
        self.services: dict[str, dict[str, Mapping[str, object]]] = {}
        self._write()

    def _write(self) -> None:
        fresh = self.folder / "fresh.json"
        fresh.write_text(json.dumps({name: [*pods.values()] for name, pods in self.services.items()}))
        fresh.rename(self.folder / "services.json")

    def kill(self) -> None:
        self.component.kill()

    def stop(self) -> None:
        """End it, and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Followed(FollowedService):
    """A service of the registry `own`. `settings` are those of the registry; `place` are fields of the key."""

    def __init__(self, url: str = "", service: str = "shop", **settings: Any) -> None:
        place = settings.pop("place", {})
        given = {"name": "own", "type": "HTTP", "url": url, "interval_seconds": 0.05, "timeout_seconds": 2, **settings}
        super().__init__(HttpRegistry(**given), service, **place)
