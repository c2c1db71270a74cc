"""Requests: errors of our own, deadlines, credentials that are refused, the API server's clock, streams."""

import asyncio
import gzip
import socket
import ssl
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from adapter.kube import errors
from adapter.kube.credentials import ClusterAccess
from adapter.kube.session import ServerClock, Session
from adapter.runtime.answer_budget import Limit
from adapter.telemetry.metrics import Metrics
from tests.kube.fake import Answer, FakeApi, Watch, cut_short, hang_up, session_to, session_with, status, text

PATH = "/api/v1/thing"
DATE = "Thu, 01 Jan 2026 12:00:00 GMT"
Ask = Callable[..., Awaitable[bytes]]


class Tokens:
    """Credentials that change each time they are loaded: one, two, three."""

    def __init__(self, api: FakeApi, *names: str) -> None:
        self.api = api
        self.names = list(names)
        self.loaded = 0

    async def __call__(self) -> ClusterAccess:
        name = self.names[min(self.loaded, len(self.names) - 1)]
        self.loaded += 1
        return ClusterAccess(server=self.api.url, authorization=f"Bearer {name}")


def accepts(token: str) -> Answer:
    """Answers only who shows this token."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {token}":
            return await status(401, "Unauthorized")(request)
        return web.Response(text='{"ok": true}\n')

    return answer


async def get(session: Session, timeout: float = 5) -> bytes:  # noqa: ASYNC109  the session's
    return await session.get(PATH, timeout=timeout)


async def exchange(session: Session, timeout: float = 5) -> bytes:  # noqa: ASYNC109  the session's
    return await session.exchange("GET", PATH, timeout=timeout)


@pytest.mark.parametrize("ask", [get, exchange])
class TestEitherWay:
    """Whether over connections of their own or aiohttp's, requests are answered and fail alike."""

    async def test_the_body_is_returned_to_who_says_what_he_is(self, api: FakeApi, session: Session, ask: Ask) -> None:
        api.answers[PATH] = text("x" * 100_000)
        assert await ask(session) == b"x" * 100_000
        (headers,) = (request.headers for request in api.seen)
        assert "http://" + headers["Host"] == api.url
        assert (headers["Accept"], headers["Accept-Encoding"]) == ("application/json", "identity")
        assert headers["User-Agent"].startswith("effective-load/")
        assert "Authorization" not in headers

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            (302, errors.ApiStatusError),  # it is not followed
            (400, errors.BadRequest),
            (401, errors.Unauthorized),
            (403, errors.Forbidden),
            (404, errors.NotFound),
            (409, errors.Conflict),
            (410, errors.Gone),
            (418, errors.ApiStatusError),
            (422, errors.Invalid),
            (429, errors.TooManyRequests),
            (500, errors.ServerError),
            (504, errors.ServerError),
        ],
    )
    async def test_a_refusal_is_raised_as_what_it_is_and_no_redirect_is_followed(
        self, api: FakeApi, session: Session, ask: Ask, code: int, kind: type[errors.ApiStatusError]
    ) -> None:
        api.answers[PATH] = status(code, "Why", "a sentence", {"Retry-After": "7", "Location": "/elsewhere"})
        with pytest.raises(errors.ApiStatusError) as caught:
            await ask(session)
        assert type(caught.value) is kind
        assert (caught.value.code, caught.value.reason, caught.value.message) == (code, "Why", "a sentence")
        assert str(caught.value) == f"GET {PATH}: {code} Why: a sentence"
        assert caught.value.retry_after == 7.0
        assert {path for path, _ in api.asked} == {PATH}

    async def test_a_refused_token_is_loaded_anew_and_the_request_repeated(self, api: FakeApi, ask: Ask) -> None:
        api.answers[PATH] = accepts("two")
        async with session_with(Tokens(api, "one", "two")) as session:
            assert await ask(session) == b'{"ok": true}\n'
        assert [request.headers["Authorization"] for request in api.seen] == ["Bearer one", "Bearer two"]

    async def test_a_token_refused_twice_is_an_error_and_not_asked_for_ever(self, api: FakeApi, ask: Ask) -> None:
        tokens = Tokens(api, "one", "two")
        api.answers[PATH] = accepts("three")
        async with session_with(tokens) as session:
            for _ in range(4):
                with pytest.raises(errors.Unauthorized):
                    await ask(session)
        assert tokens.loaded == 2  # at the start and once for all the refusals within 5 s

    async def test_nobody_there_is_unreachable(self, ask: Ask) -> None:
        with socket.socket() as held:  # bound, not listening
            held.bind(("127.0.0.1", 0))
            async with session_to(f"http://127.0.0.1:{held.getsockname()[1]}") as session:
                with pytest.raises(errors.Unreachable, match=f"GET {PATH}: "):
                    await ask(session)

    @pytest.mark.parametrize("fault", [hang_up, cut_short])
    async def test_no_whole_answer_is_unreachable(
        self, api: FakeApi, session: Session, ask: Ask, fault: Answer
    ) -> None:
        api.answers[PATH] = fault
        with pytest.raises(errors.Unreachable, match=f"GET {PATH}: "):
            await ask(session)

    async def test_the_deadline_is_for_the_whole_answer(self, api: FakeApi, session: Session, ask: Ask) -> None:
        never = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"half")
            await never.wait()
            return response

        api.answers[PATH] = answer
        with pytest.raises(errors.TimedOut, match=rf"GET {PATH}: no answer within 0\.05 s"):
            await ask(session, 0.05)
        never.set()

    async def test_every_answer_tells_the_time(self, api: FakeApi, metrics: Metrics, ask: Ask) -> None:
        api.answers[PATH] = text("", Date=DATE)
        clock = ServerClock(lambda: 5.0, lambda: 1767268800.0 + 60)
        async with Session(api.load, metrics=metrics, clock=clock) as session:
            await ask(session)
            assert session.now() == 1767268800.5
            assert session.skew == 59.5
        assert metrics.registry.get_sample_value("effective_load_clock_skew_seconds") == 59.5


