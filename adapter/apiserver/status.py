"""Errors that are answered as a Kubernetes `Status`, with a message the reader can act on."""

from http import HTTPStatus

import msgspec


class ServingError(Exception):
    """Root of this room's errors.

    ServingError
    ├── StatusError                an error answer: code, reason, message
    └── CertificateError           a certificate, key or CA cannot be used
    """


class StatusError(ServingError):
    """An error answer. `kind`, `group` and `name` are the Status's details, if known."""

    def __init__(
        self, code: int, reason: str, message: str, *, kind: str = "", group: str = "", name: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.kind = kind
        self.group = group
        self.name = name


class CertificateError(ServingError):
    """A certificate, key or CA cannot be used; the message says which and why."""


def bad_request(message: str) -> StatusError:
    return StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> StatusError:
    """401."""
    return StatusError(HTTPStatus.UNAUTHORIZED, "Unauthorized", message)


def not_found(message: str, *, kind: str = "", group: str = "", name: str = "") -> StatusError:
    return StatusError(HTTPStatus.NOT_FOUND, "NotFound", message, kind=kind, group=group, name=name)


def unavailable(message: str) -> StatusError:
    return StatusError(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)


def too_many(message: str) -> StatusError:
    """429, like all answers without `Retry-After`."""
    return StatusError(HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests", message)


def not_allowed(message: str) -> StatusError:
    return StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message)


def entity_too_large(message: str) -> StatusError:
    return StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)


def too_long(message: str) -> StatusError:
    return StatusError(HTTPStatus.REQUEST_URI_TOO_LONG, "RequestURITooLong", message)


def head_too_large(message: str) -> StatusError:
    return StatusError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "RequestHeaderFieldsTooLarge", message)


def not_acceptable() -> StatusError:
    return StatusError(HTTPStatus.NOT_ACCEPTABLE, "NotAcceptable", "only application/json is served")


def internal(message: str) -> StatusError:
    return StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", f"Internal error occurred: {message}")


class _Cause(msgspec.Struct, omit_defaults=True):
    reason: str
    message: str


class _Details(msgspec.Struct, omit_defaults=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    causes: list[_Cause] = msgspec.field(default_factory=list)


class _Status(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    metadata: dict[str, str]
    status: str
    message: str
    reason: str
    details: _Details
    code: int


_encode = msgspec.json.Encoder().encode


def encode_status(error: StatusError) -> bytes:
    """The Status as JSON, never with `retryAfterSeconds`: client-go would retry inside the HPA controller."""
    cause = _Cause(reason=error.reason, message=error.message)
    details = _Details(name=error.name, group=error.group, kind=error.kind, causes=[cause])
    status = _Status("Status", "v1", {}, "Failure", error.message, error.reason, details, int(error.code))
    return _encode(status)
