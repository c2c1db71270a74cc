"""Answers of HTTP registries that are no list: the sentence of each, with the address and the settings to check."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from adapter.registries.cache import Trouble
from adapter.registries.follow import probe
from adapter.registries.source import ServiceKey
from tests.registries.kit import SETTINGS, served

KEY = ServiceKey("main", "shop")
CREDENTIALS = {"HTTP": "`bearerTokenFile`", "Eureka": "`passwordFile`", "Nacos": "`passwordFile`"}


class Strange:
    """A server at `url` that answers everything with `status`, `text` and `headers`."""

    def __init__(self) -> None:
        self.url, self.status, self.text, self.headers = "", 200, "", dict[str, str]()

    async def handle(self, request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=self.status, text=self.text, headers=self.headers, content_type="text/html")


@pytest.fixture
async def strange() -> AsyncIterator[Strange]:
    server = Strange()
    async with served(server.handle) as server.url:
        yield server


async def trouble(kind: str, url: str, key: ServiceKey = KEY, **more: Any) -> Trouble:
    place = {"url": url} if kind == "HTTP" else {"servers": [url]}
    settings = SETTINGS.validate_python({"name": "main", "type": kind, "timeout_seconds": 1, **place, **more})
    [found] = await probe(settings, [key])
    return found.troubles[key]


def polaris(code: int, **more: Any) -> str:
    return json.dumps({"code": code, **more})


def of_polaris(code: int, **named: str) -> str:
    service = {"name": "shop", "namespace": "default", "revision": "r2", **named}
    return polaris(code, service=service, instances=[])


def http(*instances: object, **more: Any) -> str:
    return json.dumps({"service": "shop", "complete": True, "instances": list(instances), **more})


def eureka(name: str) -> str:
    return json.dumps({"application": {"name": name, "instance": []}})


@pytest.mark.parametrize(
    ("kind", "status", "text", "reason", "words"),
    [
        ("Consul", 403, "ACL not found", "unauthenticated", "Consul does not know the token in tokenFile"),
        ("Consul", 403, "Permission denied", "forbidden", "give the token service:read"),
        ("Consul", 401, "no", "forbidden", "give the token service:read"),
        ("Consul", 429, "too many", "failing", "http_max_conns_per_client"),
        ("Consul", 500, "rpc error", "failing", "HTTP 500: rpc error"),
        ("Consul", 400, "Invalid query", "malformed", "HTTP 400"),
        ("Consul", 200, "[]", "malformed", "no X-Consul-Index"),
        ("Eureka", 401, "", "unauthenticated", "HTTP 401"),
        ("Eureka", 403, "", "failing", "HTTP 403: it has just started and waits for its peers"),
        ("Eureka", 404, "", "unknown", "HTTP 404: Eureka knows no such application; check its name"),
        ("Eureka", 503, "sorry", "failing", "HTTP 503: sorry"),
        ("Eureka", 200, "<application/>", "malformed", "not the JSON of Eureka"),
        ("Eureka", 200, '{"application": {"name": "SHOP"', "malformed", "not the JSON of Eureka"),
        ("Eureka", 200, '{"applications": {"application": []}}', "malformed", "not the JSON of Eureka"),
        ("Eureka", 200, eureka("OTHER"), "malformed", "the answer is of 'OTHER', not of 'SHOP'"),
        ("HTTP", 302, "", "malformed", "write the address that answers itself: https://login.example.com/"),
        ("HTTP", 204, "", "malformed", "an answer with a document is expected"),
        ("Nacos", 200, "<html>log in</html>", "malformed", "not what Nacos answers there"),
        ("Nacos", 302, "", "malformed", "write the address that answers itself: https://login.example.com/"),
        ("Nacos", 401, "<html>", "unauthenticated", "HTTP 401"),
        ("Nacos", 503, "<html>", "failing", "HTTP 503"),
        ("HTTP", 401, "not now", "unauthenticated", "HTTP 401: not now"),
        ("HTTP", 403, "", "forbidden", "HTTP 403"),
        ("HTTP", 404, "", "unknown", "knows no such service"),
        ("HTTP", 200, "<html>", "malformed", "does not follow docs/registries-http.md"),
        ("HTTP", 200, '{"instances": []}', "malformed", "missing required field `complete`"),
        ("HTTP", 200, http({"state": "out"}), "malformed", "instances[0] names no pod"),
        ("HTTP", 200, http({"pod": "a", "state": "in", "weight": "1"}), "malformed", "instances[0].weight"),
        ("HTTP", 200, http({"ip": "web-1.shop", "state": "out"}), "malformed", "'web-1.shop' is not an IP address"),
        ("HTTP", 200, http({"ip": "::1", "state": "in"}, complete=False), "malformed", "the answer is incomplete"),
        ("HTTP", 200, http(service="cart"), "malformed", "of service 'cart'"),
        ("HTTP", 200, http(service=""), "malformed", 'write "service": "shop" into it'),
        ("Polaris", 200, "<html>", "malformed", "not an answer of Polaris' discovery API"),
        ("Polaris", 200, polaris(200000), "malformed", "Polaris answers 200000"),
        ("Polaris", 200, polaris(200001), "malformed", "it answers 'no change' to a request for the whole list"),
        ("Polaris", 404, "not here", "malformed", "HTTP 404: not here"),
        ("Polaris", 500, polaris(500000, info="execute exception"), "failing", "500000: execute exception"),
        ("Polaris", 502, "bad gateway", "failing", "HTTP 502"),
        ("Polaris", 401, polaris(401001, info="invalid token"), "unauthenticated", "invalid token; check tokenFile"),
        ("Polaris", 403, polaris(403001, info="forbidden"), "forbidden", "give the adapter's token the right"),
        ("Polaris", 429, polaris(429002, info="too fast"), "failing", "Polaris answers 429002: too fast"),
        ("Polaris", 500, polaris(403003, info="too fast"), "failing", "Polaris answers 403003: too fast"),
        ("Polaris", 400, polaris(400100, info="bad"), "malformed", "Polaris answers 400100: bad"),
        ("Polaris", 404, polaris(400202), "unknown", "Polaris knows no such service there"),
        ("Polaris", 200, of_polaris(200000, name="cart"), "malformed", "the answer is of 'cart'"),
        ("Polaris", 200, of_polaris(200001, name="cart"), "malformed", "the answer is of 'cart'"),
        ("Polaris", 200, of_polaris(200000, namespace="other"), "malformed", "the answer is of 'shop' in 'other'"),
    ],
)
async def test_answer_without_a_list_names_the_server_the_settings_and_what_to_do(
    strange: Strange, kind: str, status: int, text: str, reason: str, words: str
) -> None:
    strange.status, strange.text = status, text
    strange.headers = {"Location": "https://login.example.com/"} if status == 302 else {}
    address = "`url`" if kind == "HTTP" else "`servers`"
    refused = reason in {"unauthenticated", "forbidden"}
    found = await trouble(kind, strange.url)
    assert found.sentence.startswith(f"{strange.url}: ")
    assert found.reason == reason
    assert words in found.sentence
    assert (CREDENTIALS.get(kind, "`tokenFile`") if refused else address) in found.sentence


@pytest.mark.parametrize(
    ("kind", "key", "words"),
    [
        ("Consul", KEY._replace(group="BLUE"), "no groups; take group 'BLUE' out of the policy"),
        ("Consul", KEY._replace(service=".."), "cannot be the name of a service"),
        ("Eureka", KEY._replace(service=".."), "cannot be the name of a service"),
    ],
)
async def test_service_that_cannot_be_is_an_error(strange: Strange, kind: str, key: ServiceKey, words: str) -> None:
    assert words in (await trouble(kind, strange.url, key)).sentence
