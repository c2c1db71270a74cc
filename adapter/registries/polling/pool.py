"""A few connections to one server, over which many small questions are put, each answered before the next is written.

For polling hundreds of services every second or two. A request through a full HTTP client costs two and a half times as
much processor time (`benchmarks/registries.py`), and most answers are "not modified".
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

from adapter.registries.polling.http1 import RawReply, Reader, Request, SurplusAnswer
from adapter.runtime.answer_budget import ANSWERS, FREE_BYTES, AnswerBudget, Limit, Reservation
from adapter.runtime.outbound import UNREADABLE_CREDENTIALS, Access, credentials, tls_context
from adapter.runtime.source_errors import SourceError, SourceUnreachable, WrongAnswer, connection_fault

CONNECTIONS = 8
"""Questions under way at a time: a server that takes 100 ms for each still answers 80 a second."""

T = TypeVar("T")

Read = Callable[[int, RawReply], Awaitable[T]]
"""What decodes the answer to a question, by the question's number. Raises SourceError."""


class Unanswered(Enum):
    """What became of a question that time ended."""

    LATE = auto()
    """It was under way."""
    NOT_ASKED = auto()


class Answers(NamedTuple, Generic[T]):
    """What became of each question, in their order, and within how many seconds those were answered that were."""

    outcomes: Sequence[T | SourceError | Unanswered]
    seconds: Mapping[int, float]


class Pool:
    """Connections to one server, made when they are needed and kept.

    `timeout` (seconds) is for each answer, and so is `limit`; large ones are read when `budget` has room for one of
    this `source`. `on_loss` hears of connections that were lost without the server's
    announcing it, as when it was killed, even where they can be made anew at once. `on_surplus` hears of an answer that
    nobody asked for: what was answered last, and its tag, may be of another question.
    """

    def __init__(
        self,
        server: str,
        access: Access,
        *,
        timeout: float,
        source: str,
        limit: Limit,
        budget: AnswerBudget = ANSWERS,
        on_loss: Callable[[], None] = lambda: None,
        on_surplus: Callable[[], None] = lambda: None,
    ) -> None:
        self.server = server
        self.url = urlsplit(server)
        self.access = access
        self.timeout = timeout
        self.source = source
        self.limit = limit
        self.budget = budget
        self._on_loss = on_loss
        self.on_surplus = on_surplus
        self._kept: list[_Connection] = []

    async def ask(self, requests: Sequence[Request], read: Read[T]) -> list[T | SourceError]:
        """What became of each request, in their order. They may only read: what a lost connection took is put again.

        Each answer is decoded by `read` as soon as it is whole: not all of them are in memory at once.
        Raises the first SourceError where nothing at all was answered, or nobody can be asked.
        """
        found = await self.ask_for(None, requests, read)
        return [one for one in found.outcomes if not isinstance(one, Unanswered)]

    async def ask_for(self, seconds: float | None, requests: Sequence[Request], read: Read[T]) -> "Answers[T]":
        """As `ask`, for so many seconds in all (None: as long as it takes)."""
        head = await self._head()
        try:
            written = [request.written(head, self.url.path) for request in requests]
        except UnicodeError as error:  # a credential that fits in no header
            raise SourceUnreachable(f"{self.server}: {error}") from error
        kept, self._kept = self._kept, []
        batch = _Batch(self, written, kept, read)
        try:
            self._kept = await batch.run(seconds)
        finally:
            if batch.lost:
                self._on_loss()
        outcomes = batch.result()
        # What is neither answered nor failed may yet be.
        if batch.error is not None and not batch.answered and not any(isinstance(one, Unanswered) for one in outcomes):
            raise batch.error
        return Answers(outcomes, batch.answered)

    async def _head(self) -> str:
        """The lines that all requests share. Files with credentials are read each time: they are replaced."""
        try:
            known = await asyncio.to_thread(credentials, self.access)
        except (OSError, UnicodeError) as error:
            where = getattr(error, "filename", None) or ""
            raise SourceUnreachable(
                f"{self.server}: credentials: cannot use {where}: {error}", public=UNREADABLE_CREDENTIALS
            ) from error
        except ValueError as error:
            raise SourceUnreachable(f"{self.server}: credentials: {error}", public=UNREADABLE_CREDENTIALS) from error
        lines = {"Host": self.url.netloc.rpartition("@")[2], "Accept": "application/json", **known}
        return "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    def close(self) -> None:
        """Close the connections."""
        for connection in self._kept:
            connection.close()
        self._kept = []


