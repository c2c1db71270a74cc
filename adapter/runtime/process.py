"""What this process has of the system: sockets, files, signals."""

import asyncio
import contextlib
import functools
import resource
import signal
import socket
from typing import Any

BACKLOG = 1024
"""Connections that wait to be accepted: an API server dials for each of the requests that it forwards at once."""


def listening(address: str, port: int) -> socket.socket:
    """A listening socket, not blocking; an empty address means all interfaces. Raises OSError if the port is taken."""
    is_any = address in {"", "::"} and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_any or ":" in address else socket.AF_INET
    where = ("" if is_any else address, port)
    made = socket.create_server(where, family=family, backlog=BACKLOG, dualstack_ipv6=is_any)
    made.setblocking(False)
    return made


def raise_file_limit() -> None:
    """Allow this process as many open files as the system permits, as Go does: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems refuse the value that they name
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def cancel_at_signal(task: asyncio.Task[Any]) -> None:
    """Cancel the task at the first SIGTERM or SIGINT. Later ones do nothing: they would cut its grace short."""
    cancel_once = functools.cache(task.cancel)
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, cancel_once)
