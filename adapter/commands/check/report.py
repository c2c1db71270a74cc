"""The report of a check: findings about subjects, each a sentence with its level and remedy; as text and as JSON."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from adapter.commands.files import Place


class Level(StrEnum):
    """One ERROR makes the check fail. SKIPPED: it could not be checked from here, or waits for another fault."""

    ERROR = "error"
    WARNING = "warning"
    SKIPPED = "skipped"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about a subject (`policy shop/web`), what to do about it, and its place where it is about a file."""

    level: Level
    about: str
    text: str
    remedy: str = ""
    place: Place | None = None

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place is not None else ""
        return f"{where}{self.text}{'; ' if self.remedy else ''}{self.remedy}"


error = partial(Finding, Level.ERROR)
warning = partial(Finding, Level.WARNING)
skipped = partial(Finding, Level.SKIPPED)
ok = partial(Finding, Level.OK)


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether one of the findings is an error."""
    return any(finding.level is Level.ERROR for finding in findings)


def lines(findings: Iterable[Finding], *, verbose: bool = False) -> Iterator[str]:
    """Each subject with its findings below it, and a summary; what is ok only if `verbose`."""
    sections = _sections(findings)
    for about, found in sections.items():
        shown = [one for one in found if verbose or one.level is not Level.OK]
        if shown:
            yield about
            yield from (f"  {one.level.value:<8} {one}" for one in shown)
    levels = Counter(one.level for found in sections.values() for one in found)
    yield ", ".join(f"{levels[level]} {level.value}" for level in Level)


def data(findings: Sequence[Finding]) -> dict[str, Any]:
    """The report as JSON data. `remedy` may be absent; `file`, `line` and `field` exist for a finding about a file."""
    return {
        "ok": not has_errors(findings),
        "sections": [
            {
                "about": about,
                "findings": [
                    {"level": one.level.value, "text": one.text}
                    | ({"remedy": one.remedy} if one.remedy else {})
                    | (asdict(one.place) if one.place else {})
                    for one in found
                ],
            }
            for about, found in _sections(findings).items()
        ],
    }


def _sections(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings by subject, each once, in their order."""
    sections: dict[str, list[Finding]] = defaultdict(list)
    for finding in dict.fromkeys(findings):
        sections[finding.about].append(finding)
    return sections
