"""An upstream adapter on loopback with real TLS, whose answers a test writes."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from adapter.settings import Upstream, UpstreamsSettings

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
KINDS = {CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList"}
SHOP = f"/apis/{CUSTOM}/v1beta2/namespaces/shop"
DEEP = f"/apis/{EXTERNAL}/v1beta1/namespaces/shop"

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Seen(NamedTuple):
    """A request as it arrived; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]


def item(value: object = "3", namespace: str | None = "shop", **more: Any) -> dict[str, Any]:
    described = {"kind": "Service", "name": "web", "apiVersion": "v1"}
    if namespace is not None:
        described["namespace"] = namespace
    return {"describedObject": described, "metric": {"name": "rps"}, "value": value, **more}


def listing(*items: dict[str, Any], group: str = CUSTOM, version: str = "v1beta2") -> bytes:
    """A list as a Go server writes it."""
    head = {"kind": KINDS[group], "apiVersion": f"{group}/{version}", "metadata": {}}
    return json.dumps({**head, "items": list(items)}, separators=(",", ":")).encode()


def names(group: str, version: str, *listed: str) -> dict[str, Any]:
    """A discovery document."""
    resources = [
        {"name": name, "singularName": "", "namespaced": True, "kind": KINDS[group], "verbs": ["get"]}
        for name in listed
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}", "resources": resources}


@dataclass
class FakeUpstream:
    """Answers metric requests with `respond`, discovery with `documents` by `group/version` (else 404)."""

    folder: Path
    authority: trustme.CA
    documents: dict[str, Any] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    def __post_init__(self) -> None:
        self.respond: Respond = self.usual
        self.authority.cert_pem.write_to_path(str(self.folder / "ca.crt"))
        (self.folder / "token").write_text("low-privilege\n")
        self.server = RawTestServer(self._answer)

    async def start(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert("localhost").configure_cert(context)
        self.server = RawTestServer(self._answer, host="localhost")
        await self.server.start_server(ssl=context)
        self.port = self.server.port or 0

    async def stop(self) -> None:
        await self.server.close()

    def settings(self, *groups: str, **more: Any) -> UpstreamsSettings:
        """Settings with this upstream for the groups, by default both; it has 4 s."""
        given = {
            "url": f"https://localhost:{self.port}",
            "ca_file": str(self.folder / "ca.crt"),
            "bearer_token_file": str(self.folder / "token"),
            "timeout_seconds": 4,
            **more,
        }
        upstream = Upstream(**given)
        return UpstreamsSettings(**dict.fromkeys(groups or ("custom", "external"), upstream))

    @property
    def metrics_seen(self) -> list[Seen]:
        """The requests that are not for discovery."""
        return [one for one in self.seen if one.target.count("/") > 3]

    def answering(self, body: bytes, status: int = 200, **headers: str) -> None:
        async def respond(_: web.BaseRequest) -> web.Response:
            sent = {"Content-Type": "application/json", **headers}
            return web.Response(body=body, status=status, headers=sent)

        self.respond = respond

    def hold(self) -> asyncio.Event:
        """Hold the usual answers back until the event is set."""
        event = asyncio.Event()

        async def respond(request: web.BaseRequest) -> web.Response:
            await event.wait()
            return await self.usual(request)

        self.respond = respond
        return event

    async def usual(self, request: web.BaseRequest) -> web.Response:
        group, version = request.raw_path.split("/")[2:4]
        values = item() if group == CUSTOM else {"metricName": "deep", "metricLabels": None, "value": "7"}
        return web.Response(body=listing(values, group=group, version=version), content_type="application/json")

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, request.raw_path, headers))
        path = request.raw_path.partition("?")[0]
        if path.count("/") > 3:
            self.arrived.set()
            return await self.respond(request)
        document = self.documents.get(path.removeprefix("/apis/"))
        if document is None:
            return web.Response(status=404, text="404 page not found")
        return web.json_response(document)
