"""HTTP requests to load sources, registries and upstream adapters: credentials from files, TLS, deadlines, limits."""

import asyncio
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from yarl import URL

from adapter.runtime.source_errors import AnswerTooLarge, SourceUnreachable, connection_fault, without_frames

MIB = 1024 * 1024
LARGEST_ANSWER = 32 * MIB
"""Bytes of an answer, unpacked, where the settings say nothing else."""
AT_ONCE = 8
"""Connections of a client."""

_TLS = re.compile(r" ssl:(<[^>]*>|\w+)")
"""The TLS part of aiohttp's errors: a flag, or the address of an object, which differs each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Credentials and TLS of a client. Files are read again when they change; empty: not used.

    `header_files` map header names to the files with their values. `ca` is the PEM text of CAs, instead of `ca_file`.
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
    header_files: Mapping[str, str] = field(default_factory=dict)


class Reply(NamedTuple):
    """An answer of any status; `headers` are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Opened(NamedTuple):
    """The content of an access's files; `tls` only where it was asked for."""

    stamp: tuple[tuple[int, int, int], ...]
    """Inode, time and size of each file."""
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None


class Client:
    """Sends requests with the credentials of one access. Must be made where an event loop runs.

    `timeout` is the default deadline of a request, in seconds. `max_bytes` limits each answer, after unpacking;
    `limit_name` is the settings key of that limit, for the error. `at_once` limits the connections (0: any number).
    """

    look_seconds = 1.0
    """How often it looks whether its files changed: 500 services polled each 2 s are 250 requests a second, and a look
    in a thread costs as much as a small answer. Services refuse an old token meanwhile, and are asked again."""

    def __init__(
        self,
        access: Access,
        *,
        timeout: float,
        max_bytes: int = LARGEST_ANSWER,
        at_once: int = AT_ONCE,
        limit_name: str = "",
    ) -> None:
        self._access, self._timeout, self._max_bytes, self._limit_name = access, timeout, max_bytes, limit_name
        self._opened: Opened | None = None
        self._look_at = 0.0
        """When to look for changed files (the loop's time)."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=at_once),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            # Encodings that can always be unpacked: aiohttp offers more where more packages are installed.
            headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
        )

    async def send(
        self,
        method: str,
        url: str | URL,
        *,
        deadline: float | None = None,
        headers: Mapping[str, str] | None = None,
        **content: Any,
    ) -> Reply:
        """The whole answer to a request. Redirects are not followed.

        `deadline` (seconds) covers everything from reading files to the last byte. `content` goes to aiohttp as it is:
        `params`, `data`, `json`. Raises SourceUnreachable and AnswerTooLarge.
        """
        seconds = deadline or self._timeout
        try:
            async with asyncio.timeout(seconds):
                opened = await self._open(secure=(url := URL(url)).scheme == "https")
                async with self._http.request(
                    method,
                    url,
                    allow_redirects=False,
                    ssl=opened.tls or True,
                    headers={**opened.headers, **headers} if headers else opened.headers,
                    **content,
                ) as answer:
                    body = await read_body(answer, self._max_bytes, self._limit_name)
                    return Reply(answer.status, answer.headers, body)
        except TimeoutError as error:
            raise SourceUnreachable(f"no answer within {seconds:g} s", public="timed out") from without_frames(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise SourceUnreachable(error_text(error), public=connection_fault(error)) from without_frames(error)
        except RuntimeError as error:
            if not self._http.closed:
                raise
            raise SourceUnreachable("the client is closed", public="closed") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()
        await asyncio.sleep(0.01)  # those of requests given up while they connect are not aiohttp's, and end later

    async def _open(self, *, secure: bool) -> Opened:
        """The credentials, read again in a thread where a file has changed."""
        opened, now = self._opened, asyncio.get_running_loop().time()
        if opened is None or (opened.stamp and now >= self._look_at) or (secure and opened.tls is None):
            self._opened = opened = await asyncio.to_thread(open_access, self._access, opened, secure)
            self._look_at = now + self.look_seconds
        return opened


async def read_body(answer: aiohttp.ClientResponse, max_bytes: int, limit_name: str = "") -> bytes:
    """The whole body, unpacked. Raises AnswerTooLarge as soon as more than `max_bytes` have arrived."""
    chunks, size = [], 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > max_bytes:
            advice = f"; ask for less, or raise {limit_name}" if limit_name else ""
            raise AnswerTooLarge(f"the answer is larger than {max_bytes / MIB:g} MiB{advice}")
        chunks.append(chunk)
    return b"".join(chunks)


def open_access(access: Access, opened: Opened | None, secure: bool) -> Opened:
    """Headers and TLS (if `secure`) from the files of an access; `opened` itself where no file has changed.

    Reads files. Raises SourceUnreachable.
    """
    files = (access.password_file, access.bearer_token_file, access.ca_file, access.cert_file, access.key_file)
    try:
        states = [os.stat(file) for file in (*files, *access.header_files.values()) if file]  # noqa: PTH116  follows a Secret's symlinks
        stamp = tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)
        if opened is not None and opened.stamp == stamp and (opened.tls is not None or not secure):
            return opened
        return Opened(stamp, credentials(access), tls_context(access) if secure else None)
    except (OSError, ValueError) as error:
        why = str(error)
        if isinstance(error, OSError):
            why = f"cannot use {error.filename or 'its files'}: {error.strerror or error}"
        raise SourceUnreachable(f"credentials: {why}", public="cannot read the adapter's credentials for it") from error


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
    """The secret in a file, without surrounding white space. Raises OSError, and ValueError for what is no secret."""
    text = Path(file).read_bytes().strip().decode(errors="replace")
    if not text or not text.isprintable() or "\ufffd" in text:
        raise ValueError(f"{file} is empty, or not one line of text; write the value alone into it")  # without it
    return text


def credentials(access: Access) -> dict[str, str]:
    """The request headers of an access. Reads files. Raises OSError, and ValueError for an unusable value."""
    headers = dict(access.headers)
    if access.username:
        password = secret(access.password_file) if access.password_file else ""
        headers["Authorization"] = aiohttp.encode_basic_auth(access.username, password)
    elif access.bearer_token_file:
        headers["Authorization"] = f"Bearer {secret(access.bearer_token_file)}"
    headers |= {name: secret(file) for name, file in access.header_files.items()}
    return headers


def error_text(error: Exception) -> str:
    """The text of a connection's error, equal for equal errors; never empty."""
    return _TLS.sub("", str(error)) or type(error).__name__
