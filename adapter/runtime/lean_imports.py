"""Imports of a process that serves: without what only terminals need, and without garbage collections."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from types import ModuleType

_FOR_TERMINALS = ("rich", "colorama", "better_exceptions")
"""structlog imports these for colours wherever they are installed: 0.1 s and 10 MiB. Logs have no colours."""


@contextlib.contextmanager
def lean_imports() -> Iterator[None]:
    """Hides packages for terminals from the imports within, and leaves automatic garbage collection off.

    What is imported stays, so that a collection finds nothing; `assembly` switches collections on again.
    """
    gc.disable()
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]  # None: the import fails
    hidden = [name for name in _FOR_TERMINALS if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
