"""A history from a CSV file: `time`, a column for each metric, and perhaps `pulled_out` and `replicas`."""

import csv
import re
import sys
from collections.abc import Collection, Mapping
from math import inf
from pathlib import Path

from adapter.commands.replay.model import TITLE, Tick
from adapter.load.quantity import QuantityError, parse_number
from adapter.runtime.faults import Fault, FaultyDocument, closest
from adapter.runtime.times import parse_time

TIME, PULLED_OUT, REPLICAS = "time", "pulled_out", "replicas"
_SECONDS = re.compile(r"\d{1,12}(\.\d*)?", re.ASCII)
_LATEST = 253_402_300_799.0
_COUNT = re.compile(r"\d{1,9}(\.0*)?", re.ASCII)
_DELIMITERS = ",;\t|"


def read_csv(file: str, needed: Mapping[str, str]) -> list[Tick]:
    """The ticks of a CSV file, `-` for standard input. `needed` are the metrics: name → what needs it.

    Cells are quantities (`1.5`, `1500m`); an empty one, or NaN, is a moment at which the metric was unknown. The first
    line decides whether commas, semicolons, tabs or bars divide the columns. Raises FaultyDocument.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FaultyDocument(
            [Fault("--csv", file, f"cannot be read: {error}; give a CSV file in UTF-8")], TITLE
        ) from error
    name = "standard input" if file == "-" else file
    lines = text.removeprefix("\ufeff").splitlines()
    head = lines[0] if lines else ""
    delimiter = max(_DELIMITERS, key=head.count)
    columns = [cell.strip() for cell in next(csv.reader([head], delimiter=delimiter), [])]
    _require(columns, needed, f"{name}, line 1")
    reader = csv.DictReader(lines[1:], columns, delimiter=delimiter, restkey="")
    ticks: list[Tick] = []
    try:
        for row in reader:
            ticks.append(_tick(row, needed, ticks[-1].at if ticks else -inf))
    except csv.Error as error:
        place = f"{name}, line {reader.line_num + 1}"
        raise FaultyDocument(
            [Fault(place, None, f"is not CSV: {error}; quote cells as RFC 4180 does")], TITLE
        ) from error
    except FaultyDocument as error:
        place = f"{name}, line {reader.line_num + 1}"
        raise FaultyDocument([fault.within(place, ", ") for fault in error.faults], TITLE) from error
    return ticks


def _require(columns: list[str], needed: Mapping[str, str], place: str) -> None:
    """Raise FaultyDocument for a first line that lacks a column, or repeats one."""
    faults = []
    if TIME not in columns:
        advice = f"must name the columns, and {TIME} is missing{_instead(TIME, columns)}"
        faults.append(Fault(place, ",".join(columns), advice))
    elif len(set(columns)) < len(columns) or "" in columns:
        faults.append(Fault(place, ",".join(columns), "must give each column a name of its own"))
    else:
        faults = [
            Fault(f"{place}, column {name}", None, f"is missing; {why} needs it{_instead(name, columns)}")
            for name, why in needed.items()
            if name not in columns
        ]
    if faults:
        raise FaultyDocument(faults, TITLE)


def _tick(row: Mapping[str, str | None], metrics: Collection[str], before: float) -> Tick:
    if None in row.values() or "" in row:
        raise FaultyDocument([Fault("", None, "must have as many cells as the first line has columns")])
    cells = {name: (cell or "").strip() for name, cell in row.items()}
    time = cells[TIME]
    at = float(time) if _SECONDS.fullmatch(time) else parse_time(time)
    if at is None or at > _LATEST:
        advice = "must be a time such as 2026-01-01T12:00:00Z, or seconds since the epoch"
        raise FaultyDocument([Fault(TIME, time, advice)])
    if at <= before:
        raise FaultyDocument([Fault(TIME, time, "must be later than in the line before; sort the lines")])
    load = {}
    for name in metrics:
        if cells[name].lower() in {"", "nan"}:
            continue
        try:
            load[name] = float(parse_number(cells[name]))
        except QuantityError as error:
            raise FaultyDocument([Fault(name, cells[name], str(error))]) from error
    return Tick(at, load, _count(PULLED_OUT, cells) or 0, _count(REPLICAS, cells))


def _count(column: str, cells: Mapping[str, str]) -> int | None:
    text = cells.get(column, "")
    if text.lower() in {"", "nan"}:
        return None
    if not _COUNT.fullmatch(text):
        raise FaultyDocument([Fault(column, text, "must be a whole number of pods, from 0 on")])
    return int(float(text))


def _instead(name: str, columns: Collection[str]) -> str:
    """`, so rename CPU to cpu` where a column differs in its case, else as `closest`."""
    other = next((column for column in columns if column.lower() == name.lower()), "")
    return f", so rename {other} to {name}" if other else closest(name, columns)
