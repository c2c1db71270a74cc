"""One ZooKeeper client for the event loop: kazoo in threads of its own, whose callbacks only hand results over.

kazoo keeps the session and its ping; watches do not survive a lost connection with it, so whoever reads must read anew
when `on_connected` is called. What kazoo does badly is done here: TLS with this adapter's own rules and with files that
are read again at each connection, connections that can be hung up, and the reason why there is none.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
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

from adapter.runtime.outbound import secret, tls_context
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
)
from adapter.settings.registries import ZooKeeperRegistry

AT_ONCE = 64
"""Reads under way at a time."""
LONGEST_PAUSE_SECONDS = 3.0
"""Between attempts to connect."""
HANG_UP_SECONDS = 1.0
"""How long a server may take to agree to the session's end."""

_GONE = (ConnectionLoss, ConnectionClosedError, SessionExpiredError)
_ENDED = {KeeperState.CLOSED, KeeperState.AUTH_FAILED}


class Node(NamedTuple):
    """A node's content, and when it was made (epoch seconds, by the server's clock)."""

    body: bytes
    created_at: float


class Session:
    """A session, kept up until it is closed. Callbacks are called in the event loop.

    `on_connected` hears of each connection, `on_lost` of each that is gone; `on_change` gets the path of a node that
    was read and is not what it was.
    """

    def __init__(
        self,
        settings: ZooKeeperRegistry,
        on_connected: Callable[[], None],
        on_lost: Callable[[], None],
        on_change: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._on_connected, self._on_lost, self._on_change = on_connected, on_lost, on_change
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._words = _LastWords()
        self._password = ""
        self._handler = _Handler(settings, self._loop.time)
        self._client: Any = None
        self.since: float | None = None
        """When the session began, by the event loop's clock; None where there is none."""
        self.ever_connected = False
        self._alone_since = self._loop.time()
        self._ended: asyncio.Future[SourceError] = self._loop.create_future()

    @property
    def connected(self) -> bool:
        """Whether there is a connection just now."""
        return self._client is not None and self._client.connected

    async def open(self) -> None:
        """Begin to connect. Raises SourceUnreachable where the password cannot be read."""
        self._password = await self._read_password()
        self._client = KazooClient(
            hosts=",".join(self._settings.servers) + _chroot(self._settings.chroot),
            timeout=self._settings.session_seconds,
            handler=self._handler,
            auth_data=self._credentials(),
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": LONGEST_PAUSE_SECONDS},
            logger=self._words.logger,
            use_ssl=self._settings.use_tls,
        )
        self._client.add_listener(self._heard_state)
        self._client.start_async()  # it starts threads, and waits for nothing

    async def end(self) -> SourceError:
        """Wait until the client gives up for good: the server refused who asks, or the client broke."""
        return await self._ended

    def review(self) -> None:
        """Help kazoo out of what it would stay in for long, or for ever. To be called every few seconds.

        A server that is just starting may take a connection and never answer on it. One that lost its data refuses
        clients that saw more of it than it has, and never tells them that their session is over.
        """
        if self.connected:
            return
        self._handler.hang_up(after=self._settings.timeout_seconds)
        alone = self._loop.time() - self._alone_since
        if alone > 2 * self._settings.session_seconds and not self._ended.done():
            self._ended.set_result(self.why_not())

    async def close(self) -> None:
        """End the session and all threads; a server that does not answer is not waited for."""
        if self._client is None:
            return
        stopping = asyncio.ensure_future(asyncio.to_thread(self._stop))
        await asyncio.wait({stopping}, timeout=HANG_UP_SECONDS)
        self._handler.hang_up()
        await asyncio.wait({stopping})

    async def children(self, path: str, *, watch: bool = True) -> list[str] | None:
        """The names of a node's children, None where there is no such node; `watch` either way."""
        while True:
            hearing = self._heard_event if watch else None
            names: list[str] | None = await self._ask(path, "get_children_async", watch=hearing)
            if names is not None or not await self.exists(path, watch=watch):
                return names

    async def exists(self, path: str, *, watch: bool = False) -> bool:
        """Whether there is such a node."""
        return await self._ask(path, "exists_async", watch=self._heard_event if watch else None) is not None

    async def has_children(self, path: str) -> bool:
        """Whether there is such a node and it has children."""
        stat = await self._ask(path, "exists_async")
        return stat is not None and stat.numChildren > 0

    async def node(self, path: str) -> Node | None:
        """A node's content, None where there is no such node; changes are told of."""
        found = await self._ask(path, "get_async", watch=self._heard_event)
        return None if found is None else Node(found[0] or b"", found[1].ctime / 1000)

    async def renew_password(self) -> None:
        """Show the password again if its file has changed; the server adds it to what it knows of this session."""
        password = await self._read_password()
        if password != self._password and self._client is not None:
            self._password = password
            for scheme, credential in self._credentials():
                self._client.add_auth_async(scheme, credential)

    def why_not(self) -> SourceUnreachable:
        """The error of having no connection."""
        words = self._words.last or "no server has answered yet"
        return SourceUnreachable(f"no connection to {self._where}: {words}")

    @property
    def _where(self) -> str:
        return f"ZooKeeper at {', '.join(self._settings.servers)}"

    async def pulse(self) -> float:
        """How many seconds a plain question takes. Raises SourceError."""
        began = self._loop.time()
        await self._answer("/", "exists_async")
        return self._loop.time() - began

    async def _ask(self, path: str, method: str, **more: Any) -> Any:
        async with self._slots:
            return await self._answer(path, method, **more)

    async def _answer(self, path: str, method: str, **more: Any) -> Any:
        """Put a question to the server; None where there is no such node. Raises SourceError."""
        seconds = self._settings.timeout_seconds
        if not self.connected:
            raise self.why_not()  # kazoo would keep the question until there is a connection
        answer: asyncio.Future[Any] = self._loop.create_future()
        try:
            async with asyncio.timeout(seconds):
                getattr(self._client, method)(path, **more).rawlink(partial(self._settle_later, answer))
                return await answer
        except NoNodeError:
            return None
        except TimeoutError as error:
            raise SourceUnreachable(f"{self._where} did not answer within {seconds:g} s") from error
        except _GONE as error:
            raise self.why_not() from error
        except KazooException as error:
            raise self._refusal(path, error) from error

    def _refusal(self, path: str, error: KazooException) -> SourceError:
        if isinstance(error, NoAuthError):
            who = f"user {self._settings.username}" if self._settings.username else "a client without a user"
            return NotAllowed(
                f"{self._where} does not let {who} read {path}; check username and passwordFile, or the node's ACL"
            )
        if isinstance(error, AuthFailedError):
            return self._not_believed()
        return SourceFailing(f"{self._where} failed at {path}: {type(error).__name__} {error}".rstrip())

    def _not_believed(self) -> NotAuthenticated:
        return NotAuthenticated(f"{self._where} does not believe user {self._settings.username}; check passwordFile")

    async def _read_password(self) -> str:
        file = self._settings.password_file
        try:
            return await asyncio.to_thread(secret, file) if file else ""
        except (OSError, ValueError) as error:
            raise SourceUnreachable(f"the password file {file} cannot be read: {error}") from error

    def _credentials(self) -> set[tuple[str, str]]:
        user = self._settings.username
        return {("digest", f"{user}:{self._password}")} if user else set()

    def _stop(self) -> None:
        with suppress(Exception):  # kazoo raises where a thread took too long; the process lives on without it
            self._client.stop()
            self._client.close()

    # What follows is called in kazoo's threads.

    def _settle_later(self, answer: asyncio.Future[Any], result: Any) -> None:
        self._call(partial(_settle, answer, result))

    def _heard_event(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self._call(partial(self._on_change, event.path))

    def _heard_state(self, state: KazooState) -> None:
        self._call(partial(self._note_state, state, self._client.client_state))

    def _call(self, action: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(action)

    # And this in the event loop again.

    def _note_state(self, state: KazooState, detail: KeeperState) -> None:
        if state == KazooState.CONNECTED:
            self.ever_connected = True
            self.since = self.since or self._loop.time()
            self._words.last = ""
            self._on_connected()
            return
        self._alone_since = self._loop.time()
        if state == KazooState.LOST:
            self.since = None
            if detail in _ENDED and not self._ended.done():
                refused = detail == KeeperState.AUTH_FAILED
                self._ended.set_result(self._not_believed() if refused else self.why_not())
        self._on_lost()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with sockets of our own making."""

    def __init__(self, settings: ZooKeeperRegistry, clock: Callable[[], float]) -> None:
        super().__init__()
        self._timeout = settings.timeout_seconds
        self._clock = clock
        self._connected_at = 0.0
        self._connection: socket.socket | None = None
        self._access = settings.tls.access

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The pair that wakes kazoo's thread; the event loop writes to it, and may not be held up."""
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        return reading, writing

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, *, use_ssl: bool, **_: object
    ) -> socket.socket:
        """A connection, with TLS where the settings want it. Raises OSError."""
        try:
            connection = socket.create_connection(address, min(timeout, self._timeout))
            self._connection = self._secured(connection, hostname) if use_ssl else connection
        except TimeoutError as error:
            raise OSError(errno.ETIMEDOUT, f"{hostname} did not answer in time") from error
        self._connected_at = self._clock()
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection

    def hang_up(self, *, after: float = 0.0) -> None:
        """Break a connection that is older than so many seconds: whoever waits for an answer waits no longer."""
        if self._connection is not None and self._clock() - self._connected_at >= after:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _secured(self, connection: socket.socket, hostname: str) -> socket.socket:
        try:
            return self._context().wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise

    def _context(self) -> ssl.SSLContext:
        try:
            return tls_context(self._access)
        except OSError as error:
            # kazoo shows the second argument only.
            tls = self._access
            files = ", ".join(filter(None, (tls.ca_file, tls.cert_file, tls.key_file)))
            raise OSError(error.errno, f"cannot use {files} for TLS: {error.strerror or error}") from error


class _LastWords(logging.Handler):
    """What kazoo logged last about a connection that failed: it tells nobody else."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self.logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001 - one of its own, which nothing else hears
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what says why; transitions say nothing."""
        if not record.getMessage().startswith("Transition"):
            words = record.getMessage().removeprefix("Connection dropped: ")
            self.last = words.removeprefix("socket connection error: ")


def _chroot(path: str) -> str:
    bare = path.strip("/")
    return f"/{bare}" if bare else ""


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(result.exception)
