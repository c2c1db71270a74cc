"""Kept connections to the API server for many small requests: live scales and access reviews.

They have the HTTP/1.1 of the polled registries instead of aiohttp's, which takes several times the processor time for
such a request (`docs/performance.md`).
"""

import asyncio
import re
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from adapter.kube.credentials import ClusterAccess
from adapter.runtime.answer_budget import Limit
from adapter.runtime.http1 import Connection, RawReply, Request

IDLE_SECONDS = 60.0
"""How long an idle connection can be used again: longer than an HPA waits, and shorter than the API server (90 s) and
load balancers do, which may forget an older one silently."""
MOST_IDLE = 32
_NEXT_ADDRESS_SECONDS = 0.1
"""After so long without a connection the next address of the name is tried beside it."""
_PORTS = {"http": 80, "https": 443}
_UNSAFE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
"""Characters that no header line can have: line ends among them would begin another header."""


class KeptConnections:
    """Connections for one set of credentials, each made when none is idle. `headers` are those of every request."""

    def __init__(self, access: ClusterAccess, headers: Mapping[str, str]) -> None:
        url = urlsplit(access.server)
        self.access = access
        self._host, self._port = url.hostname or "", url.port or _PORTS.get(url.scheme, 443)
        self._tls = (access.tls or True) if url.scheme == "https" else None
        self._prefix = url.path.rstrip("/")
        lines = {"Host": url.netloc.rpartition("@")[2], **headers, **access.auth_headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if _checked(name, value))
        self._idle: list[tuple[float, Connection]] = []
        self._closed = False

    async def exchange(self, request: Request, limit: Limit) -> RawReply:
        """The answer of any status. The request is repeated if a kept connection ends without an answer.

        Raises OSError, and WrongAnswer for what is no HTTP; ValueError for a request that is no line of HTTP.
        """
        if _UNSAFE.search(request.target) or " " in request.target:
            raise ValueError(f"{request.target[:80]!r} cannot be requested")
        written = request.written(self._head, self._prefix)
        connection = self._take()
        if connection is not None:
            reply = await connection.exchange(written, limit, None)
            if reply is not None:
                self._keep(connection)
                return reply
        connection = await self._connect()
        reply = await connection.exchange(written, limit, None)
        if reply is None:
            raise ConnectionResetError("the connection was closed without an answer")
        self._keep(connection)
        return reply

    def close(self) -> None:
        """Close the idle connections now, the others after their answer."""
        self._closed = True
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()

    def _take(self) -> Connection | None:
        """The idle connection that was used last; the others may close by themselves."""
        while self._idle:
            since, connection = self._idle.pop()
            if connection.closed:
                continue
            if time.monotonic() - since <= IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        if self._closed or len(self._idle) >= MOST_IDLE:
            connection.close()
        elif not connection.closed:
            self._idle.append((time.monotonic(), connection))

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        name = self.access.server_name if self._tls is not None else None
        _, connection = await loop.create_connection(
            Connection,
            self._host,
            self._port,
            ssl=self._tls,
            server_hostname=name,
            happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
        )
        return connection


def _checked(name: str, value: str) -> bool:
    """Raises ValueError for a value that would not be one header."""
    if _UNSAFE.search(value):
        raise ValueError(f"the value of header {name} has characters that no header can have")
    return True
