"""A command that runs for long: the line that says so, its progress, signals that end it with its files put away."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TextIO

from rich.console import Console

LINE_SECONDS = 10.0
"""Between lines where there is no terminal."""
BAR_SECONDS = 0.1
_BAR_WIDTH = 30

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Within it a terminal's standard error shows what is waited for."""
    with Console(stderr=True).status(what) if sys.stderr.isatty() else nullcontext():
        yield


class Progress:
    """Shows how much of `total` is done; quiet work that ends within LINE_SECONDS writes nothing without a terminal."""

    def __init__(
        self, what: str, total: int, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._total, self._done = what, total, 0
        self._stream = stream or sys.stderr
        self._clock, self._began = clock, clock()
        self._bar = self._stream.isatty()
        self._shown_at = self._began
        self._has_bar = False

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self._done += count
        now = self._clock()
        if now - self._shown_at >= (BAR_SECONDS if self._bar else LINE_SECONDS):
            self._shown_at = now
            self._show(now)

    def close(self) -> None:
        """Leaves the last state of a bar on its line."""
        if self._has_bar:
            self._show(self._clock())
            self._stream.write("\n")
            self._stream.flush()

    def _show(self, now: float) -> None:
        text = f"{self._what} {self._done} of {self._total}"
        if 0 < self._done < self._total:
            text += f", {(now - self._began) * (self._total - self._done) / self._done:.0f} s to go"
        if self._bar:
            filled = _BAR_WIDTH * self._done // max(self._total, 1)
            text = f"\r[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {text}\x1b[K"
            self._has_bar = True
        self._stream.write(text if self._bar else f"{text}\n")
        self._stream.flush()


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
