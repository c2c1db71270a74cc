"""How much work code does, in figures that no slow processor changes: a test limits calls, not seconds.

Calls of functions, Python's and C's, are counted.
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest


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
