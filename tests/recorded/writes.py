"""Has actions carried out against a stand-in for the API server, and notes what arrives there."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.companion.actions import Action
from adapter.companion.writer import Writer
from adapter.kube.credentials import ClusterAccess
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.recorded.shapes import shape

_EVENT = re.compile(r"/web\.[0-9a-f]{16}$")


class _Request(NamedTuple):
    """What arrived."""

    line: str
    body: Any


async def requests(actions: Iterable[Action]) -> list[str]:
    """Method, path, content type and parameters of each write, and the key paths of what is written."""
    arrived: list[_Request] = []
    async with _session(arrived) as session:
        writer = Writer(session, lambda: True, Metrics(), lambda _: None)
        for action in actions:
            await writer.carry_out(action)
    return [line for one in arrived for line in _described(one)]


def _described(request: _Request) -> Iterator[str]:
    yield f"write {request.line}"
    if isinstance(request.body, list):  # a JSON patch
        yield from (f"write {request.line} {one['op']} {one['path']}" for one in request.body)
    else:
        yield from (f"write {request.line} {line}" for line in shape(request.body))


@asynccontextmanager
async def _session(arrived: list[_Request]) -> AsyncIterator[Session]:
    async def answer(request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({"metadata": {"uid": "target"}, "spec": {"replicas": 4}})
        line = f"{request.method} {_EVENT.sub('/web.*', request.path)} {request.content_type}"
        arrived.append(_Request(f"{line} {request.query_string}".rstrip(), await request.json()))
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        access = ClusterAccess(server=str(server.make_url("")).rstrip("/"))

        async def load() -> ClusterAccess:
            return access

        async with Session(load) as session:
            yield session
