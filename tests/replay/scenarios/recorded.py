"""The recorded results of the scenarios, in a file that people read: figures, and every count with its time."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.replay.scenarios.catalog import SCENARIOS
from tests.replay.scenarios.table import ScenarioResult, cells, duration, results, table

FILE = Path(__file__).parent / "expected.txt"
PAGE = Path(__file__).parents[3] / "docs" / "scenarios.md"
SHOWN = ("spike", "sawtooth", "pull-out", "registry-outage", "weekly-peak", "watermark-at-limit")
"""The scenarios of the documentation: one for each thing that a user decides by."""
_TABLE = re.compile(r"(?<=## Results\n\n```\n).*?(?=```\n)", re.DOTALL)
_HEAD = """\
What each autoscaler does in each scenario: the counts with the time of each change, and the figures.
Changed decisions change this file: `python -m tests.replay.scenarios --write` renews it, in a commit of its own.
"""
_FIGURES = ("overshoot", "shortfall", "to the goal", "flaps", "pod-hours", "pods")


def text() -> str:
    """The whole file."""
    return _HEAD + "".join(f"\n{section(name)}" for name in SCENARIOS)


def section(name: str) -> str:
    """The part of one scenario."""
    return f"== {name}\n" + "".join(f"{line}\n" for result in results(name).values() for line in _lines(result))


def recorded(name: str) -> str:
    """The recorded part of one scenario, empty if there is none."""
    for part in FILE.read_text(encoding="utf-8").split("\n== ")[1:]:
        if part.startswith(f"{name}\n"):
            return f"== {part.rstrip()}\n"
    return ""


def page() -> str:
    """The documentation with the table of SHOWN as it is now."""
    played = [(SCENARIOS[name], list(results(name).values())) for name in SHOWN]
    printed = "".join(f"{line}\n" for line in table(played))
    return _TABLE.sub(lambda _: printed, PAGE.read_text(encoding="utf-8"))


def _lines(result: ScenarioResult) -> Iterator[str]:
    figures = zip(_FIGURES, cells(result)[1:], strict=True)
    yield f"{result.name}: " + ", ".join(f"{label} {value}" for label, value in figures)
    counts = ", ".join(f"{duration(at)} {count}" for at, count in result.counts)
    yield from textwrap.wrap(counts, 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
