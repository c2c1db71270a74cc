"""Notifications: which route gets what and how often, over real connections, and again where that fails."""

import asyncio
import contextlib
import html
import importlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import requests
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.companion import notifier as module
from adapter.companion.changes import Change
from adapter.companion.notifier import MAX_AGE_SECONDS, Message, Notifier, Send, deliver
from adapter.settings import CompanionSettings
from adapter.settings.companion import NotificationRoute, Notifications, RateLimit, Severity, Topic
from adapter.snapshot import PolicyView
from adapter.telemetry.metrics import Metrics
from tests.companion.kit import KEY, RULE
from tests.load.kit import NOW, TARGET
from tests.waiting import eventually

# The library's own, at its import.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


@dataclass
class Sent:
    """Takes everything, and notes it."""

    answers: Callable[[str], bool] = lambda _url: True
    all: list[tuple[str, str, str]] = field(default_factory=list)

    def __call__(self, url: str, message: Message, _seconds: float) -> bool:
        self.all.append((url, message.title, message.body))
        return self.answers(url)


class Stand:
    """A notifier among stand-ins: the API server's clock, the settings, and what sends."""

    def __init__(self, send: Send) -> None:
        self.time, self.leads, self.metrics, self.settings = NOW, True, Metrics(), CompanionSettings()
        self.notifier = Notifier(
            lambda: self.settings, self.metrics, lambda: self.time, lambda: self.leads, send, first_wait=0.01
        )

    def route(self, *urls: str, **changes: Any) -> None:
        """One route for all policies; in a hurry, unless told otherwise."""
        self.configure(routed(*urls, **{"attempts": 2, **changes}))

    def configure(self, *routes: NotificationRoute) -> None:
        self.settings = CompanionSettings(notifications=Notifications(cluster="north", routes=routes))

    def tell(self, *changes: Change, routes: Iterable[str] = ()) -> None:
        """Adds these, by default one scaling, of a policy that names these routes."""
        view = PolicyView(policy=replace(RULE, notify=tuple(routes)), target=TARGET)
        self.notifier.add(KEY, view, changes or (notice(),))

    def count(self, result: str, route: str = "oncall") -> float:
        """How many notifications of a route ended so."""
        labels = {"route": route, "result": result}
        return self.metrics.registry.get_sample_value("effective_load_notifications_total", labels) or 0.0

    async def ended(self, result: str, count: int = 1, route: str = "oncall") -> None:
        """Wait until so many ended so."""
        await eventually(lambda: self.count(result, route) >= count)


def routed(*urls: str, **changes: Any) -> NotificationRoute:
    """A route for all policies of all namespaces."""
    return NotificationRoute(**{"name": "oncall", "default": True, "namespaces": ("*",), "urls": urls, **changes})


def notice(number: int = 1, **changes: Any) -> Change:
    fields = {"from": "4", "to": str(number), "why": "cpu is high"}
    given = {"reason": "Scaled", "about": "", "text": f"from 4 to {number}", "at": NOW, "number": 0}
    return Change(**{**given, "topic": Topic.SCALED, "fields": fields, **changes})


@pytest.fixture
def sent() -> Sent:
    """What was sent by the notifier of the fixture `stand`."""
    return Sent()


@pytest.fixture
def stand(sent: Sent) -> Stand:
    """A notifier whose sends all succeed, and one route for it."""
    made = Stand(sent)
    made.route("json://a")
    return made


# --- who is told what, and how often


async def test_templates_put_in_what_is_known_and_execute_nothing(stand: Stand, sent: Sent) -> None:
    template = "$event $severity $namespace $policy $target $at $from $to $why ${text}!"
    stand.route("json://a", title="$cluster $$5 {0.__class__} %s", template=template)
    stand.tell(notice(7, text="$policy {policy}"))
    await stand.ended("sent")
    ((_, title, body),) = sent.all
    assert title == "north $5 {0.__class__} %s"
    assert body == "scaled info shop web Deployment web 2026-01-01T12:00:00Z 4 7 cpu is high $policy {policy}!"


