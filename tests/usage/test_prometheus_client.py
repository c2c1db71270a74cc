"""One Prometheus server over HTTP: what is sent, credentials from files, TLS, and every way to answer badly."""

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from blockbuster import blockbuster_ctx

from adapter.runtime import outbound
from adapter.runtime.concurrency import Slices
from adapter.runtime.source_errors import QueryRejected, SourceError, SourceFailing, SourceUnreachable
from adapter.settings import PrometheusServer
from adapter.usage.prometheus_api import PrometheusClient, Sample
from tests.usage.fakes import FakePrometheus, Handler, PlainSample, always, plain, raw, vector


@pytest.fixture
async def fake() -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus() as prometheus:
        yield prometheus


async def ask(server: PrometheusClient, text: str = "x", **more: Any) -> list[PlainSample]:
    found: list[Sample] = []
    await server.query(text, found.extend, Slices(), **{"max_age": 90, **more})
    return plain(found)


async def query(settings: PrometheusServer, text: str = "x", **more: Any) -> list[PlainSample]:
    server = PrometheusClient(settings)
    try:
        return await ask(server, text, **more)
    finally:
        await server.close()


async def failure(fake: FakePrometheus, handler: Handler, **more: Any) -> SourceError:
    fake.handler = handler
    with pytest.raises(SourceError) as caught:
        await query(fake.settings(**more))
    return caught.value


def packed(body: bytes) -> Handler:
    """Answers with a body that it says is packed."""
    return always(lambda: web.Response(body=body, headers={"Content-Encoding": "gzip"}))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """A file with a token."""
    file = tmp_path / "token"
    file.write_text("one")
    return file


