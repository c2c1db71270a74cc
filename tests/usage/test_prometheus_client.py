"""One Prometheus server over HTTP: what is sent, and every way to answer badly."""

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

from adapter.runtime.source_errors import QueryRejected, SourceError, SourceFailing, SourceUnreachable
from adapter.settings import PrometheusServer
from adapter.usage.prometheus_api import PrometheusClient
from tests.usage.fakes import FakePrometheus, Handler, PlainSample, always, plain, raw, vector


@pytest.fixture
async def fake() -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus() as prometheus:
        yield prometheus


async def ask(server: PrometheusClient, text: str = "x", **more: Any) -> list[PlainSample]:
    return plain(await server.query(text, **{"max_age": 90, **more}))


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
        fake.handler = packed(gzip.compress(b'{"status":"success","data":{"resultType":"vector","result":[]}}'))
        assert await query(fake.settings()) == []
        assert fake.requests[0].headers["Accept-Encoding"] == "gzip"


async def test_a_password_is_read_from_its_file(fake: FakePrometheus, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("sécret\n")
    await query(fake.settings(username="me", password_file=str(file)))
    assert fake.requests[0].headers["Authorization"] == "Basic bWU6c8OpY3JldA=="


async def test_an_unknown_authority_is_not_trusted_and_a_given_one_is(tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    application = web.Application()

    async def answer(_request: web.Request) -> web.StreamResponse:
        return vector()

    application.router.add_post("/api/v1/query", answer)
    server = TestServer(application, host="127.0.0.1")
    await server.start_server(ssl=context)
    try:
        url = f"https://127.0.0.1:{server.port}"
        with pytest.raises(SourceUnreachable, match="certificate verify failed"):
            await query(PrometheusServer(name="main", url=url))
        assert await query(PrometheusServer(name="main", url=url, ca_file=str(tmp_path / "ca.pem"))) == []
    finally:
        await server.close()


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
