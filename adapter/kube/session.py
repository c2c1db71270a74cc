"""Requests to the API server: credentials, deadlines, limits, errors, and how far its clock is from this machine's."""

import asyncio
import contextlib
import email.utils
import functools
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC
from typing import Self, TypedDict, Unpack

import aiohttp
from aiohttp.http_exceptions import LineTooLong
from yarl import URL

from adapter.kube.api import JSON
from adapter.kube.credentials import ClusterAccess, CredentialKeeper, Load, choose_credentials
from adapter.kube.errors import KubeError, TimedOut, TooLarge, Unreachable, error_from_answer
from adapter.runtime.http import MIB, Reply, error_text, read_body
from adapter.runtime.source_errors import AnswerTooLarge, without_frames
from adapter.telemetry.metrics import Metrics, package_version

LARGEST_ANSWER = 16 * MIB
"""Bytes of an answer or a line of a watch: an object has a few MiB at most, and lists are read in pages."""
IDLE_SECONDS = 60.0
"""How long an idle connection can be used again: longer than an HPA waits, and shorter than the API server (90 s) and
load balancers do, which may forget an older one silently."""
MOST_SKEW_SECONDS = 5.0
"""The most that a clock may differ from the API server's: this machine's is warned of, since tokens depend on it too,
and `now` goes by the API server's, as after a start before NTP or a sleep of the machine."""

_HEADERS = {"User-Agent": f"effective-load/{package_version()}", "Accept-Encoding": "identity"}
_CONNECT_SECONDS, _HEADERS_SECONDS = 10.0, 30.0
_OK, _UNAUTHORIZED = range(200, 300), 401

# Each of these takes a twentieth of a small GET: a second has one date, and the scales of targets are read again.
_parsed_date, _url = functools.lru_cache(8)(email.utils.parsedate_to_datetime), functools.lru_cache(1024)(URL)


class RequestOptions(TypedDict, total=False):
    """How a request is made and what its answer may be."""

    params: Mapping[str, str] | None
    accept: str
    timeout: float
    """Seconds for the whole request; 10."""
    largest: int
    """Bytes of the answer; LARGEST_ANSWER."""
    limit_name: str
    """The setting of that limit, for the error."""
    compressed: bool
    """Packed on the way, for lists: the API server else sends them in many small TLS records."""


