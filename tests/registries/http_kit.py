"""A platform that answers with documents, the example of one in the docs, and a service that is followed there."""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from lab.harness.processes import Component, Server, free_ports
from tests.registries.kit import follow

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "http_registry.py"
TOKEN = "secret"
following = partial(follow, "HTTP")


def said(*listed: Mapping[str, object], **more: object) -> dict[str, Any]:
    return {"complete": True, "instances": list(listed), **more}


def out(number: int, **more: object) -> dict[str, object]:
    return {"ip": f"10.0.0.{10 + number}", "state": "out", **more}


class Platform:
    """Answers every service with `answer`, or with `status` where that is set; remembers what it was asked.

    `confirms`: the tag of its 304 to every question.
    """

    def __init__(self) -> None:
        self.answer: Any = said()
        self.status = 200
        self.url = ""
        self.etag = self.confirms = ""
        self.asked: list[web.Request] = []
        self.news = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        self.news.set()
        if self.status != 200:
            return web.Response(status=self.status, text="not now")
        headers = {"ETag": self.etag} if self.etag else {}
        if self.confirms:
            return web.Response(status=304, headers={"ETag": self.confirms})
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


class Example(Server):
    """The example of a platform in the docs, run as its reader would: with TLS and a token, which is in `token`."""

    def __init__(self, certificate: Path, key: Path, folder: Path) -> None:
        [port] = free_ports(1)
        self.port, self.url = port, f"https://127.0.0.1:{port}/instances"
        self.folder, self.token = folder, folder / "token"
        self.token.write_text(TOKEN)
        self.wipe()

        def listens() -> bool:
            with socket.create_connection(("127.0.0.1", port), timeout=2):
                return True

        place: list[str | Path] = [folder / "services.json", str(port), certificate, key]
        command, env = [sys.executable, "-u", EXAMPLE, *place], {**os.environ, "TOKEN": TOKEN}
        self.component = Component("example", command, folder / "log", ready=listens, env=env)

    def start(self) -> None:
        self.resume()

    def resume(self) -> None:
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
