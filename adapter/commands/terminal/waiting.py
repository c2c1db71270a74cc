"""A command that runs for long: the line that says so, and signals that end it with its files put away."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Within it a terminal's standard error shows what is waited for."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(what):
        yield


class Interrupted(KeyboardInterrupt):
    """A signal ends the command; `status` is the exit status that shells give it (130, 143)."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Until the end of the block SIGINT and SIGTERM raise Interrupted; in the main thread only."""

    def end(number: int, _frame: FrameType | None) -> None:
        for one in _ENDING:  # a second one must not break into the putting away
            signal.signal(one, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