class TestAnswers:
    async def test_parameters_are_sent(self, api: FakeApi, session: Session) -> None:
        api.answers[PATH] = text("hello")
        assert await session.get(PATH, params={"a": "b c"}) == b"hello"
        assert api.asked == [(PATH, {"a": "b c"})]

    async def test_what_is_sent_says_what_it_is(self, api: FakeApi, session: Session) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.json_response(
                {"method": request.method, "type": request.content_type, "body": await request.text()}, status=201
            )

        api.answers[PATH] = answer
        response = await session.request("PATCH", PATH, body=b"{}", content_type="application/merge-patch+json")
        assert response.status == 201
        assert response.body == b'{"method": "PATCH", "type": "application/merge-patch+json", "body": "{}"}'
        assert response.headers["content-type"].startswith("application/json")

    async def test_a_small_answer_that_unpacks_to_a_large_one_is_refused_early(
        self, api: FakeApi, session: Session
    ) -> None:
        """Any tenant can write objects that compress a thousandfold."""
        packed = gzip.compress(bytes(64 << 20), 1)

        async def answer(_request: web.Request) -> web.StreamResponse:
            return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

        api.answers[PATH] = answer
        tracemalloc.start()
        try:
            with pytest.raises(errors.TooLarge):
                await session.get(PATH, largest=4_000_000, compressed=True)
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize(("body", "message"), [("<html>" + "x" * 5000, "<html>" + "x" * 294), ("", "no message")])
    async def test_a_refusal_that_is_no_status_is_quoted(
        self, api: FakeApi, session: Session, body: str, message: str
    ) -> None:
        api.answers[PATH] = text(body, 503)
        with pytest.raises(errors.ServerError) as caught:
            await session.get(PATH)
        assert caught.value.message == message


