"""A platform that answers with rosters, and the service that a source follows there."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from adapter.registries.http import HttpSource
from adapter.registries.roster import ServiceKey
from adapter.settings.registries import HttpRegistry
from tests.registries.kit import FollowedService


def said(*listed: Mapping[str, object], **more: object) -> dict[str, Any]:
    return {"complete": True, "instances": list(listed), **more}


def out(number: int, **more: object) -> dict[str, object]:
    return {"ip": f"10.0.0.{10 + number}", "state": "out", **more}


class Platform:
    """Answers every service with `answer`, or with `status` where that is set; remembers what it was asked."""

    def __init__(self) -> None:
        self.answer: Any = said()
        self.status = 200
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


class Followed(FollowedService[HttpSource]):
    """A service of the registry `own`. `settings` are those of the registry; `place` are fields of the key."""

    def __init__(self, url: str = "", **settings: Any) -> None:
        place = settings.pop("place", {})
        given = {"name": "own", "type": "HTTP", "url": url, "interval_seconds": 0.05, "timeout_seconds": 2, **settings}
        super().__init__(ServiceKey("own", "shop", **place), lambda book: HttpSource(HttpRegistry(**given), book))
