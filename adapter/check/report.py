"""What a check found: sections of sentences, each of which is well, wrong or worth knowing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What a finding means for the whole."""

    OK = "ok"
    WRONG = "wrong"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence."""

    verdict: Verdict
    text: str


@dataclass(slots=True)
class Section:
    """What was found about one thing."""

    about: str
    findings: list[Finding] = field(default_factory=list)

    def ok(self, text: str) -> None:
        self.findings.append(Finding(Verdict.OK, text))

    def wrong(self, text: str) -> None:
        self.findings.append(Finding(Verdict.WRONG, text))

    def note(self, text: str) -> None:
        self.findings.append(Finding(Verdict.NOTE, text))


def is_well(sections: Iterable[Section]) -> bool:
    """Whether nothing is wrong."""
    return all(finding.verdict is not Verdict.WRONG for section in sections for finding in section.findings)


def lines(sections: Iterable[Section]) -> Iterator[str]:
    """The sections as text; a line a finding, its verdict first."""
    for section in sections:
        yield section.about
        yield from (f"  {finding.verdict.value:5}  {finding.text}" for finding in section.findings)


def as_data(sections: Iterable[Section]) -> dict[str, Any]:
    """The sections as plain data for JSON."""
    kept = list(sections)
    return {
        "ok": is_well(kept),
        "sections": [
            {
                "about": section.about,
                "findings": [{"verdict": one.verdict.value, "text": one.text} for one in section.findings],
            }
            for section in kept
        ],
    }
