"""What this room needs of the API server's client (`adapter.kube.session.Session`), and nothing more."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol

from adapter.kube.api import JSON


class Response(Protocol):
    """A successful answer."""

    @property
    def body(self) -> bytes: ...


class Registries(Protocol):
    """Where the word of platforms goes that tell which pods serve."""

    async def push(
        self, registry: str, service: str, namespace: str, group: str, document: bytes
    ) -> tuple[HTTPStatus, str] | None:
        """Take a platform's word about one service; where it is not taken, the status and the sentence to answer."""
        ...


class Api(Protocol):
    """Talks to the API server. Every method raises KubeError for an answer outside 2xx and for none at all."""

    def now(self) -> float:
        """The API server's time, epoch seconds."""
        ...

    async def get(self, path: str, *, timeout: float) -> bytes:  # noqa: ASYNC109 - the session's own deadline
        """The body of a GET."""
        ...

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
        timeout: float,  # noqa: ASYNC109 - the session's own deadline
    ) -> Response:
        """Any request."""
        ...
