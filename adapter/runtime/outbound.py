"""HTTP to servers other than this cluster's API server: credentials from files, TLS, deadlines, limits."""

import asyncio
import base64
import contextlib
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import aiohttp
from yarl import URL

from adapter.runtime.answer_budget import ANSWERS, MIB, AnswerBudget, Body, Limit, discard_body, read_body
from adapter.runtime.source_errors import SourceUnreachable, connection_fault

AT_ONCE = 8
"""Requests under way at a time, for each client."""
LARGEST_ANSWER = 32 * MIB
"""Bytes of an answer, unpacked, where the settings say nothing else."""
LARGEST_SECRET = 16 * 1024
"""Bytes of a file with a secret: servers take no longer header."""
UNREADABLE_CREDENTIALS = "the adapter's credentials for it cannot be read"

_Stamp = tuple[tuple[int, ...], ...]

_TURNS = 10
"""Passes of the event loop in which a transport notices its closed socket and releases it."""
_TLS = re.compile(r" ssl:(<[^>]*>|\w+)")
"""The TLS part of aiohttp's errors: a flag, or the address of an object, which differs each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Credentials and TLS of a client. Files are read again when they change; empty: not used.

    `secret_headers` and `header_files` map header names to the files with their values: headers of the protocol, and
    those under `headerFiles` in the settings. `ca` is the PEM text of CAs, instead of `ca_file`.
    """

    username: str = ""
    password_file: str = ""
    bearer_token_file: str = ""
    ca_file: str = ""
    ca: str = field(default="", repr=False)
    cert_file: str = ""
    key_file: str = ""
    insecure_skip_verify: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    header_files: Mapping[str, str] = field(default_factory=dict)


