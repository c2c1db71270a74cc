"""The telemetry port: `/metrics` for Prometheus, and health for the kubelet with its reasons, in plain HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from adapter.telemetry.health import Health
from adapter.telemetry.metrics import Metrics

_THREAD_BYTES = 64 * 1024
"""Larger answers are compressed in a thread."""
_IDLE_SECONDS = 90.0
_GRACE_SECONDS = 5.0


@asynccontextmanager
async def listen(metrics: Metrics, health: Health, address: str, port: int) -> AsyncIterator[int]:
    """Serve within the context; yields the port (useful with port 0). Raises OSError if the port is taken."""
    one_at_a_time = asyncio.Semaphore()  # several servers that scrape at once would keep the interpreter from requests

    async def scrape(request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Vary": "Accept-Encoding"}
        async with one_at_a_time:
            body = await metrics.exposition()
        answer = web.Response(body=body, headers=headers, zlib_executor_size=_THREAD_BYTES)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            answer.enable_compression(web.ContentCoding.gzip)
        return answer

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
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=_IDLE_SECONDS,
        shutdown_timeout=_GRACE_SECONDS,
    )
    try:
        await runner.setup()
        await web.TCPSite(runner, address or None, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
