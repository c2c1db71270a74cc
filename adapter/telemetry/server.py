"""The telemetry port: `/metrics` for Prometheus and `/healthz`, plain HTTP, apart from the metrics API."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from adapter.inbound import sockets
from adapter.inbound.connections import Connections, Limits
from adapter.telemetry.metrics import Metrics

_GZIP_LEVEL = 1
"""The exposition shrinks tenfold at the lowest level already."""
LIMITS = Limits(strangers=32)
"""Nobody is known here: Prometheus and the kubelet come one or two at a time."""
_GRACE_SECONDS = 5.0
_READ = frozenset({"GET", "HEAD"})


class Telemetry:
    """Answers requests of the telemetry port."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The exposition, `ok`, or an error in plain text."""
        path = request.raw_path.partition("?")[0]
        if path not in {"/metrics", "/healthz"}:
            return _plain(HTTPStatus.NOT_FOUND)
        if request.method not in _READ:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        return await self._exposition(request) if path == "/metrics" else web.Response(text="ok")

    async def _exposition(self, request: web.BaseRequest) -> web.Response:
        body = await self._metrics.exposition()
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            # zlib lets go of the interpreter, so that a thread keeps megabytes of it out of the event loop.
            body = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)


def _plain(status: HTTPStatus) -> web.Response:
    return web.Response(text=f"{status}: {status.phrase}", status=status)


@asynccontextmanager
async def serve(metrics: Metrics, address: str, port: int, limits: Limits = LIMITS) -> AsyncIterator[int]:
    """Serve while the context lasts; gives the port (of use where 0 was asked for). Raises OSError if it is taken."""
    listening = sockets.listening(address, port)
    connections = Connections(Telemetry(metrics), limits)
    server = await sockets.take(listening, connections)
    try:
        yield listening.getsockname()[1]
    finally:
        server.close()
        await connections.finish(_GRACE_SECONDS)
