"""The telemetry port: `/metrics` for Prometheus and `/healthz`, in plain HTTP, separate from the metrics API."""

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
"""The lowest level already shrinks the exposition tenfold."""
TELEMETRY_LIMITS = ConnectionLimits(unknown_clients=32)
"""All clients are unknown here; Prometheus and the kubelet open one or two connections."""
_GRACE_SECONDS = 5.0
_REST_FACTOR = 3
_READ_METHODS = frozenset({"GET", "HEAD"})


class TelemetryHandler:
    """Answers the telemetry port. One exposition is rendered at a time, and concurrent scrapes share it.

    After each rendering the next one waits for three times its duration, so that scrapes cannot keep the loop busy.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._expositions: dict[bool, asyncio.Task[bytes]] = {}
        self._rendering = asyncio.Lock()
        self._not_before = 0.0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The exposition, `ok`, or an error in plain text."""
        path = request.raw_path.partition("?")[0]
        if path not in {"/metrics", "/healthz"}:
            return _plain(HTTPStatus.NOT_FOUND)
        if request.method not in _READ_METHODS:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        return await self._exposition(request) if path == "/metrics" else web.Response(text="ok")

    async def close(self) -> None:
        """Cancel the expositions in progress."""
        expositions = list(self._expositions.values())
        for exposition in expositions:
            exposition.cancel()
        await asyncio.gather(*expositions, return_exceptions=True)

    async def _exposition(self, request: web.BaseRequest) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Vary": "Accept-Encoding"}
        zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        if zipped:
            headers["Content-Encoding"] = "gzip"
        exposition = self._expositions.get(zipped)
        if exposition is None:
            exposition = self._expositions[zipped] = asyncio.create_task(self._render(zipped=zipped))
            exposition.add_done_callback(lambda _: self._expositions.pop(zipped))
        return web.Response(body=await asyncio.shield(exposition), headers=headers)

    async def _render(self, *, zipped: bool) -> bytes:
        async with self._rendering:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            began = time.monotonic()
            try:
                body = await self._metrics.exposition()
                # zlib releases the GIL, so a thread keeps the compression of megabytes off the event loop.
                return await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL) if zipped else body
            finally:
                self._not_before = time.monotonic() + _REST_FACTOR * (time.monotonic() - began)


def _plain(status: HTTPStatus) -> web.Response:
    return web.Response(text=f"{status}: {status.phrase}", status=status)


@asynccontextmanager
async def listen(
    metrics: Metrics, address: str, port: int, limits: ConnectionLimits = TELEMETRY_LIMITS
) -> AsyncIterator[int]:
    """Serve within the context; yields the port (useful with port 0). Raises OSError if the port is taken."""
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
