"""Listening sockets, and the number of open files that a process may have."""

import contextlib
import resource
import socket

BACKLOG = 1024
"""Connections that wait to be accepted: an API server dials for each of the requests that it forwards at once."""


def listening(address: str, port: int) -> socket.socket:
    """A listening socket, not blocking; an empty address means all interfaces. Raises OSError if the port is taken."""
    if address in {"", "::"} and socket.has_dualstack_ipv6():
        made = socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    else:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        made = socket.create_server((address, port), family=family, backlog=BACKLOG)
    made.setblocking(False)
    return made


def raise_file_limit() -> None:
    """Allow this process as many open files as the system permits, as Go does: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems refuse the value that they name
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
