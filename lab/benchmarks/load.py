"""The load generator, a separate process: keep-alive TLS connections, each with one request under way at a time.

Reads a plan (JSON) from standard input, and writes a line of JSON: the latencies, the duration (both in seconds) and
the number of refused requests; or `error`.

Requests are due at even intervals, and a latency counts from the moment its request was due: a server that stalls is
charged for all waiting requests.
"""

import json
import os
import select
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

_PATIENCE = 10.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A load plan. `requests` are (target, text that the answer must contain); `rate` is a second's."""

    port: int
    certificate: str
    key: str
    headers: list[tuple[str, str]]
    requests: list[tuple[str, str]]
    connections: int
    seconds: float
    rate: float
    tolerant: bool = False
    """Whether status 503 is accepted; such answers are counted."""

    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class WrongAnswerError(Exception):
    """The answer's status is not 200, or its text is not the expected one."""


class Asker:
    """One keep-alive connection."""

    def __init__(self, plan: Plan, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("127.0.0.1", plan.port), timeout=_PATIENCE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain)
        self.began = 0.0
        self.expected = b""
        self.received = b""
        self.tolerant = plan.tolerant
        self.refused = 0

    def fileno(self) -> int:
        return self.socket.fileno()

    def ask(self, request: bytes, expected: bytes, due: float) -> None:
        self.began, self.expected, self.received = due, expected, b""
        self.socket.sendall(request)

    def answered(self) -> bool:
        """Reads available bytes; returns whether the answer is complete."""
        chunk = self.socket.recv(65536)
        if not chunk:
            raise WrongAnswerError("the server closed the connection")
        self.received += chunk
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if not separator:
            return False
        at = head.find(b"Content-Length: ")
        length = int(head[at + 16 :].split(b"\r", 1)[0])
        if len(body) < length:
            return False
        if self.tolerant and head.startswith(b"HTTP/1.1 503"):
            self.refused += 1
            print(f"503: {body[:400]!r}", file=sys.stderr, flush=True)
        elif not head.startswith(b"HTTP/1.1 200") or self.expected not in body:
            raise WrongAnswerError(f"{head[:40]!r} {body[:400]!r}, expected {self.expected!r}")
        return True


def run(plan: Plan) -> dict[str, Any]:
    """Runs a plan; returns what is written."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(plan.certificate, plan.key)
    askers = [Asker(plan, context) for _ in range(plan.connections)]
    questions = cycle([(_request(plan, target), expected.encode()) for target, expected in plan.requests])
    began = time.monotonic()
    latencies = list(_paced(plan, askers, questions))
    seconds = time.monotonic() - began
    return {"latencies": latencies, "seconds": seconds, "refused": sum(asker.refused for asker in askers)}


def _request(plan: Plan, target: str) -> bytes:
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in plan.headers), "", ""]
    return "\r\n".join(lines).encode()


def _paced(plan: Plan, askers: list[Asker], questions: Iterator[tuple[bytes, bytes]]) -> Iterator[float]:
    clock = time.monotonic
    start = clock()
    total = int(plan.rate * plan.seconds)
    # Connections take turns: a Go server closes one that sends nothing for half a minute.
    idle, busy, sent = deque(askers), set[Asker](), 0
    while sent < total or busy:
        now = clock()
        while sent < total and idle and start + sent / plan.rate <= now:
            asker = idle.popleft()
            asker.ask(*next(questions), start + sent / plan.rate)
            busy.add(asker)
            sent += 1
        wait = start + sent / plan.rate - clock() if sent < total and idle else _PATIENCE
        if not busy:
            time.sleep(max(0.0, wait))
            continue
        ready, _, _ = select.select(busy, (), (), max(0.0, wait))
        for asker in ready:
            if asker.answered():
                yield clock() - asker.began
                busy.discard(asker)
                idle.append(asker)


def main() -> None:
    plan = Plan(**json.load(sys.stdin))
    with suppress(PermissionError):  # a load generator that waits for a processor measures its own wait
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        report = run(plan)
    except WrongAnswerError as error:
        report = {"error": str(error)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
