"""How much work code does, in figures that no slow processor changes: a test limits calls, not seconds.

Calls of functions, Python's and C's, are counted. What one call into C takes (a regular expression, `int`, `sorted`)
is compared with what it takes for a fourth of its input: `growth`.
"""

import asyncio
import contextlib
import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

QUADRATIC = 10.0
"""Between 4, the growth of what is linear, and 16, that of what is quadratic."""
_FEWEST_TRIES = 3
_TRIES = 20


@dataclass
class Effort:
    """The calls of functions so far."""

    calls: int = 0


@contextlib.contextmanager
def effort() -> Iterator[Effort]:
    """Counts what this thread does in the block."""
    found = Effort()

    def count(_frame: Any, event: str, _argument: Any) -> None:
        if event in {"call", "c_call"}:
            found.calls += 1

    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(None)


@contextlib.contextmanager
def steps() -> Iterator[Effort]:
    """The most that one step of this thread's event loop does in the block."""
    most, run, thread = Effort(), asyncio.Handle._run, threading.get_ident()  # noqa: SLF001

    def counted(handle: asyncio.Handle) -> None:
        with effort() if threading.get_ident() == thread else contextlib.nullcontext(Effort()) as found:
            run(handle)
        most.calls = max(most.calls, found.calls)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", counted)
        yield most


def growth(work: Callable[[int], object], size: int) -> float:
    """How many times as much processor time the work takes for four times the size, each at its best.

    It ends early where that is below QUADRATIC, so a busy processor makes it longer, but not wrong.
    """
    small = large = math.inf
    for number in range(_TRIES):
        small, large = min(small, seconds(lambda: work(size))), min(large, seconds(lambda: work(4 * size)))
        if number >= _FEWEST_TRIES and large < QUADRATIC * small:
            break
    return large / small


def seconds(work: Callable[[], object]) -> float:
    """Processor time of this thread, without collections of garbage. Only for what is compared, or hangs."""
    collects = gc.isenabled()
    gc.disable()
    try:
        began = time.thread_time()
        work()
        return time.thread_time() - began
    finally:
        if collects:
            gc.enable()
