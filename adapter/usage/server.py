"""One Prometheus server over HTTP: credentials from files, TLS, deadlines, limits, and errors of this room."""

import asyncio
import base64
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from adapter.settings import PrometheusServer
from adapter.usage.errors import SourceUnreachable, UsageError, WrongAnswer
from adapter.usage.wire import refusal

AT_ONCE = 8
"""Queries under way at a time, for each server."""
LARGEST_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer, unpacked."""

_OK = range(200, 300)

_Stamp = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class _Access:
    stamp: _Stamp
    headers: Mapping[str, str]
    tls: ssl.SSLContext | bool


class Server:
    """Asks one server. Must be made where an event loop runs; `settings` are those of one server."""

    def __init__(self, settings: PrometheusServer) -> None:
        self.settings = settings
        self.turn = asyncio.Semaphore(AT_ONCE)
        self._url = settings.url.rstrip("/") + "/api/v1/query"
        self._access: _Access | None = None
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=AT_ONCE),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Only what is always there to unpack with: aiohttp would offer more where more is installed.
            headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
        )

    async def query(self, text: str, *, max_age: float, at: float | None = None) -> bytes:
        """The answer to an instant query, as it came; `at` is its moment (default: the server's own now), in seconds.

        Instant selectors find no sample older than `max_age` seconds. Raises UsageError.
        """
        form = {"query": text, "lookback_delta": f"{max_age:.3f}", "timeout": f"{self.settings.timeout_seconds:.3f}"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        with _translated(self.settings.timeout_seconds):
            async with asyncio.timeout(self.settings.timeout_seconds):
                self._access = await asyncio.to_thread(_access, self.settings, self._access)
                return await self._ask(form, self._access)

    async def _ask(self, form: Mapping[str, str], access: _Access) -> bytes:
        request = self._http.post(self._url, data=form, headers=access.headers, ssl=access.tls, allow_redirects=False)
        async with request as response:
            body = await _body(response)
            if response.status not in _OK:
                raise refusal(response.status, body)
            return body

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


async def _body(response: aiohttp.ClientResponse) -> bytes:
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > LARGEST_ANSWER:
            raise WrongAnswer(f"the answer is larger than {LARGEST_ANSWER >> 20} MiB; aggregate it, or ask for less")
        chunks.append(chunk)
    return b"".join(chunks)


@contextmanager
def _translated(timeout: float) -> Iterator[None]:
    """Turns what the transport raises into errors of this room."""
    try:
        yield
    except UsageError:
        raise
    except TimeoutError as error:
        raise SourceUnreachable(f"no answer within {timeout:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise SourceUnreachable(str(error) or type(error).__name__) from error


def _access(settings: PrometheusServer, known: _Access | None) -> _Access:
    """Credentials and TLS from their files, read again where one has changed. Reads files: not for the event loop."""
    files = [settings.basic_auth.password_file] if settings.basic_auth else []
    files += filter(None, (settings.bearer_token_file, settings.ca_file))
    try:
        stamp = tuple(_stamp(file) for file in files)
        if known is not None and known.stamp == stamp:
            return known
        return _Access(stamp, {**settings.headers, **_authorization(settings)}, _tls(settings))
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise SourceUnreachable(f"credentials: cannot use{where}: {error.strerror or error}") from error


def _stamp(file: str) -> tuple[int, ...]:
    status = os.stat(file)  # noqa: PTH116  as short as Path's, and follows a Secret's symlinks just so
    return status.st_ino, status.st_mtime_ns, status.st_size


def _authorization(settings: PrometheusServer) -> dict[str, str]:
    if settings.basic_auth:
        pair = f"{settings.basic_auth.username}:{_secret(settings.basic_auth.password_file)}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    if settings.bearer_token_file:
        return {"Authorization": f"Bearer {_secret(settings.bearer_token_file)}"}
    return {}


def _secret(file: str) -> str:
    return Path(file).read_text(encoding="utf-8").strip()


def _tls(settings: PrometheusServer) -> ssl.SSLContext | bool:
    if not settings.url.startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the CAs of managed clouds lack key identifiers
    if settings.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