class Session(contextlib.AbstractAsyncContextManager["Session"]):
    """Connections to one API server. All its errors are KubeErrors.

    After a 401 the credentials are loaded again and the request is repeated once. `wall` gives this machine's time in
    epoch seconds, `monotonic` that of its clock that nobody sets.
    """

    def __init__(
        self,
        load: Load,
        *,
        metrics: Metrics | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self.monotonic = wall, monotonic
        self._epoch, self._epochs = wall() - monotonic(), (math.inf, -math.inf)
        self.skew = 0.0  # seconds by which this machine's clock is ahead of the API server's, to within one
        self._keeper, self._metrics = CredentialKeeper(load, monotonic), metrics or Metrics()
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Small answers are not worth compressing; lists ask for it themselves.
            headers=_HEADERS,
        )

    @classmethod
    async def open(cls, kubeconfig: str | None = None, *, context: str = "", metrics: Metrics | None = None) -> Self:
        """A session from the given kubeconfig, else in-cluster, else KUBECONFIG or ~/.kube/config.

        `context` is a context of the kubeconfig; empty: its current one. Raises CredentialsError.
        """
        session = cls(choose_credentials(kubeconfig, context), metrics=metrics)
        try:
            await session._keeper.current()
        except BaseException:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.close()
        await asyncio.sleep(0.01)  # those of requests given up while they connect are not aiohttp's, and end later

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def default_namespace(self) -> str:
        """The namespace that kubectl uses without `-n`."""
        return (await self._keeper.current()).namespace

    def now(self) -> float:
        """The time in epoch seconds. A step of this machine's clock does not move it."""
        return self._epoch + self.monotonic()

    def clock_warning(self) -> str | None:
        """The sentence about clocks that differ by more than MOST_SKEW_SECONDS; None while they do not."""
        ahead = "ahead of" if self.skew > 0 else "behind"
        text = f"this machine's clock is more than {MOST_SKEW_SECONDS:g} s {ahead} the API server's: set both by NTP"
        return text if abs(self.skew) > MOST_SKEW_SECONDS else None

    async def get(self, path: str, **options: Unpack[RequestOptions]) -> bytes:
        """The body of a GET."""
        return (await self.request("GET", path, **options)).body

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        **options: Unpack[RequestOptions],
    ) -> Reply:
        """The whole 2xx answer of a request; `path` starts with `/`. Raises the ApiStatusError of any other."""
        headers = {"Accept": options.get("accept", JSON)}
        headers |= {"Content-Type": content_type} if body is not None else {}
        headers |= {"Accept-Encoding": "gzip"} if options.get("compressed") else {}
        seconds, largest = options.get("timeout", 10.0), options.get("largest", LARGEST_ANSWER)
        request, params, sent = f"{method} {path}", options.get("params"), self.monotonic()
        with _translated(request, f"no answer within {seconds:g} s"):
            async with asyncio.timeout(seconds), self._answer(method, path, params, headers, body) as answer:
                if "metrics.k8s.io/" not in path:  # whose answers are another server's, with its Date
                    self._observe_date(answer, sent)
                content = await read_body(answer, largest, options.get("limit_name", ""))
        _check_status(request, answer, content)
        return Reply(answer.status, answer.headers, content)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str] | None = None, *, idle: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an endless answer. Raises TimedOut after `idle` seconds of silence.

        Raises TooLarge for a line of more than LARGEST_ANSWER bytes, Unreachable for an incomplete one.
        """
        request, sent = f"GET {path}", self.monotonic()
        async with contextlib.AsyncExitStack() as stack:
            with _translated(request, f"no answer within {_HEADERS_SECONDS:g} s"):
                async with asyncio.timeout(_HEADERS_SECONDS):
                    answering = self._answer("GET", path, params, {"Accept": JSON}, idle=idle)
                    answer = await stack.enter_async_context(answering)
                    self._observe_date(answer, sent)
                    if answer.status not in _OK:
                        _check_status(request, answer, await read_body(answer, LARGEST_ANSWER))
            yield await stack.enter_async_context(contextlib.aclosing(_lines(request, answer, idle)))

    @contextlib.asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: bytes | None = None,
        idle: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer of any status; after a 401 that of the same request with newer credentials, if there are any."""

        async def send(access: ClusterAccess) -> aiohttp.ClientResponse:
            return await self._http.request(
                method,
                _url(access.server + path),
                params=params,
                data=body,
                headers={**headers, **access.auth_headers},
                ssl=access.tls or True,
                server_hostname=access.server_name,
                proxy=access.proxy,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=idle),
            )

        access = await self._keeper.current()
        answer = await send(access)
        if answer.status == _UNAUTHORIZED and (renewed := await self._keeper.current(refused=access)) is not access:
            answer.release()
            answer = await send(renewed)
        try:
            yield answer
        finally:
            # One that is given up: closing alone would wait for the other side's TLS close for half a minute.
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()
            answer.close()

    def _observe_date(self, answer: aiohttp.ClientResponse, sent: float) -> None:
        """Compare the clocks. An error's Date may be a proxy's, and after the first one two answers have to agree."""
        with contextlib.suppress(ValueError, OverflowError):
            moment = _parsed_date(answer.headers.get("Date", "") if answer.status in _OK else "")
            # In UTC without a zone, as HTTP wants it; cut to whole seconds, and maybe of long before it is read.
            date, read = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp(), self.monotonic()
            earliest, latest, by_wall = date - read, date + 1.0 - sent, self._wall() - read
            self.skew = by_wall - min(max(by_wall, earliest), latest)
            self._metrics.clock_skew.set(self.skew)
            (first, last), self._epochs = self._epochs, (earliest, latest)
            wrong = self._epoch - min(max(self._epoch, min(first, earliest)), max(last, latest))
            self._epoch -= wrong if abs(wrong) > MOST_SKEW_SECONDS else 0.0


def _check_status(request: str, answer: aiohttp.ClientResponse, content: bytes) -> None:
    """Raises the ApiStatusError of an answer outside 2xx."""
    if answer.status not in _OK:
        retry_after = answer.headers.get("Retry-After", "")
        raise error_from_answer(answer.status, content, request=request, retry_after=retry_after)


async def _lines(request: str, answer: aiohttp.ClientResponse, idle: float) -> AsyncGenerator[bytes, None]:
    """Lines as they arrive, without their ends."""
    while True:
        try:
            with _translated(request, f"silent for {idle:g} s"):
                line = await answer.content.readline(max_line_length=LARGEST_ANSWER)
        except LineTooLong:
            raise TooLarge(f"{request}: a line is longer than {LARGEST_ANSWER >> 20} MiB") from None
        if not line:
            return
        if not line.endswith(b"\n"):
            raise Unreachable(f"{request}: the answer was cut off in the middle of a line")
        yield line[:-1]


@contextlib.contextmanager
def _translated(request: str, late: str) -> Iterator[None]:
    """Translates errors of the transport into KubeErrors."""
    try:
        yield
    except KubeError:
        raise
    except TimeoutError as error:
        raise TimedOut(f"{request}: {late}", public=late) from without_frames(error)
    except AnswerTooLarge as error:
        raise TooLarge(f"{request}: {error}") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unreachable(f"{request}: {error_text(error)}") from without_frames(error)
