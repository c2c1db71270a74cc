"""What can go wrong between this process and the API server.

KubeError                       anything a caller of this room may see
├── CredentialsError            no usable credentials: kubeconfig, exec plugin, token file
├── Unreachable                 no answer, or one cut off: connection, TLS
│   └── TimedOut                no answer, or no further byte of it, within the time given
├── MalformedAnswer             an answer that is not what the API promises
│   └── TooLarge                an answer, or one line of it, that is larger than any should be
├── ScaleUnread                 a target's replica count is not known at this moment
├── UnknownKind                 discovery knows no such kind, or it has no scale subresource
├── UnsafePath                  a value that cannot be a segment of a path; nothing was asked
└── ApiStatusError              an answer outside 2xx: code, reason, message of its metav1.Status
    ├── BadRequest              400
    ├── Unauthorized            401
    ├── Forbidden               403
    ├── NotFound                404
    ├── Conflict                409  (reason AlreadyExists too)
    ├── Gone                    410  (reasons Gone and Expired: the resourceVersion or the continue token is too old)
    ├── Invalid                 422
    ├── TooManyRequests         429
    └── ServerError             5xx
"""

# ruff: noqa: N818 - the errors bear the API's own names for them

import re

import msgspec

from adapter.runtime.decoding import decode
from adapter.runtime.source_errors import SourceError, without_user

_SHOWN = 300
_REASON = re.compile(r"[A-Za-z]{1,64}", re.ASCII)


class KubeError(SourceError):
    """Base of all errors of this room; its text is one sentence for operators, `public` one for everybody."""


class CredentialsError(KubeError):
    """There are no usable credentials; the text names where they were looked for, never the secret."""

    summary = "the adapter has no usable credentials for the API server"


class Unreachable(KubeError):
    """The API server gave no answer, or not all of it."""

    summary = "the API server cannot be reached"


class TimedOut(Unreachable):
    """The API server did not answer in time, or fell silent in the middle of an answer."""

    summary = "no answer in time"


class MalformedAnswer(KubeError):
    """The answer is not what the API promises."""

    summary = "the answer is not what the API promises"


class TooLarge(MalformedAnswer):
    """The answer is larger than any should be."""

    summary = "the answer is larger than its limit"


class ScaleUnread(KubeError):
    """The replica count of a target can neither be read nor is a watched one recent enough."""


class UnknownKind(KubeError):
    """The API server serves no such kind, or the kind cannot be scaled. The sentence is this program's own."""

    @property
    def public(self) -> str:
        """The sentence."""
        return str(self)


class UnsafePath(KubeError):
    """A value that was to become a segment of a path cannot be one."""


class ApiStatusError(KubeError):
    """The API server refused: HTTP code, reason and message of its Status, seconds it asks to wait (None: does not)."""

    def __init__(
        self, code: int, reason: str, message: str, *, request: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__()
        self.code = code
        self.reason = reason
        self.message = without_user(message)
        self.request = request
        self.retry_after = retry_after

    @property
    def public(self) -> str:
        """Code and reason: the message may be another server's, and name addresses."""
        return f"{self.code} {self.reason}" if _REASON.fullmatch(self.reason) else f"HTTP {self.code}"

    def __str__(self) -> str:
        asked = f"{self.request}: " if self.request else ""
        return f"{asked}{self.code} {self.reason}: {self.message}"


class BadRequest(ApiStatusError):
    """400."""


class Unauthorized(ApiStatusError):
    """401: the API server does not know who we are."""


class Forbidden(ApiStatusError):
    """403: it knows, and says no."""


class NotFound(ApiStatusError):
    """404."""


class Conflict(ApiStatusError):
    """409: somebody else was faster."""


class Gone(ApiStatusError):
    """410: the state asked for is no longer kept."""


class Invalid(ApiStatusError):
    """422: the object breaks its schema."""


class TooManyRequests(ApiStatusError):
    """429."""


class ServerError(ApiStatusError):
    """5xx."""


_BY_CODE: dict[int, type[ApiStatusError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class _Status(msgspec.Struct):
    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""


def error_from_answer(
    code: int, body: bytes | msgspec.Raw, *, request: str = "", retry_after: str = ""
) -> ApiStatusError:
    """The error for an answer outside 2xx; a body that is no Status is quoted. `retry_after` is the header."""
    try:
        status = decode(body, _Status)
    except msgspec.MsgspecError:
        status = _Status()
    if status.kind != "Status":
        status = _Status(message=bytes(body)[:_SHOWN].decode(errors="replace").strip())
    return _build(status.code or code, status, request, _seconds(retry_after))


def _build(code: int, status: _Status, request: str, retry_after: float | None) -> ApiStatusError:
    kind = _BY_CODE.get(code, ServerError if code >= 500 else ApiStatusError)
    message = status.message[:_SHOWN] or "no message"
    return kind(code, status.reason or kind.__name__, message, request=request, retry_after=retry_after)


def _seconds(header: str) -> float | None:
    return float(header) if header.isascii() and header.isdigit() else None
