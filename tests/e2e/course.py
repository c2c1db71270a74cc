"""Records replica counts and readings of a metric with their times, for tests of the delay between them."""

import http.client
import http.server
import json
import re
import socket
import threading
import time
import urllib.parse
from contextlib import suppress
from typing import Any, Self

from lab.harness.prometheus import LOOPBACK, HttpThread
from lab.harness.workloads import Workloads, until


class Numbers(HttpThread):
    """A server that answers PromQL for `queue` with the test's numbers, and records when it first returned each one.

    It reads the workload's name from the query: sum(queue{namespace="shop", workload="web"}).
    """

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self.read: dict[tuple[str, float], float] = {}
        """Monotonic seconds at which a workload's number was first returned."""
        super().__init__(self._handler())

    def set(self, workload: str, value: float) -> float:
        """Sets the workload's number, which counts as not read yet; returns the time."""
        self.read.pop((workload, value), None)
        self._values[workload] = value
        return time.monotonic()

    def settings(self, interval: float = 1) -> dict[str, Any]:
        """Settings with this server and the query `queue`."""
        query = {
            "name": "queue",
            "server": "numbers",
            "query": 'sum(queue{namespace="$namespace", workload="$workload"})',
            "scope": "Service",
            "intervalSeconds": interval,
            "maxAgeSeconds": 60,
        }
        return {
            "prometheus": {
                "servers": [{"name": "numbers", "url": f"http://{LOOPBACK}:{self.port}"}],
                "queries": [query],
            }
        }

    def _answer(self, form: str) -> tuple[bytes, tuple[str, float] | None]:
        (expression,) = urllib.parse.parse_qs(form)["query"]
        named = re.search(r'workload="([^"]+)"', expression)
        now, given = time.time(), None
        result: list[dict[str, Any]] = []
        if named and (value := self._values.get(named[1])) is not None:
            result, given = [{"metric": {}, "value": [now, str(value)]}], (named[1], value)
            # The same question asks for the times of the samples that the query reads.
            for label, mark in re.findall(r'"(\w+)", "(time[0-9]+)", "", ""', expression):
                result.append({"metric": {label: mark}, "value": [now, str(now)]})
        data = {"resultType": "vector", "result": result}
        return json.dumps({"status": "success", "data": data}).encode(), given

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        numbers = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body, given = numbers._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                if given is not None:
                    numbers.read.setdefault(given, time.monotonic())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
                """Drops the access log: one line a second and workload."""

        return Handler


class Course:
    """Watches the Deployments of a namespace: records every count of each, with its time (monotonic seconds)."""

    def __init__(self, workloads: Workloads) -> None:
        self._client = client = workloads.client
        self._path = path = f"/apis/apps/v1/namespaces/{workloads.namespace}/deployments"
        found = client.get(path)
        self.steps: dict[str, list[tuple[float, int]]] = {
            one["metadata"]["name"]: [(time.monotonic(), one["spec"]["replicas"])] for one in found["items"]
        }
        self._connection = http.client.HTTPSConnection(client.host, client.port, context=client.context)
        self._version = int(found["metadata"]["resourceVersion"])
        self._connection.request("GET", f"{path}?watch=1&resourceVersion={self._version}", headers=client.headers)
        self._answer = self._connection.getresponse()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def counts(self, name: str) -> list[int]:
        """The counts of a Deployment in order, up to the one that it has now."""
        now = int(self._client.get(f"{self._path}/{name}")["metadata"]["resourceVersion"])
        until(lambda: self._version >= now, 10, lambda: f"the watch is at {self._version}, not at {now}", 0.01)
        return [count for _, count in self.steps[name]]

    def reached(self, name: str, count: int) -> float | None:
        """The time of that count's first occurrence, or None."""
        return next((at for at, seen in self.steps[name] if seen == count), None)

    def close(self) -> None:
        """Ends the watch."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)  # or the thread reads on
            self._connection.sock.close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self) -> None:
        with suppress(OSError, ValueError, http.client.HTTPException, AttributeError):  # closed
            for line in self._answer:
                at, event = time.monotonic(), json.loads(line)
                name, count = event["object"]["metadata"]["name"], event["object"]["spec"]["replicas"]
                known = self.steps.setdefault(name, [])
                if not known or known[-1][1] != count:
                    known.append((at, count))
                self._version = int(event["object"]["metadata"]["resourceVersion"])