class _Batch(Generic[T]):
    """Questions that are put together. `lost`: whether a connection was; `error`: the first thing that went wrong."""

    def __init__(self, pool: Pool, requests: Sequence[bytes], kept: Sequence["_Connection"], read: Read[T]) -> None:
        self._pool = pool
        self._requests = requests
        self._read = read
        self._left: Iterator[tuple[int, bytes]] = iter(enumerate(requests))
        self._connections: list[_Connection | None] = [*kept, *[None] * CONNECTIONS][:CONNECTIONS]
        self._tls: asyncio.Task[ssl.SSLContext] | None = None
        self._answers = 0
        self._begun = 0
        self._cut = False
        self._in_vain = 0
        """Failures since the last answer."""
        self.outcomes: list[T | SourceError | None] = [None] * len(requests)
        self.answered: dict[int, float] = {}
        """The questions that were answered, whatever the answer is worth, with the seconds that it took."""
        self.error: SourceError | None = None
        self.lost = False

    async def run(self, seconds: float | None) -> list["_Connection"]:
        """Put the questions, for so many seconds at most (None: as long as it takes); the connections of further use.

        Those that are cut off are ended.
        """
        used = min(CONNECTIONS, len(self._requests))
        for spare in self._connections[used:]:
            if spare is not None:
                spare.close()  # one at rest would be ended by the server some day, and look like a loss
        try:
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(self._work(one)) for one in self._connections[:used]]
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
        return [one for task in working if not task.cancelled() and (one := task.result()) is not None]

    def result(self) -> list[T | SourceError | Unanswered]:
        """What became of each question."""
        return [self._result(index, outcome) for index, outcome in enumerate(self.outcomes)]

    def _result(self, index: int, outcome: T | SourceError | None) -> T | SourceError | Unanswered:
        if outcome is not None:
            return outcome
        if self._cut or self.error is None:
            return Unanswered.LATE if index < self._begun else Unanswered.NOT_ASKED
        return self.error  # nobody answers: what was not asked would have met with the same

    async def _work(self, connection: "_Connection | None") -> "_Connection | None":
        """Put one question after the other; the connection, where it is of further use."""
        answered: list[int] = []
        for index, request in self._left:
            before, self._begun = self._answers, index + 1
            began = asyncio.get_running_loop().time()
            async with self._pool.budget.reserve(self._pool.source) as reservation:
                try:
                    async with asyncio.timeout(self._pool.timeout):
                        connection, reply = await self._put(connection, request, reservation)
                except SurplusAnswer as error:
                    connection = None
                    self._pool.on_surplus()
                    for one in (*answered, index):
                        self._fail(one, error)
                except TimeoutError as error:
                    connection = None
                    late = SourceUnreachable(reservation.late(self._pool.timeout), public="timed out")
                    self._fail(index, late)
                    if self._nobody_answers(error, since=before):
                        break
                except (SourceError, OSError) as error:
                    connection = None
                    self._fail(index, error)
                    if self._nobody_answers(error, since=before):
                        break
                else:
                    answered.append(index)
                    self._answers += 1
                    self._in_vain = 0
                    self.answered[index] = asyncio.get_running_loop().time() - began
                    await self._take(index, reply)
        return connection

    async def _take(self, index: int, reply: RawReply) -> None:
        try:
            self.outcomes[index] = await self._read(index, reply)
        except SourceError as error:
            self.outcomes[index] = error

    def _nobody_answers(self, error: Exception, *, since: int) -> bool:
        """Whether no further question needs to wait for its own failure."""
        if isinstance(error, TimeoutError) and self._answers == since:
            return True
        return self._in_vain >= min(CONNECTIONS, len(self._requests))

    def _fail(self, index: int, error: SourceError | OSError) -> None:
        if isinstance(error, SourceError):
            said = error.at(self._pool.server)
        else:
            said = SourceUnreachable(f"{self._pool.server}: {error}", public=connection_fault(error))
        self.answered.pop(index, None)
        self.outcomes[index] = said
        self.error = self.error or said
        self._in_vain += 1

    async def _put(
        self, connection: "_Connection | None", request: bytes, reservation: Reservation
    ) -> tuple["_Connection | None", RawReply]:
        """An answer, over this connection or a new one, and the connection where it can be used again."""
        if connection is not None:
            reply = await connection.exchange(request, self._pool.limit, reservation)
            self.lost = self.lost or connection.lost
            if reply is not None:
                return (None if connection.closed else connection), reply
        connection = await self._connect()
        reply = await connection.exchange(request, self._pool.limit, reservation)
        if reply is None:
            raise ConnectionResetError("the connection was closed without an answer")
        return (None if connection.closed else connection), reply

    async def _connect(self) -> "_Connection":
        url = self._pool.url
        tls = None
        if url.scheme == "https":
            if self._tls is None:  # one context for all connections of these questions
                self._tls = asyncio.create_task(asyncio.to_thread(tls_context, self._pool.access))
            tls = await asyncio.shield(self._tls)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._pool.on_surplus), url.hostname or "", port_of(url), ssl=tls
        )
        return connection


