"""What this process has of the system: listening sockets, open files, and garbage collections at set times.

Python collects once a thousand more objects were made than freed. Samples and assessments replace as many as they make:
that count hardly moves, while the young objects become tens of thousands, and one collection then blocks the event loop
for 10 to 100 ms.
"""

import asyncio
import contextlib
import gc
import resource
import socket

BACKLOG = 1024
"""Connections that wait to be accepted: an API server dials for each of the requests that it forwards at once."""
YOUNG_SECONDS = 0.05
"""Between two collections of young objects; each takes about a millisecond."""
FULL_SECONDS = 300.0
"""Between two collections of all objects that are not frozen. Only these free what lived for a while and refers to
itself: a closed connection, an error with its frames."""


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


async def collect_at_set_times() -> None:
    """Collect until cancelled. Objects that exist now are never looked at again: few of them become garbage."""
    freeze_live_objects()
    gc.disable()
    while True:
        for _ in range(int(FULL_SECONDS / YOUNG_SECONDS)):
            await asyncio.sleep(YOUNG_SECONDS)
            gc.collect(1)
        gc.collect()


def freeze_live_objects() -> None:
    """Exempts all live objects from full collections, each of which blocks the loop for 0.5 ms per thousand objects.

    The copy of a large resource lives as long as the process. Reference counts still free its objects; only cycles
    that are garbage at this moment stay.
    """
    if gc.isenabled():  # with collection off, a first one would scan everything and find hardly any garbage
        gc.collect(1)
    gc.freeze()
