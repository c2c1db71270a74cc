"""A small API server that misbehaves on command: one collection, listed in pages and watched."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.kube.credentials import ClusterAccess, Load
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics

COLLECTION = "/api/v1/pods"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def status(code: int, reason: str, message: str = "because", headers: dict[str, str] | None = None) -> Answer:
    """An answer that refuses, as the API server words it."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        return web.json_response(
            {**body, "code": code, "reason": reason, "message": message}, status=code, headers=headers
        )

    return answer


FENCED_OFF = status(422, "Invalid", "the server rejected our request due to an error in our request")
"""To a JSON patch of which a test fails."""


def text(body: str, code: int = 200, **headers: str) -> Answer:
    """An answer with just this body."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=body, status=code, headers=headers)

    return answer


async def hang_up(request: web.Request) -> web.StreamResponse:
    """No answer: the connection is closed."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def cut_short(request: web.Request) -> web.StreamResponse:
    """Half an answer, then nothing. (Unlike a connection that closes before it, no client repeats this by itself.)"""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"metadata"')
    assert request.transport is not None
    request.transport.close()
    return response


_METRICS = Metrics()


def session_with(load: Load) -> Session:
    """A session whose metrics nobody reads. They are made outside the event loop, for that reads files."""
    return Session(load, metrics=_METRICS)


def session_to(server: str, **access: Any) -> Session:
    """A session to this server."""

    async def load() -> ClusterAccess:
        return ClusterAccess(server=server, **access)

    return session_with(load)


class Watch:
    """One watch that a client has opened: its query, and what is to be sent to it."""

    def __init__(self, query: dict[str, str]) -> None:
        self.query = query
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._cut = False

    def send(self, kind: str, item: dict[str, Any]) -> None:
        self.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    def write(self, line: bytes) -> None:
        self._out.put_nowait(line)

    def end(self) -> None:
        """End the answer properly, as at timeoutSeconds."""
        self._out.put_nowait(None)

    def cut(self) -> None:
        """Break the connection."""
        self._cut = True
        self._out.put_nowait(None)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while (line := await self._out.get()) is not None:
            await response.write(line)
        if self._cut:
            assert request.transport is not None
            request.transport.abort()
        return response


class FakeApi:
    """The server. `lists` and `watches` hold what goes wrong next; when they are empty it serves properly."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.lists: deque[Answer] = deque()
        self.watches: deque[Answer] = deque()
        self.answers: dict[str, Answer] = {}
        self.otherwise = status(404, "NotFound")
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.seen: list[web.Request] = []
        self.opened: asyncio.Queue[Watch] = asyncio.Queue()
        self._open: list[Watch] = []
        self._server: TestServer | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._server = TestServer(app)
        await self._server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        for watch in self._open:
            watch.end()
        assert self._server is not None
        await self._server.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return str(self._server.make_url("/")).rstrip("/")

    async def load(self) -> ClusterAccess:
        return ClusterAccess(server=self.url)

    async def watch(self) -> Watch:
        """The next watch that a client opens."""
        return await asyncio.wait_for(self.opened.get(), 30)

    def put(self, name: str, **more: Any) -> dict[str, Any]:
        """Make or change an object; its resourceVersion is the collection's next."""
        self.version += 1
        meta = {"name": name, "namespace": "shop", "uid": f"u-{name}", "resourceVersion": str(self.version)}
        self.objects[name] = {"metadata": meta, **more}
        return self.objects[name]

    def remove(self, name: str) -> dict[str, Any]:
        self.version += 1
        gone = self.objects.pop(name)
        gone["metadata"]["resourceVersion"] = str(self.version)
        return gone

    def bookmark(self) -> dict[str, Any]:
        self.version += 1
        return {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}}

    def queries(self, kind: str) -> list[dict[str, str]]:
        """The queries of all lists, or of all watches, so far."""
        return [query for path, query in self.asked if path == COLLECTION and ("watch" in query) == (kind == "watch")]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.asked.append((request.path, query))
        self.seen.append(request)
        if request.path in self.answers:
            return await self.answers[request.path](request)
        if request.path != COLLECTION:
            return await self.otherwise(request)
        if "watch" in query:
            return await self._watched(request, query)
        return await (self.lists.popleft() if self.lists else self.listed)(request)

    async def _watched(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        if self.watches:
            return await self.watches.popleft()(request)
        watch = Watch(query)
        self._open.append(watch)
        self.opened.put_nowait(watch)
        return await watch.serve(request)

    async def listed(self, request: web.Request) -> web.StreamResponse:
        names = sorted(self.objects)
        begin, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", "0"))
        page = names[begin : begin + limit]
        meta = {"resourceVersion": str(self.version)}
        if begin + limit < len(names):
            meta["continue"] = str(begin + limit)
        response = web.json_response({"metadata": meta, "items": [self.objects[name] for name in page]})
        response.enable_compression()  # if the request accepts it
        return response
