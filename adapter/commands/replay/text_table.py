"""Rows of texts as aligned lines."""

from collections.abc import Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line for each row, the head first: the first column to the left, the others to the right.

    Columns that are empty but for their head are left out.
    """
    kept = [index for index in range(len(rows[0])) if any(row[index] for row in rows[1:])]
    widths = {index: max(len(row[index]) for row in rows) for index in kept}
    for row in rows:
        cells = (row[index].rjust(widths[index]) if index else row[index].ljust(widths[index]) for index in kept)
        yield "  ".join(cells).rstrip()
