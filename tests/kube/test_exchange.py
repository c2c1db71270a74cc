"""Small requests over kept connections: errors as those of any other request, and no answer for another request."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from adapter.kube import errors
from adapter.kube import session as session_module
from adapter.kube.credentials import ClusterAccess, Load
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.kube.fake import Answer, FakeApi, cut_short, hang_up, status, text
from tests.kube.test_session import Tokens, accepts

PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
METRICS = Metrics()
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def a_session(load: Load) -> Session:
    return Session(load, metrics=METRICS)


def connection_of(request: web.Request) -> object:
    assert request.transport is not None
    return request.transport.get_extra_info("peername")


async def test_a_get_returns_the_body_and_says_who_asks(api: FakeApi) -> None:
    api.answers[PATH] = text("hello")
    async with a_session(Tokens(api, "one")) as session:
        assert await session.exchange("GET", PATH, timeout=5) == b"hello"
    headers = api.seen[0].headers
    assert headers["Authorization"] == "Bearer one"
    assert headers["User-Agent"].startswith("effective-load/")
    assert (headers["Accept"], headers["Accept-Encoding"]) == ("application/json", "identity")
    assert "http://" + headers["Host"] == api.url


async def test_a_body_is_sent_with_its_type(api: FakeApi, session: Session) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"{request.method} {request.content_type} {await request.text()}", status=201)

    api.answers[REVIEWS] = echo
    assert await session.exchange("POST", REVIEWS, body=b"{}", timeout=5) == b"POST application/json {}"


async def test_a_server_below_a_path_is_asked_there(api: FakeApi) -> None:
    api.answers["/clusters/one" + PATH] = text("hello")

    async def load() -> ClusterAccess:
        return ClusterAccess(server=f"{api.url}/clusters/one/")

    async with a_session(load) as session:
        assert await session.exchange("GET", PATH, timeout=5) == b"hello"


@pytest.mark.parametrize(("code", "kind"), [(403, errors.Forbidden), (404, errors.NotFound), (503, errors.ServerError)])
async def test_a_refusal_is_raised_as_what_it_is(
    api: FakeApi, session: Session, code: int, kind: type[errors.ApiStatusError]
) -> None:
    api.answers[PATH] = status(code, "Why", "a sentence", headers={"Retry-After": "7"})
    with pytest.raises(kind) as caught:
        await session.exchange("GET", PATH, timeout=5)
    assert str(caught.value) == f"GET {PATH}: {code} Why: a sentence"
    assert caught.value.retry_after == 7


async def test_refused_credentials_are_loaded_anew_once(api: FakeApi) -> None:
    api.answers[PATH] = accepts("two")
    tokens = Tokens(api, "one", "two")
    async with a_session(tokens) as session:
        assert await session.exchange("GET", PATH, timeout=5) == b'{"ok": true}\n'
    assert (tokens.loaded, len(api.asked)) == (2, 2)


async def test_credentials_that_stay_refused_are_an_error(api: FakeApi) -> None:
    api.answers[PATH] = accepts("three")
    async with a_session(Tokens(api, "one", "two")) as session:
        with pytest.raises(errors.Unauthorized):
            await session.exchange("GET", PATH, timeout=5)
    assert len(api.asked) == 2


async def test_a_connection_is_used_again_and_together_asked_requests_have_their_own(
    api: FakeApi, session: Session
) -> None:
    together = asyncio.Barrier(2)

    async def meet(request: web.Request) -> web.StreamResponse:
        await together.wait()
        return web.Response(text=str(connection_of(request)))

    api.answers[PATH], api.answers[REVIEWS] = meet, text("ok")
    ask = [session.exchange("GET", PATH, timeout=5) for _ in range(2)]
    first, second = await asyncio.gather(*ask)
    assert first != second
    for _ in range(3):
        await session.exchange("GET", REVIEWS, timeout=5)
    assert {str(connection_of(request)).encode() for request in api.seen[2:]} <= {first, second}


async def test_a_kept_connection_that_the_server_closed_costs_no_answer(api: FakeApi, session: Session) -> None:
    api.answers[PATH] = text("hello")
    await session.exchange("GET", PATH, timeout=5)
    api.answers[PATH] = once_then(hang_up, text("again"))
    assert await session.exchange("GET", PATH, timeout=5) == b"again"


def once_then(first: Answer, then: Answer) -> Answer:
    answers = iter([first])

    async def answer(request: web.Request) -> web.StreamResponse:
        return await next(answers, then)(request)

    return answer


async def test_a_connection_that_was_idle_for_long_is_not_used_again(
    api: FakeApi, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "IDLE_SECONDS", -1.0)

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=str(connection_of(request)))

    api.answers[PATH] = answer
    assert await session.exchange("GET", PATH, timeout=5) != await session.exchange("GET", PATH, timeout=5)


@pytest.mark.parametrize("fault", [hang_up, cut_short])
async def test_no_whole_answer_is_an_error_that_names_the_request(
    api: FakeApi, session: Session, fault: Answer
) -> None:
    api.answers[PATH] = fault
    with pytest.raises(errors.Unreachable, match=f"GET {PATH}: the connection was closed without an answer"):
        await session.exchange("GET", PATH, timeout=5)


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

    async def load() -> ClusterAccess:
        return ClusterAccess(server=f"http://127.0.0.1:{port}")

    async with a_session(load) as session:
        with pytest.raises(errors.Unreachable, match=f"GET {PATH}: .*refused|Connect call failed"):
            await session.exchange("GET", PATH, timeout=5)


async def test_a_late_answer_is_an_error_and_never_the_next_request_s(api: FakeApi, session: Session) -> None:
    go = asyncio.Event()

    async def slow(_request: web.Request) -> web.StreamResponse:
        await go.wait()
        return web.Response(text="late")

    api.answers[PATH], api.answers[REVIEWS] = slow, text("mine")
    with pytest.raises(errors.TimedOut, match=r"no answer within 0\.05 s"):
        await session.exchange("GET", PATH, timeout=0.05)
    go.set()
    assert await session.exchange("GET", REVIEWS, timeout=5) == b"mine"


Bytes = Callable[[int], bytes]


@contextlib.asynccontextmanager
async def serving(answer: Bytes) -> AsyncIterator[Session]:
    """A session to a server of bytes; `answer` has those for the n-th request."""
    count = 0
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer(count))
                count += 1

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        async def load() -> ClusterAccess:
            return ClusterAccess(server=f"http://127.0.0.1:{port}")

        async with a_session(load) as session:
            yield session
        for writer in writers:
            writer.close()
        await asyncio.sleep(0)


def reply(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_an_answer_too_many_is_given_to_no_request() -> None:
    async with serving(lambda count: reply(b"mine") + reply(b"another's") if count == 0 else reply(b"next")) as session:
        with pytest.raises(errors.MalformedAnswer, match="more answers than requests"):
            await session.exchange("GET", PATH, timeout=5)
        assert await session.exchange("GET", PATH, timeout=5) == b"next"


INTERIM = b"HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\n"


async def test_an_interim_answer_is_not_taken_for_the_answer() -> None:
    # The answer itself would then be given to the next request on this connection.
    async with serving(lambda count: INTERIM + b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"%d" % count)) as session:
        for number in range(3):
            assert await session.exchange("GET", PATH, timeout=5) == b"%d" % number


@pytest.mark.parametrize(
    ("answer", "cause"),
    [(INTERIM * 100, "more than 16 interim answers"), (b"HTTP/1.1 101 Switching\r\n\r\n", "another protocol")],
)
async def test_interim_answers_without_end_and_other_protocols_are_malformed(answer: bytes, cause: str) -> None:
    async with serving(lambda _: answer) as session:
        with pytest.raises(errors.MalformedAnswer, match=cause):
            await session.exchange("GET", PATH, timeout=5)


async def test_what_is_no_http_is_a_malformed_answer() -> None:
    async with serving(lambda _: b"SSH-2.0\r\n\r\n") as session:
        with pytest.raises(errors.MalformedAnswer, match=r"not HTTP/1\.1"):
            await session.exchange("GET", PATH, timeout=5)


async def test_an_answer_over_the_limit_is_too_large() -> None:
    async with serving(lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n") as session:
        with pytest.raises(errors.TooLarge, match="larger than 16 MiB"):
            await session.exchange("GET", PATH, timeout=5)


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä\N{SNOWMAN}"])
async def test_a_path_that_is_no_line_of_http_is_not_sent(api: FakeApi, session: Session, target: str) -> None:
    with pytest.raises(errors.Unreachable, match="cannot be requested"):
        await session.exchange("GET", target, timeout=5)
    assert not api.asked


async def test_a_credential_with_a_line_end_is_not_sent_and_not_shown(api: FakeApi) -> None:
    async with a_session(Tokens(api, "secret\r\nX-Other: value")) as session:
        with pytest.raises(errors.Unreachable, match="header Authorization") as caught:
            await session.exchange("GET", PATH, timeout=5)
    assert "secret" not in str(caught.value)
    assert not api.asked


async def test_a_proxy_is_used_as_by_any_other_request(api: FakeApi) -> None:
    api.answers[PATH] = text("through it")

    async def load() -> ClusterAccess:
        return ClusterAccess(server="http://elsewhere.example", proxy=api.url)

    async with a_session(load) as session:
        assert await session.exchange("GET", PATH, timeout=5) == b"through it"
    assert api.seen[0].headers["Host"] == "elsewhere.example"


async def test_the_answers_tell_the_server_s_time(api: FakeApi, session: Session) -> None:
    async def dated(_request: web.Request) -> web.StreamResponse:
        return web.Response(headers={"Date": "Mon, 05 Jan 2026 08:00:00 GMT"})

    api.answers[PATH] = dated
    await session.exchange("GET", PATH, timeout=5)
    assert abs(session.now() - 1767600000.5) < 5


async def test_the_connections_end_with_the_session(api: FakeApi) -> None:
    ended = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        request.task.add_done_callback(lambda _: ended.set())
        return web.Response(text="hello")

    api.answers[PATH] = wait
    async with a_session(Tokens(api, "one")) as session:
        await session.exchange("GET", PATH, timeout=5)
        assert not ended.is_set()
    async with asyncio.timeout(5):
        await ended.wait()
