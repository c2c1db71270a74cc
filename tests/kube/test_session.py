"""Requests: errors of our own, deadlines, refused credentials, how far the clocks are apart, streams."""

import asyncio
import contextlib
import email.utils
import gzip
import socket
import ssl
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import trustme
from aiohttp import web

from adapter.kube import errors
from adapter.kube.credentials import ClusterAccess
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.kube.conftest import Clock
from tests.kube.fake import Answer, FakeApi, Watch, cut_short, hang_up, session_to, session_with, status, text

PATH = "/api/v1/thing"
NOON, DATE = 1767268800.0, "Thu, 01 Jan 2026 12:00:00 GMT"


def tokens(api: FakeApi, *names: str) -> AsyncMock:
    """Credentials that change each time they are loaded."""
    return AsyncMock(side_effect=[ClusterAccess(server=api.url, authorization=f"Bearer {name}") for name in names])


def accepts(token: str) -> Answer:
    """Accepts this token alone."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {token}":
            return await status(401, "Unauthorized")(request)
        return web.Response(text='{"ok": true}\n')

    return answer


def dated(clock: Clock, answers: Iterable[tuple[Any, ...]]) -> Answer:
    """Answers in turn, each with a Date (epoch seconds), the seconds that it takes, and a status."""
    upcoming = iter(answers)

    async def answer(request: web.Request) -> web.StreamResponse:
        date, seconds, code = next(upcoming)
        clock.pass_(seconds)
        return await text("", code, Date=email.utils.formatdate(date, usegmt=True))(request)

    return answer


class TestAnswers:
    async def test_get_returns_the_body_and_sends_parameters(self, api: FakeApi, session: Session) -> None:
        api.answers[PATH] = text("x" * 100_000)
        assert await session.get(PATH, params={"a": "b c"}) == b"x" * 100_000
        assert api.asked == [(PATH, {"a": "b c"})]
        (headers,) = (request.headers for request in api.seen)
        assert (headers["Accept"], headers["Accept-Encoding"]) == ("application/json", "identity")
        assert headers["User-Agent"].startswith("effective-load/")
        assert "Authorization" not in headers

    async def test_write_sends_its_body_with_its_type(self, api: FakeApi, session: Session) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            body = {"method": request.method, "type": request.content_type, "body": await request.text()}
            return web.json_response(body, status=201)

        api.answers[PATH] = answer
        reply = await session.request("PATCH", PATH, body=b"{}", content_type="application/merge-patch+json")
        assert reply.status == 201
        assert reply.body == b'{"method": "PATCH", "type": "application/merge-patch+json", "body": "{}"}'
        assert reply.headers["content-type"].startswith("application/json")

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            (302, errors.ApiStatusError),  # it is not followed
            (400, errors.ApiStatusError),
            (401, errors.Unauthorized),
            (403, errors.Forbidden),
            (404, errors.NotFound),
            (409, errors.Conflict),
            (410, errors.Gone),
            (429, errors.ApiStatusError),
            (500, errors.ServerError),
            (504, errors.ServerError),
        ],
    )
    async def test_refusal_is_raised_as_its_kind(
        self, api: FakeApi, session: Session, code: int, kind: type[errors.ApiStatusError]
    ) -> None:
        api.answers[PATH] = status(code, "Why", "a sentence", {"Retry-After": "7", "Location": "/elsewhere"})
        with pytest.raises(errors.ApiStatusError) as caught:
            await session.get(PATH)
        assert type(caught.value) is kind
        assert str(caught.value) == f"GET {PATH}: {code} Why: a sentence"
        assert caught.value.public == f"{code} Why"
        assert caught.value.retry_after == 7.0
        assert {path for path, _ in api.asked} == {PATH}


class TestFaults:
    async def test_port_without_a_server_is_unreachable(self) -> None:
        with socket.socket() as held:  # bound, not listening
            held.bind(("127.0.0.1", 0))
            where = f"127.0.0.1:{held.getsockname()[1]}"
            said = set()
            for _ in range(2):  # the same sentence each time, so that it is logged once
                async with session_to(f"https://{where}", tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as session:
                    with pytest.raises(errors.Unreachable) as caught:
                        await session.get(PATH)
                    said.add(str(caught.value))
        (sentence,) = said
        assert sentence.startswith(f"GET {PATH}: Cannot connect to host {where} [")

    @pytest.mark.parametrize("fault", [hang_up, cut_short])
    async def test_answer_that_is_not_whole_is_unreachable(self, api: FakeApi, session: Session, fault: Answer) -> None:
        api.answers[PATH] = fault
        with pytest.raises(errors.Unreachable, match=f"GET {PATH}: "):
            await session.get(PATH)

    async def test_deadline_covers_the_whole_answer(self, api: FakeApi, session: Session) -> None:
        never = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"half")
            await never.wait()
            return response

        api.answers[PATH] = answer
        with pytest.raises(errors.TimedOut, match=rf"GET {PATH}: no answer within 0\.05 s"):
            await session.get(PATH, timeout=0.05)
        never.set()

    @pytest.mark.parametrize("packed", [False, True])
    async def test_answer_is_limited_by_its_unpacked_size(self, api: FakeApi, session: Session, packed: bool) -> None:
        async def answer(_request: web.Request) -> web.StreamResponse:
            body, packing = b" " * (4 << 20), {"Content-Encoding": "gzip"} if packed else {}
            return web.Response(body=gzip.compress(body) if packed else body, headers=packing)

        api.answers[PATH] = answer
        with pytest.raises(errors.TooLarge, match=f"GET {PATH}: the answer is larger than 1 MiB"):
            await session.get(PATH, largest=1 << 20, compressed=True)


class TestCredentials:
    async def test_refused_token_is_loaded_again_and_the_request_repeated(self, api: FakeApi) -> None:
        load = tokens(api, "one", "two")
        api.answers[PATH] = accepts("two")
        async with session_with(load) as session:
            answers = await asyncio.gather(*(session.request("PATCH", PATH, body=b"{}") for _ in range(10)))
        assert {answer.body for answer in answers} == {b'{"ok": true}\n'}
        assert load.await_count == 2

    async def test_stream_renews_its_token(self, api: FakeApi) -> None:
        api.answers[PATH] = accepts("two")
        async with session_with(tokens(api, "one", "two")) as session, session.stream(PATH, idle=5) as lines:
            assert [line async for line in lines] == [b'{"ok": true}']

    async def test_open_without_credentials_names_the_file(self, tmp_path: Path, metrics: Metrics) -> None:
        with pytest.raises(errors.CredentialsError, match="nowhere"):
            await Session.open(str(tmp_path / "nowhere"), metrics=metrics)


class TestClock:
    @pytest.mark.parametrize(
        ("ahead", "late", "skew"),
        [(4, 0, 3), (60, 0, 59), (-60, 0, -60), (0, 120, 0), (200, 120, 199)],  # a Date is cut to whole seconds
    )
    async def test_clocks_more_than_5_s_apart_are_warned_of(
        self, api: FakeApi, timed: Session, clock: Clock, metrics: Metrics, ahead: int, late: int, skew: int
    ) -> None:
        clock.wall = NOON + ahead
        api.answers[PATH] = dated(clock, [(NOON, late, 200)])
        await timed.get(PATH)
        assert timed.skew == metrics.registry.get_sample_value("effective_load_clock_skew_seconds") == skew
        warning = {59: "5 s ahead of the", 199: "5 s ahead of the", -60: "5 s behind the"}.get(skew)
        assert (timed.clock_warning() is None) if warning is None else (warning in (timed.clock_warning() or ""))

    @pytest.mark.parametrize(
        "answers",  # each with its Date, the seconds that it takes, its status, and what `now` is then
        [
            pytest.param([(3600, 0, 200, 3600)], id="a start before NTP"),
            pytest.param([(-3600, 0, 200, -3599)], id="to within the second that a Date is cut to"),
            pytest.param([(0, 0, 200, 0), (3600, 0, 200, 0), (3600, 0, 200, 3600)], id="later two answers must agree"),
            pytest.param(
                [(0, 0, 200, 0), (3600, 0, 200, 0), (0, 0, 200, 0), (3600, 0, 200, 0)], id="single wrong ones"
            ),
            pytest.param(
                [(0, 0, 200, 0), (3600, 0, 200, 0), (-3600, 0, 200, 0)], id="answers that contradict each other"
            ),
            pytest.param([(3600, 0, 502, 0), (3600, 0, 502, 0)], id="errors, which may be a proxy's"),
            pytest.param([(5, 0, 200, 0)], id="not more than 5 s"),
            pytest.param([(0, 120, 200, 120), (120, 120, 200, 240)], id="read late, as by a process that stood still"),
            pytest.param([(126, 120, 200, 126)], id="read late, and behind by at least 6 s"),
        ],
    )
    async def test_now_goes_by_the_api_server_and_by_no_step_of_this_machines_clock(
        self, api: FakeApi, timed: Session, clock: Clock, answers: list[tuple[float, float, int, float]]
    ) -> None:
        start = timed.now()
        api.answers[PATH] = dated(clock, [(start + date, *answer) for date, *answer, _ in answers])
        for *_, code, now in answers:
            with pytest.raises(errors.ApiStatusError) if code > 200 else contextlib.nullcontext():
                await timed.get(PATH)
            clock.wall -= 3600
            assert timed.now() == start + now

    @pytest.mark.parametrize("at", ["12:00:00 GMT", "12:00:00", "12:00:00 -0000", "20:00:00 +0800"])
    async def test_a_date_is_in_utc_unless_it_says_otherwise(
        self, api: FakeApi, timed: Session, monkeypatch: pytest.MonkeyPatch, at: str
    ) -> None:
        monkeypatch.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        api.answers[PATH] = text("", Date=f"Thu, 01 Jan 2026 {at}")
        await timed.get(PATH)
        assert timed.now() == NOON
        monkeypatch.undo()
        time.tzset()

    async def test_the_date_of_a_stream_counts_as_well(self, api: FakeApi, timed: Session, clock: Clock) -> None:
        api.answers[PATH] = dated(clock, [(NOON, 0, 200)])
        async with timed.stream(PATH, idle=5):
            assert timed.now() == NOON

    async def test_date_of_an_aggregated_server_is_ignored(self, api: FakeApi, timed: Session) -> None:
        """The API server passes metrics-server's answers on with their Date, which is of another machine."""
        path = "/apis/metrics.k8s.io/v1beta1/pods"
        api.answers[path] = text("", Date=DATE)
        await timed.get(path)
        assert timed.skew == 0


