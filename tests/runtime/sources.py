"""Servers of sources that answer as an attacker wants, and what reads them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.kube.credentials import ClusterAccess
from adapter.kube.session import Session

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """The address of a server whose every answer is the handler's."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        yield f"http://127.0.0.1:{server.port}"


@asynccontextmanager
async def session_to(handler: Handler) -> AsyncIterator[Session]:
    """A session with an API server whose every answer is the handler's."""
    async with serving(handler) as url:

        async def load() -> ClusterAccess:
            return ClusterAccess(server=url)

        async with Session(load) as session:
            yield session


@asynccontextmanager
async def running(work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Runs this beside the block, which has 20 seconds."""
    task = asyncio.create_task(work)
    try:
        async with asyncio.timeout(20):
            yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(task, return_exceptions=True)
