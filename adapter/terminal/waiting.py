"""Says on a terminal what a command waits for, once that takes longer than two seconds."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

QUIET_SECONDS = 2.0
_TICK_SECONDS = 1.0


@contextmanager
def waiting(what: str, stream: TextIO | None = None, *, quiet: float = QUIET_SECONDS) -> Iterator[None]:
    """Within it, after `quiet` seconds, standard error shows what is waited for and how long; only on a terminal."""
    shown_on = stream or sys.stderr
    if not shown_on.isatty():
        yield
        return
    ended = threading.Event()
    ticker = threading.Thread(target=_tick, args=(what, shown_on, ended, quiet), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        ended.set()
        ticker.join()


def _tick(what: str, stream: TextIO, ended: threading.Event, quiet: float) -> None:
    began = time.monotonic()
    if ended.wait(quiet):
        return
    while True:
        stream.write(f"\r{what}: {time.monotonic() - began:.0f} s\x1b[K")
        stream.flush()
        if ended.wait(_TICK_SECONDS):
            break
    stream.write("\r\x1b[K")
    stream.flush()
