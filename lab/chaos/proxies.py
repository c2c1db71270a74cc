"""What stands between the adapter and the servers it reads, so that a test can cut, slow and falsify what passes."""

import contextlib
import http
import http.server
import json
import random
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.harness.client import Client, fetch
from lab.harness.prometheus import HttpThread

LOOPBACK = "127.0.0.1"
_CHUNK = 65536

Falsify = Callable[[str, Any], Any]
"""Changes an answer: (the request with its query decoded, the decoded JSON) to the JSON that is sent, or a status."""


class TcpProxy(AbstractContextManager["TcpProxy"]):
    """Passes connections on to one port. Bytes are not looked at, so TLS passes.

    `silence` stops what passes through the open connections, as a firewall that forgets them does: neither side hears
    of it, and new connections work. `delayed` is the share of chunks that wait `seconds`.
    """

    def __init__(self, port: int, seed: int = 0) -> None:
        self._target = port
        self._random = random.Random(seed)
        self.delayed, self.seconds = 0.0, 3.0
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._silent: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        """Passes nothing more through the connections that are open now."""
        with self._lock:
            self._silent |= {end for pair in self._pairs for end in pair}

    def reset(self) -> None:
        """Ends the silent connections."""
        with self._lock:
            ended, self._silent = self._silent, set()
        for end in ended:
            _end(end)

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                _end(end)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, self._target), timeout=5)
            except OSError:
                _end(client)
                continue
            server.settimeout(None)
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._pass, args=(source, sink, pair), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if source in self._silent:
                    continue
                if self.delayed and self._random.random() < self.delayed:
                    time.sleep(self.seconds)
                sink.sendall(chunk)
        if source in self._silent:  # the other side hears nothing of this end either
            return
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            _end(end)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


_TIME = re.compile(r"[\n?&]time=([0-9.]+)")


class FalsifyingProxy(HttpThread):
    """An HTTP server that answers what another one does; `falsify` changes the JSON, `slow` waits that many seconds.

    A request for a moment (`time=`, seconds) is changed as requests were at that moment: the values of one lie never
    come with the times of another, which no single server does.
    """

    def __init__(
        self, forward: Callable[[str, str, bytes, str], tuple[int, bytes]], tls: ssl.SSLContext | None
    ) -> None:
        """`forward` is given method, path, body and content type, and returns status and body."""
        self._forward = forward
        self._lies: list[tuple[float, Falsify | None]] = [(0.0, None)]
        """Each `falsify`, with the time since when (seconds)."""
        self.slow = 0.0
        super().__init__(self._handler(), tls)

    @property
    def falsify(self) -> Falsify | None:
        return self._lies[-1][1]

    @falsify.setter
    def falsify(self, lie: Falsify | None) -> None:
        self._lies.append((time.time(), lie))

    def answer(self, method: str, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        """The other server's answer, changed."""
        asked = urllib.parse.unquote_plus(f"{path}\n{body.decode()}")
        named = _TIME.search(asked)
        moment = float(named[1]) if named else time.time()
        if self.slow:
            time.sleep(self.slow)
        try:
            status, found = self._forward(method, path, body, content_type)
        except OSError as error:
            return 502, str(error).encode()
        falsify = next(lie for since, lie in reversed(self._lies) if since <= moment)
        if falsify is None or status != http.HTTPStatus.OK:
            return status, found
        false = falsify(asked, json.loads(found))
        return (false, b"no") if isinstance(false, http.HTTPStatus) else (status, json.dumps(false).encode())

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, found = proxy.answer(self.command, self.path, body, self.headers.get("Content-Type") or "")
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(found)))
                    self.end_headers()
                    self.wfile.write(found)

            def do_GET(self) -> None:
                self._serve()

            def do_POST(self) -> None:
                self._serve()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
                """Drops the access log."""

        return Handler


def before_prometheus(port: int) -> FalsifyingProxy:
    """A proxy before a Prometheus on loopback."""

    def forward(method: str, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        answer = fetch(port, path, method=method, body=body or None, headers={"Content-Type": content_type})
        return answer.status, answer.body

    return FalsifyingProxy(forward, None)


def before_metrics_server(server: Client, certificate: Path, key: Path) -> FalsifyingProxy:
    """A proxy before metrics-server; `server` asks it as the aggregator does."""

    def forward(method: str, path: str, _body: bytes, _type: str) -> tuple[int, bytes]:
        answer = server.raw(path, method=method, timeout=10)
        return answer.status, answer.body

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return FalsifyingProxy(forward, context)
