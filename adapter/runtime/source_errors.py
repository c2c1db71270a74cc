"""The errors of load sources, registries and the API server: one tree, each error with two texts.

`str(error)` is for the log, `effective-load check` and readers of `/readyz`: it may name addresses and settings,
and quote the server. `error.public` is for a policy's status, Events, notifications and answers of the metrics API: it
names the kind of fault alone, and is written by this program, never by the server.
"""

# ruff: noqa: N818 - an error is named after what happened

import re
import socket
import ssl
from collections.abc import Iterator
from typing import Self

_USER = re.compile(r"(?<=//)[^\s/?#@]*(?:@[^\s/?#@]*)*@")


class SourceError(Exception):
    """Base of all errors of sources. `reason` is the label value that metrics count an error by.

    `summary`: the public sentence of a kind of error; `public` replaces it for one error.
    """

    reason = "error"
    summary = "failed"

    def __init__(self, text: str = "", *, public: str = "") -> None:
        super().__init__(without_user(text))
        self._public = public

    @property
    def public(self) -> str:
        """The sentence for everybody: no addresses, and no text of the server."""
        return self._public or self.summary

    def with_context(self, place: str, advice: str = "") -> Self:
        """A copy of the error with the place before its text and advice after it."""
        return type(self)(f"{place}: {self}{advice and f'; {advice}'}", public=self._public)


class SourceUnreachable(SourceError):
    """No answer, or not all of it: connection, TLS, deadline, files with credentials."""

    reason, summary = "unreachable", "cannot be reached"


class SourceFailing(SourceError):
    """The source reports trouble of its own (no leader, 5xx, 429), or a partial answer."""

    reason, summary = "failing", "is in trouble itself"


class NotAuthenticated(SourceError):
    """The source rejects the credentials: wrong or expired password, token, signature."""

    reason, summary = "unauthenticated", "does not accept the adapter's credentials"


class NotAllowed(SourceError):
    """The credentials are valid and lack the right to this answer."""

    reason, summary = "forbidden", "does not let the adapter read this service"


class QueryRejected(SourceError):
    """The source refuses this question: status error, 4xx, a redirect."""

    reason, summary = "rejected", "the query is rejected"


class UnknownService(SourceError):
    """The registry answers, and has no service of that name."""

    reason, summary = "unknown", "knows no such service; check its name, namespace and group"


class WrongAnswer(SourceError):
    """An answer that breaks the protocol: no JSON, another shape."""

    reason, summary = "malformed", "the answer is not what is expected"


class AnswerTooLarge(WrongAnswer):
    """An answer larger than its source's limit."""

    summary = "the answer is larger than its limit"


def without_user(text: str) -> str:
    """The text without user and password in its URLs."""
    return _USER.sub("", text) if "@" in text else text


def connection_fault(error: BaseException) -> str:
    """The public name of a connection fault; empty for an unusual one."""
    return next((name for each in _causes(error) for kind, name in _FAULTS.items() if isinstance(each, kind)), "")


def without_frames(error: BaseException) -> BaseException:
    """The error and its causes without tracebacks, so that they are freed at once.

    aiohttp's refer to themselves through their frames: 12 KB for each refused connection until the next full garbage
    collection, 60 MiB for a registry of 500 services that is down.
    """
    for each in _causes(error):
        each.__traceback__ = None
    return error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = getattr(error, "os_error", None) or error.__cause__ or error.__context__


_FAULTS: dict[type[BaseException], str] = {
    ssl.SSLCertVerificationError: "its certificate is not trusted",
    ssl.SSLError: "TLS failed",
    ConnectionRefusedError: "connection refused",
    ConnectionResetError: "the connection was cut off",
    socket.gaierror: "its name cannot be resolved",
    TimeoutError: "timed out",
}
