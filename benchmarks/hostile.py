"""Attacks on the adapter's port by clients without credentials, in a process of its own, for a limited time.

`python -m benchmarks.hostile KIND PORT SECONDS CONNECTIONS` ends by itself and prints the number of
completed attacks.
"""

import itertools
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

_PATIENCE = 2.0
_POLICY = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/watermarkpolicies.effective-load.io"
_FIELDS = b"".join(b"a%d:b\r\n" % index for index in range(1900))
_START = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"

Connection = ssl.SSLSocket
Connect = Callable[[], Connection]
Attack = Iterator[int]


def connector(port: int) -> Connect:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def connect() -> Connection:
        plain = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
        try:
            return context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise

    return connect


def requests(connect: Connect, request: Callable[[], bytes]) -> Attack:
    """One request after the other, on a new connection whenever the server has closed the last one."""
    connection: Connection | None = None
    while True:
        try:
            connection = connection or connect()
            connection.sendall(request())
            head = connection.recv(65536)
        except OSError:
            head = b""
        if not head or b"Connection: close" in head:
            if connection is not None:
                connection.close()
            connection = None
        yield 1


def unfinished(connect: Connect, lines: bytes) -> Attack:
    """Heads that do not end: as many bytes as the server takes, then silence until it closes the connection."""
    while True:
        with suppress(OSError), connect() as connection:
            connection.sendall(_START)
            for first in range(0, len(lines), 16384):
                connection.sendall(lines[first : first + 16384])
                yield 0
            yield 1
            connection.settimeout(0.01)
            while True:
                with suppress(TimeoutError):
                    if not connection.recv(65536):
                        break
                yield 0
        yield 0


def slow(connect: Connect) -> Attack:
    """Heads sent at one byte a second."""
    while True:
        with suppress(OSError), connect() as connection:
            connection.sendall(_START)
            while True:
                connection.sendall(b"a")
                due = time.monotonic() + 1
                yield 1
                while time.monotonic() < due:
                    time.sleep(0.01)
                    yield 0
        yield 0


def handshakes(connect: Connect) -> Attack:
    """TLS handshakes without requests."""
    while True:
        with suppress(OSError):
            connect().close()
        yield 1


def idle(connect: Connect) -> Attack:
    """An idle connection; a new one whenever the server closes it."""
    while True:
        with suppress(OSError), connect() as connection:
            yield 1
            connection.settimeout(0.0)
            while True:
                time.sleep(0.001)
                with suppress(ssl.SSLWantReadError):
                    if not connection.recv(1):
                        break
                yield 0
        yield 0


def _selectors(length: int) -> Callable[[], bytes]:
    """Requests with a selector of many values, different each time, so that no cache helps."""
    numbers = itertools.count(os.getpid() * 1_000_000)
    values = ",".join(f"value-{index}" for index in range(length // 12))

    def request() -> bytes:
        selector = f"app%20in%20(v{next(numbers)},{values})"
        return f"GET {_POLICY}/%2A/effective_cpu?labelSelector={selector} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    return request


def _lines(number: int) -> bytes:
    return b"".join(b"x%d: %s\r\n" % (index, b"y" * 60_000) for index in range(number))


ATTACKS: dict[str, Callable[[Connect], Attack]] = {
    "selectors": lambda connect: requests(connect, _selectors(60 * 1024)),
    "fields": lambda connect: requests(connect, lambda: _START + _FIELDS + b"\r\n"),
    "pipeline": lambda connect: requests(connect, lambda: 500 * (_START + b"\r\n")),
    "heads": lambda connect: unfinished(connect, _lines(4)),
    "endless": lambda connect: unfinished(connect, _lines(32)),
    "tiny-heads": lambda connect: unfinished(connect, _FIELDS),
    "slow": slow,
    "handshakes": handshakes,
    "idle": idle,
}


def run(kind: str, port: int, seconds: float, connections: int) -> int:
    """Runs all connections in turn until the time is over; returns the number of completed attacks."""
    attack, connect = ATTACKS[kind], connector(port)
    end = time.monotonic() + seconds
    attacks = [attack(connect) for _ in range(connections)]
    done = 0
    while time.monotonic() < end:
        for one in attacks:
            done += next(one)
            if time.monotonic() >= end:
                break
    return done


def main() -> None:
    kind, port, seconds, connections = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 19)
    print(run(kind, port, seconds, connections), flush=True)


if __name__ == "__main__":
    main()
