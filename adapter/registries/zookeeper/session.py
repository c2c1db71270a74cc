"""A ZooKeeper session for the event loop: kazoo runs in threads of its own, and its callbacks only pass results on.

This module adds what kazoo lacks: TLS with files that are read again for each connection, and the end of connections on
which the server does not answer.
"""

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import (  # type: ignore[import-untyped]
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.states import KeeperState, WatchedEvent  # type: ignore[import-untyped]

from adapter.registries.servers import read_secret
from adapter.runtime.http import tls_context
from adapter.runtime.source_errors import NotAllowed, SourceError, SourceFailing, SourceUnreachable
from adapter.settings.base import access_of
from adapter.settings.registries import ZooKeeperRegistry

AT_ONCE = 64
"""Reads at a time: 250,000 nodes at the start must not wait in kazoo's queue beyond their timeout."""
LONGEST_PAUSE_SECONDS = 3.0
"""Longest pause between attempts to connect."""
CLOSE_SECONDS = 1.0
"""Time for the server to confirm the end of the session; after it the connection is ended."""

OnEvent = Callable[[WatchedEvent], None]
"""Called in kazoo's thread once after a node changed, and without a path after a loss: no watch outlives its
connection. Equal callbacks of one node are called once."""

_SILENT = logging.getLogger("adapter.registries.zookeeper.kazoo")
_SILENT.disabled = True  # the adapter's own errors name the cause, once


class ZooKeeperSession:
    """A session from `open` to `close`, which reconnects by itself; every read raises SourceError.

    `on_state` is called in the event loop after each connection and each loss.
    """

    def __init__(self, settings: ZooKeeperRegistry, on_state: Callable[[], None]) -> None:
        self._settings = settings
        self._place = f"ZooKeeper at {', '.join(settings.servers)}"
        self._on_state = on_state
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._password = ""
        self._handler = _KazooHandler(settings)
        self._client: Any = None

    async def open(self) -> None:
        """Starts to connect. Raises SourceUnreachable if the password cannot be read."""
        self._password = await read_secret(self._settings.password_file)
        user, chroot = self._settings.username, self._settings.chroot.strip("/")
        self._client = KazooClient(
            hosts=",".join(self._settings.servers) + (f"/{chroot}" if chroot else ""),
            timeout=self._settings.session_seconds,
            handler=self._handler,
            auth_data={("digest", f"{user}:{self._password}")} if user else None,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": LONGEST_PAUSE_SECONDS},
            logger=_SILENT,
            use_ssl=self._settings.use_tls,
        )
        self._client.add_listener(lambda _: self._in_loop(self._on_state))
        self._client.start_async()  # starts kazoo's threads without waiting

    async def close(self) -> None:
        """Ends the session and all threads, with a short wait for the server."""
        if self._client is None:
            return

        def stop() -> None:
            with suppress(Exception):  # kazoo raises if a thread takes too long to stop; the process works without it
                self._client.stop()
                self._client.close()

        stopping = asyncio.ensure_future(asyncio.to_thread(stop))
        await asyncio.wait({stopping}, timeout=CLOSE_SECONDS)
        self._handler.end_connection()
        await asyncio.wait({stopping})

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self._client is not None and self._client.connected

    async def is_usable(self) -> bool:
        """Whether it can go on: kazoo has not given up, and the password's file has not changed since."""
        with suppress(SourceError):
            if await read_secret(self._settings.password_file) != self._password:
                return False
        return self._client.client_state not in {KeeperState.AUTH_FAILED, KeeperState.CLOSED}

    def end_silent_connection(self) -> None:
        """Ends the connection if it is older than the timeout: kazoo makes a new one, to another server if it can.

        A server that is starting may accept a connection, and never answer on it.
        """
        self._handler.end_connection(older_than=self._settings.timeout_seconds)

    async def children(self, path: str, on_event: OnEvent) -> list[str] | None:
        """The names of a node's children, None if it does not exist; watches both."""
        names: list[str] | None = await self._watched("get_children_async", path, on_event)
        return names

    async def get(self, path: str, on_event: OnEvent) -> tuple[bytes, float] | None:
        """A node's data and its creation (epoch seconds, by the server's clock), None without it; watches both."""
        found = await self._watched("get_async", path, on_event)
        return (found[0] or b"", found[1].ctime / 1000) if found is not None else None

    async def exists(self, path: str, on_event: OnEvent | None = None) -> bool:
        """Whether a node exists. Before its answer the server sends all events so far."""
        return await self._read("exists_async", path, on_event) is not None

    async def _watched(self, method: str, path: str, on_event: OnEvent) -> Any:
        while (found := await self._read(method, path, on_event)) is None and await self.exists(path, on_event):
            pass  # it was created between both questions
        return found

    async def _read(self, method: str, path: str, on_event: OnEvent | None) -> Any:
        """The answer to a request, None if the node does not exist."""
        async with self._slots:
            seconds, who = self._settings.timeout_seconds, self._settings.username
            if not self.is_connected:
                raise self.connection_error()  # kazoo would queue the request until it is connected
            answer: asyncio.Future[Any] = self._loop.create_future()
            try:
                async with asyncio.timeout(seconds):
                    getattr(self._client, method)(path, watch=on_event).rawlink(
                        lambda result: self._in_loop(partial(_resolve, answer, result))  # in kazoo's thread
                    )
                    return await answer
            except NoNodeError:
                return None
            except TimeoutError as error:
                raise SourceUnreachable(f"{self._place} did not answer within {seconds:g} s") from error
            except (ConnectionLoss, ConnectionClosedError, SessionExpiredError) as error:
                raise self.connection_error() from error
            except NoAuthError as error:
                user = f"user {who}" if who else "a client without a user"
                raise NotAllowed(
                    f"{self._place} does not let {user} read {path}; check username, passwordFile and the node's ACL"
                ) from error
            except KazooException as error:
                raise SourceFailing(f"{self._place} failed at {path}: {type(error).__name__} {error}") from error

    def connection_error(self) -> SourceError:
        """The error of reads without a connection."""
        return SourceUnreachable(f"no connection to {self._place}: {self._handler.failure or 'no server answers'}")

    def _in_loop(self, action: Callable[[], None]) -> None:
        """Runs an action in the event loop; called in kazoo's threads."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(action)


class _KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with the adapter's own sockets. `failure`: why the last connection was not made."""

    def __init__(self, settings: ZooKeeperRegistry) -> None:
        super().__init__()
        self._timeout = settings.timeout_seconds
        self._access = access_of(settings.tls)
        self._connection: socket.socket | None = None
        self._connected_at = 0.0
        self.failure = ""

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The pair that wakes kazoo's thread; non-blocking, because the event loop writes to it."""
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        return reading, writing

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, *, use_ssl: bool, **_: object
    ) -> socket.socket:
        """Connects, with TLS if the settings say so: the host's name is verified. Raises OSError."""
        self._connected_at, place, context = time.monotonic(), "", None
        files = filter(None, (self._access.ca_file, self._access.cert_file, self._access.key_file))
        try:
            if use_ssl:
                place = f"{', '.join(files)}: "
                context = tls_context(self._access)
                place = ""
            connection = socket.create_connection(address, min(timeout, self._timeout))
            # wrap_socket closes the connection if it fails.
            self._connection = context.wrap_socket(connection, server_hostname=hostname) if context else connection
        except OSError as error:
            self.failure = f"{place}{error.strerror or str(error) or 'timed out'}"
            # kazoo knows a TimeoutError only by its number.
            raise OSError(error.errno or errno.ETIMEDOUT, self.failure) from error
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.failure = ""
        return self._connection

    def end_connection(self, *, older_than: float = 0.0) -> None:
        """Ends the last connection, which fails all reads, if it is older than so many seconds."""
        if self._connection is not None and time.monotonic() - self._connected_at >= older_than:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


def _resolve(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(result.exception)
