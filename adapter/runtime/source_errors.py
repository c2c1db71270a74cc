"""What can go wrong with another server, said twice: in full for operators, and in short for everybody else.

`str(error)` is for the log, for `effective-load check` and for those who may read `/readyz`: it may name addresses and
settings, and quote what the server said. `error.public` is for policies' status, Events, notifications and answers of
the metrics API: it names the kind of fault alone, and is written by this program, never by the server.
"""

import re
from typing import Self

_USER = re.compile(r"(?<=//)[^\s/?#@]*(?:@[^\s/?#@]*)*@")


class SourceError(Exception):
    """Base of the errors of sources, registries and the API server.

    `summary`: the public sentence of a kind of error; `public` replaces it for one error.
    """

    summary = "failed"

    def __init__(self, text: str = "", *, public: str = "") -> None:
        super().__init__(without_user(text))
        self._public = public

    @property
    def public(self) -> str:
        """What went wrong, without addresses and without a word of the server's."""
        return self._public or self.summary

    def at(self, place: str, advice: str = "") -> Self:
        """The same error, with the place before its text and advice behind it."""
        return type(self)(f"{place}: {self}{advice and f'; {advice}'}", public=self._public)


def without_user(text: str) -> str:
    """A text without the user and password of the URLs in it."""
    return _USER.sub("", text) if "@" in text else text


def connection_fault(error: BaseException) -> str:
    """The public name of what went wrong on a connection; empty where it is none of the usual."""
    chain: BaseException | None = error
    while chain is not None:
        for kind, name in _FAULTS:
            if isinstance(chain, kind):
                return name
        chain = getattr(chain, "os_error", None) or chain.__cause__
    return ""


def _faults() -> tuple[tuple[type[BaseException], str], ...]:
    import socket
    import ssl

    return (
        (ssl.SSLCertVerificationError, "its certificate is not trusted"),
        (ssl.SSLError, "TLS failed"),
        (ConnectionRefusedError, "connection refused"),
        (ConnectionResetError, "the connection was cut off"),
        (socket.gaierror, "its name cannot be resolved"),
        (TimeoutError, "timed out"),
    )


_FAULTS = _faults()
