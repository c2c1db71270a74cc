"""Makes the page and its pictures from the templates and the stored results."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from lab.benchmarks.page import charts
from lab.benchmarks.page.figures import Pairs, columns, exponent, figure, percent
from lab.benchmarks.record import KEYS, RESULTS, ROOT

TEMPLATES = Path(__file__).parent
PAGE = ROOT / "docs" / "performance.md"
_LAYOUT = "page.md.j2"
_PICTURES = "pictures"
_PREFIX = "performance-"


class PageError(Exception):
    """A template asks for what is not there; the message says what to do."""


@dataclass(frozen=True)
class Aim:
    """A row of the summary."""

    what: str
    aim: str
    figure: str
    met: bool
    reason: str


@dataclass(frozen=True)
class Tried:
    """A row of the table of what did not pay."""

    what: str
    figure: str
    why_not: str


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


@dataclass
class Page:
    """The page in the making: what the templates of its sections have recorded."""

    folder: Path = TEMPLATES
    results: Results = field(default_factory=lambda: Results(RESULTS))
    aims: list[Aim] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)
    """SVG by file name."""

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
        self.aims.append(Aim(what, wanted, measured, met, "" if met else reason))
        return ""

    def reject(self, what: str, measured: str, why_not: str) -> str:
        """Records a row of the table of what was tried and did not pay."""
        self.tried.append(Tried(what, measured, why_not))
        return ""

    def source(self, name: str) -> str:
        """The command of a result, and a link to its file."""
        one = self.results[name]
        link = f"[figures](../lab/benchmarks/results/{name}.json)"
        return f"`{one['command']}` ({link} of commit {one['commit']}, {one['date']})"

    def growth(self, name: str, title: str, series: Mapping[str, Pairs], x: str, y: str) -> str:
        return self._picture(name, title, charts.growth(title, series, x, y))

    def course(self, name: str, title: str, panels: Sequence[Mapping[str, Any]]) -> str:
        return self._picture(name, title, charts.course(title, panels))

    def bars(self, name: str, title: str, groups: Mapping[str, Mapping[str, float]], unit: str = "") -> str:
        return self._picture(name, title, charts.bars(title, groups, unit))

    def _picture(self, name: str, title: str, svg: str) -> str:
        file = f"{_PREFIX}{name}.svg"
        self.pictures[file] = svg
        return f"![{title}]({_PICTURES}/{file})"

    def text(self) -> str:
        """The page. PageError: a template or a result that it asks for is faulty."""
        environment = self._environment()
        parts = sorted(one.name for one in self.folder.glob("[0-9][0-9]_*.md.j2"))
        sections = [self._part(environment, name).strip() for name in parts]
        return self._part(environment, _LAYOUT, sections=[one for one in sections if one]).strip() + "\n"

    def _part(self, environment: jinja2.Environment, name: str, **more: Any) -> str:
        try:
            return environment.get_template(name).render(more)
        except (PageError, jinja2.TemplateError, KeyError, TypeError, ValueError) as error:
            raise PageError(f"lab/benchmarks/page/{name}: {error}") from error

    def _environment(self) -> jinja2.Environment:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(self.folder),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals.update(
            results=self.results, aims=self.aims, rejected=self.tried, machines=self.machines,
            aim=self.aim, tried=self.reject, source=self.source, growth=self.growth, course=self.course, bars=self.bars,
            min=min, max=max,
        )  # fmt: skip
        environment.filters.update(figure=figure, percent=percent, columns=columns, exponent=exponent)
        return environment

    def machines(self) -> list[tuple[dict[str, Any], list[str]]]:
        """The machines of the results on the page, each with the names of its results."""
        by_machine: dict[str, list[str]] = {}
        for name in sorted(self.results.used):
            by_machine.setdefault(json.dumps(self.results.used[name]["machine"], sort_keys=True), []).append(name)
        return [(json.loads(one), names) for one, names in by_machine.items()]


def _files(page: Page) -> dict[Path, str]:
    """The content of the page and of each of its pictures, by path. Raises PageError."""
    text = page.text()
    return {PAGE: text, **{PAGE.parent / _PICTURES / name: svg for name, svg in page.pictures.items()}}


def used() -> list[str]:
    """The names of the results on the page. Raises PageError."""
    page = Page()
    page.text()
    return list(page.results.used)


def faults() -> Iterator[str]:
    """Why the page cannot be made, or what of it is not as the results say."""
    page = Page()
    try:
        made = _files(page)
    except PageError as error:
        yield str(error)
        return
    for path, content in made.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            yield f"{path.relative_to(ROOT)} is not what the results say; run `python -m lab.benchmarks.page --write`"
    for path in _pictures() - made.keys():
        yield f"{path.relative_to(ROOT)} is in no template; run `python -m lab.benchmarks.page --write`"


def write() -> None:
    """Writes the page and its pictures, and removes pictures that it no longer has; none where a template is faulty."""
    try:
        made = _files(Page())
    except PageError:
        return
    for path, content in made.items():
        path.write_text(content, encoding="utf-8")
    for path in _pictures() - made.keys():
        path.unlink()


def _pictures() -> set[Path]:
    return set((PAGE.parent / _PICTURES).glob(f"{_PREFIX}*.svg"))
