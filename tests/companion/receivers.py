"""A web hook on loopback, which takes, refuses, redirects, or never answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass
class Hook:
    """A web hook. While `answers` is cleared it never answers; `status` is what it says when it does."""

    status: int = 200
    location: str = ""
    taken: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.port}/hook"

    async def told(self, count: int) -> list[dict[str, Any]]:
        """What it was sent, once that is so many."""
        async with asyncio.timeout(60):
            while len(self.taken) < count:
                self.news.clear()
                await self.news.wait()
        return self.taken

    async def handle(self, request: web.Request) -> web.Response:
        self.paths.append(request.path_qs)
        self.taken.append(await request.json())
        self.news.set()
        await self.answers.wait()
        return web.Response(status=self.status, headers={"Location": self.location} if self.location else None)


@contextlib.asynccontextmanager
async def hook() -> AsyncIterator[Hook]:
    """A web hook that takes what it is sent."""
    made = Hook()
    made.answers.set()
    app = web.Application()
    app.router.add_post("/hook", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.port = server.port or 0
        yield made
        made.answers.set()
