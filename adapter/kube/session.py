"""Requests to the API server: credentials, TLS, deadlines, errors, and its clock."""

import asyncio
import contextlib
import email.utils
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from adapter.kube import credentials
from adapter.kube.api import JSON
from adapter.kube.credentials import ClusterAccess, CredentialKeeper, Load
from adapter.kube.errors import KubeError, MalformedAnswer, TimedOut, TooLarge, Unreachable, error_from_answer
from adapter.runtime.answer_budget import ANSWERS, MIB, SEGMENT_BYTES, Body, Limit, Reservation, read_body
from adapter.runtime.http1 import Connection, RawReply, Request
from adapter.runtime.outbound import Connector, Reply, SegmentedReply, error_text
from adapter.runtime.source_errors import AnswerTooLarge, WrongAnswer
from adapter.telemetry.metrics import Metrics, package_version

A = TypeVar("A", aiohttp.ClientResponse, RawReply | None)

_CONNECT_SECONDS = 10.0
_HEADERS_SECONDS = 30.0
_OK = range(200, 300)
_UNAUTHORIZED = 401
_HEADERS = {"User-Agent": f"effective-load/{package_version()}", "Accept-Encoding": "identity"}

LARGEST_ANSWER = 16 * MIB
"""Bytes of an answer: an object has a few MiB at most, and lists are read in pages."""
LARGEST_LINE = 16 * MIB
"""Bytes of one line of a watch: an object and its envelope."""

IDLE_SECONDS = 60.0
"""How long an idle connection can be used again: longer than an HPA waits, and shorter than the API server (90 s) and
load balancers do, which may forget an older one silently."""
MOST_IDLE = 32
_NEXT_ADDRESS_SECONDS = 0.1
"""After so long without a connection the next address of the name is tried beside it."""
_PORTS = {"http": 80, "https": 443}
_UNSAFE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
"""Characters that no header line can have: line ends among them would begin another header."""

_CLOCK_SAMPLES = 15
_SECOND = 1.0
"""A Date header is cut to whole seconds."""
_YEARS = range(1970, 9999)
"""Times in these years, and those that soon follow, can be written as Kubernetes writes them."""
_DRIFT = 1e-3
"""Seconds by which the two clocks may part in each second: NTP slews one by half of that."""


