"""A few connections to one server for many small requests, each answered before the next is written.

It polls hundreds of services every second or two, and is there instead of aiohttp for two measured reasons
(`docs/performance.md`): aiohttp takes two to three times the processor time, which misses the aim, and it gives a
surplus answer to the next request, which would be another service's roster.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from adapter.runtime.answer_budget import ANSWERS, Limit, Reservation
from adapter.runtime.http1 import Connection, RawReply, Request, SurplusAnswer
from adapter.runtime.outbound import UNREADABLE_CREDENTIALS, Access, credentials, tls_context
from adapter.runtime.source_errors import SourceError, SourceUnreachable, connection_fault

CONNECTIONS = 8
"""Requests under way at a time: a server that takes 100 ms for each still answers 80 a second."""

T = TypeVar("T")

Read = Callable[[int, RawReply], Awaitable[T]]
"""Decodes the answer to a request, given the request's number. Raises SourceError."""


class Unanswered(Enum):
    """The outcome of a request that has no answer when its time ends."""

    LATE = auto()
    """It is under way."""
    NOT_ASKED = auto()


class Answers(NamedTuple, Generic[T]):
    """The outcome of each request, in their order, and the seconds that each answer took, by number."""

    outcomes: Sequence[T | SourceError | Unanswered]
    seconds: Mapping[int, float]


