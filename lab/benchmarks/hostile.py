"""Attacks on loopback, in a process of its own, for a limited time.

`python -m lab.benchmarks.hostile KIND PORT SECONDS CONNECTIONS [CERTIFICATE KEY NAMESPACE]` ends by itself and prints
the number of completed attacks. Strangers attack the adapter's port; a tenant, who has a certificate for the API
server, lists the pods of a namespace there.
"""

import itertools
import os
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

_PATIENCE = 2.0
_LIST_SECONDS = 30.0
_LINGER = struct.pack("ii", 1, 0)
"""Closing such a socket resets its connection."""

Connection = ssl.SSLSocket
Connect = Callable[[], Connection]
Attack = Iterator[int]


def connector(port: int, certificate: str = "", key: str = "", *, is_small: bool = False) -> Connect:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["http/1.1"])

    def connect() -> Connection:
        plain = small(port) if is_small else socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
        try:
            return context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise

    return connect


def handshakes(connect: Connect) -> Attack:
    """TLS handshakes without requests."""
    while True:
        with suppress(OSError):
            connect().close()
        yield 1


def records(connect: Connect) -> Attack:
    """As many records as the server takes: in TLS 1.3 a client may send before its missing certificate is refused."""
    while True:
        with suppress(OSError), connect() as connection:
            while True:
                connection.sendall(bytes(16384))
                yield 1
        yield 0


def lists(connect: Connect, request: bytes) -> Attack:
    """A list after the other, each read whole."""
    while True:
        with suppress(OSError), connect() as wire:
            wire.settimeout(_LIST_SECONDS)
            wire.sendall(request)
            while wire.recv(1 << 16):
                yield 0
        yield 1


def held(connect: Callable[[], socket.socket], request: bytes = b"") -> Attack:
    """A connection, with a request whose answer is not read, or none; a new one whenever the server ends it."""
    while True:
        with suppress(OSError), connect() as wire:
            wire.sendall(request)
            yield 1
            ended = select.poll()
            ended.register(wire, select.POLLRDHUP)
            while not ended.poll(1):
                yield 0
        yield 0


def small(port: int) -> socket.socket:
    """A plain connection whose kernel keeps little of what is not read."""
    wire = socket.socket()
    wire.settimeout(_PATIENCE)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.connect(("127.0.0.1", port))
    return wire


def aborts(port: int, sent: bytes, addresses: int = 200) -> Attack:
    """Plain connections that are reset at once, from so many addresses in turn."""
    for number in itertools.cycle(range(addresses)):
        with suppress(OSError), socket.socket() as wire:
            wire.settimeout(_PATIENCE)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
            wire.bind((f"127.0.9.{number + 1}", 0))
            wire.connect(("127.0.0.1", port))
            wire.sendall(sent)
        yield 1


def attack(kind: str, port: int, certificate: str = "", key: str = "", namespace: str = "") -> Attack:
    """One connection of an attack."""
    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/*/effective_cpu"
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    match kind:
        case "aborts":
            return aborts(port, b"")
        case "aborts1":
            return aborts(port, b"", addresses=1)
        case "begun":
            return aborts(port, b"\x16\x03\x01")
        case "handshakes":
            return handshakes(connector(port))
        case "records":
            return records(connector(port))
        case "idle":
            return held(connector(port))
        case "silent":
            return held(lambda: socket.create_connection(("127.0.0.1", port), _PATIENCE))
        case "lists":
            return lists(connector(port, certificate, key), request)
        case "unread":
            return held(connector(port, certificate, key, is_small=True), request)
        case "scrapes":
            return held(lambda: small(port), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    raise ValueError(kind)


def run(kind: str, port: int, seconds: float, connections: int, *tenant: str) -> int:
    """Runs all connections in turn until the time is over; returns the number of completed attacks."""
    end = time.monotonic() + seconds
    attacks = [attack(kind, port, *tenant) for _ in range(connections)]
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
    print(run(kind, port, seconds, connections, *sys.argv[5:]), flush=True)


if __name__ == "__main__":
    main()