@pytest.mark.parametrize(
    ("route", "told"),
    [
        ({}, True),
        ({"default": False}, False),
        ({"default": False, "name": "team"}, True),
        ({"namespaces": ("sh*",)}, True),
        ({"namespaces": ("prod-*",)}, False),
        ({"events": (Topic.SCALED,)}, True),
        ({"events": (Topic.DATA_LOST,)}, False),
        ({"severities": (Severity.INFO,)}, True),
        ({"severities": (Severity.CRITICAL,)}, False),
    ],
)
async def test_a_route_gets_the_notifications_that_it_selects(
    stand: Stand, sent: Sent, route: dict[str, Any], told: bool
) -> None:
    stand.configure(routed("json://it", **route), routed("json://all", name="all"))
    stand.tell(routes=["team"])
    await stand.ended("sent", route="all")
    if told:
        await stand.ended("sent", route=route.get("name", "oncall"))
    assert ("json://it" in [url for url, *_ in sent.all]) is told


async def test_a_route_is_used_as_the_settings_are_now(stand: Stand, sent: Sent) -> None:
    for number, url in enumerate(("json://a", "json://b"), 1):
        stand.route(url)
        stand.tell()
        await stand.ended("sent", number)
    assert [url for url, *_ in sent.all] == ["json://a", "json://b"]


async def test_a_route_is_rate_limited(stand: Stand, sent: Sent) -> None:
    stand.route("json://a", rate_limit=RateLimit(count=2, seconds=60))
    stand.tell(*(notice(number) for number in range(1, 6)))
    await stand.ended("limited", 3)
    for number, seconds in ((7, 60), (8, 0), (9, -30)):  # clocks may be put back
        stand.time += seconds
        stand.tell(notice(number, at=stand.time))
        await stand.ended("sent", number - 4)
    assert [body for *_, body in sent.all] == [f"from 4 to {number}" for number in (1, 2, 7, 8, 9)]


async def test_a_route_that_hangs_delays_no_other() -> None:
    gate = threading.Event()
    stand = Stand(lambda url, *_: url == "json://works" or gate.wait(60))
    stand.configure(routed("json://hangs", name="stuck"), routed("json://works", name="working"))
    stand.tell(notice(1), notice(2))
    await stand.ended("sent", 2, route="working")
    assert stand.count("sent", "stuck") == 0
    gate.set()


@pytest.mark.parametrize(
    ("since", "leads"), [(NOW - MAX_AGE_SECONDS - 1, True), (NOW, False)], ids=["old", "of a leader that was frozen"]
)
async def test_what_is_old_or_another_leader_has_sent_is_not_sent(
    stand: Stand, sent: Sent, since: float, leads: bool
) -> None:
    stand.leads = leads
    stand.tell(notice(1, at=since))
    await stand.ended("stale")
    stand.leads = True
    stand.tell(notice(2))
    await stand.ended("sent")
    assert [body for *_, body in sent.all] == ["from 4 to 2"]


# --- addresses and attempts


async def test_addresses_are_read_from_the_file_as_it_is_at_the_time(stand: Stand, sent: Sent, tmp_path: Path) -> None:
    file = tmp_path / "oncall"
    file.write_text("# the team\njson://one\n\n  json://two  \n")
    stand.route(url_file=str(file))
    stand.tell()
    await stand.ended("sent")
    file.write_text("json://three")
    stand.tell(notice(2))
    await stand.ended("sent", 2)
    assert [url for url, *_ in sent.all] == ["json://one", "json://two", "json://three"]


