"""Policies, and a Prometheus of which a test writes the past."""

import http.server
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import TracebackType
from typing import Any, Self

from adapter.commands.replay.history.queries import RangeQuery
from adapter.load.spec import Metric, Policy, Query, ResourceMetric
from adapter.policy.hpa import CrossVersionReference
from adapter.settings import PrometheusServer
from lab.harness.prometheus import QuietServer

WEB = CrossVersionReference("apps/v1", "Deployment", "web")
Answer = Callable[[str, range], Mapping[int, str] | None]
"""From the query and the moments (milliseconds) to the values; None: the server fails."""


def policy(*metrics: Metric, name: str = "web") -> Policy:
    return Policy(namespace="shop", name=name, hpa=name, metrics=metrics or (cpu(),))


def cpu(**more: Any) -> Metric:
    return Metric(name="cpu", resource=ResourceMetric(name="cpu", **more), high=Fraction(10**9))


def named(query: str) -> Metric:
    return Metric(name=query, query=Query(name=query), high=Fraction(10**9))


def query(text: str, url: str = "http://127.0.0.1:1") -> RangeQuery:
    return RangeQuery(name="cpu", server=PrometheusServer(name="main", url=url), text=text)


class FakePrometheus:
    """Answers range queries with one series, of the values that `answer` gives; `asked` are the queries so far."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, list[tuple[str, range]]()
        self._server = QuietServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def respond(self, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        start, end, step = (round(float(form[key][0]) * 1000) for key in ("start", "end", "step"))
        moments = range(start, end + 1, step)
        self.asked.append((form["query"][0], moments))
        values = self.answer(form["query"][0], moments)
        if values is None:
            return 503, {"status": "error", "errorType": "unavailable", "error": "the store is loading"}
        points = [[at / 1000, value] for at, value in values.items()]
        result = [{"metric": {}, "values": points}] if points else []
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                status, answer = fake.respond(form)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
                """Drops the access log."""

        return Handler


def always(value: str) -> Answer:
    return lambda _, moments: dict.fromkeys(moments, value)


def exposition(series: str, points: Iterable[tuple[float, float]]) -> str:
    """Samples of the past, as an exporter may show them: a line each, with its time."""
    return "".join(f"{series} {value!r} {round(at * 1000)}\n" for at, value in points)
