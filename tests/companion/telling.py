"""A notifier among stand-ins, and what it is given to tell."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.companion.changes import Change
from adapter.companion.notifier import Message, Notifier, Send, deliver
from adapter.settings import CompanionSettings
from adapter.settings.companion import NotificationRoute, Notifications, Severity, Topic
from adapter.snapshot import Key, PolicyView
from adapter.telemetry.metrics import Metrics
from tests.companion.kit import KEY, RULE
from tests.load.kit import NOW, TARGET


class Stand:
    """A notifier among stand-ins: the API server's clock, and the settings."""

    def __init__(self) -> None:
        self.time = NOW
        self.leads = True
        self.metrics = Metrics()
        self.settings = CompanionSettings()

    def route(self, *urls: str, **changes: Any) -> None:
        """One route for all policies; in a hurry, unless told otherwise."""
        self.configure(routed(*urls, **{"attempts": 2, **changes}))

    def configure(self, *routes: NotificationRoute) -> None:
        notifications = Notifications(cluster="north", routes=routes)
        self.settings = CompanionSettings(notifications=notifications)

    def count(self, result: str, route: str = "oncall") -> float:
        """How many notifications of a route ended so."""
        value = self.metrics.registry.get_sample_value(
            "effective_load_notifications_total", {"route": route, "result": result}
        )
        return value or 0.0

    async def ended(self, result: str, count: int = 1, route: str = "oncall") -> None:
        """Wait until so many ended so."""
        async with asyncio.timeout(60):
            while self.count(result, route) < count:  # noqa: ASYNC110  a counter tells nobody
                await asyncio.sleep(0.005)


def routed(*urls: str, **changes: Any) -> NotificationRoute:
    """A route for all policies of all namespaces."""
    return NotificationRoute(**{"name": "oncall", "default": True, "namespaces": ("*",), "urls": urls, **changes})


@contextlib.asynccontextmanager
async def notifying(stand: Stand, send: Send = deliver, wait: float = 0.01) -> AsyncIterator[Notifier]:
    yield Notifier(lambda: stand.settings, stand.metrics, lambda: stand.time, lambda: stand.leads, send, wait)
    stand.leads = False


def notice(number: int = 1, **changes: Any) -> Change:
    fields = {"from": "4", "to": str(number), "why": "cpu is high"}
    given = {"reason": "Scaled", "about": "", "text": f"from 4 to {number}", "at": NOW, "number": 0}
    return Change(**{**given, "topic": Topic.SCALED, "fields": fields, **changes})


def telling(*notices: Change, routes: Iterable[str] = ()) -> tuple[Key, PolicyView, tuple[Change, ...]]:
    """What a notifier adds."""
    view = PolicyView(policy=replace(RULE, notify=tuple(routes)), target=TARGET)
    return KEY, view, notices or (notice(),)


class Sent:
    """Takes everything, and notes it."""

    def __init__(self, answers: Callable[[str], bool] = lambda _url: True) -> None:
        self.all: list[tuple[str, str, str, Severity]] = []
        self._answers = answers

    def __call__(self, url: str, message: Message, _seconds: float) -> bool:
        self.all.append((url, message.title, message.body, message.severity))
        return self._answers(url)

    @property
    def bodies(self) -> list[str]:
        return [body for _, _, body, _ in self.all]


# --- a web hook on loopback


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
