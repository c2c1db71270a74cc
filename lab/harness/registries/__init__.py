"""Real service registries; tests start and stop their processes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.harness.client import fetch, tls_context
from lab.harness.processes import LocalServer

LOOPBACK = "127.0.0.1"


class HttpServer(LocalServer):
    """A registry with an HTTP API of JSON, over TLS where `tls` names certificate, key and CA as PEM files."""

    port: int
    prefix = ""
    """What the path of each request begins with."""
    tls: tuple[Path, Path, Path] | None = None
    mutual = False
    """Whether clients need a certificate."""

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def url(self) -> str:
        """The URL of its API, with the prefix."""
        return f"{self.scheme}://{LOOPBACK}:{self.port}{self.prefix}"

    def headers(self) -> Mapping[str, str]:
        """What each request needs: the credentials of a user with all rights."""
        return {}

    def call(self, method: str, path: str, content: object = None) -> Any:
        """The API's answer. Raises RuntimeError for an error status."""
        status, body = self.request(method, path, content)
        if status not in {200, 204}:
            raise RuntimeError(f"{self.name}: {method} {path}: HTTP {status}: {body.decode(errors='replace')}")
        return json.loads(body) if body.strip() else None

    def request(
        self, method: str, path: str, content: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Sends any request, by default with the credentials of a user with all rights; returns status and body."""
        sent = {"Accept": "application/json", "Content-Type": "application/json"}
        sent |= self.headers() if headers is None else headers
        body = None if content is None else json.dumps(content).encode()
        tls = tls_context(self.tls[2], *(self.tls[:2] if self.mutual else ())) if self.tls else None
        answer = fetch(self.port, self.prefix + path, sent, method=method, body=body, tls=tls)
        return answer.status, answer.body
