"""The HTTP client of all sources: credentials from files, TLS, deadlines, size limits, faults as one kind of error."""

import asyncio
import gc
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from blockbuster import BlockingError

from adapter.runtime.http import MIB, Access, Client, credentials, secret
from adapter.runtime.source_errors import AnswerTooLarge, SourceUnreachable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Source:
    """A server that keeps its requests; `handler` answers them, by default with what `reply` says."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.handler: Handler = self.replies
        self.reply: dict[str, Any] = {"body": b"fine"}
        self.url = ""

    async def replies(self, _: web.Request) -> web.StreamResponse:
        return web.Response(**self.reply)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return await self.handler(request)

    def sent(self, header: str) -> list[str | None]:
        """The header's value in each request."""
        return [request.headers.get(header) for request in self.requests]


async def started(source: Source, context: ssl.SSLContext | None = None) -> TestServer:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", source.answer)
    server = TestServer(application, host="127.0.0.1")
    await server.start_server(ssl=context)
    source.url = str(server.make_url("/")).rstrip("/")
    return server


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    """A server without TLS."""
    made = Source()
    async with await started(made):
        yield made


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[tuple[Source, Path]]:
    """A server with TLS, and the file with the CA that signed its certificate."""
    authority, context, made = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Source()
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with await started(made, context):
        yield made, tmp_path / "ca.pem"


@pytest.fixture
async def client_of() -> AsyncIterator[Callable[..., Client]]:
    """Makes clients that look at their files for each request, and closes them."""
    made: list[Client] = []

    def make(access: Access | None = None, **options: object) -> Client:
        made.append(Client(access or Access(), **{"timeout": 20.0, **options}))  # type: ignore[arg-type]
        made[-1].look_seconds = 0.0
        return made[-1]

    yield make
    for client in made:
        await client.close()


Make = Callable[..., Client]


def packed(body: bytes) -> dict[str, Any]:
    return {"body": gzip.compress(body), "headers": {"Content-Encoding": "gzip"}}


async def test_refused_connections_leave_nothing_to_the_garbage_collector(client_of: Make) -> None:
    """For a registry of 500 services that is down it would be 60 MiB until the next full collection."""
    client = client_of()
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            with pytest.raises(SourceUnreachable):
                await client.send("GET", "http://127.0.0.1:9")
        assert gc.collect() < 100
    finally:
        gc.enable()


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "header", "value"), [(503, "Retry-After", "3"), (302, "Location", "/elsewhere")]
    )
    async def test_answer_of_any_status_is_returned_with_its_headers_and_no_redirect_followed(
        self, source: Source, client_of: Make, status: int, header: str, value: str
    ) -> None:
        source.reply = {"status": status, "body": b"busy", "headers": {header: value}}
        reply = await client_of().send("GET", source.url)
        assert (reply.status, reply.headers[header.lower()], reply.body) == (status, value, b"busy")
        assert len(source.requests) == 1

    async def test_an_address_that_is_none_is_unreachable(self, client_of: Make) -> None:
        with pytest.raises(SourceUnreachable, match="port"):
            await client_of().send("GET", "http://127.0.0.1:port/")

    async def test_compressed_answer_is_unpacked(self, source: Source, client_of: Make) -> None:
        source.reply = packed(b"fine")
        assert (await client_of().send("GET", source.url)).body == b"fine"
        assert source.sent("Accept-Encoding") == ["gzip"]


class TestLimits:
    async def test_answer_over_its_limit_names_the_setting_and_the_remedy(
        self, source: Source, client_of: Make
    ) -> None:
        source.reply = {"body": b" " * (MIB + 1)}
        with pytest.raises(AnswerTooLarge) as caught:
            await client_of(max_bytes=MIB, limit_name="maxAnswerMiB of x").send("GET", source.url)
        assert str(caught.value) == ("the answer is larger than 1 MiB; ask for less, or raise maxAnswerMiB of x")
        assert caught.value.public == "the answer is larger than its limit"

    async def test_packed_answer_is_limited_by_its_unpacked_size(self, source: Source, client_of: Make) -> None:
        source.reply = packed(b" " * (64 * MIB))
        with pytest.raises(AnswerTooLarge, match="larger than 1 MiB"):
            await client_of(max_bytes=MIB).send("GET", source.url)

    @pytest.mark.parametrize("begins", [False, True], ids=["no answer", "a body that never ends"])
    async def test_hanging_server_is_unreachable_after_the_deadline(
        self, source: Source, client_of: Make, begins: bool
    ) -> None:
        over = asyncio.Event()

        async def hangs(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "100"})
            if begins:
                await response.prepare(request)
                await response.write(b"{")
            await over.wait()
            return response

        source.handler = hangs
        with pytest.raises(SourceUnreachable, match=r"no answer within 0\.05 s") as caught:
            await client_of().send("GET", source.url, deadline=0.05)
        over.set()
        assert caught.value.public == "timed out"

    async def test_closed_client_is_unreachable(self, source: Source, client_of: Make) -> None:
        client = client_of()
        await client.close()
        with pytest.raises(SourceUnreachable, match="the client is closed"):
            await client.send("GET", source.url)


