"""The report of a check: sections of findings, each a sentence with its level; as text and as JSON."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from adapter.commands.files import Place
from adapter.kube.errors import Forbidden

_REFUSAL = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_COUNTED = {"policy": "policies", "HPA": "HPAs", "registry": "registries"}
"""The kinds that the summary counts, by the first word of a section, and their plurals."""


class Level(StrEnum):
    """One ERROR makes the check fail. SKIPPED: it could not be checked from here, or waits for another fault."""

    ERROR = "error"
    WARNING = "warning"
    SKIPPED = "skipped"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, and its place where it is about a file."""

    level: Level
    text: str
    place: Place | None = None


@dataclass(slots=True)
class Section:
    """The findings about one thing. What adds a finding returns the section."""

    about: str
    findings: list[Finding] = field(default_factory=list)

    def add(self, level: Level, text: str, place: Place | None = None) -> Self:
        """Add a finding, once."""
        finding = Finding(level, text, place)
        if finding not in self.findings:
            self.findings.append(finding)
        return self

    def error(self, text: str, place: Place | None = None) -> Self:
        """Add a fault."""
        return self.add(Level.ERROR, text, place)

    def warning(self, text: str, place: Place | None = None) -> Self:
        """Add something that works, but is worth knowing."""
        return self.add(Level.WARNING, text, place)

    def skipped(self, text: str, place: Place | None = None) -> Self:
        """Add what could not be checked, and why."""
        return self.add(Level.SKIPPED, text, place)

    def ok(self, text: str) -> Self:
        """Add what is in order."""
        return self.add(Level.OK, text)

    @property
    def has_errors(self) -> bool:
        """Whether one of its findings is an error."""
        return any(finding.level is Level.ERROR for finding in self.findings)


def lines(sections: Iterable[Section], *, verbose: bool = False) -> Iterator[str]:
    """The report as text, the summary last. What is in order is listed only if `verbose`."""
    kept = list(sections)
    for section in kept:
        shown = [finding for finding in section.findings if verbose or finding.level is not Level.OK]
        if shown:
            yield section.about
        for finding in shown:
            place = f"{finding.place}: " if finding.place else ""
            yield f"  {finding.level.value:7}  {place}{finding.text}"
    subjects = Counter(section.about.partition(" ")[0] for section in kept)
    counted = [f"{subjects[one]} {one if subjects[one] == 1 else _COUNTED[one]}" for one in _COUNTED if subjects[one]]
    levels = Counter(finding.level for section in kept for finding in section.findings)
    counts = [
        f"{levels[level]} {level.value}{'s' * (levels[level] != 1 and level is not Level.SKIPPED)}"
        for level in (Level.ERROR, Level.WARNING, Level.SKIPPED)
        if levels[level]
    ]
    yield f"{', '.join(counted) or 'no policy'}: {', '.join(counts) or 'no faults'}"


def data(sections: Iterable[Section]) -> dict[str, Any]:
    """The report as JSON data. `file`, `line` and `field` exist where a finding is about a file."""
    kept = [section for section in sections if section.findings]
    return {
        "ok": not any(section.has_errors for section in kept),
        "sections": [
            {
                "about": section.about,
                "findings": [
                    {"level": one.level.value, "text": one.text} | (asdict(one.place) if one.place else {})
                    for one in section.findings
                ],
            }
            for section in kept
        ],
    }


def reason(error: Exception) -> str:
    """A refusal as `this account may not list pods in namespace shop`; any other error as it is."""
    found = _REFUSAL.search(error.message) if isinstance(error, Forbidden) else None
    if found is None:
        return str(error)
    resource = f"{found['resource']}.{found['group']}" if found["group"] else found["resource"]
    where = f" in namespace {found['namespace']}" if found["namespace"] else ""
    return f"this account may not {found['verb']} {resource}{where}"
