"""Attacks on loopback, in a process of its own, for a limited time.

`python -m lab.benchmarks.hostile KIND PORT SECONDS CONNECTIONS` ends by itself and prints the number of completed
attacks. Strangers, who have no certificate, attack the adapter's port.
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
_LINGER = struct.pack("ii", 1, 0)
"""Closing such a socket resets its connection."""

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


def held(connect: Callable[[], socket.socket]) -> Attack:
    """A connection without a request; a new one whenever the server ends it."""
    while True:
        with suppress(OSError), connect() as wire:
            yield 1
            ended = select.poll()
            ended.register(wire, select.POLLRDHUP)
            while not ended.poll(1):
                yield 0
        yield 0


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


def attack(kind: str, port: int) -> Attack:
    """One connection of an attack."""
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
    raise ValueError(kind)


def run(kind: str, port: int, seconds: float, connections: int) -> int:
    """Runs all connections in turn until the time is over; returns the number of completed attacks."""
    end = time.monotonic() + seconds
    attacks = [attack(kind, port) for _ in range(connections)]
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
