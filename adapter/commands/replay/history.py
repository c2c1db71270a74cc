"""A history: moments with the load of the service, from a CSV file, and the stretches that a replay lives through."""

import csv
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from statistics import median_low
from typing import NamedTuple

from adapter.commands.files import read_text
from adapter.commands.replay.model import TITLE, Setup, fault
from adapter.load.quantity import QuantityError, parse_number
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.times import parse_time

TIME, PULLED_OUT = "time", "pulled_out"
_SECONDS = re.compile(r"\d{1,11}(\.\d*)?", re.ASCII)
_COUNT = re.compile(r"(\d{1,5}(\.0*)?)?", re.ASCII)
_DELIMITERS = ",;\t|"
_LONGEST_GAP = 31 * 86_400.0
"""Seconds between two lines. A time in another unit makes thousands of years, and every sync of a gap is played."""
_STEPS_BRIDGED = 2.5


class Tick(NamedTuple):
    """One moment of a history. `at` is in seconds since the epoch.

    `load` is that of the whole service, by metric name, in nano-units (for a metric with `relativeTo`: of the plain
    usage); without a metric, its load is unknown. `pulled_out` pods are Ready, but carry nothing.
    """

    at: float
    load: Mapping[str, float]
    pulled_out: int = 0


class Stretch(NamedTuple):
    """A part of a history, from `at` to `end` (seconds), in which the load and the pull-outs do not change.

    `load` is None where it is unknown.
    """

    at: float
    end: float
    load: Mapping[str, float] | None
    pulled_out: int


def stretches(ticks: Sequence[Tick], setup: Setup) -> list[Stretch]:
    """The stretches between the ticks, with those of unknown load; the last tick lasts as long as the one before.

    A tick holds until the next one, but for at most `setup.lasts` seconds or two and a half of the steps around it
    (their median): so one missing tick is bridged, also where the step of a history changes.
    """
    steps = [after.at - before.at for before, after in pairwise(ticks)]
    steps.append(steps[-1] if steps else setup.sync)
    found = []
    for index, (tick, step) in enumerate(zip(ticks, steps, strict=True)):
        around = steps[max(0, index - 2) : index + 3] if step > setup.lasts else [step]
        holds = min(step, max(setup.lasts, _STEPS_BRIDGED * median_low(around)))
        found.append(Stretch(tick.at, tick.at + holds, tick.load or None, tick.pulled_out))
        if holds < step:
            found.append(Stretch(tick.at + holds, tick.at + step, None, tick.pulled_out))
    return found


def seconds_of(text: str) -> float | None:
    """An RFC 3339 time, or seconds since the epoch, as the latter; None for anything else."""
    return float(text) if _SECONDS.fullmatch(text) else parse_time(text)


def read_csv(file: str, needed: Mapping[str, str], begin: float = -inf, end: float = inf) -> list[Tick]:
    """The ticks of a CSV file (`-`: standard input) from the first load at or after `begin` until before `end`.

    `needed` are the metrics: name → what needs it. Cells are quantities (`1.5`, `1500m`); an empty one, or NaN, is a
    moment at which the metric was unknown. The first line decides whether commas, semicolons, tabs or bars divide the
    columns. Raises FaultyDocument.
    """
    lines, name = read_text(file).splitlines() or [""], "standard input" if file == "-" else file
    delimiter = max(_DELIMITERS, key=lines[0].count)
    reader = csv.DictReader(lines, delimiter=delimiter, restkey="")
    reader.fieldnames = columns = [cell.strip() for cell in reader.fieldnames or ()]
    if len(set(columns)) < len(columns) or "" in columns:
        raise fault(f"{name}, line 1", lines[0], "must give each column a name of its own")
    for column, why in {TIME: "every history", **needed}.items():
        if column not in columns:
            advice = f"is missing; {why} needs it, and the file has {', '.join(columns)}"
            raise fault(f"{name}, line 1, column {column}", None, advice)
    ticks: list[Tick] = []
    before = -inf
    try:
        for row in reader:
            tick = _tick(row, needed, before)
            before = tick.at
            if begin <= tick.at < end and (ticks or tick.load):
                ticks.append(tick)
    except (csv.Error, FaultyDocument) as error:
        faults = error.faults if isinstance(error, FaultyDocument) else [Fault("", None, f"is not CSV: {error}")]
        raise FaultyDocument([one.within(f"{name}, line {reader.line_num}", ", ") for one in faults], TITLE) from error
    return ticks


def _tick(row: Mapping[str, str | None], needed: Mapping[str, str], before: float) -> Tick:
    if None in row.values() or "" in row:
        raise fault("", None, "must have as many cells as the first line has columns")
    cells = {name: "" if (text := (cell or "").strip()).lower() == "nan" else text for name, cell in row.items()}
    at = seconds_of(cells[TIME])
    if at is None:
        raise fault(TIME, cells[TIME], "must be a time such as 2026-01-01T12:00:00Z, or seconds since the epoch")
    if at <= before:
        raise fault(TIME, cells[TIME], "must be later than in the line before; sort the lines")
    if at - before > _LONGEST_GAP and before > -inf:
        raise fault(TIME, cells[TIME], "is more than 31 days after the line before; replay the parts separately")
    load = {}
    for name in needed:
        if cells[name]:
            try:
                load[name] = float(parse_number(cells[name]))
            except QuantityError as error:
                raise fault(name, cells[name], str(error)) from error
    out = cells.get(PULLED_OUT, "")
    if not _COUNT.fullmatch(out):
        raise fault(PULLED_OUT, out, "must be a whole number of pods, from 0 to 99999")
    return Tick(at, load, int(float(out or "0")))
