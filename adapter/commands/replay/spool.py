"""A history on disk, so that it can be read many times though its source is read once, and is never in memory whole."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adapter.commands.replay.service import History, Tick


def spooled(history: History, file: Path) -> Iterator[Tick]:
    """The ticks of a history, each written to the file as it passes. Exact: numbers come back as they were."""
    with file.open("w", encoding="utf-8") as lines:
        for tick in history:
            lines.write(json.dumps(tick) + "\n")
            yield tick


@contextmanager
def open_spool(file: Path) -> Iterator[History]:
    """The ticks of such a file."""
    with file.open(encoding="utf-8") as lines:
        yield (Tick(*json.loads(line)) for line in lines)