class ServerClock:
    """The API server's time in epoch seconds: the monotonic clock plus an offset.

    A header says that the offset lies within one second; the headers together narrow that down to about the pause
    between answers (K. Marzullo, S. Owicki: Maintaining the time in a distributed system, 1983). One that contradicts
    the others does not count, until all of the last ones do: a server whose clock was set is followed, and two servers
    behind one address whose clocks differ do not make it swing. Before the first header it is this machine's time.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.monotonic = monotonic
        self._wall = wall
        self._least: deque[float] = deque(maxlen=_CLOCK_SAMPLES)
        """The smallest offsets that the last headers allow."""
        self._low = self._high = wall() - monotonic()
        self._observed_at = 0.0

    def observe(self, date: str) -> None:
        """Records a `Date` header that has just arrived; an unreadable one is ignored."""
        try:
            moment = email.utils.parsedate_to_datetime(date)
        except (ValueError, OverflowError):
            return
        if moment.year not in _YEARS:
            return
        now = self.monotonic()
        # One without a zone is in UTC, as HTTP wants all of them to be.
        least = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - now
        self._least.append(least)
        if len(self._least) == 1:
            self._low, self._high = least, least + _SECOND
        else:
            drift = _DRIFT * (now - self._observed_at)
            self._low, self._high = self._low - drift, self._high + drift
            if self._agrees(least):
                self._low, self._high = max(self._low, least), min(self._high, least + _SECOND)
            elif not any(map(self._agrees, self._least)):
                # What most of the intervals of a second have in common, the latest of them in doubt.
                begins = list(self._least)
                groups = ([other for other in begins if begin <= other <= begin + _SECOND] for begin in begins[::-1])
                best = max(groups, key=len)
                self._low, self._high = max(best), min(best) + _SECOND
        self._observed_at = now

    def _agrees(self, least: float) -> bool:
        return least <= self._high and self._low <= least + _SECOND

    def now(self) -> float:
        """Epoch seconds."""
        return self.monotonic() + (self._low + self._high) / 2

    @property
    def skew(self) -> float:
        """Seconds by which this machine's clock is ahead of the API server's; 0 until that is known."""
        return self._wall() - self.now() if self._least else 0.0


class KeptConnections:
    """Connections for one set of credentials, each made when none is idle. `headers` are those of every request.

    They have the HTTP/1.1 of the polled registries instead of aiohttp's, which takes several times the processor time
    for a small request (`docs/performance.md`). Raises ValueError for a header's value that would not be one line.
    """

    def __init__(self, access: ClusterAccess, headers: Mapping[str, str]) -> None:
        url = urlsplit(access.server)
        self.access = access
        self._host, self._port = url.hostname or "", url.port or _PORTS.get(url.scheme, 443)
        self._tls = (access.tls or True) if url.scheme == "https" else None
        self._prefix = url.path.rstrip("/")
        lines = {"Host": url.netloc.rpartition("@")[2], **headers, **access.auth_headers}
        for name, value in lines.items():
            if _UNSAFE.search(value):
                raise ValueError(f"the value of header {name} has characters that no header can have")
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._idle: list[tuple[float, Connection]] = []
        self._closed = False

    async def exchange(self, request: Request, limit: Limit) -> RawReply:
        """The answer of any status. The request is repeated if a kept connection ends without an answer.

        Raises OSError, and WrongAnswer for what is no HTTP; ValueError for a request that is no line of HTTP.
        """
        if _UNSAFE.search(request.target) or " " in request.target:
            raise ValueError(f"{request.target[:80]!r} cannot be requested")
        written = request.written(self._head, self._prefix)
        connection, reply = None, None
        while self._idle and connection is None:  # the one used last; the others may close by themselves
            since, connection = self._idle.pop()
            if connection.closed or time.monotonic() - since > IDLE_SECONDS:
                connection.close()
                connection = None
        if connection is not None:
            reply = await connection.exchange(written, limit, None)
        if connection is None or reply is None:
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection,
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=self.access.server_name if self._tls is not None else None,
                happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
            )
            reply = await connection.exchange(written, limit, None)
        if reply is None:
            raise ConnectionResetError("the connection was closed without an answer")
        if self._closed or len(self._idle) >= MOST_IDLE:
            connection.close()
        elif not connection.closed:
            self._idle.append((time.monotonic(), connection))
        return reply

    def close(self) -> None:
        """Close the idle connections now, the others after their answer."""
        self._closed = True
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()


class Session:
    """Connections to one API server. All its errors are KubeErrors.

    `now()` is the API server's time. After a 401 the credentials are loaded again and the request is repeated once.
    """

    def __init__(self, load: Load, *, metrics: Metrics | None = None, clock: ServerClock | None = None) -> None:
        self.clock = clock or ServerClock()
        self._keeper = CredentialKeeper(load, self.clock.monotonic)
        self._metrics = metrics or Metrics()
        self._kept: KeptConnections | None = None
        self._http = aiohttp.ClientSession(
            connector=Connector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Small answers are not worth compressing; lists ask for it themselves.
            headers=_HEADERS,
        )

    @classmethod
    async def open(cls, kubeconfig: str | None = None, *, context: str = "", metrics: Metrics | None = None) -> Self:
        """A session from the given kubeconfig, else in-cluster, else KUBECONFIG or ~/.kube/config.

        `context` is a context of the kubeconfig; empty: its current one. Raises CredentialsError.
        """
        session = cls(credentials.choose_credentials(kubeconfig, context), metrics=metrics)
        try:
            await session._keeper.current()
        except BaseException:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """Closes the connections."""
        await self._keeper.close()
        if self._kept is not None:
            self._kept.close()
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def now(self) -> float:
        """Epoch seconds by the API server's clock."""
        return self.clock.now()

    @property
    def skew(self) -> float:
        """Seconds by which this machine's clock is ahead of the API server's."""
        return self.clock.skew

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = JSON,
        timeout: float = 10.0,  # noqa: ASYNC109  the deadline is part of the request
        largest: int = LARGEST_ANSWER,
        limit_name: str = "",
        compressed: bool = False,
        aggregated: bool = False,
    ) -> bytes:
        """The body of a GET, of `largest` bytes at most; `limit_name` is the settings key of that limit.

        `aggregated`: it comes through the API server from another one, whose Date says nothing of its clock.

        `path` starts with `/`; `timeout` in seconds covers the whole request. `compressed`: as gzip on the way, for
        large answers. The API server writes a list object by object, and to read many small TLS records costs more than
        to expand it; for the API server both are about even.
        """
        headers = {"Accept": accept, **({"Accept-Encoding": "gzip"} if compressed else {})}
        question = _Question("GET", path, params, headers, is_relayed=aggregated)
        return (await self._whole(question, timeout, Limit(largest, limit_name), None)).body.whole()

    @contextlib.asynccontextmanager
    async def reading(
        self,
        path: str,
        *,
        source: str,
        limit: Limit,
        timeout: float = 10.0,  # noqa: ASYNC109  see `get`
    ) -> AsyncIterator[Body]:
        """The body of a GET to a load source, counted by the answer budget until this context ends.

        It comes from an aggregated API server, through the API server: its Date says nothing of the API server's clock.
        """
        question = _Question("GET", path, None, {"Accept": JSON}, is_relayed=True)
        async with ANSWERS.reserve(source) as reservation:
            yield (await self._whole(question, timeout, limit, reservation)).body

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        impersonate: str = "",
        timeout: float = 10.0,  # noqa: ASYNC109  see `get`
        largest: int = LARGEST_ANSWER,
    ) -> Reply:
        """The whole 2xx answer of a request. Raises the ApiStatusError of any other.

        `impersonate`: the user to act as, for which this account needs the right.
        """
        headers = {"Accept": accept}
        if impersonate:
            headers["Impersonate-User"] = impersonate
        if body is not None:
            headers["Content-Type"] = content_type
        question = _Question(method, path, params, headers, body)
        return (await self._whole(question, timeout, Limit(largest), None)).plain

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        timeout: float,  # noqa: ASYNC109  see `get`
    ) -> bytes:
        """As `request`, for small requests that are many and may be repeated after a lost connection.

        They have connections of their own, unless a proxy leads to the API server.
        """
        headers = {"Accept": JSON, "Content-Type": JSON} if body else {"Accept": JSON}
        request = Request(method, path, tuple(headers.items()), body)

        async def send(access: ClusterAccess) -> RawReply | None:
            if access.proxy:
                return None
            if self._kept is None or self._kept.access != access:
                if self._kept is not None:
                    self._kept.close()
                self._kept = KeptConnections(access, _HEADERS)
            reply = await self._kept.exchange(request, Limit(LARGEST_ANSWER))
            self._observe_date((reply.header(b"date") or b"").decode("latin-1"))
            return reply

        with _translated(f"{method} {path}", lambda: f"no answer within {timeout:g} s"):
            async with asyncio.timeout(timeout):
                reply = await self._authorized(send, lambda _: None)
        if reply is None:
            return (await self.request(method, path, body=body or None, timeout=timeout)).body
        if reply.status in _OK:
            return reply.body.whole()
        retry_after = (reply.header(b"retry-after") or b"").decode("latin-1")
        beginning = reply.body.start(SEGMENT_BYTES)
        raise error_from_answer(reply.status, beginning, request=f"{method} {path}", retry_after=retry_after)

    async def _whole(
        self,
        question: "_Question",
        timeout: float,  # noqa: ASYNC109  see `get`
        limit: Limit,
        reservation: Reservation | None,
    ) -> SegmentedReply:
        late = f"no answer within {timeout:g} s"
        with _translated(question, lambda: reservation.late(timeout) if reservation is not None else late):
            async with asyncio.timeout(timeout), await self._ask(question) as answer:
                return SegmentedReply(answer.status, answer.headers, await _body(question, answer, limit, reservation))

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str] | None = None, *, idle: float = 75.0
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an endless answer. Raises TimedOut after `idle` seconds of silence.

        Raises TooLarge for a line of more than LARGEST_LINE bytes, Unreachable for an incomplete one.
        """
        question = _Question("GET", path, params, {"Accept": JSON}, idle=idle)
        with _translated(question, lambda: f"no answer within {_HEADERS_SECONDS:g} s"):
            async with asyncio.timeout(_HEADERS_SECONDS):
                answer = await self._ask(question)
                if answer.status not in _OK:
                    async with answer:
                        await _body(question, answer, Limit(LARGEST_ANSWER), None)
        lines = _lines(question, answer)
        try:
            yield lines
        finally:
            await lines.aclose()
            # Closing alone would wait for the TLS close of the other side for ever.
            transport = answer.connection.transport if answer.connection is not None else None
            answer.close()
            if transport is not None:
                transport.abort()

    async def _ask(self, question: "_Question") -> aiohttp.ClientResponse:
        async def send(access: ClusterAccess) -> aiohttp.ClientResponse:
            answer = await self._http.request(
                question.method,
                URL(access.server + question.path),
                params=question.params,
                data=question.body,
                headers={**question.headers, **access.auth_headers},
                ssl=access.tls if access.tls is not None else True,
                server_hostname=access.server_name,
                proxy=access.proxy,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=question.idle),
            )
            if not question.is_relayed:
                self._observe_date(answer.headers.get("Date", ""))
            return answer

        return await self._authorized(send, aiohttp.ClientResponse.release)

    async def _authorized(self, send: Callable[[ClusterAccess], Awaitable[A]], discard: Callable[[A], object]) -> A:
        """The answer; after a 401 that of the same request with newer credentials, if there are any."""
        access = await self._keeper.current()
        answer = await send(access)
        if answer is None or answer.status != _UNAUTHORIZED:
            return answer
        try:
            renewed = await self._keeper.renew(access)
        except BaseException:
            discard(answer)
            raise
        if renewed is access:
            return answer
        discard(answer)
        return await send(renewed)

    def _observe_date(self, date: str) -> None:
        if date:
            self.clock.observe(date)
            self._metrics.clock_skew.set(self.clock.skew)


@dataclass(frozen=True, slots=True)
class _Question:
    method: str
    path: str
    params: Mapping[str, str] | None
    headers: Mapping[str, str]
    body: bytes | None = None
    idle: float | None = None
    is_relayed: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


async def _body(
    question: _Question, answer: aiohttp.ClientResponse, limit: Limit, reservation: Reservation | None
) -> Body:
    """The body of a 2xx answer. Raises the ApiStatusError of any other."""
    body = await read_body(answer, limit, reservation)
    if answer.status in _OK:
        return body
    beginning = body.start(SEGMENT_BYTES)
    raise error_from_answer(
        answer.status, beginning, request=str(question), retry_after=answer.headers.get("Retry-After", "")
    )


async def _lines(question: _Question, answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Lines as they arrive; unlike aiohttp's own `readline`, longer ones than its buffer too."""
    pending = bytearray()
    chunks = answer.content.iter_any()
    while True:
        with _translated(question, lambda: f"silent for {question.idle:g} s"):
            chunk = await anext(chunks, None)
        if chunk is None:
            break
        head, *rest = chunk.split(b"\n")
        pending += head
        if rest:
            yield bytes(pending)
            for line in rest[:-1]:
                yield line
            pending = bytearray(rest[-1])
        if len(pending) > LARGEST_LINE:
            raise TooLarge(f"{question}: a line of the answer is longer than {LARGEST_LINE >> 20} MiB")
    if pending:
        raise Unreachable(f"{question}: the answer was cut off in the middle of a line")


@contextlib.contextmanager
def _translated(question: object, late: Callable[[], str]) -> Iterator[None]:
    """Translates errors of the transport into KubeErrors."""
    try:
        yield
    except KubeError:
        raise
    except TimeoutError as error:
        raise TimedOut(f"{question}: {late()}", public=late()) from error
    except AnswerTooLarge as error:
        raise TooLarge(f"{question}: {error}") from error
    except WrongAnswer as error:
        raise MalformedAnswer(f"{question}: {error}") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unreachable(f"{question}: {error_text(error)}") from error