class _Large:
    """The answer turns out to be large."""


class _Connection(asyncio.Protocol):
    """The bytes of one connection: a request out, its answer in."""

    def __init__(self, on_surplus: Callable[[], None]) -> None:
        self._on_surplus = on_surplus
        self._transport: asyncio.Transport | None = None
        self._reader = Reader(Limit(0))
        self._told: asyncio.Future[RawReply | _Large | None] | None = None
        self._may_be_large = False
        self._announced = False
        self.closed = False

    @property
    def lost(self) -> bool:
        """Whether it ended without the server's announcing it."""
        return self.closed and not self._announced

    async def exchange(self, request: bytes, limit: Limit, reservation: Reservation) -> RawReply | None:
        """The answer to a request; None where the connection ended before. Raises WrongAnswer."""
        if self.closed:
            return None
        assert self._transport is not None
        self._reader, self._may_be_large = Reader(limit), False
        loop = asyncio.get_running_loop()
        self._told = loop.create_future()
        self._transport.write(request)
        try:
            while isinstance(reply := await self._told, _Large):
                self._told = loop.create_future()
                await reservation.take(self._reader.expected if self._reader.is_sized else limit.size)
                self._transport.resume_reading()
            return reply  # noqa: TRY300  whatever ends it closes the connection
        except BaseException:
            self.close()  # the next question would get the answer to this one
            raise
        finally:
            self._told = None

    def close(self) -> None:
        """End it, without waiting for anything."""
        self.closed = self._announced = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read on. What nobody asked for ends the connection."""
        if self._told is None or self._told.done():
            if not self.closed:
                self.close()
                self._on_surplus()
            return
        try:
            reply = self._reader.feed(data)
        except WrongAnswer as error:
            self.close()
            self._told.set_exception(error)
            return
        if reply is None:
            self._ask_for_room()
            return
        if (reply.header(b"connection") or b"").lower() == b"close":
            self.close()
        self._told.set_result(reply)

    def _ask_for_room(self) -> None:
        """Read no further in a large answer until there is memory for it."""
        if self._may_be_large or self._reader.expected <= FREE_BYTES:
            return
        self._may_be_large = True
        assert self._transport is not None
        assert self._told is not None
        self._transport.pause_reading()
        self._told.set_result(_Large())

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, by whatever cause: who waits for an answer gets none."""
        del exc
        self.closed = True
        if self._told is not None and not self._told.done():
            self._told.set_result(None)


def port_of(url: SplitResult) -> int:
    """The port of an http or https address."""
    return url.port or (443 if url.scheme == "https" else 80)
