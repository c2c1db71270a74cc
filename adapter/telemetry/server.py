"""The telemetry port: `/metrics` for Prometheus, and health for the kubelet with its reasons, in plain HTTP."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from adapter.runtime.sockets import listening
from adapter.telemetry.health import Health
from adapter.telemetry.metrics import Metrics

_GZIP_LEVEL = 1
"""The lowest level already shrinks the exposition tenfold."""
_IDLE_SECONDS = 90.0
_GRACE_SECONDS = 5.0
_REST_FACTOR = 3


class Exposition:
    """The text of `/metrics`, in two forms. It is kept for three times as long as it took to make.

    So scrapes at once share one, and any number of them leaves the loop most of its time.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._rendering = asyncio.Lock()
        self._plain, self._zipped = b"", b""
        self._until = 0.0

    async def text(self, *, zipped: bool) -> bytes:
        """The exposition, compressed or not."""
        async with self._rendering:
            began = time.monotonic()
            if began >= self._until:
                self._plain = await self._metrics.exposition()
                # zlib releases the GIL, so a thread keeps the compression of megabytes off the event loop.
                self._zipped = await asyncio.to_thread(gzip.compress, self._plain, _GZIP_LEVEL)
                self._until = time.monotonic() + _REST_FACTOR * (time.monotonic() - began)
            return self._zipped if zipped else self._plain


@asynccontextmanager
async def listen(metrics: Metrics, health: Health, address: str, port: int) -> AsyncIterator[int]:
    """Serve within the context; yields the port (useful with port 0). Raises OSError if the port is taken."""
    exposition = Exposition(metrics)

    async def scrape(request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Vary": "Accept-Encoding"}
        zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        if zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=await exposition.text(zipped=zipped), headers=headers)

    async def probe(request: web.Request) -> web.Response:
        answer = health.answer(request.raw_path)
        if answer is None:
            raise web.HTTPNotFound
        return web.Response(text=answer.text, status=answer.code, headers={"X-Content-Type-Options": "nosniff"})

    async def name_server(_request: web.Request, answer: web.StreamResponse) -> None:
        answer.headers["Server"] = "effective-load"

    app = web.Application()
    app.router.add_get("/metrics", scrape)
    app.router.add_get("/{health:.*}", probe)
    app.on_response_prepare.append(name_server)
    listener = listening(address, port)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=_IDLE_SECONDS,
        shutdown_timeout=_GRACE_SECONDS,
    )
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()
        yield int(listener.getsockname()[1])
    finally:
        await runner.cleanup()
        listener.close()
