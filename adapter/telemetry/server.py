"""The telemetry port: `/metrics` for Prometheus and `/healthz`, plain HTTP, apart from the metrics API."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from adapter.telemetry.metrics import Metrics

_GZIP_LEVEL = 1
"""The exposition shrinks tenfold at the lowest level already."""


def application(metrics: Metrics) -> web.Application:
    """The aiohttp application of the telemetry port."""

    async def exposition(request: web.Request) -> web.Response:
        body = await metrics.exposition()
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            # zlib lets go of the interpreter, so that a thread keeps megabytes of it out of the event loop.
            body = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/metrics", exposition)
    app.router.add_get("/healthz", healthz)
    return app


@asynccontextmanager
async def serve(metrics: Metrics, address: str, port: int) -> AsyncIterator[int]:
    """Serve while the context lasts; gives the port (of use where 0 was asked for). Raises OSError if it is taken."""
    runner = web.AppRunner(application(metrics), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, address or None, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