class Pool:
    """Connections to one server, made when they are needed and kept.

    `timeout` (seconds) and `limit` are for each answer; large ones are read when the budget of answers has room for
    one of this `source`. `on_surplus` is called after an answer without a request: the last
    answer and its tag may belong to another request.
    """

    def __init__(
        self,
        server: str,
        access: Access,
        *,
        timeout: float,
        source: str,
        limit: Limit,
        on_surplus: Callable[[], None] = lambda: None,
    ) -> None:
        self.server = server
        self.url = urlsplit(server)
        self.access = access
        self.timeout = timeout
        self.source = source
        self.limit = limit
        self.on_surplus = on_surplus
        self._kept: list[Connection] = []

    async def ask(self, requests: Sequence[Request], read: Read[T], *, seconds: float | None = None) -> Answers[T]:
        """The outcomes after at most `seconds` (None: no limit). Requests are repeated after a lost connection.

        `read` decodes each answer as soon as it is whole: not all of them are in memory at once.
        Raises the first SourceError where no request was answered.
        """
        try:  # credentials are read each time: their files may be replaced
            headers = await asyncio.to_thread(credentials, self.access)
        except (OSError, ValueError) as error:
            file = f"cannot use {error.filename}: " if isinstance(error, OSError) else ""
            raise SourceUnreachable(
                f"{self.server}: credentials: {file}{error}", public=UNREADABLE_CREDENTIALS
            ) from error
        lines = {"Host": self.url.netloc.rpartition("@")[2], "Accept": "application/json", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        try:
            written = [request.written(head, self.url.path) for request in requests]
        except UnicodeError as error:  # a credential that fits in no header
            raise SourceUnreachable(f"{self.server}: {error}") from error
        kept, self._kept = self._kept, []
        batch = _Batch(self, written, kept, read)
        self._kept = await batch.run(seconds)
        outcomes = [batch.outcome_of(index) for index in range(len(requests))]
        # A request under way may still be answered.
        if (
            batch.error is not None
            and not batch.answered
            and not any(isinstance(outcome, Unanswered) for outcome in outcomes)
        ):
            raise batch.error
        return Answers(outcomes, batch.answered)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._kept:
            connection.close()
        self._kept = []


class _Batch(Generic[T]):
    """Requests that are sent together. `error`: the first error."""

    def __init__(self, pool: Pool, requests: Sequence[bytes], kept: Sequence[Connection], read: Read[T]) -> None:
        self._pool = pool
        self._requests = requests
        self._read = read
        self._left: Iterator[tuple[int, bytes]] = iter(enumerate(requests))
        self._connections: list[Connection | None] = [*kept, *[None] * CONNECTIONS][:CONNECTIONS]
        self._tls: asyncio.Task[ssl.SSLContext] | None = None
        self._answers = 0
        self._begun = 0
        self._cut = False
        self._failures = 0
        """Failures since the last answer."""
        self.outcomes: list[T | SourceError | None] = [None] * len(requests)
        self.answered: dict[int, float] = {}
        """The seconds that each answer took, by the request's number; unusable answers too."""
        self.error: SourceError | None = None

    async def run(self, seconds: float | None) -> list[Connection]:
        """Send the requests, for at most `seconds` (None: no limit); returns the connections that can be used again.

        Connections that are cut off by the time are closed.
        """
        used = min(CONNECTIONS, len(self._requests))
        for spare in self._connections[used:]:
            if spare is not None:
                spare.close()  # the server would close an idle one some day
        try:
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(self._work(connection)) for connection in self._connections[:used]]
                if seconds is not None:
                    _, late = await asyncio.wait(working, timeout=seconds)
                    for task in late:
                        task.cancel()
        except BaseException:
            for left in filter(None, self._connections):
                left.close()
            raise
        finally:
            if self._tls is not None:
                self._tls.cancel()
        self._cut = any(task.cancelled() for task in working)
        return [connection for task in working if not task.cancelled() and (connection := task.result()) is not None]

    def outcome_of(self, index: int) -> T | SourceError | Unanswered:
        """The outcome of one request."""
        outcome = self.outcomes[index]
        if outcome is not None:
            return outcome
        if self._cut or self.error is None:
            return Unanswered.LATE if index < self._begun else Unanswered.NOT_ASKED
        return self.error  # the server does not answer: the remaining requests would have failed alike

    async def _work(self, connection: Connection | None) -> Connection | None:
        """Send one request after the other; returns the connection where it can be used again."""
        answered: list[int] = []
        for index, request in self._left:
            before, self._begun = self._answers, index + 1
            began = asyncio.get_running_loop().time()
            async with ANSWERS.reserve(self._pool.source) as reservation:
                try:
                    async with asyncio.timeout(self._pool.timeout):
                        connection, reply = await self._send(connection, request, reservation)
                except SurplusAnswer as error:
                    connection = None
                    self._pool.on_surplus()
                    for number in (*answered, index):
                        self._fail(number, error)
                except (SourceError, OSError) as error:
                    connection = None
                    has_timed_out = isinstance(error, TimeoutError)
                    if has_timed_out:
                        error = SourceUnreachable(reservation.late(self._pool.timeout), public="timed out")
                    self._fail(index, error)
                    # The server does not answer, so no further request need wait for its own failure.
                    if has_timed_out and self._answers == before:
                        break
                    if self._failures >= min(CONNECTIONS, len(self._requests)):
                        break
                else:
                    answered.append(index)
                    self._answers += 1
                    self._failures = 0
                    self.answered[index] = asyncio.get_running_loop().time() - began
                    try:
                        self.outcomes[index] = await self._read(index, reply)
                    except SourceError as error:
                        self.outcomes[index] = error
        return connection

    def _fail(self, index: int, error: SourceError | OSError) -> None:
        if isinstance(error, SourceError):
            failure = error.with_context(self._pool.server)
        else:
            failure = SourceUnreachable(f"{self._pool.server}: {error}", public=connection_fault(error))
        self.answered.pop(index, None)
        self.outcomes[index] = failure
        self.error = self.error or failure
        self._failures += 1

    async def _send(
        self, connection: Connection | None, request: bytes, reservation: Reservation
    ) -> tuple[Connection | None, RawReply]:
        """Send a request over this connection or a new one; returns the reusable connection, and the answer."""
        if connection is not None:
            reply = await connection.exchange(request, self._pool.limit, reservation)
            if reply is not None:
                return (None if connection.closed else connection), reply
        url, tls = self._pool.url, None
        if url.scheme == "https":
            if self._tls is None:  # one context for all connections of these requests
                self._tls = asyncio.create_task(asyncio.to_thread(tls_context, self._pool.access))
            tls = await asyncio.shield(self._tls)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._pool.on_surplus),
            url.hostname or "",
            url.port or (443 if url.scheme == "https" else 80),
            ssl=tls,
        )
        reply = await connection.exchange(request, self._pool.limit, reservation)
        if reply is None:
            raise ConnectionResetError("the connection was closed without an answer")
        return (None if connection.closed else connection), reply
