"""A ZooKeeper session for the event loop: kazoo runs in threads of its own, and its callbacks only pass results on.

kazoo keeps the session alive. Its watches do not survive a lost connection, so every node must be read again when
`on_connected` is called. This module adds what kazoo lacks: TLS with the adapter's own rules and with files that are
read again for each connection, connections that can be aborted, and the reason why there is no connection.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import (  # type: ignore[import-untyped]
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent  # type: ignore[import-untyped]

from adapter.registries.client import read_secret
from adapter.runtime.outbound import tls_context
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
)
from adapter.settings.base import access_of
from adapter.settings.registries import ZooKeeperRegistry

AT_ONCE = 64
"""Maximum number of concurrent reads."""
LONGEST_PAUSE_SECONDS = 3.0
"""Longest pause between attempts to connect."""
HANG_UP_SECONDS = 1.0
"""Time for the server to confirm the end of the session; after it the connection is aborted."""

_GONE = (ConnectionLoss, ConnectionClosedError, SessionExpiredError)
_ENDED = {KeeperState.CLOSED, KeeperState.AUTH_FAILED}


class Znode(NamedTuple):
    """A znode's data, and when it was created (epoch seconds, by the server's clock)."""

    body: bytes
    created_at: float


class ZooKeeperSession:
    """A session that reconnects until it is closed. Callbacks run in the event loop.

    `on_connected` is called after each connection, `on_lost` after each lost one; `on_change` receives the path of a
    watched node that changed.
    """

    def __init__(
        self,
        settings: ZooKeeperRegistry,
        on_connected: Callable[[], None],
        on_lost: Callable[[], None],
        on_change: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._server_names = f"ZooKeeper at {', '.join(settings.servers)}"
        self._on_connected, self._on_lost, self._on_change = on_connected, on_lost, on_change
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._last_warning = _LastWarning()
        self._password = ""
        self._handler = _KazooHandler(settings, self._loop.time)
        self._client: Any = None
        self.ever_connected = False
        self._disconnected_since = self._loop.time()
        self._ended: asyncio.Future[SourceError] = self._loop.create_future()

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._client is not None and self._client.connected

    async def open(self) -> None:
        """Starts to connect. Raises SourceUnreachable if the password cannot be read."""
        self._password = await read_secret(self._settings.password_file)
        chroot = self._settings.chroot.strip("/")
        self._client = KazooClient(
            hosts=",".join(self._settings.servers) + (f"/{chroot}" if chroot else ""),
            timeout=self._settings.session_seconds,
            handler=self._handler,
            auth_data=self._credentials(),
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": LONGEST_PAUSE_SECONDS},
            logger=self._last_warning.logger,
            use_ssl=self._settings.use_tls,
        )
        self._client.add_listener(
            lambda state: self._call_in_loop(partial(self._apply_state, state, self._client.client_state))
        )
        self._client.start_async()  # starts kazoo's threads without waiting

    async def wait_closed(self) -> SourceError:
        """Waits until the client gives up, because the server rejects the credentials or the client failed."""
        return await self._ended

    def unblock(self) -> None:
        """Ends states in which kazoo would wait for long, or forever. To be called every few seconds.

        A server that is starting may accept a connection and never answer on it. One that lost its data rejects
        clients whose last zxid is ahead of its own, and never reports that their session has expired.
        """
        if self.connected:
            return
        self._handler.hang_up(after=self._settings.timeout_seconds)
        disconnected_for = self._loop.time() - self._disconnected_since
        if disconnected_for > 2 * self._settings.session_seconds and not self._ended.done():
            self._ended.set_result(self.disconnected_error())

    async def close(self) -> None:
        """Ends the session and all threads, with a short wait for the server."""
        if self._client is None:
            return

        def stop() -> None:
            with suppress(Exception):  # kazoo raises if a thread takes too long to stop; the process works without it
                self._client.stop()
                self._client.close()

        stopping = asyncio.ensure_future(asyncio.to_thread(stop))
        await asyncio.wait({stopping}, timeout=HANG_UP_SECONDS)
        self._handler.hang_up()
        await asyncio.wait({stopping})

    async def children(self, path: str, *, watch: bool = True) -> list[str] | None:
        """The names of a node's children, None if the node does not exist; `watch` covers its creation, too."""
        while True:
            watcher = self._on_watch_event if watch else None
            names: list[str] | None = await self._request(path, "get_children_async", watch=watcher)
            if names is not None or not await self.exists(path, watch=watch):
                return names

    async def exists(self, path: str, *, watch: bool = False) -> bool:
        """Whether the node exists."""
        return await self._request(path, "exists_async", watch=self._on_watch_event if watch else None) is not None

    async def get(self, path: str) -> Znode | None:
        """The node's data, None if it does not exist; sets a watch."""
        result = await self._request(path, "get_async", watch=self._on_watch_event)
        if result is None:
            return None
        data, stat = result
        return Znode(data or b"", stat.ctime / 1000)

    async def renew_password(self) -> None:
        """Authenticates again if the password file has changed; the server adds the identity to the session."""
        password = await read_secret(self._settings.password_file)
        if password != self._password and self._client is not None:
            self._password = password
            for scheme, credential in self._credentials():
                self._client.add_auth_async(scheme, credential)

    def disconnected_error(self) -> SourceUnreachable:
        """The error for requests without a connection, with kazoo's last warning as the reason."""
        reason = self._last_warning.last or "no server has answered yet"
        return SourceUnreachable(f"no connection to {self._server_names}: {reason}")

    async def ping(self) -> None:
        """Waits for the answer to a read. Raises SourceError."""
        await self._send("/", "exists_async")

    async def _request(self, path: str, method: str, **arguments: Any) -> Any:
        async with self._slots:
            return await self._send(path, method, **arguments)

    async def _send(self, path: str, method: str, **arguments: Any) -> Any:
        """Sends a request; returns None if the node does not exist. Raises SourceError."""
        seconds = self._settings.timeout_seconds
        if not self.connected:
            raise self.disconnected_error()  # kazoo would queue the request until it is connected
        answer: asyncio.Future[Any] = self._loop.create_future()
        try:
            async with asyncio.timeout(seconds):
                getattr(self._client, method)(path, **arguments).rawlink(
                    lambda result: self._call_in_loop(partial(_resolve, answer, result))  # in kazoo's thread
                )
                return await answer
        except NoNodeError:
            return None
        except TimeoutError as error:
            raise SourceUnreachable(f"{self._server_names} did not answer within {seconds:g} s") from error
        except _GONE as error:
            raise self.disconnected_error() from error
        except NoAuthError as error:
            who = f"user {self._settings.username}" if self._settings.username else "a client without a user"
            raise NotAllowed(
                f"{self._server_names} does not let {who} read {path}; check username, passwordFile and the node's ACL"
            ) from error
        except AuthFailedError as error:
            raise self._authentication_error() from error
        except KazooException as error:
            sentence = f"{self._server_names} failed at {path}: {type(error).__name__} {error}"
            raise SourceFailing(sentence.rstrip()) from error

    def _authentication_error(self) -> NotAuthenticated:
        return NotAuthenticated(
            f"{self._server_names} rejects the password of user {self._settings.username}; check passwordFile"
        )

    def _credentials(self) -> set[tuple[str, str]]:
        user = self._settings.username
        return {("digest", f"{user}:{self._password}")} if user else set()

    # Called in kazoo's threads.

    def _on_watch_event(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self._call_in_loop(partial(self._on_change, event.path))

    def _call_in_loop(self, action: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(action)

    # Called in the event loop.

    def _apply_state(self, state: KazooState, detail: KeeperState) -> None:
        if state == KazooState.CONNECTED:
            self.ever_connected = True
            self._last_warning.last = ""
            self._on_connected()
            return
        self._disconnected_since = self._loop.time()
        if state == KazooState.LOST and detail in _ENDED and not self._ended.done():
            refused = detail == KeeperState.AUTH_FAILED
            self._ended.set_result(self._authentication_error() if refused else self.disconnected_error())
        self._on_lost()


class _KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with the adapter's own sockets."""

    def __init__(self, settings: ZooKeeperRegistry, clock: Callable[[], float]) -> None:
        super().__init__()
        self._timeout = settings.timeout_seconds
        self._clock = clock
        self._connected_at = 0.0
        self._connection: socket.socket | None = None
        self._access = access_of(settings.tls)

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The pair that wakes kazoo's thread; non-blocking, because the event loop writes to it."""
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        return reading, writing

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, *, use_ssl: bool, **_: object
    ) -> socket.socket:
        """Connects, with TLS if the settings require it. Raises OSError."""
        try:
            connection = socket.create_connection(address, min(timeout, self._timeout))
            self._connection = self._secured(connection, hostname) if use_ssl else connection
        except TimeoutError as error:
            raise OSError(errno.ETIMEDOUT, f"{hostname} did not answer in time") from error
        self._connected_at = self._clock()
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection

    def hang_up(self, *, after: float = 0.0) -> None:
        """Aborts a connection that is older than `after` seconds, which fails all pending requests."""
        if self._connection is not None and self._clock() - self._connected_at >= after:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _secured(self, connection: socket.socket, hostname: str) -> socket.socket:
        tls = self._access
        with ExitStack() as failing:
            failing.callback(connection.close)
            try:
                context = tls_context(tls)
            except OSError as error:
                # kazoo logs the second argument only.
                files = ", ".join(filter(None, (tls.ca_file, tls.cert_file, tls.key_file)))
                raise OSError(error.errno, f"cannot use {files} for TLS: {error.strerror or error}") from error
            secured = context.wrap_socket(connection, server_hostname=hostname)
            failing.pop_all()
            return secured


class _LastWarning(logging.Handler):
    """Keeps kazoo's last warning about a failed connection, which kazoo reports only in its log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self.logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001 - has no other handler
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the message without its prefix; messages about transitions give no reason."""
        if not record.getMessage().startswith("Transition"):
            message = record.getMessage().removeprefix("Connection dropped: ")
            self.last = message.removeprefix("socket connection error: ")


def _resolve(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(result.exception)
