"""The metrics of the Prometheus scene as a process of its own: a page for each namespace, new values at each scrape.

`python -m lab.benchmarks.prometheus_page PORT SERVICES PODS NAMESPACES`; the pages are `/metrics?namespace=NAME`.

Each pod has a counter `http_requests_total` and a gauge `http_requests_in_flight`. Each service has a gauge
`sample_time_seconds`, the moment its page was written: an adapter that is asked for it returns the age of its samples.
"""

import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lab.benchmarks import scene

WAVE, PERIOD = 0.04, 600.0
"""The load of a service swings by this share, in this many seconds: within the tolerance of an HPA."""
UNEVEN = 0.02
"""The pods of a service differ by this share."""
IN_FLIGHT_SECONDS = 0.2
"""Requests under way for each request a second."""


def requests_per_second(service: scene.Service) -> float:
    """The middle of the load of one pod."""
    return service.milli / 10


def _phase(service: scene.Service) -> float:
    return int(service.name[-4:]) / 17 * math.tau


def _swing(service: scene.Service, at: float) -> float:
    return 1 + WAVE * math.sin(math.tau * at / PERIOD + _phase(service))


def _sum_of_swings(service: scene.Service, since: float, at: float) -> float:
    """The integral of `_swing`."""
    first, last = (math.cos(math.tau * moment / PERIOD + _phase(service)) for moment in (since, at))
    return at - since - WAVE * PERIOD / math.tau * (last - first)


class Page:
    """The text of one namespace; everything but the values is made once."""

    def __init__(self, services: list[scene.Service], began: float) -> None:
        self._began = began
        self._services = [(service, *_names(service)) for service in services]

    def text(self, at: float) -> bytes:
        lines: list[str] = []
        for service, own, pods in self._services:
            load = requests_per_second(service)
            so_far, now = load * _sum_of_swings(service, self._began, at), load * _swing(service, at)
            lines.append(f"{own} {at:.3f}\n")
            for index, (counter, gauge) in enumerate(pods):
                share = 1 + UNEVEN * (index % 3 - 1)
                lines.append(f"{counter} {so_far * share:.1f}\n{gauge} {now * share * IN_FLIGHT_SECONDS:.2f}\n")
        return "".join(lines).encode()


def _names(service: scene.Service) -> tuple[str, list[tuple[str, str]]]:
    labels = f'namespace="{service.namespace}",service="{service.name}"'
    places = [f'{labels},pod="{pod}",container="app"' for pod in service.pod_names]
    pods = [(f"http_requests_total{{{place}}}", f"http_requests_in_flight{{{place}}}") for place in places]
    return f"sample_time_seconds{{{labels}}}", pods


def _pages(services: list[scene.Service]) -> Iterator[tuple[str, Page]]:
    by_namespace: dict[str, list[scene.Service]] = defaultdict(list)
    for service in services:
        by_namespace[service.namespace].append(service)
    began = time.time()
    for namespace, own in by_namespace.items():
        yield namespace, Page(own, began)


def serve(port: int, services: list[scene.Service]) -> None:
    """Serves the pages until it is ended; an unknown namespace is answered 404."""
    pages = dict(_pages(services))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            namespaces = parse_qs(urlsplit(self.path).query).get("namespace", [""])
            page = pages.get(namespaces[0])
            body = page.text(time.time()) if page else b""
            self.send_response(200 if page else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            """Drops the access log."""

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    _port, *_counts = map(int, sys.argv[1:])
    _policies, _pods, _namespaces = _counts
    serve(_port, scene.services(_policies, _policies * _pods, _namespaces))
