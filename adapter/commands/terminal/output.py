"""What every command reads and prints in the same way: documents, lines, JSON, faults."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from adapter.runtime.faults import FaultyDocument


def printable(text: str) -> str:
    """The text without what would control a terminal: others may have written it (registries, objects' messages)."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def duration(seconds: float) -> str:
    """A time span for people: 12 s, 3 min, 5 h, 2 d; never negative."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def print_text(text: str) -> None:
    """Print a text as it is to standard output."""
    try:
        print(text, end="")
    except BrokenPipeError:
        _discard()


def flush() -> None:
    """Write what is buffered of standard output. Raises OSError, but not where a pipe's reader is gone (`| head`)."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard()


def _discard() -> None:
    """Let the rest of the output go nowhere, so that the exit status does not depend on when the reader left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    print_text("\n".join([*lines, ""]))


def print_json(data: object) -> None:
    """Print one JSON document to standard output."""
    print_text(f"{json.dumps(data, indent=2)}\n")


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line for each row, the head first: the first column to the left, the others to the right.

    Columns that are empty but for their head are left out.
    """
    kept = [index for index in range(len(rows[0])) if any(row[index] for row in rows[1:])]
    widths = {index: max(len(row[index]) for row in rows) for index in kept}
    for row in rows:
        cells = (row[index].rjust(widths[index]) if index else row[index].ljust(widths[index]) for index in kept)
        yield "  ".join(cells).rstrip()


def complain(text: str) -> None:
    """Print a line to standard error."""
    print(text, file=sys.stderr)


def print_faults(error: FaultyDocument) -> None:
    """Print the faults of a document to standard error, a line each."""
    complain("\n  ".join([f"{error.title or 'invalid input'}:", *map(str, error.faults)]))
