"""What every source says of a failure: the address, and the settings to check."""

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import TypeAdapter

from adapter.registries.follow import probe
from adapter.registries.source import ServiceKey
from adapter.settings.registries import Registry

KEY = ServiceKey("main", "shop")
SETTINGS: TypeAdapter[Registry] = TypeAdapter(Registry)


class Strange:
    """A server that is not a registry."""

    def __init__(self) -> None:
        self.answer = web.Response()

    async def handle(self, request: web.Request) -> web.Response:
        await request.read()
        known = self.answer
        headers = {name: value for name, value in known.headers.items() if name == "Location"}
        return web.Response(status=known.status, text=known.text, headers=headers, content_type="text/html")


@pytest.fixture
async def strange() -> AsyncIterator[tuple[Strange, str]]:
    server, app = Strange(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as running:
        yield server, f"http://127.0.0.1:{running.port}"


def registry(kind: str, url: str, **more: Any) -> Registry:
    place = {"url": url} if kind == "HTTP" else {"servers": [url]}
    return SETTINGS.validate_python({"name": "main", "type": kind, "timeout_seconds": 1, **place, **more})


async def said(settings: Registry) -> str:
    [found] = await probe(settings, [KEY])
    return found.troubles[KEY].sentence


KINDS = ["Consul", "Eureka", "HTTP", "Nacos", "Polaris"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, "<html>log in</html>", "{address}"),
        (302, "", "{address}"),
        (204, "", "{address}"),
        (401, "<html>", "{credentials}"),
        (503, "<html>", "{address}"),
    ],
)
async def test_failure_names_the_address_and_the_settings_to_check(
    strange: tuple[Strange, str], kind: str, status: int, body: str, expected: str
) -> None:
    server, url = strange
    headers = {"Location": "https://login.example.com/"} if status == 302 else {}
    server.answer = web.Response(status=status, text=body, headers=headers)
    credentials = {"HTTP": "`bearerTokenFile`", "Eureka": "`passwordFile`", "Nacos": "`passwordFile`"}
    address = "`url`" if kind == "HTTP" else "`servers`"
    sentence = await said(registry(kind, url))
    assert url in sentence
    assert expected.format(address=address, credentials=credentials.get(kind, "`tokenFile`")) in sentence
    if status == 302:
        assert "https://login.example.com/" in sentence


@pytest.mark.parametrize("kind", KINDS)
async def test_missing_server_names_the_address_and_the_settings_to_check(kind: str) -> None:
    sentence = await said(registry(kind, "http://127.0.0.1:1"))
    assert "http://127.0.0.1:1" in sentence
    assert ("`url`" if kind == "HTTP" else "`servers`") in sentence


@pytest.mark.parametrize("kind", KINDS)
async def test_untrusted_certificate_has_the_same_words_each_time(kind: str, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    server = TestServer(web.Application(), host="127.0.0.1", scheme="https")
    await server.start_server(ssl=context)
    try:
        sentence = await said(registry(kind, f"https://127.0.0.1:{server.port}", tls={"ca_file": str(other)}))
    finally:
        await server.close()
    assert "0x" not in sentence
    assert "`tls`" in sentence


async def test_partial_document_names_the_address(strange: tuple[Strange, str]) -> None:
    server, url = strange
    server.answer = web.Response(text=json.dumps({"service": KEY.service, "complete": False, "instances": []}))
    sentence = await said(registry("HTTP", url))
    assert sentence.startswith(f"{url}: the answer is incomplete")
