"""Telling people over real connections, and again where that fails; never in anybody's way."""

import asyncio
import contextlib
import html
import importlib
import logging
from typing import Any

import pytest
import requests

from adapter.companion import notifier as notifier_module
from adapter.companion.notifier import Message, deliver
from adapter.settings.companion import Severity
from tests.companion.telling import Sent, Stand, hook, notice, notifying, telling
from tests.load.kit import NOW
from tests.waiting import eventually

# The library's own, at its import.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


# --- over real connections ---


@pytest.mark.integration
@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_is_refused_and_nothing_reaches_where_it_leads(stand: Stand, status: int) -> None:
    async with hook() as receiver, hook() as elsewhere, notifying(stand) as notifier:
        receiver.status, receiver.location = status, f"http://127.0.0.1:{elsewhere.port}/hook"
        stand.route(receiver.url, attempts=1)
        notifier.add(*telling())
        await stand.ended("failed")
        assert (len(receiver.taken), elsewhere.paths) == (1, [])


@pytest.mark.integration
async def test_an_answer_without_an_end_takes_no_memory(stand: Stand) -> None:
    """Apprise reads the whole answer: one of 300 MiB would end a companion with the usual memory limit."""
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while sent < 300:
                writer.write(b"x" * (1 << 20))
                await writer.drain()
                sent += 1
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, notifying(stand) as notifier:
        port = server.sockets[0].getsockname()[1]
        stand.route(f"json://127.0.0.1:{port}/hook", attempts=1)
        notifier.add(*telling())
        await eventually(lambda: stand.count("sent") + stand.count("failed"))
    assert sent < 64


@pytest.mark.integration
@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nLong: "], ids=["body", "headers"])
async def test_an_answer_that_drips_takes_no_longer_than_the_timeout(stand: Stand, head: bytes) -> None:
    """Each byte is in time, so only a bound of the whole answer frees the route."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        with contextlib.suppress(OSError):
            while not closed.is_set():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()

    closed = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, notifying(stand) as notifier:
        port = server.sockets[0].getsockname()[1]
        stand.route(f"json://127.0.0.1:{port}/hook", attempts=1, timeout_seconds=1)
        notifier.add(*telling())
        try:
            await eventually(lambda: stand.count("sent") + stand.count("failed"))
        finally:
            closed.set()


@pytest.mark.integration
async def test_a_receiver_that_refuses_is_tried_again_and_its_token_is_never_logged(
    stand: Stand, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with hook() as receiver, notifying(stand) as notifier:
        receiver.status = 503
        stand.route(f"{receiver.url}?token=hush", attempts=3)
        notifier.add(*telling())
        await stand.ended("failed")
        assert len(receiver.taken) == 3
        receiver.status = 200
        notifier.add(*telling(notice(2)))
        await stand.ended("sent")
    assert not [record for record in caplog.records if record.name.startswith("apprise")]
    said = capsys.readouterr()
    assert "notifications_failing" in said.out
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
    stand: Stand, monkeypatch: pytest.MonkeyPatch, url: str, place: str
) -> None:
    asked: list[requests.PreparedRequest] = []

    def takes(_session: requests.Session, request: requests.PreparedRequest, **_options: Any) -> requests.Response:
        asked.append(request)
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"ok"  # noqa: SLF001
        return answer

    monkeypatch.setattr(notifier_module, "_exchange", takes)
    async with notifying(stand) as notifier:
        stand.route(url, title="the title", attempts=1)
        notifier.add(*telling(notice(text="5 < 6 & *7*")))
        await stand.ended("sent")
    (request,) = asked
    assert str(request.url).startswith(place)
    body = request.body.decode() if isinstance(request.body, bytes) else str(request.body)
    assert "the title" in body
    assert "5 < 6 & *7*" in html.unescape(body)


# --- attempts ---


async def test_only_those_that_did_not_take_it_are_tried_again(stand: Stand) -> None:
    sent = Sent(lambda url: url == "json://good" or [one[0] for one in sent.all].count(url) > 1)
    async with notifying(stand, sent) as notifier:
        stand.route("json://good", "json://bad")
        notifier.add(*telling())
        await stand.ended("sent")
    assert sorted(url for url, *_ in sent.all) == ["json://bad", "json://bad", "json://good"]


async def test_an_error_of_the_library_is_a_failure_and_its_text_is_not_logged(
    stand: Stand, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(url: str, *_told: object) -> bool:
        raise ValueError(f"cannot reach {url}")

    async with notifying(stand, fails) as notifier:
        stand.route("json://user:hush@a", attempts=1)
        notifier.add(*telling())
        await stand.ended("failed")
    said = capsys.readouterr()
    assert "notifications_failing" in said.out
    assert "hush" not in caplog.text + said.out + said.err


async def test_without_the_library_it_is_said_and_nothing_else_happens(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError):
        deliver("json://a", Message(Severity.INFO, NOW, "", ""), 1)
    async with notifying(stand) as notifier:
        stand.route("json://a")
        notifier.add(*telling())
        await stand.ended("failed")
