"""A real Prometheus on loopback, and exporters whose series a test sets."""

import http.server
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from lab.harness import binaries
from lab.harness.client import fetch
from lab.harness.processes import LocalServer, free_ports
from lab.harness.workloads import until

LOOPBACK = "127.0.0.1"


class QuietServer(http.server.ThreadingHTTPServer):
    """A server whose clients may be killed: what they leave undone is no news."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing."""


class HttpThread:
    """An HTTP server in a thread of this process, from its creation until it is closed."""

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> None:
        self._server = QuietServer((LOOPBACK, 0), handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class Page:
    """Exactly the series that a test sets."""

    def __init__(self) -> None:
        self.write: Callable[[], str] = str

    def set(self, series: Mapping[str, float | str]) -> None:
        """Replaces all series: {'rps{namespace="a",pod="b"}': 12}; values may be text ("NaN", with a timestamp)."""
        self.set_text("".join(f"{name} {value}\n" for name, value in series.items()))

    def set_text(self, text: str) -> None:
        """Replaces the whole page by this text."""
        self.set_page(lambda: text)

    def set_page(self, write: Callable[[], str]) -> None:
        """Replaces the whole page by what this function writes at each scrape."""
        self.write = write

    def pods(self, metric: str, namespace: str, values: Mapping[str, float | str]) -> None:
        """Sets one series a pod, with the labels of Prometheus' Kubernetes discovery."""
        self.set({f'{metric}{{namespace="{namespace}",pod="{pod}"}}': value for pod, value in values.items()})


class Exporter(Page, HttpThread):
    """A /metrics page on loopback, and the pages of tests that share it."""

    def __init__(self) -> None:
        Page.__init__(self)
        self.parts: list[Page] = []
        self.failing = False
        """If True, scrapes get status 500: the series go stale, as when a target is down."""
        self.scrapes = 0
        HttpThread.__init__(self, self._handler())

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        exporter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                failing = exporter.failing  # who counts a scrape may change it next
                exporter.scrapes += 1
                body = "".join(page.write() for page in (exporter, *exporter.parts)).encode()
                self.send_response(500 if failing else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
                """Drops the access log: one line a second."""

        return Handler


class Prometheus(LocalServer):
    """A Prometheus that scrapes exporters every second; a restart keeps its port and its data.

    with Exporter() as exporter, Prometheus([exporter]) as prometheus:
        exporter.set({'rps{namespace="shop",pod="a"}': 120})
        prometheus.wait_value('rps{pod="a"}', 120)
    """

    name = "prometheus"

    def __init__(
        self,
        exporters: Sequence[Exporter] = (),
        *,
        interval: str = "1s",
        config: Mapping[str, Any] | None = None,
        scrape: Mapping[str, Any] | None = None,
        web_config: Mapping[str, Any] | None = None,
        flags: Mapping[str, str] | None = None,
        announce: Callable[[str], None] = binaries.print_to_stderr,
    ) -> None:
        """`config` is merged over the configuration, `scrape` over that of its scrapes; `web_config` sets users or TLS,
        `flags` have no dashes.
        """
        self.exporters, self.announce = list(exporters), announce
        targets = {"job_name": "tests", "static_configs": [{"targets": [one.address for one in exporters]}]}
        everywhere = {"scrape_interval": interval, "scrape_timeout": interval}
        self.config = {
            "global": everywhere,
            "scrape_configs": [targets | dict(scrape or {})] if exporters else [],
            **(config or {}),
        }
        self.web_config, self.flags = web_config, dict(flags or {})
        [self.port] = free_ports(1)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def command(self) -> list[str | Path]:
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(self.config))
        flags = {
            "config.file": str(self.folder / "prometheus.yml"),
            "storage.tsdb.path": str(self.folder / "data"),
            "web.listen-address": f"{LOOPBACK}:{self.port}",
            "log.level": "warn",
            "scrape.discovery-reload-interval": "100ms",  # the default is 5 s, also at the start
            **self.flags,
        }
        if self.web_config is not None:
            flags["web.config.file"] = str(self.folder / "web.yml")
            (self.folder / "web.yml").write_text(yaml.safe_dump(dict(self.web_config)))
        program = binaries.ensure("prometheus", announce=self.announce)["prometheus"]
        return [program, "--storage.tsdb.no-lockfile", *(f"--{name}={value}" for name, value in flags.items())]

    def is_ready(self) -> bool:
        if self.web_config is None:
            return fetch(self.port, "/-/ready").status == 200
        # With users or TLS of its own any answer counts: 401 shows that it listens.
        with socket.create_connection((LOOPBACK, self.port), timeout=2):
            return True

    def pause(self) -> None:
        """Ends the server cleanly; data and port stay for `resume`."""
        self.component.stop()

    def query(self, expression: str, *, at: float | None = None) -> list[dict[str, Any]]:
        """The result of an instant query, now or `at` (in seconds): [{"metric": {...}, "value": [time, "12"]}, …]."""
        return self._result("query", {"query": expression} | ({} if at is None else {"time": at}))

    def query_range(self, expression: str, begin: float, end: float, step: float) -> list[dict[str, Any]]:
        """The result of a range query (seconds): [{"metric": {...}, "values": [[time, "12"], …]}, …]."""
        return self._result("query_range", {"query": expression, "start": begin, "end": end, "step": step})

    def wait_value(self, expression: str, value: float, timeout: float = 40) -> None:
        """Waits until the expression returns at least one series, all with this value."""

        def holds() -> bool:
            result = self.query(expression)
            return bool(result) and all(float(one["value"][1]) == value for one in result)

        until(holds, timeout, lambda: f"{expression} is not {value}: {self.query(expression)}", 0.1)

    def _result(self, kind: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        answer = fetch(self.port, f"/api/v1/{kind}?{urllib.parse.urlencode(parameters)}")
        if answer.status != 200:
            raise RuntimeError(f"{parameters['query']}: {answer.json().get('error', answer.text)}")
        return list(answer.json()["data"]["result"])
