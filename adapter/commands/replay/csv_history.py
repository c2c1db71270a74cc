"""A history from a CSV file: `time`, a column for each metric, and perhaps `pulled_out` and `replicas`."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from adapter.commands.replay.service import Tick
from adapter.load.quantity import QuantityError, parse_number
from adapter.runtime.faults import Fault, FaultyDocument, closest
from adapter.runtime.times import parse_time

TIME, PULLED_OUT, REPLICAS = "time", "pulled_out", "replicas"
_MOST = 2**31 - 1
_LATEST = 253_402_300_799.0
_COUNT = re.compile(r"\d{1,10}(\.0*)?", re.ASCII)
_SECONDS = re.compile(r"\d{1,12}(\.\d*)?", re.ASCII)
_NO_VALUE = {"", "nan"}


class CsvHistory:
    """The ticks of a CSV text, read line by line; can be read once.

    Cells are quantities (`1.5`, `1500m`, `1e3`); an empty one, or NaN, is a moment at which the metric was not known.
    `metrics` are the columns that are metrics. Raises FaultyDocument for a header without `time`, and while it is read
    for lines that are no tick.
    """

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self._title = f"{name} cannot be replayed"
        self._rows = csv.reader(lines, strict=True)
        self._columns = [cell.strip() for cell in self._next() or []]
        if self._columns and self._columns[0].startswith("\ufeff"):
            self._columns[0] = self._columns[0].removeprefix("\ufeff").strip()
        if TIME not in self._columns:
            other = next((mark for mark in ";\t|" if mark in "".join(self._columns)), "")
            hint = f", with commas between them, not {other!r}" if other else _instead(TIME, self._columns)
            advice = f"the first line must name the columns, {TIME} among them{hint}"
            raise self._fault("", self._columns or None, advice)
        if len(set(self._columns)) < len(self._columns) or "" in self._columns:
            raise self._fault("", self._columns, "each column needs a name of its own")
        self.metrics = tuple(name for name in self._columns if name not in {TIME, PULLED_OUT, REPLICAS})

    def __iter__(self) -> Iterator[Tick]:
        columns = {name: index for index, name in enumerate(self._columns)}
        time, out, replicas = columns[TIME], columns.get(PULLED_OUT), columns.get(REPLICAS)
        metrics = [(name, columns[name]) for name in self.metrics]
        width, before = len(self._columns), -inf
        while (row := self._next()) is not None:
            if not row:
                continue
            if len(row) != width:
                raise self._fault("", len(row), f"must have {width} cells, as the first line has")
            seconds = float(row[time]) if _SECONDS.fullmatch(row[time]) else inf
            at = seconds if seconds <= _LATEST else parse_time(row[time].strip())
            if at is None:
                advice = "must be a time such as 2026-01-01T12:00:00Z, or seconds since the epoch"
                raise self._fault(TIME, row[time], advice)
            if at <= before:
                raise self._fault(TIME, row[time], "must be later than in the line before")
            before = at
            load = {name: value for name, index in metrics if (value := self._value(name, row[index])) is not None}
            yield Tick(at, load, self._count(PULLED_OUT, row, out) or 0, self._count(REPLICAS, row, replicas))

    def require(self, wanted: Mapping[str, str]) -> None:
        """Have only these metrics read (name → what needs it). Raises FaultyDocument for one that there is not."""
        faults = [
            Fault(f"column {name}", None, f"is missing; {why} needs it{_instead(name, self.metrics)}")
            for name, why in wanted.items()
            if name not in self.metrics
        ]
        if faults:
            raise FaultyDocument(faults, self._title)
        self.metrics = tuple(name for name in self.metrics if name in wanted)

    def _next(self) -> Sequence[str] | None:
        try:
            return next(self._rows, None)
        except (csv.Error, UnicodeDecodeError) as error:
            raise self._fault("", None, f"is not CSV in UTF-8: {error}") from error

    def _value(self, column: str, text: str) -> int | None:
        """Nano-units of a cell, None where it is empty."""
        text = text.strip()
        if text.lower() in _NO_VALUE:
            return None
        try:
            return parse_number(text)
        except QuantityError as error:
            raise self._fault(column, text, str(error)) from error

    def _count(self, column: str, row: Sequence[str], index: int | None) -> int | None:
        text = "" if index is None else row[index].strip()
        if text.lower() in _NO_VALUE:
            return None
        if not _COUNT.fullmatch(text) or int(float(text)) > _MOST:
            raise self._fault(column, text, f"must be a whole number from 0 to {_MOST}")
        return int(float(text))

    def _fault(self, column: str, value: object, advice: str) -> FaultyDocument:
        line = max(1, self._rows.line_num)
        return FaultyDocument(
            [Fault(f"line {line}, {column}" if column else f"line {line}", value, advice)], self._title
        )


def _instead(name: str, columns: Sequence[str]) -> str:
    """`, so rename CPU to cpu` where a column differs in its case, else as `closest`."""
    other = next((column for column in columns if column.lower() == name.lower()), "")
    return f", so rename {other} to {name}" if other else closest(name, columns)
