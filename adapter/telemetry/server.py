"""The telemetry port: `/metrics` for Prometheus, and health for the kubelet with its reasons, in plain HTTP."""

import asyncio
import gzip
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from adapter.runtime.inbound import HttpConnection, HttpConnections, HttpLimits, Listener, SocketTransport, write_whole
from adapter.telemetry.health import Health
from adapter.telemetry.metrics import Metrics

_GZIP_LEVEL = 1
"""The lowest level already shrinks the exposition tenfold."""
TELEMETRY_LIMITS = HttpLimits(connections=32, request_bytes=16 * 1024, line_bytes=8 * 1024, headers=128)
"""Prometheus and the kubelet open one or two connections."""
UNREAD_BYTES = 32 * 1024 * 1024
"""Of all expositions that scrapers are still reading. Beyond it the readers of the oldest lose their connections."""
_GRACE_SECONDS = 5.0
_REST_FACTOR = 3
_SERVER = "effective-load"
_READ_METHODS = frozenset({"GET", "HEAD"})


class TelemetryHandler:
    """Answers the telemetry port. One exposition is rendered at a time, and concurrent scrapes share it.

    After each rendering the next one waits for three times its duration, so that scrapes cannot keep the loop busy.
    """

    def __init__(self, metrics: Metrics, health: Health) -> None:
        self._metrics = metrics
        self._health = health
        self._expositions: dict[bool, asyncio.Task[bytes]] = {}
        """The expositions in progress, by whether they are zipped."""
        self._readers: dict[HttpConnection, bytes] = {}
        """The exposition that each scraper is reading, the oldest first."""
        self._rendering = asyncio.Lock()
        self._not_before = 0.0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The exposition, the health, or an error in plain text."""
        target = request.raw_path
        if request.method not in _READ_METHODS:
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        answer = self._health.answer(target)
        if answer is not None:
            return _plain(answer.code, answer.text)
        if target.partition("?")[0] != "/metrics":
            return refusal(HTTPStatus.NOT_FOUND)
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Vary": "Accept-Encoding", "Server": _SERVER}
        zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        if zipped:
            headers["Content-Encoding"] = "gzip"
        task = self._expositions.get(zipped)
        if task is None:
            task = self._expositions[zipped] = asyncio.create_task(self._render(zipped=zipped))
            task.add_done_callback(lambda _: self._expositions.pop(zipped))
        response = web.StreamResponse(headers=headers)
        exposition, reader = await asyncio.shield(task), request.protocol
        assert isinstance(reader, HttpConnection)
        self._readers[reader] = exposition
        try:
            await write_whole(request, response, exposition)
        finally:
            del self._readers[reader]
        return response

    async def close(self) -> None:
        """Cancel the expositions in progress."""
        expositions = list(self._expositions.values())
        for exposition in expositions:
            exposition.cancel()
        await asyncio.gather(*expositions, return_exceptions=True)

    def _make_room(self, exposition: bytes) -> None:
        """Drop the readers of the oldest expositions where they keep too many bytes beside this one."""
        unread = {id(each): each for each in self._readers.values()}
        size = len(exposition) + sum(map(len, unread.values()))
        for oldest in unread.values():
            if size <= UNREAD_BYTES:
                return
            size -= len(oldest)
            for reader, each in self._readers.items():
                if each is oldest:
                    reader.abort()

    async def _render(self, *, zipped: bool) -> bytes:
        async with self._rendering:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            began = time.monotonic()
            try:
                body = await self._metrics.exposition()
                # zlib releases the GIL, so a thread keeps the compression of megabytes off the event loop.
                exposition = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL) if zipped else body
                self._make_room(exposition)
                return exposition
            finally:
                self._not_before = time.monotonic() + _REST_FACTOR * (time.monotonic() - began)


def _plain(code: int, text: str) -> web.Response:
    return web.Response(text=text, status=code, headers={"Server": _SERVER, "X-Content-Type-Options": "nosniff"})


def refusal(code: int, message: str = "") -> web.Response:
    """The answer to a request that is not served."""
    return _plain(code, f"{code}: {message or HTTPStatus(code).phrase}")


@asynccontextmanager
async def listen(
    metrics: Metrics, health: Health, address: str, port: int, limits: HttpLimits = TELEMETRY_LIMITS
) -> AsyncIterator[int]:
    """Serve within the context; yields the port (useful with port 0). Raises OSError if the port is taken."""
    telemetry = TelemetryHandler(metrics, health)
    connections = HttpConnections(telemetry, limits, refusal)

    def accepted(connection: socket.socket, client: str) -> None:
        try:
            connections.start(SocketTransport(connection, client, connections.forget))
        except OSError:  # it has gone already
            connection.close()

    listener = Listener(address, port, accepted)
    listener.listen()
    try:
        yield listener.port
    finally:
        listener.close()
        await connections.finish(_GRACE_SECONDS)
        await telemetry.close()
