"""Questions over a few connections, against a server of bytes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from adapter.registries.polling_pool import CONNECTIONS, Pool, Unanswered

from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.http1 import LARGEST_HEAD, RawReply, Request
from adapter.runtime.outbound import Access
from adapter.runtime.source_errors import SourceError, SourceUnreachable, WrongAnswer
from tests.registries.http_kit import Answering, ByteServer, reply
from tests.waiting import eventually


def chunked(*chunks: str, trailer: str = "") -> bytes:
    parts = "".join(f"{len(chunk):x};x=y\r\n{chunk}\r\n" for chunk in chunks)
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n{parts}0\r\n{trailer}\r\n".encode()


class Server(ByteServer):
    """One that counts what the pool tells of its connections."""

    def __init__(self, answering: Answering, *, split: bool) -> None:
        super().__init__(answering, split=split)
        self.surplus = asyncio.Event()


@contextlib.asynccontextmanager
async def serving(
    answering: Answering, path: str = "", *, seconds: float = 5, access: Access | None = None, split: bool = False
) -> AsyncIterator[tuple[Pool, Server]]:
    async with Server(answering, split=split) as server:
        pool = Pool(
            f"{server.url}{path}",
            access or Access(),
            timeout=seconds,
            source="registry/main",
            limit=Limit(32 * MIB),
            on_surplus=server.surplus.set,
        )
        try:
            yield pool, server
        finally:
            pool.close()


def questions(count: int) -> list[Request]:
    return [Request("GET", f"/{number}") for number in range(count)]


async def as_it_is(_: int, reply: RawReply) -> RawReply:
    return reply


async def ask(pool: Pool, requests: Sequence[Request]) -> list[RawReply | SourceError]:
    return list((await pool.ask(requests, as_it_is)).outcomes)


def bodies(outcomes: list[RawReply | SourceError]) -> list[str]:
    """What was answered to each; of a failure its words."""
    return [one.body.whole().decode() if isinstance(one, RawReply) else str(one) for one in outcomes]


async def test_many_questions_are_answered_in_their_order_over_a_few_connections_that_are_kept() -> None:
    async with serving(lambda _, path: reply(path)) as (pool, server):
        for _ in range(3):
            assert bodies(await ask(pool, questions(30))) == [f"/{number}" for number in range(30)]
    assert server.connections == CONNECTIONS


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (reply("plain"), "plain"),
        (chunked("first,", "second"), "first,second"),
        (chunked("a" * 300, trailer="X-Sum: 7\r\n"), "a" * 300),
        (chunked(), ""),
        (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", ""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        (reply(""), ""),
    ],
)
@pytest.mark.parametrize("split", [False, True])
async def test_a_body_is_whole_however_it_is_sent(answer: bytes, body: str, *, split: bool) -> None:
    async with serving(lambda _, __: answer, split=split) as (pool, _):
        assert bodies(await ask(pool, questions(3))) == [body] * 3


async def test_headers_are_found_by_name_in_any_case_and_keep_theirs() -> None:
    async with serving(lambda _, __: reply("", 'eTaG:  W/"Abc" ', "X-ETag: no")) as (pool, _):
        [found] = await ask(pool, questions(1))
    assert found.header(b"etag") == b'W/"Abc"'
    assert found.header(b"tag") is None


async def test_a_request_has_path_host_credentials_and_body(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    access = Access(bearer_token_file=str(token), headers={"X-Tenant": "a"})
    async with serving(lambda _, __: reply("ok"), "/base", access=access) as (pool, server):
        await ask(pool, [Request("POST", "/x?y=z", (("X-Own", "b"),), b"body")])
        token.write_text("newer")
        await ask(pool, [Request("GET", "?y=z")])
    first = server.heads[0].split("\r\n")
    assert first[0] == "POST /base/x?y=z HTTP/1.1"
    assert {"X-Tenant: a", "X-Own: b", "Authorization: Bearer secret", "Content-Length: 4"} < set(first)
    assert first[1].startswith("Host: 127.0.0.1:")
    assert server.heads[1].startswith("GET /base?y=z HTTP/1.1\r\n")
    assert "Bearer newer" in server.heads[1]


@pytest.mark.parametrize(
    ("answering", "asked"),
    [
        (lambda count, path: reply(path, *(["Connection: Close"] if count == 2 else [])), 7),
        (lambda count, path: reply(path) if count < 3 else b"", 8),
    ],
    ids=["announced", "unannounced"],
)
async def test_what_an_end_left_unanswered_is_asked_again(answering: Answering, asked: int) -> None:
    async with serving(answering) as (pool, server):
        for _ in range(asked):
            assert bodies(await ask(pool, questions(1))) == ["/0"]
    assert server.connections == 3


async def test_a_server_that_hangs_up_without_an_answer_is_not_asked_for_ever() -> None:
    async with serving(lambda _, __: b"") as (pool, server):
        with pytest.raises(SourceUnreachable, match="closed without an answer"):
            await ask(pool, questions(1))
    assert server.connections == 1


async def test_a_server_that_is_not_there_is_named() -> None:
    pool = Pool("http://127.0.0.1:1", Access(), timeout=5, source="registry/main", limit=Limit(MIB))
    with pytest.raises(SourceUnreachable, match=r"http://127\.0\.0\.1:1: .*Connect call failed"):
        await ask(pool, questions(1))


async def test_a_credential_that_cannot_be_read_is_named() -> None:
    pool = Pool("http://127.0.0.1:1", Access(bearer_token_file="/nowhere"), timeout=5, source="main", limit=Limit(MIB))
    with pytest.raises(SourceUnreachable, match="credentials: cannot use /nowhere"):
        await ask(pool, questions(1))


async def test_a_late_answer_is_not_taken_for_the_next_questions() -> None:
    late = asyncio.Event()

    def answering(count: int, path: str) -> bytes:
        # The head alone: the body never comes.
        return b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" if path == "/0" and not late.is_set() else reply(path)

    async with serving(answering, seconds=1) as (pool, server):
        with pytest.raises(SourceUnreachable, match="no answer within 1 s"):
            await ask(pool, questions(1))
        late.set()
        assert bodies(await ask(pool, [Request("GET", "/next")])) == ["/next"]
    assert server.connections == 2


async def test_a_cancelled_question_ends_its_connection() -> None:
    async with serving(lambda _, path: reply(path) if path != "/0" else b"HTTP/1.1 200") as (pool, server):
        asking = asyncio.create_task(ask(pool, questions(1)))
        await eventually(lambda: bool(server.heads))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert bodies(await ask(pool, [Request("GET", "/next")])) == ["/next"]
    assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "is not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\n\r\nbody", "does not say how long it is"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "does not say how long it is"),
        (f"HTTP/1.1 200 OK\r\nContent-Length: {32 * MIB + 1}\r\n\r\n".encode(), "larger than 32 MiB"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunks cannot be read"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "chunks cannot be read"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", "larger than 32 MiB"),
        (b"x" * (LARGEST_HEAD + 1), "headers are too long"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * LARGEST_HEAD + b"\r\nContent-Length: 2\r\n\r\n{}", "headers are too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "several Content-Lengths"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\n{}", "does not say how long it is"),
        *[
            (b'HTTP/1.1 200 OK\r\nETag: "a%bX: b"\r\nContent-Length: 2\r\n\r\n{}' % stray, "line break or a NUL")
            for stray in (b"\r", b"\n", b"\n\r", b"\r\n ", b"\0")
        ],
    ],
    ids=repr,
)
async def test_what_is_no_answer_is_an_error_and_ends_the_connection(answer: bytes, words: str) -> None:
    answers = iter([answer])
    async with serving(lambda _, path: next(answers, reply(path))) as (pool, server):
        with pytest.raises(WrongAnswer, match=words):
            await ask(pool, questions(1))
        assert bodies(await ask(pool, questions(1))) == ["/0"]
    assert server.connections == 2


async def test_each_answer_has_a_time_limit_of_its_own_and_those_that_came_are_kept() -> None:
    hanging = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"

    async with serving(lambda _, path: hanging if path == "/3" else reply(path), seconds=1) as (pool, _):
        found = bodies(await ask(pool, questions(40)))
    assert [number for number in range(40) if found[number] != f"/{number}"] == [3]
    assert "no answer within 1 s" in found[3]


async def test_a_server_that_is_silent_is_not_waited_for_question_by_question() -> None:
    async with serving(lambda _, __: b"HTTP/1.1 200 OK\r\n", seconds=0.2) as (pool, server):
        with pytest.raises(SourceUnreachable, match=r"no answer within 0\.2 s"):
            await ask(pool, questions(100))
    assert len(server.heads) == CONNECTIONS


@pytest.mark.parametrize("then", ["at once", "at rest"])
async def test_an_answer_that_nobody_asked_for_is_given_to_no_question(then: str) -> None:
    """As a proxy sends that answers twice: what comes next over that connection is one question late."""

    def answering(count: int, path: str) -> bytes:
        return reply(path) + reply("nobody's") if path == "/0" and then == "at once" else reply(path)

    async with serving(answering) as (pool, server):
        if then == "at once":
            with pytest.raises(SourceError, match="more answers than requests"):
                await ask(pool, questions(1))
        else:
            await ask(pool, questions(1))
            server.writers[0].write(reply("nobody's"))
        await asyncio.wait_for(server.surplus.wait(), 5)
        assert bodies(await ask(pool, [Request("GET", "/next")])) == ["/next"]
    assert server.connections == 2


async def test_with_an_answer_too_many_nothing_of_that_connection_is_believed() -> None:
    def answering(_: int, path: str) -> bytes:
        return reply(path) + reply("nobody's") if path == "/30" else reply(path)

    async with serving(answering) as (pool, _):
        found = bodies(await ask(pool, questions(31)))
    wrong = [number for number in range(31) if found[number] != f"/{number}"]
    assert wrong[-1] == 30
    assert all("more answers than requests" in found[number] for number in wrong)


async def test_when_time_ends_what_was_answered_is_kept_and_the_rest_is_late_or_was_not_asked() -> None:
    hanging = b"HTTP/1.1 200 OK\r\n"
    async with serving(lambda _, path: hanging if int(path[1:]) >= 2 else reply(path), seconds=5) as (pool, _):
        answers = await pool.ask(questions(2 + CONNECTIONS + 3), as_it_is, seconds=1)
        found = answers.outcomes
        assert [one.body.whole() for one in found[:2] if isinstance(one, RawReply)] == [b"/0", b"/1"]
        assert found[2 : 2 + CONNECTIONS] == [Unanswered.LATE] * CONNECTIONS
        assert found[2 + CONNECTIONS :] == [Unanswered.NOT_ASKED] * 3
        assert answers.seconds.keys() == {0, 1}


async def test_a_server_that_answers_nothing_in_time_has_not_failed_yet() -> None:
    async with serving(lambda _, __: b"HTTP/1.1 200 OK\r\n", seconds=5) as (pool, _):
        answers = await pool.ask(questions(2), as_it_is, seconds=0.1)
        assert (answers.outcomes, answers.seconds) == ([Unanswered.LATE] * 2, {})
