"""The telemetry port: `/metrics` for Prometheus and `/healthz`, plain HTTP, apart from the metrics API."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from adapter.inbound import sockets
from adapter.inbound.connections import ConnectionLimits, InboundConnections
from adapter.telemetry.metrics import Metrics

_GZIP_LEVEL = 1
"""The exposition shrinks tenfold at the lowest level already."""
TELEMETRY_LIMITS = ConnectionLimits(strangers=32)
"""Nobody is known here: Prometheus and the kubelet come one or two at a time."""
_GRACE_SECONDS = 5.0
_REST = 3
_READ = frozenset({"GET", "HEAD"})


class TelemetryHandler:
    """Answers requests of the telemetry port. One exposition is made at a time; who asks meanwhile gets the same one.

    After each the event loop has a rest of three times as long, so that nobody can keep it busy by asking.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._pages: dict[bool, asyncio.Task[bytes]] = {}
        self._one = asyncio.Lock()
        self._not_before = 0.0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The exposition, `ok`, or an error in plain text."""
        path = request.raw_path.partition("?")[0]
        if path not in {"/metrics", "/healthz"}:
            return _plain(HTTPStatus.NOT_FOUND)
        if request.method not in _READ:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        return await self._exposition(request) if path == "/metrics" else web.Response(text="ok")

    async def close(self) -> None:
        """End the expositions under way."""
        pages = list(self._pages.values())
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)

    async def _exposition(self, request: web.BaseRequest) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Vary": "Accept-Encoding"}
        zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        if zipped:
            headers["Content-Encoding"] = "gzip"
        page = self._pages.get(zipped)
        if page is None:
            page = self._pages[zipped] = asyncio.create_task(self._page(zipped=zipped))
            page.add_done_callback(lambda _: self._pages.pop(zipped))
        return web.Response(body=await asyncio.shield(page), headers=headers)

    async def _page(self, *, zipped: bool) -> bytes:
        async with self._one:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            began = time.monotonic()
            try:
                body = await self._metrics.exposition()
                # zlib lets go of the interpreter, so that a thread keeps megabytes of it out of the event loop.
                return await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL) if zipped else body
            finally:
                self._not_before = time.monotonic() + _REST * (time.monotonic() - began)


def _plain(status: HTTPStatus) -> web.Response:
    return web.Response(text=f"{status}: {status.phrase}", status=status)


@asynccontextmanager
async def listen(
    metrics: Metrics, address: str, port: int, limits: ConnectionLimits = TELEMETRY_LIMITS
) -> AsyncIterator[int]:
    """Serve while the context lasts; gives the port (of use where 0 was asked for). Raises OSError if it is taken."""
    listening = sockets.listening_socket(address, port)
    telemetry = TelemetryHandler(metrics)
    connections = InboundConnections(telemetry, limits)
    server = await sockets.start_server(listening, connections)
    try:
        yield listening.getsockname()[1]
    finally:
        server.close()
        await connections.finish(_GRACE_SECONDS)
        await telemetry.close()