class Reply(NamedTuple):
    """An answer of any status; `headers` are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class SegmentedReply(NamedTuple):
    """An answer with its body in segments."""

    status: int
    headers: Mapping[str, str]
    body: Body

    @property
    def plain(self) -> Reply:
        """The same in one piece, for small bodies and refusals."""
        return Reply(self.status, self.headers, self.body.whole())


@dataclass(frozen=True, slots=True)
class _Opened:
    stamp: _Stamp
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None


class Client:
    """Sends requests with the credentials of one access. Must be made where an event loop runs.

    `timeout` is the default deadline of a request, in seconds; `at_once` limits the connections (0: any number),
    `limit` each answer. Large answers are read when `budget` has room for one of this `source`.
    """

    def __init__(
        self,
        access: Access,
        *,
        timeout: float,
        source: str = "",
        at_once: int = AT_ONCE,
        limit: Limit = Limit(LARGEST_ANSWER),  # noqa: B008  it cannot be changed
        budget: AnswerBudget = ANSWERS,
    ) -> None:
        self._access = access
        self._timeout = timeout
        self._source = source or f"client {id(self)}"
        self._limit = limit
        self._budget = budget
        self._opened: _Opened | None = None
        self._http = aiohttp.ClientSession(
            connector=Connector(limit=at_once),
            cookie_jar=aiohttp.DummyCookieJar(),
            # What can always be unpacked: aiohttp would offer more where more packages are installed.
            headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
        )

    @contextlib.asynccontextmanager
    async def answer(
        self,
        method: str,
        url: str | URL,
        *,
        deadline: float | None = None,
        headers: Mapping[str, str] | None = None,
        keep: bool = True,
        **content: Any,
    ) -> AsyncIterator[SegmentedReply]:
        """Send a request and read the whole answer, which the budget counts until this context ends.

        `content` goes to aiohttp as it is: `params`, `data`, `json`. `deadline` (seconds) covers all of it; redirects
        are not followed. Without `keep` the body is discarded, and empty. Raises SourceUnreachable and AnswerTooLarge.
        """
        seconds = deadline or self._timeout
        async with self._budget.reserve(self._source) as reservation:
            try:
                async with asyncio.timeout(seconds):
                    opened, secure = self._opened, str(url).startswith("https:")
                    if opened is None or opened.stamp or (secure and opened.tls is None):
                        self._opened = opened = await asyncio.to_thread(_open, self._access, opened, secure)
                    content |= {"ssl": opened.tls or True, "headers": {**opened.headers, **(headers or {})}}
                    async with self._http.request(method, url, allow_redirects=False, **content) as response:
                        body = Body()
                        if keep:
                            body = await read_body(response, self._limit, reservation)
                        else:
                            await discard_body(response, self._limit)
            except TimeoutError as error:
                raise SourceUnreachable(reservation.late(seconds), public="timed out") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise SourceUnreachable(error_text(error), public=connection_fault(error)) from error
            yield SegmentedReply(response.status, response.headers, body)

    async def send(self, method: str, url: str | URL, **request: Any) -> Reply:
        """As `answer`, for answers that are small."""
        async with self.answer(method, url, **request) as reply:
            return reply.plain

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def tls_context(access: Access) -> ssl.SSLContext:
    """The TLS context of an access. Reads files. Raises OSError (ssl.SSLError among them)."""
    context = ssl.create_default_context(cafile=access.ca_file or None, cadata=access.ca or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # CAs of managed clouds lack key identifiers
    if access.cert_file:
        context.load_cert_chain(access.cert_file, access.key_file or None)
    if access.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def secret(file: str) -> str:
    """The secret in a file, without surrounding white space. Raises OSError, and ValueError where it is too large."""
    with Path(file).open("rb") as opened:
        content = opened.read(LARGEST_SECRET + 1)
    if len(content) > LARGEST_SECRET:
        raise ValueError(f"{file} is larger than {LARGEST_SECRET >> 10} KiB; write the value alone into it")
    return content.decode().strip()


def _open(access: Access, opened: _Opened | None, secure: bool) -> _Opened:
    """Credentials and TLS from their files, read again where one has changed. Reads files: not for the event loop."""
    files = (access.password_file, access.bearer_token_file, access.ca_file, access.cert_file, access.key_file)
    values = (*access.secret_headers.values(), *access.header_files.values())
    try:
        # As short as Path's, and follows a Secret's symlinks just so.
        states = [os.stat(file) for file in (*files, *values) if file]  # noqa: PTH116
        stamp = tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)
        if opened is not None and opened.stamp == stamp and (opened.tls is not None or not secure):
            return opened
        return _Opened(stamp, credentials(access), tls_context(access) if secure else None)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise _unusable(f"cannot use{where}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _unusable("a file with a secret is no UTF-8 text") from error
    except ValueError as error:
        raise _unusable(str(error)) from error


def _unusable(why: str) -> SourceUnreachable:
    return SourceUnreachable(f"credentials: {why}", public=UNREADABLE_CREDENTIALS)


def credentials(access: Access) -> dict[str, str]:
    """The request headers of an access. Reads files. Raises OSError, and ValueError for an unusable value."""
    headers = dict(access.headers)
    if access.username:
        pair = f"{access.username}:{secret(access.password_file) if access.password_file else ''}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif access.bearer_token_file:
        headers["Authorization"] = f"Bearer {secret(access.bearer_token_file)}"
    for name, file in access.secret_headers.items():
        headers[name] = secret(file)
    for name, file in access.header_files.items():
        where = f"headerFiles, {name}"
        try:
            headers[name] = value = secret(file)
        except OSError as error:
            raise ValueError(f"{where}: cannot use {file}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: {file} is no UTF-8 text; write the value alone into it") from error
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if not value or not value.isascii() or not value.isprintable():
            # The value is not shown: it may be a secret.
            fault = "is empty" if not value else "holds more than one line of printable ASCII characters"
            raise ValueError(f"{where}: {file} {fault}; write the header's value alone into it")
    return headers


def error_text(error: Exception) -> str:
    """The text of a connection's error, equal for equal errors; never empty."""
    return _TLS.sub("", str(error)) or type(error).__name__


class Connector(aiohttp.TCPConnector):
    """Connections to other servers, at most `limit` at a time (0: any number).

    `close` also ends connections of abandoned requests. aiohttp closes such a connection and forgets it, but TLS then
    waits half a minute for the close of the other side.
    """

    def __init__(self, *, limit: int) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()
        super().__init__(limit=limit, socket_factory=self._socket)

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        connection = socket.socket(*address[:3])
        self._sockets.add(connection)
        return connection

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Closes all connections now."""
        await super().close(abort_ssl=abort_ssl)
        for open_socket in self._open():
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS):
            if not self._open():
                return
            await asyncio.sleep(0)

    def _open(self) -> list[socket.socket]:
        return [each for each in self._sockets if each.fileno() >= 0]