class TestAsking:
    async def test_a_query_is_a_form_posted_to_the_instant_query_path(self, fake: FakePrometheus) -> None:
        settings = fake.settings(timeout_seconds=4, headers={"X-Scope-OrgID": "tenant-a"})
        await query(settings, 'sum(x{a="ü&b"})', at=1_767_268_800.1239)
        [request] = fake.requests
        assert (request.method, request.path) == ("POST", "/api/v1/query")
        assert request.headers["X-Scope-OrgID"] == "tenant-a"
        assert "Authorization" not in request.headers
        assert fake.asked == [
            {"query": 'sum(x{a="ü&b"})', "lookback_delta": "90.000", "timeout": "4.000", "time": "1767268800.124"}
        ]

    @pytest.mark.parametrize("prefix", ["", "/", "/prometheus", "/prometheus/"])
    async def test_a_path_prefix_is_kept(self, fake: FakePrometheus, prefix: str) -> None:
        await query(PrometheusServer(name="main", url=fake.url + prefix))
        assert fake.requests[0].path == prefix.rstrip("/") + "/api/v1/query"

    async def test_a_compressed_response_is_decompressed(self, fake: FakePrometheus) -> None:
        fake.handler = packed(gzip.compress(b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}'))
        assert await query(fake.settings()) == [PlainSample({}, 1, "2")]
        assert fake.requests[0].headers["Accept-Encoding"] == "gzip"


class TestCredentials:
    async def test_basic_authentication_reads_the_password_from_its_file(
        self, fake: FakePrometheus, tmp_path: Path
    ) -> None:
        file = tmp_path / "password"
        file.write_text("sécret\n")
        await query(fake.settings(username="me", password_file=str(file)))
        assert fake.requests[0].headers["Authorization"] == "Basic bWU6c8OpY3JldA=="

    async def test_a_token_is_read_anew_beside_the_event_loop_once_it_changes_and_only_then(
        self, fake: FakePrometheus, token: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[str] = []
        secret = outbound.secret
        monkeypatch.setattr(outbound, "secret", lambda name: read.append(name) or secret(name))
        server = PrometheusClient(fake.settings(bearer_token_file=str(token)))
        with blockbuster_ctx("adapter"):
            for _ in range(3):
                await ask(server)
        await asyncio.to_thread(token.write_text, "second\n")
        await ask(server)
        await server.close()
        shown = [request.headers["Authorization"] for request in fake.requests]
        assert shown == ["Bearer one"] * 3 + ["Bearer second"]
        assert read == [str(token)] * 2

    async def test_a_token_that_a_symlink_swap_replaces_is_read_anew(
        self, fake: FakePrometheus, tmp_path: Path
    ) -> None:
        """As the kubelet replaces a Secret's files: same size, maybe the same second."""
        for name in ("aaa", "bbb"):
            (tmp_path / name).write_text(name)
        link = tmp_path / "token"
        link.symlink_to(tmp_path / "aaa")
        server = PrometheusClient(fake.settings(bearer_token_file=str(link)))
        await ask(server)
        (tmp_path / "new").symlink_to(tmp_path / "bbb")
        (tmp_path / "new").replace(link)
        await ask(server)
        await server.close()
        assert fake.requests[1].headers["Authorization"] == "Bearer bbb"

    async def test_a_missing_file_is_named(self, fake: FakePrometheus, tmp_path: Path) -> None:
        with pytest.raises(SourceUnreachable, match=r"cannot use .*/token: No such file"):
            await query(fake.settings(bearer_token_file=str(tmp_path / "token")))
        assert not fake.requests

    @pytest.mark.parametrize("content", [b"a\nb", b"\xff\xfe"])
    async def test_an_invalid_token_is_an_error_that_does_not_show_it(
        self, fake: FakePrometheus, token: Path, content: bytes
    ) -> None:
        await asyncio.to_thread(token.write_bytes, b"hush" + content)
        with pytest.raises(SourceUnreachable) as caught:
            await query(fake.settings(bearer_token_file=str(token)))
        assert "hush" not in str(caught.value)


class TestTls:
    @pytest.fixture
    async def secure(self, tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        application = web.Application()

        async def answer(_request: web.Request) -> web.StreamResponse:
            return vector()

        application.router.add_post("/api/v1/query", answer)
        server = TestServer(application, host="127.0.0.1")
        await server.start_server(ssl=context)
        yield f"https://127.0.0.1:{server.port}", tmp_path / "ca.pem"
        await server.close()

    async def test_a_given_authority_is_trusted_and_any_where_verification_is_off(
        self, secure: tuple[str, Path]
    ) -> None:
        url, authority = secure
        assert await query(PrometheusServer(name="main", url=url, ca_file=str(authority))) == []
        assert await query(PrometheusServer(name="main", url=url, insecure_skip_verify=True)) == []

    async def test_an_unknown_authority_is_not(self, secure: tuple[str, Path]) -> None:
        with pytest.raises(SourceUnreachable, match="certificate verify failed"):
            await query(PrometheusServer(name="main", url=secure[0]))

    async def test_an_authority_that_is_replaced_is_trusted_from_then_on(self, secure: tuple[str, Path]) -> None:
        url, authority = secure
        right = authority.read_bytes()
        trustme.CA().cert_pem.write_to_path(str(authority))
        server = PrometheusClient(PrometheusServer(name="main", url=url, ca_file=str(authority)))
        with pytest.raises(SourceUnreachable, match="certificate verify failed"):
            await ask(server)
        authority.write_bytes(right + b"\n")
        assert await ask(server) == []
        await server.close()

    async def test_a_file_that_holds_no_certificate_is_an_error(self, secure: tuple[str, Path], tmp_path: Path) -> None:
        (tmp_path / "bad.pem").write_text("no certificate")
        with pytest.raises(SourceUnreachable, match="credentials"):
            await query(PrometheusServer(name="main", url=secure[0], ca_file=str(tmp_path / "bad.pem")))


class TestFaults:
    @pytest.mark.parametrize("begins", [False, True], ids=["without an answer", "with a body that never ends"])
    async def test_a_server_that_hangs_is_an_error_at_the_deadline(self, fake: FakePrometheus, begins: bool) -> None:
        over = asyncio.Event()

        async def hangs(request: web.Request, _form: dict[str, str]) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "100"})
            if begins:
                await response.prepare(request)
                await response.write(b"{")
            await over.wait()
            return response

        error = await failure(fake, hangs, timeout_seconds=0.05)
        over.set()
        assert isinstance(error, SourceUnreachable)
        assert str(error) == f"{fake.url}/api/v1/query: no answer within 0.05 s"

    async def test_a_refused_connection_is_an_error(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(SourceUnreachable, match="Cannot connect"):
                await query(PrometheusServer(name="main", url=url))

    async def test_a_connection_that_is_cut_off(self, fake: FakePrometheus) -> None:
        async def cut(request: web.Request, _form: dict[str, str]) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"status":')
            assert request.transport is not None
            request.transport.abort()
            return response

        assert isinstance(await failure(fake, cut), SourceUnreachable)

    async def test_broken_compression_is_an_error(self, fake: FakePrometheus) -> None:
        assert isinstance(await failure(fake, packed(b"not gzip at all")), SourceUnreachable)

    @pytest.mark.parametrize("lost", [1, 8, 9, 200])
    async def test_a_truncated_compressed_response_is_an_error(self, fake: FakePrometheus, lost: int) -> None:
        """The transport lets a missing end of the packing pass; what is unpacked then is whole, or no JSON."""
        rows = [({"pod": f"web-{number * 7919 % 10007}"}, str(number)) for number in range(500)]
        whole = vector(*rows).body
        assert isinstance(whole, bytes)
        fake.handler = packed(gzip.compress(whole)[:-lost])
        try:
            found = await query(fake.settings())
        except SourceError:
            return
        assert len(found) == 500

    @pytest.mark.parametrize(
        ("status", "kind"), [(500, SourceFailing), (503, SourceFailing), (401, QueryRejected), (422, QueryRejected)]
    )
    async def test_an_error_response_is_raised_with_its_message(
        self, fake: FakePrometheus, status: int, kind: type[SourceError]
    ) -> None:
        refusal = {"status": "error", "errorType": "execution", "error": "too many samples"}
        error = await failure(fake, always(lambda: raw(refusal, status)))
        assert type(error) is kind
        assert str(error) == f"{fake.url}/api/v1/query: HTTP {status}: execution: too many samples"

    async def test_a_redirect_is_not_followed(self, fake: FakePrometheus) -> None:
        redirected = always(lambda: web.Response(status=302, headers={"Location": "/login"}))
        assert "redirect" in str(await failure(fake, redirected))
        assert len(fake.requests) == 1

    async def test_a_client_works_again_after_a_failure(self, fake: FakePrometheus) -> None:
        server = PrometheusClient(fake.settings())
        fake.handler = always(lambda: web.Response(status=503))
        with pytest.raises(SourceFailing):
            await ask(server)
        fake.handler = fake.by_rows
        assert await ask(server) == []
        await server.close()
