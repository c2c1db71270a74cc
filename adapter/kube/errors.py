"""Errors of requests to the API server: KubeError, and below it one class for each kind of trouble and of refusal."""

# ruff: noqa: N818 - the errors have the API's own names

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from adapter.kube.objects import Status
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import SourceError, without_user

T = TypeVar("T")

_STATUS = Decoder(Status)
_LONGEST_MESSAGE = 300
_REASON = re.compile(r"[A-Za-z]{1,64}", re.ASCII)


class KubeError(SourceError):
    """Base of all errors of this package; its text is a sentence for operators, `public` one for any client."""


class CredentialsError(KubeError):
    """There are no usable credentials; the text names their source, never the secret."""

    reason, summary = "credentials", "the adapter has no usable credentials for the API server"


class Unreachable(KubeError):
    """The API server gave no answer, or an incomplete one."""

    reason, summary = "unreachable", "the API server cannot be reached"


class TimedOut(Unreachable):
    """The API server did not answer in time, or fell silent in the middle of an answer."""

    reason, summary = "silent", "no answer in time"


class MalformedAnswer(KubeError):
    """The answer is not what the API promises."""

    reason, summary = "malformed", "the answer is not what the API promises"


class TooLarge(MalformedAnswer):
    """The answer is over its limit."""

    summary = "the answer is larger than its limit"


class UnknownKind(KubeError):
    """The API server serves no such kind, or the kind cannot be scaled."""

    @property
    def public(self) -> str:
        """The whole sentence: it is this program's own."""
        return str(self)


class ApiStatusError(KubeError):
    """A refusal: HTTP code, reason and message of its Status, and Retry-After in seconds (None: not given)."""

    def __init__(
        self, code: int, reason: str, message: str, *, request: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__()
        self.code, self.reason, self.message = code, reason, without_user(message)
        self.request, self.retry_after = request, retry_after

    @property
    def public(self) -> str:
        """Code and reason: the message may be another server's, and name addresses."""
        return f"{self.code} {self.reason}" if _REASON.fullmatch(self.reason) else f"HTTP {self.code}"

    def __str__(self) -> str:
        return f"{f'{self.request}: ' if self.request else ''}{self.code} {self.reason}: {self.message}"


class Unauthorized(ApiStatusError):
    """401: the API server does not accept the credentials."""


class Forbidden(ApiStatusError):
    """403: the account lacks the right."""


class NotFound(ApiStatusError):
    """404."""


class Conflict(ApiStatusError):
    """409: the object changed in between, or exists already."""


class Gone(ApiStatusError):
    """410: the requested version is no longer stored."""


class ServerError(ApiStatusError):
    """5xx."""


_BY_CODE = {401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone}


def decode_answer(decode: Callable[[bytes | msgspec.Raw], T], body: bytes | msgspec.Raw, what: str) -> T:
    """The decoded answer. Raises MalformedAnswer, which names what it is of."""
    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"{what}: {error}") from error


def error_from_answer(
    code: int, body: bytes | msgspec.Raw, *, request: str = "", retry_after: str = ""
) -> ApiStatusError:
    """The error for an answer outside 2xx; a body that is no Status is quoted. `retry_after` is the header."""
    try:
        status = _STATUS.decode(body)
    except msgspec.MsgspecError:
        status = Status()
    if status.kind != "Status":
        status = Status(message=bytes(body)[:_LONGEST_MESSAGE].decode(errors="replace").strip())
    code = status.code or code
    kind = _BY_CODE.get(code, ServerError if code >= 500 else ApiStatusError)
    reason = status.reason or ("Unknown" if kind is ApiStatusError else kind.__name__)
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    message = status.message[:_LONGEST_MESSAGE] or "no message"
    return kind(code, reason, message, request=request, retry_after=seconds)
