"""Errors that are answered as a Kubernetes `Status`, with a message the reader can act on."""

from functools import partial
from http import HTTPStatus

import msgspec


class ServingError(Exception):
    """Root of this room's errors: StatusError and CertificateError."""


class CertificateError(ServingError):
    """A certificate, key or CA cannot be used; the message says which and why."""


REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    409: "Conflict", 410: "Gone", 413: "RequestEntityTooLarge", 414: "RequestURITooLong", 422: "Invalid",
    429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
    505: "HTTPVersionNotSupported", 508: "LoopDetected",
}  # fmt: skip
"""The reason that belongs to a code. No other code is answered: codes are labels of a metric."""


class StatusError(ServingError):
    """An error answer, with the reason of its code where none is given.

    `kind`, `group` and `name` are the Status's details, if known.
    """

    def __init__(
        self, code: int, message: str, *, reason: str = "", kind: str = "", group: str = "", name: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason or REASONS[code]
        self.message = message
        self.details = {key: text for key, text in (("name", name), ("group", group), ("kind", kind)) if text}


bad_request = partial(StatusError, HTTPStatus.BAD_REQUEST)
unauthorized = partial(StatusError, HTTPStatus.UNAUTHORIZED)
not_found = partial(StatusError, HTTPStatus.NOT_FOUND)
not_allowed = partial(StatusError, HTTPStatus.METHOD_NOT_ALLOWED)
unavailable = partial(StatusError, HTTPStatus.SERVICE_UNAVAILABLE)


def encode_status(error: StatusError) -> bytes:
    """The Status as JSON, never with `retryAfterSeconds`: client-go would retry inside the HPA controller."""
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": error.message,
            "reason": error.reason,
            "details": {**error.details, "causes": [{"reason": error.reason, "message": error.message}]},
            "code": int(error.code),
        }
    )
