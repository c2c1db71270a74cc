"""Signals that end a command: its files and processes are put away first, and there is no traceback."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM)


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
