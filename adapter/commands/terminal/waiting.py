"""A command that runs for long: the line that says so, and signals that end it with its files put away."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

QUIET_SECONDS = 2.0
_TICK_SECONDS = 1.0

_ENDING = (signal.SIGINT, signal.SIGTERM)


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


class Interrupted(KeyboardInterrupt):
    """A signal ends the command; `status` is the exit status that shells give it (130, 143)."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Until the end of the block SIGINT and SIGTERM raise Interrupted.

    Only in the main thread.
    """
    before = {number: signal.signal(number, _end) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  as a handler is called
    for one in _ENDING:  # a second one must not break into the putting away
        signal.signal(one, signal.SIG_IGN)
    raise Interrupted(number)
