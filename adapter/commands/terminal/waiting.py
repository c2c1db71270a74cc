"""A command that runs for long: the line that says so."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Within it a terminal's standard error shows what is waited for."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(what):
        yield
