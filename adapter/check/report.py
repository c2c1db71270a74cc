"""The report of a check: sections of findings, each a sentence that is ok, wrong or a note; as text and as JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class FindingLevel(StrEnum):
    """Whether a finding is fine, wrong, or worth knowing; one WRONG makes the check fail."""

    OK = "ok"
    WRONG = "wrong"
    NOTE = "note"


class SubjectKind(StrEnum):
    """The kinds of things that the summary counts."""

    REGISTRY = "registry"
    SERVICE = "service"
    POLICY = "policy"
    HPA = "HPA"
    SERVER = "server"


_PLURALS = {SubjectKind.REGISTRY: "registries", SubjectKind.POLICY: "policies"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence."""

    verdict: FindingLevel
    text: str


@dataclass(slots=True)
class ReportSection:
    """The findings about one thing; `kind` is its kind where the summary counts such things."""

    about: str
    kind: SubjectKind | None = None
    findings: list[Finding] = field(default_factory=list)

    def ok(self, text: str) -> None:
        self.findings.append(Finding(FindingLevel.OK, text))

    def wrong(self, text: str) -> None:
        self.findings.append(Finding(FindingLevel.WRONG, text))

    def note(self, text: str) -> None:
        self.findings.append(Finding(FindingLevel.NOTE, text))


def all_ok(sections: Iterable[ReportSection]) -> bool:
    """Whether nothing is wrong."""
    return all(finding.verdict is not FindingLevel.WRONG for section in sections for finding in section.findings)


def report_lines(sections: Iterable[ReportSection], *, verbose: bool = False) -> Iterator[str]:
    """The sections as text: one line for each finding, its severity first, and the summary last.

    Unless `verbose`, one line stands for all findings that are ok.
    """
    kept = list(sections)
    for section in kept:
        shown = [one for one in section.findings if verbose or one.verdict is not FindingLevel.OK]
        if shown:
            yield section.about
            yield from (f"  {finding.verdict.value:5}  {finding.text}" for finding in shown)
    well = counted(section for section in kept if all(one.verdict is FindingLevel.OK for one in section.findings))
    if well and not verbose and any(_number(kept, verdict) for verdict in (FindingLevel.WRONG, FindingLevel.NOTE)):
        yield f"{FindingLevel.OK.value:7}{well} (--verbose lists the findings)"
    yield summary(kept)


def summary(sections: Iterable[ReportSection]) -> str:
    """One line: how many things were checked, and how many findings are wrong or notes."""
    kept = list(sections)
    wrong, notes = _number(kept, FindingLevel.WRONG), _number(kept, FindingLevel.NOTE)
    counts = [f"{wrong} wrong" if wrong else "nothing wrong", *[f"{notes} note{'s' * (notes != 1)}"] * bool(notes)]
    result = ", ".join(counts) if wrong or notes else "all is well"
    return f"{counted(kept) or 'no policies and no registries'}: {result}"


def counted(sections: Iterable[ReportSection]) -> str:
    """The number of sections of each kind; empty where there are none."""
    numbers = Counter(section.kind for section in sections)
    return ", ".join(f"{numbers[kind]} {_noun(kind, numbers[kind])}" for kind in SubjectKind if numbers[kind])


def _noun(kind: SubjectKind, number: int) -> str:
    return kind.value if number == 1 else _PLURALS.get(kind, f"{kind.value}s")


def _number(sections: Iterable[ReportSection], verdict: FindingLevel) -> int:
    return sum(one.verdict is verdict for section in sections for one in section.findings)


def report_data(sections: Iterable[ReportSection]) -> dict[str, Any]:
    """The sections as plain data for JSON."""
    kept = list(sections)
    return {
        "ok": all_ok(kept),
        "sections": [
            {
                "about": section.about,
                "findings": [{"verdict": one.verdict.value, "text": one.text} for one in section.findings],
            }
            for section in kept
        ],
    }
