"""Small requests over kept connections: errors as those of any other request, and no answer for another request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from adapter.kube import errors
from adapter.kube import session as session_module
from adapter.kube.session import Session
from tests.kube.fake import Answer, FakeApi, cut_short, hang_up, session_to, session_with, text
from tests.kube.test_session import Tokens

PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def connection_of(request: web.Request) -> str:
    assert request.transport is not None
    return str(request.transport.get_extra_info("peername"))


async def tell_connection(request: web.Request) -> web.StreamResponse:
    return web.Response(text=connection_of(request))


async def test_a_body_is_sent_with_its_type(api: FakeApi, session: Session) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"{request.method} {request.content_type} {await request.text()}", status=201)

    api.answers[REVIEWS] = echo
    assert await session.exchange("POST", REVIEWS, body=b"{}", timeout=5) == b"POST application/json {}"


async def test_a_server_below_a_path_is_asked_there(api: FakeApi) -> None:
    api.answers["/clusters/one" + PATH] = text("hello")
    async with session_to(f"{api.url}/clusters/one/") as session:
        assert await session.exchange("GET", PATH, timeout=5) == b"hello"


async def test_a_connection_is_used_again_and_together_asked_requests_have_their_own(
    api: FakeApi, session: Session
) -> None:
    together = asyncio.Barrier(2)

    async def meet(request: web.Request) -> web.StreamResponse:
        await together.wait()
        return await tell_connection(request)

    api.answers[PATH], api.answers[REVIEWS] = meet, text("ok")
    ask = [session.exchange("GET", PATH, timeout=5) for _ in range(2)]
    first, second = await asyncio.gather(*ask)
    assert first != second
    for _ in range(3):
        await session.exchange("GET", REVIEWS, timeout=5)
    assert {connection_of(request).encode() for request in api.seen[2:]} <= {first, second}


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
    api.answers[PATH] = tell_connection
    assert await session.exchange("GET", PATH, timeout=5) != await session.exchange("GET", PATH, timeout=5)


@pytest.mark.parametrize("fault", [hang_up, cut_short])
async def test_without_a_whole_answer_the_error_says_so(api: FakeApi, session: Session, fault: Answer) -> None:
    api.answers[PATH] = fault
    with pytest.raises(errors.Unreachable, match=f"GET {PATH}: the connection was closed without an answer"):
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
        async with session_to(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as session:
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
    ("answer", "kind", "cause"),
    [
        (INTERIM * 100, errors.MalformedAnswer, "more than 16 interim answers"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", errors.MalformedAnswer, "another protocol"),
        (b"SSH-2.0\r\n\r\n", errors.MalformedAnswer, r"not HTTP/1\.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", errors.TooLarge, "larger than 16 MiB"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_refused_with_the_cause(
    answer: bytes, kind: type[errors.KubeError], cause: str
) -> None:
    async with serving(lambda _: answer) as session:
        with pytest.raises(kind, match=cause):
            await session.exchange("GET", PATH, timeout=5)


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä\N{SNOWMAN}"])
async def test_a_path_that_is_no_line_of_http_is_not_sent(api: FakeApi, session: Session, target: str) -> None:
    with pytest.raises(errors.Unreachable, match="cannot be requested"):
        await session.exchange("GET", target, timeout=5)
    assert not api.asked


async def test_a_credential_with_a_line_end_is_not_sent_and_not_shown(api: FakeApi) -> None:
    async with session_with(Tokens(api, "secret\r\nX-Other: value")) as session:
        with pytest.raises(errors.Unreachable, match="header Authorization") as caught:
            await session.exchange("GET", PATH, timeout=5)
    assert "secret" not in str(caught.value)
    assert not api.asked


async def test_a_proxy_is_used_as_by_any_other_request(api: FakeApi) -> None:
    api.answers[PATH] = text("through it")
    async with session_to("http://elsewhere.example", proxy=api.url) as session:
        assert await session.exchange("GET", PATH, timeout=5) == b"through it"
    assert api.seen[0].headers["Host"] == "elsewhere.example"


async def test_the_connections_end_with_the_session(api: FakeApi) -> None:
    ended = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        request.task.add_done_callback(lambda _: ended.set())
        return web.Response(text="hello")

    api.answers[PATH] = wait
    async with session_with(api.load) as session:
        await session.exchange("GET", PATH, timeout=5)
        assert not ended.is_set()
    async with asyncio.timeout(5):
        await ended.wait()