@pytest.mark.parametrize("content", [None, b"", b"# nobody yet\n", b"\xff"])
async def test_a_file_without_addresses_is_a_failure_and_named(
    stand: Stand, sent: Sent, tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "oncall"
    if content is not None:
        file.write_bytes(content)
    stand.route(url_file=str(file))
    stand.tell()
    await stand.ended("failed")
    assert sent.all == []
    assert f"{file} cannot be read, or has no address" in capsys.readouterr().out


async def test_a_failing_route_is_logged_once_and_so_is_its_recovery(capsys: pytest.CaptureFixture[str]) -> None:
    works = False
    stand = Stand(lambda *_: works)
    stand.route("json://a", attempts=1)
    stand.tell(notice(1), notice(2))
    await stand.ended("failed", 2)
    works = True
    stand.tell(notice(3))
    await stand.ended("sent")
    said = capsys.readouterr().out
    assert (said.count("notifications_failing"), said.count("notifications_recovered")) == (1, 1)


async def test_only_those_that_did_not_take_it_are_tried_again() -> None:
    taker = Sent(lambda url: url == "json://good" or [one[0] for one in taker.all].count(url) > 1)
    stand = Stand(taker)
    stand.route("json://good", "json://bad")
    stand.tell()
    await stand.ended("sent")
    assert sorted(url for url, *_ in taker.all) == ["json://bad", "json://bad", "json://good"]


async def test_an_error_of_the_library_is_a_failure_and_its_text_is_not_logged(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(url: str, *_told: object) -> bool:
        raise ValueError(f"cannot reach {url}")

    stand = Stand(fails)
    stand.route("json://user:hush@a", attempts=1)
    stand.tell()
    await stand.ended("failed")
    said = capsys.readouterr()
    assert "notifications_failing" in said.out
    assert "hush" not in caplog.text + said.out + said.err


async def test_without_the_library_it_is_said_and_nothing_else_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    stand = Stand(deliver)
    stand.route("json://a")
    stand.tell()
    await stand.ended("failed")


# --- over real connections


@dataclass
class Hook:
    """A web hook on loopback that takes what it is sent, and answers so."""

    status: int = 200
    location: str = ""
    taken: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.port}/hook"

    async def handle(self, request: web.Request) -> web.Response:
        self.taken.append(await request.json())
        return web.Response(status=self.status, headers={"Location": self.location} if self.location else None)


@contextlib.asynccontextmanager
async def hook() -> AsyncIterator[Hook]:
    made, app = Hook(), web.Application()
    app.router.add_post("/hook", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.port = server.port or 0
        yield made


@pytest.mark.integration
@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_is_refused_and_nothing_reaches_where_it_leads(status: int) -> None:
    async with hook() as receiver, hook() as elsewhere:
        receiver.status, receiver.location = status, f"http://127.0.0.1:{elsewhere.port}/hook"
        stand = Stand(deliver)
        stand.route(receiver.url, attempts=1)
        stand.tell()
        await stand.ended("failed")
        assert (len(receiver.taken), elsewhere.taken) == (1, [])


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("head", "piece"),
    [
        pytest.param(HEAD, b"x" * (1 << 20), id="an answer without an end"),  # Apprise would read all of it
        pytest.param(HEAD, b"x", id="a body that drips"),
        pytest.param(b"HTTP/1.1 200 OK\r\nLong: ", b"x", id="headers that drip"),
    ],
)
async def test_an_answer_takes_no_more_memory_and_time_than_it_may(head: bytes, piece: bytes) -> None:
    sent, closed = 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        with contextlib.suppress(OSError):
            while not closed.is_set():
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
                await asyncio.sleep(0.05 if len(piece) == 1 else 0)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        stand = Stand(deliver)
        stand.route(f"json://127.0.0.1:{server.sockets[0].getsockname()[1]}/", attempts=1, timeout_seconds=1)
        stand.tell()
        try:
            await eventually(lambda: stand.count("failed"))
        finally:
            closed.set()
    assert sent < 64 << 20


@pytest.mark.integration
async def test_a_receiver_that_refuses_is_tried_again_and_its_token_is_never_logged(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with hook() as receiver:
        receiver.status, stand = 503, Stand(deliver)
        stand.route(f"{receiver.url}?token=hush", attempts=3)
        stand.tell()
        await stand.ended("failed")
        assert len(receiver.taken) == 3
        receiver.status = 200
        stand.tell(notice(2))
        await stand.ended("sent")
    assert not [record for record in caplog.records if record.name.startswith("apprise")]
    said = capsys.readouterr()
    assert "hush" not in caplog.text + said.out + said.err


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("json://hooks.shop.test/scaling", "http://hooks.shop.test/scaling"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#oncall", "https://hooks.slack.com/services/T1JJ3T3L2/"),
        ("dingtalk://secret@token", "https://oapi.dingtalk.com/robot/send?access_token=token"),
        ("feishu://token", "https://open.feishu.cn/open-apis/bot/v2/hook/token"),
        ("wecombot://bot-key", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=bot-key"),
    ],
)
async def test_the_services_that_are_named_get_title_and_text(
    monkeypatch: pytest.MonkeyPatch, url: str, place: str
) -> None:
    asked: list[requests.PreparedRequest] = []

    def takes(_session: requests.Session, request: requests.PreparedRequest, **_options: Any) -> requests.Response:
        asked.append(request)
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"ok"  # noqa: SLF001
        return answer

    monkeypatch.setattr(module, "_exchange", takes)
    stand = Stand(deliver)
    stand.route(url, title="the title", attempts=1)
    stand.tell(notice(text="5 < 6 & *7*"))
    await stand.ended("sent")
    (request,) = asked
    assert str(request.url).startswith(place)
    body = request.body.decode() if isinstance(request.body, bytes) else str(request.body)
    assert "the title" in body
    assert "5 < 6 & *7*" in html.unescape(body)
