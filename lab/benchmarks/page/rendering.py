"""Makes the page from the templates and the stored results."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2

from lab.benchmarks.page.figures import exponent, figure, percent
from lab.benchmarks.record import KEYS, RESULTS, ROOT

TEMPLATES = Path(__file__).parent
PAGE = ROOT / "docs" / "performance.md"
_LAYOUT = "page.md.j2"


class PageError(Exception):
    """A template asks for what is not there; the message says what to do."""


class Results:
    """Stored results by name; `used` are those that a template asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.used: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        if name not in self.used:
            path = self._folder / f"{name}.json"
            if not path.is_file():
                raise PageError(f"there is no result {path.name}; store it with the benchmark's `-o {path.name}`")
            content = json.loads(path.read_text(encoding="utf-8"))
            if absent := [key for key in KEYS if key not in content]:
                raise PageError(f"{path.name} lacks {', '.join(absent)}; store it with lab.benchmarks.record.write")
            self.used[name] = content
        return self.used[name]


class Page:
    """The page in the making: what the templates of its sections have recorded."""

    def __init__(self, folder: Path = TEMPLATES, results: Path = RESULTS) -> None:
        self.results = Results(results)
        self._folder = folder
        self._aims: list[dict[str, str]] = []
        self._tried: list[dict[str, str]] = []

    def aim(self, what: str, value: float, sign: str, limit: float, unit: str = "", reason: str = "") -> str:
        """Records a row of the summary; `sign` is <= or >=. Where it is missed, its reason is shown."""
        met = value <= limit if sign == "<=" else value >= limit
        if not met and not reason:
            raise PageError(
                f"the aim {what!r} is missed ({value:g}, limit {limit:g}), and the template gives no reason"
            )
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
        one = self.results[name]
        link = f"[figures](../lab/benchmarks/results/{name}.json)"
        return f"`{one['command']}` ({link} of commit {one['commit']}, {one['date']})"

    def text(self) -> str:
        """The page. PageError: a template or a result that it asks for is faulty."""
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(self._folder),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals.update(
            results=self.results, aims=self._aims, rejected=self._tried, machines=self._machines,
            aim=self.aim, tried=self.tried, source=self.source, max=max,
        )  # fmt: skip
        environment.filters.update(figure=figure, percent=percent, exponent=exponent)
        parts = sorted(one.name for one in self._folder.glob("[0-9][0-9]_*.md.j2"))
        sections = [_rendered(environment, name).strip() for name in parts]
        return _rendered(environment, _LAYOUT, sections=[one for one in sections if one]).strip() + "\n"

    def _machines(self) -> list[tuple[dict[str, Any], list[str]]]:
        """The machines of the results on the page, each with the names of its results."""
        by_machine: dict[str, list[str]] = {}
        for name in sorted(self.results.used):
            by_machine.setdefault(json.dumps(self.results.used[name]["machine"], sort_keys=True), []).append(name)
        return [(json.loads(one), names) for one, names in by_machine.items()]


def _rendered(environment: jinja2.Environment, name: str, **more: Any) -> str:
    try:
        return environment.get_template(name).render(more)
    except (PageError, jinja2.TemplateError, KeyError, TypeError, ValueError) as error:
        raise PageError(f"lab/benchmarks/page/{name}: {error}") from error


def used() -> list[str]:
    """The names of the results on the page. Raises PageError."""
    page = Page()
    page.text()
    return list(page.results.used)


def faults() -> Iterator[str]:
    """Why the page cannot be made, or that it is not as the results say."""
    try:
        made = Page().text()
    except PageError as error:
        yield str(error)
        return
    if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != made:
        yield f"{PAGE.relative_to(ROOT)} is not what the results say; run `python -m lab.benchmarks.page --write`"


def write() -> None:
    """Writes the page; not where a template is faulty."""
    with suppress(PageError):
        PAGE.write_text(Page().text(), encoding="utf-8")