class TestFiles:
    async def test_password_of_a_file_becomes_basic_authentication(
        self, source: Source, client_of: Make, tmp_path: Path
    ) -> None:
        (tmp_path / "password").write_text("sécret\n")
        await client_of(Access(username="me", password_file=str(tmp_path / "password"))).send("GET", source.url)
        assert source.sent("Authorization") == ["Basic bWU6c8OpY3JldA=="]

    async def test_replaced_token_is_sent_with_the_next_request(
        self, source: Source, client_of: Make, tmp_path: Path
    ) -> None:
        """As the kubelet replaces a Secret's files: a new target of the link, same size, maybe the same second."""
        for name in ("aaa", "bbb"):
            (tmp_path / name).write_text(name)
        link = tmp_path / "token"
        link.symlink_to(tmp_path / "aaa")
        client = client_of(Access(bearer_token_file=str(link)))
        await client.send("GET", source.url)
        (tmp_path / "new").symlink_to(tmp_path / "bbb")
        (tmp_path / "new").replace(link)
        await client.send("GET", source.url)
        assert source.sent("Authorization") == ["Bearer aaa", "Bearer bbb"]

    async def test_files_are_not_looked_at_for_each_request(
        self, source: Source, client_of: Make, tmp_path: Path
    ) -> None:
        (token := tmp_path / "token").write_text("aaa")
        client = client_of(Access(bearer_token_file=str(token)))
        client.look_seconds = 3600.0
        await client.send("GET", source.url)
        token.write_text("bbb")
        await client.send("GET", source.url)
        assert source.sent("Authorization") == ["Bearer aaa", "Bearer aaa"]

    async def test_headers_come_from_settings_and_files(self, source: Source, client_of: Make, tmp_path: Path) -> None:
        (tmp_path / "tenant").write_text("tenant-a\n")
        access = Access(headers={"X-More": "b"}, header_files={"X-Scope-OrgID": str(tmp_path / "tenant")})
        await client_of(access).send("GET", source.url, headers={"X-Own": "c"})
        sent = [source.sent(name)[0] for name in ("X-More", "X-Scope-OrgID", "X-Own")]
        assert sent == ["b", "tenant-a", "c"]
        assert "tenant" not in repr(Access(headers={"X-Scope-OrgID": "tenant-a"}))

    async def test_missing_file_is_named_and_nothing_is_sent(
        self, source: Source, client_of: Make, tmp_path: Path
    ) -> None:
        client = client_of(Access(bearer_token_file=str(tmp_path / "token")))
        with pytest.raises(SourceUnreachable, match=r"cannot use .*/token: No such file") as caught:
            await client.send("GET", source.url)
        assert caught.value.public == "cannot read the adapter's credentials for it"
        assert not source.requests

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"hush\r\nX-Remote-User: admin", "not one line of text"),
            (b"hush\x00", "not one line of text"),
            (b"hush\xff", "not one line of text"),
            (b"\n", "is empty"),
        ],
    )
    def test_unusable_header_value_is_named_by_file_and_key_alone(
        self, tmp_path: Path, content: bytes, why: str
    ) -> None:
        (tmp_path / "value").write_bytes(content)
        with pytest.raises(ValueError, match=why) as caught:
            credentials(Access(header_files={"X-Api-Key": str(tmp_path / "value")}))
        assert str(tmp_path / "value") in str(caught.value)
        assert "hush" not in str(caught.value)


class TestTls:
    async def test_certificate_is_not_verified_only_where_settings_say_so(
        self, secure: tuple[Source, Path], client_of: Make
    ) -> None:
        source, _ = secure
        with pytest.raises(SourceUnreachable, match="certificate verify failed") as caught:
            await client_of().send("GET", source.url)
        assert caught.value.public == "its certificate is not trusted"
        assert (await client_of(Access(insecure_skip_verify=True)).send("GET", source.url)).status == 200

    async def test_given_authority_is_trusted_and_a_replaced_one_from_then_on(
        self, secure: tuple[Source, Path], client_of: Make
    ) -> None:
        source, authority = secure
        assert (await client_of(Access(ca=authority.read_text())).send("GET", source.url)).body == b"fine"
        right = authority.read_bytes()
        trustme.CA().cert_pem.write_to_path(str(authority))
        client = client_of(Access(ca_file=str(authority)))
        with pytest.raises(SourceUnreachable, match="certificate verify failed"):
            await client.send("GET", source.url)
        authority.write_bytes(right + b"\n")
        assert (await client.send("GET", source.url)).status == 200
        authority.write_text("no certificate")
        with pytest.raises(SourceUnreachable, match="credentials"):
            await client.send("GET", source.url)

    async def test_closed_client_keeps_no_connection_of_a_given_up_request(
        self, secure: tuple[Source, Path], client_of: Make
    ) -> None:
        source, authority = secure
        asked, ended = asyncio.Event(), asyncio.Event()

        async def hangs(_: web.Request) -> web.StreamResponse:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        source.handler = hangs
        client = client_of(Access(ca_file=str(authority)))
        asking = asyncio.create_task(client.send("GET", source.url))
        await asked.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await client.close()
        async with asyncio.timeout(10):
            await ended.wait()


async def test_no_test_lets_a_call_of_ours_block_the_event_loop() -> None:
    with pytest.raises(BlockingError):
        secret(__file__)
