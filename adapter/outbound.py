"""HTTP to servers that are not this cluster's API server: credentials from files, TLS, deadlines, limits.

OutboundError               no usable answer; its text is a sentence for people
├── Unreachable             connection, TLS, deadline, files with credentials that cannot be read
└── TooLarge                the answer is larger than allowed
"""

# ruff: noqa: N818 - an error is called what happened

import asyncio
import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from adapter.connector import Connector, words

AT_ONCE = 8
"""Requests under way at a time, for each client."""
LARGEST_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer, unpacked."""

_Stamp = tuple[tuple[int, ...], ...]


class OutboundError(Exception):
    """Base of what can go wrong on the way to another server and back."""


class Unreachable(OutboundError):
    """The server gave no answer, or not all of it."""


class TooLarge(OutboundError):
    """The answer is larger than allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to prove who asks, and whom to believe. Files are read again when they change; empty: not used.

    `secret_headers` are header names with the files that hold their values. `ca` is the PEM text of CAs, instead of
    `ca_file`.
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


class Reply(NamedTuple):
    """An answer of whatever status; `headers` are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Opened:
    stamp: _Stamp
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None


class Client:
    """Sends requests with the credentials of one access. Must be made where an event loop runs.

    `timeout` is the usual deadline of a request, in seconds; `at_once` bounds the connections.
    """

    def __init__(
        self, access: Access, *, timeout: float, at_once: int = AT_ONCE, largest: int = LARGEST_ANSWER
    ) -> None:
        self._access = access
        self._timeout = timeout
        self._largest = largest
        self._opened: _Opened | None = None
        self._http = aiohttp.ClientSession(
            connector=Connector(limit=at_once),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Only what is always there to unpack with: aiohttp would offer more where more is installed.
            headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
        )

    async def send(
        self,
        method: str,
        url: str,
        *,
        deadline: float | None = None,
        headers: Mapping[str, str] | None = None,
        **content: Any,
    ) -> Reply:
        """Send a request and read the whole answer; redirects are not followed. Raises OutboundError.

        `content` goes to aiohttp as it is: `params`, `data`, `json`. `deadline` (seconds) covers all of it.
        """
        seconds = self._timeout if deadline is None else deadline
        try:
            async with asyncio.timeout(seconds):
                opened = await self._credentials(secure=url.startswith("https:"))
                request = self._http.request(
                    method,
                    url,
                    headers={**opened.headers, **(headers or {})},
                    ssl=opened.tls or True,
                    allow_redirects=False,
                    **content,
                )
                async with request as response:
                    return Reply(response.status, response.headers, await self._body(response))
        except TimeoutError as error:
            raise Unreachable(f"no answer within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(words(error)) from error

    async def _credentials(self, *, secure: bool) -> _Opened:
        known = self._opened
        if known is None or known.stamp or (secure and known.tls is None):
            self._opened = known = await asyncio.to_thread(_open, self._access, known, secure)
        return known

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > self._largest:
                raise TooLarge(f"the answer is larger than {self._largest >> 20} MiB; aggregate it, or ask for less")
            chunks.append(chunk)
        return b"".join(chunks)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def tls_context(access: Access) -> ssl.SSLContext:
    """The TLS context of an access. Reads files. Raises OSError (ssl.SSLError among them)."""
    context = ssl.create_default_context(cafile=access.ca_file or None, cadata=access.ca or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the CAs of managed clouds lack key identifiers
    if access.cert_file:
        context.load_cert_chain(access.cert_file, access.key_file or None)
    if access.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def secret(file: str) -> str:
    """A secret from its file, without the white space around it. Raises OSError."""
    return Path(file).read_text(encoding="utf-8").strip()


def _open(access: Access, known: _Opened | None, secure: bool) -> _Opened:
    """Credentials and TLS from their files, read again where one has changed. Reads files: not for the event loop."""
    files = (access.password_file, access.bearer_token_file, access.ca_file, access.cert_file, access.key_file)
    try:
        stamp = tuple(_stamp(file) for file in (*files, *access.secret_headers.values()) if file)
        if known is not None and known.stamp == stamp and (known.tls is not None or not secure):
            return known
        return _Opened(stamp, credentials(access), tls_context(access) if secure else None)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise Unreachable(f"credentials: cannot use{where}: {error.strerror or error}") from error


def _stamp(file: str) -> tuple[int, ...]:
    status = os.stat(file)  # noqa: PTH116  as short as Path's, and follows a Secret's symlinks just so
    return status.st_ino, status.st_mtime_ns, status.st_size


def credentials(access: Access) -> dict[str, str]:
    """The request headers of an access. Reads files. Raises OSError."""
    headers = dict(access.headers)
    if access.username:
        pair = f"{access.username}:{secret(access.password_file) if access.password_file else ''}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif access.bearer_token_file:
        headers["Authorization"] = f"Bearer {secret(access.bearer_token_file)}"
    for name, file in access.secret_headers.items():
        headers[name] = secret(file)
    return headers