class TestStream:
    @pytest.fixture
    def watch(self, api: FakeApi) -> Watch:
        watch = Watch({})
        api.answers[PATH] = watch.serve
        return watch

    async def test_lines_arrive_as_they_are_written(self, session: Session, watch: Watch) -> None:
        async with session.stream(PATH, idle=5) as lines:
            watch.write(b"one\n")
            assert await anext(lines) == b"one"
            watch.write(b"tw")
            watch.write(b"o\nthree\nfo")
            assert [await anext(lines), await anext(lines)] == [b"two", b"three"]
            watch.write(b"ur\n")
            watch.end()
            assert [line async for line in lines] == [b"four"]

    async def test_line_may_be_longer_than_any_buffer(self, session: Session, watch: Watch) -> None:
        async with session.stream(PATH, idle=5) as lines:
            watch.write(b"x" * 3_000_000 + b"\n")
            assert len(await anext(lines)) == 3_000_000

    async def test_end_within_a_line_is_unreachable(self, session: Session, watch: Watch) -> None:
        async with session.stream(PATH, idle=5) as lines:
            watch.write(b'whole\n{"type": "ADD')
            watch.end()
            assert await anext(lines) == b"whole"
            with pytest.raises(errors.Unreachable, match="cut off in the middle of a line"):
                await anext(lines)

    async def test_silence_times_out(self, session: Session, watch: Watch) -> None:
        async with session.stream(PATH, idle=0.3) as lines:
            watch.write(b"one\n")
            assert await anext(lines) == b"one"
            with pytest.raises(errors.TimedOut, match=r"silent for 0\.3 s"):
                await anext(lines)

    async def test_refusal_is_raised_before_the_first_line(self, api: FakeApi, session: Session) -> None:
        api.answers[PATH] = status(410, "Expired")
        with pytest.raises(errors.Gone):
            async with session.stream(PATH, idle=5):
                pytest.fail("there is nothing to read")


@pytest.fixture
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Those of a server on localhost, and of a client that trusts it."""
    authority = trustme.CA()
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(serving)
    authority.configure_trust(trusting)
    return serving, trusting


async def test_tls_connection_whose_answer_is_given_up_ends_at_once(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """The server neither answers to the end nor closes TLS, as one that hangs."""
    serving, trusting = contexts

    def hang(listener: socket.socket) -> bytes:
        with serving.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
            return connection.recv(4096)

    with socket.create_server(("localhost", 0)) as listener:
        hanging = asyncio.create_task(asyncio.to_thread(hang, listener))
        address = f"https://localhost:{listener.getsockname()[1]}"
        async with session_to(address, tls=trusting) as session:
            with pytest.raises(errors.TimedOut):
                await session.get(PATH, timeout=2)
            assert await hanging == b""
