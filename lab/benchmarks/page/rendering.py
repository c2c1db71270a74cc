"""Makes the page from the templates and the stored results."""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2

from lab.benchmarks.record import RESULTS, ROOT

TEMPLATES = Path(__file__).parent
PAGE = ROOT / "docs" / "performance.md"


class Page:
    """The page in the making. `results`: those that a template asked for, by name."""

    def __init__(self) -> None:
        self.results: dict[str, dict[str, Any]] = {}
        self._aims: list[dict[str, str]] = []
        self._tried: list[dict[str, str]] = []

    def result(self, name: str) -> dict[str, Any]:
        if name not in self.results:
            self.results[name] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        return self.results[name]

    def aim(self, what: str, value: float, sign: str, limit: float, unit: str = "", reason: str = "") -> str:
        """Records a row of the summary; `sign` is <= or >=. Where it is missed, its reason is shown."""
        met = value <= limit if sign == "<=" else value >= limit
        if not met and not reason:
            raise ValueError(f"the aim {what!r} is missed ({value:g}, limit {limit:g}), and there is no reason")
        bound = "≤" if sign == "<=" else "≥"
        wanted = f"{bound} {100 * limit:g} %" if unit == "%" else f"{bound} {limit:g} {unit}".strip()
        measured = percent(value) if unit == "%" else f"{figure(value, 3)} {unit}".strip()
        verdict = "met" if met else f"**missed**: {reason}"
        self._aims.append({"what": what, "aim": wanted, "figure": measured, "verdict": verdict})
        return ""

    def tried(self, what: str, measured: str, why_not: str) -> str:
        """Records a row of the table of what was tried and did not pay."""
        self._tried.append({"what": what, "figure": measured, "why_not": why_not})
        return ""

    def source(self, name: str) -> str:
        """The command of a result, and a link to its file."""
        one = self.result(name)
        link = f"[figures](../lab/benchmarks/results/{name}.json)"
        return f"`{one['command']}` ({link} of commit {one['commit']}, {one['date']})"

    def text(self) -> str:
        """The page. Raises OSError, ValueError or jinja2's errors where a template or a result is faulty."""
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals.update(
            result=self.result, aims=self._aims, rejected=self._tried, machines=self._machines,
            aim=self.aim, tried=self.tried, source=self.source, max=max,
        )  # fmt: skip
        environment.filters.update(figure=figure, percent=percent, exponent=exponent)
        parts = sorted(one.name for one in TEMPLATES.glob("[0-9][0-9]_*.md.j2"))
        sections = [environment.get_template(name).render().strip() for name in parts]
        return environment.get_template("page.md.j2").render(sections=filter(None, sections)).strip() + "\n"

    def _machines(self) -> list[tuple[dict[str, Any], list[str]]]:
        """The machines of the results on the page, each with the names of its results."""
        by_machine: dict[str, list[str]] = defaultdict(list)
        for name, content in sorted(self.results.items()):
            by_machine[json.dumps(content["machine"], sort_keys=True)].append(name)
        return [(json.loads(one), names) for one, names in by_machine.items()]


def used() -> list[str]:
    """The names of the results on the page."""
    page = Page()
    page.text()
    return list(page.results)


def faults() -> Iterator[str]:
    """That the page is not as the results say."""
    if PAGE.read_text(encoding="utf-8") != Page().text():
        yield f"{PAGE.relative_to(ROOT)} is not what the results say; run `python -m lab.benchmarks.page --write`"


def write() -> None:
    """Writes the page."""
    PAGE.write_text(Page().text(), encoding="utf-8")


def figure(value: float, digits: int = 2) -> str:
    """A number with so many significant digits, and no digit before the point left out: 0.16, 1.5, 16, 20,000."""
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, decimals)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded)))) if rounded else decimals  # 0.0999 is 0.10
    return f"{rounded:,.{decimals}f}"


def percent(share: float, digits: int = 2) -> str:
    """A share of 1 in percent: 0.129 is 13 %."""
    return f"{figure(100 * float(share), digits)} %"


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The exponent b of y = a · x^b, by least squares of the logarithms; of a straight line it is 1."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression([x for x, _ in logs], [y for _, y in logs]).slope