class TestTrouble:
    async def test_the_sentence_that_nobody_is_there_is_the_same_whoever_says_it(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            where = f"127.0.0.1:{free.getsockname()[1]}"
        said = set()
        for _ in range(2):
            async with session_to(f"https://{where}", tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as session:
                with pytest.raises(errors.Unreachable) as caught:
                    await session.get(PATH)
                said.add(str(caught.value))
        (sentence,) = said
        assert sentence.startswith(f"GET {PATH}: Cannot connect to host {where} [")

    async def test_an_address_that_is_none_is_unreachable(self) -> None:
        async with session_to("http://127.0.0.1:99999") as session:
            with pytest.raises(errors.Unreachable):
                await session.get(PATH)


class TestCredentials:
    async def test_requests_refused_together_load_once(self, api: FakeApi) -> None:
        tokens = Tokens(api, "one", "two")
        api.answers[PATH] = accepts("two")
        async with session_with(tokens) as session:
            await asyncio.gather(*(session.get(PATH) for _ in range(10)))
        assert tokens.loaded == 2

    async def test_a_stream_renews_too(self, api: FakeApi) -> None:
        api.answers[PATH] = accepts("two")
        async with session_with(Tokens(api, "one", "two")) as session, session.stream(PATH) as lines:
            assert [line async for line in lines] == [b'{"ok": true}']

    async def test_opening_without_usable_credentials_says_where_it_looked(
        self, tmp_path: Path, metrics: Metrics
    ) -> None:
        with pytest.raises(errors.CredentialsError, match="nowhere"):
            await Session.open(str(tmp_path / "nowhere"), metrics=metrics)

    async def test_opening_with_a_kubeconfig_reaches_its_server(
        self, api: FakeApi, tmp_path: Path, metrics: Metrics
    ) -> None:
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": api.url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
        }
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(config))
        api.answers[PATH] = accepts("secret")
        async with await Session.open(str(path), metrics=metrics) as session:
            assert await session.get(PATH) == b'{"ok": true}\n'


async def test_an_aggregated_server_s_answer_does_not_tell_the_time(api: FakeApi, metrics: Metrics) -> None:
    """The API server passes metrics-server's answers on with their Date, which is of another machine."""
    api.answers[PATH] = text("", Date=DATE)
    async with Session(api.load, metrics=metrics, clock=ServerClock(lambda: 5.0, lambda: 60.0)) as session:
        async with session.reading(PATH, source="metrics.k8s.io", limit=Limit(1000)):
            pass
        assert session.now() == 60.0


class TestStream:
    @pytest.fixture
    def watch(self, api: FakeApi) -> Watch:
        watch = Watch({})
        api.answers[PATH] = watch.serve
        return watch

    async def test_lines_arrive_as_they_are_written(self, session: Session, watch: Watch) -> None:
        async with session.stream(PATH) as lines:
            watch.write(b"one\n")
            assert await anext(lines) == b"one"
            watch.write(b"tw")
            watch.write(b"o\nthree\nfo")
            assert [await anext(lines), await anext(lines)] == [b"two", b"three"]
            watch.write(b"ur\n")
            watch.end()
            assert [line async for line in lines] == [b"four"]

    async def test_a_line_may_be_longer_than_any_buffer(self, session: Session, watch: Watch) -> None:
        async with session.stream(PATH) as lines:
            watch.write(b"x" * 3_000_000 + b"\n")
            assert len(await anext(lines)) == 3_000_000

    async def test_an_answer_that_ends_within_a_line_is_unreachable(self, session: Session, watch: Watch) -> None:
        async with session.stream(PATH) as lines:
            watch.write(b'whole\n{"type": "ADD')
            watch.end()
            assert await anext(lines) == b"whole"
            with pytest.raises(errors.Unreachable, match="cut off in the middle of a line"):
                await anext(lines)

    async def test_a_broken_connection_is_unreachable(self, session: Session, watch: Watch) -> None:
        async with session.stream(PATH) as lines:
            watch.write(b"one\n")
            assert await anext(lines) == b"one"
            watch.cut()
            with pytest.raises(errors.Unreachable):
                await anext(lines)

    async def test_silence_is_an_error_of_its_own(self, session: Session, watch: Watch) -> None:
        async with session.stream(PATH, idle=0.5) as lines:
            watch.write(b"one\n")
            assert await anext(lines) == b"one"
            with pytest.raises(errors.TimedOut, match=r"silent for 0\.5 s"):
                await anext(lines)

    async def test_a_refusal_is_raised_before_the_first_line(self, api: FakeApi, session: Session) -> None:
        api.answers[PATH] = status(410, "Expired")
        with pytest.raises(errors.Gone):
            async with session.stream(PATH):
                pytest.fail("there is nothing to read")
