"""What a check found: sections of sentences, each of which is well, wrong or worth knowing."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """What a finding means for the whole."""

    OK = "ok"
    WRONG = "wrong"
    NOTE = "note"


class SubjectKind(StrEnum):
    """What sections are about, as the summary counts them."""

    REGISTRY = "registry"
    SERVICE = "service"
    POLICY = "policy"
    HPA = "HPA"
    SERVER = "server"


_PLURALS = {SubjectKind.REGISTRY: "registries", SubjectKind.POLICY: "policies"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence."""

    verdict: Severity
    text: str


@dataclass(slots=True)
class ReportSection:
    """What was found about one thing; `kind` is what that is, where such things are counted."""

    about: str
    kind: SubjectKind | None = None
    findings: list[Finding] = field(default_factory=list)

    def ok(self, text: str) -> None:
        self.findings.append(Finding(Severity.OK, text))

    def wrong(self, text: str) -> None:
        self.findings.append(Finding(Severity.WRONG, text))

    def note(self, text: str) -> None:
        self.findings.append(Finding(Severity.NOTE, text))


def all_ok(sections: Iterable[ReportSection]) -> bool:
    """Whether nothing is wrong."""
    return all(finding.verdict is not Severity.WRONG for section in sections for finding in section.findings)


def report_lines(sections: Iterable[ReportSection], *, verbose: bool = False) -> Iterator[str]:
    """The sections as text: a line a finding, its verdict first, and the summary last.

    Unless `verbose`, what is well has one line together.
    """
    kept = list(sections)
    for section in kept:
        shown = [one for one in section.findings if verbose or one.verdict is not Severity.OK]
        if shown:
            yield section.about
            yield from (f"  {finding.verdict.value:5}  {finding.text}" for finding in shown)
    well = counted(section for section in kept if all(one.verdict is Severity.OK for one in section.findings))
    if well and not verbose and any(_number(kept, verdict) for verdict in (Severity.WRONG, Severity.NOTE)):
        yield f"{Severity.OK.value:7}{well} (--verbose tells what was found)"
    yield summary(kept)


def summary(sections: Iterable[ReportSection]) -> str:
    """One line: how many things were looked at, and how much of it is wrong or worth knowing."""
    kept = list(sections)
    wrong, notes = _number(kept, Severity.WRONG), _number(kept, Severity.NOTE)
    told = [f"{wrong} wrong" if wrong else "nothing wrong", *[f"{notes} note{'s' * (notes != 1)}"] * bool(notes)]
    found = ", ".join(told) if wrong or notes else "all is well"
    return f"{counted(kept) or 'no policies and no registries'}: {found}"


def counted(sections: Iterable[ReportSection]) -> str:
    """How many things of each kind there are sections about; empty where there are none."""
    numbers = Counter(section.kind for section in sections)
    return ", ".join(f"{numbers[kind]} {_noun(kind, numbers[kind])}" for kind in SubjectKind if numbers[kind])


def _noun(kind: SubjectKind, number: int) -> str:
    return kind.value if number == 1 else _PLURALS.get(kind, f"{kind.value}s")


def _number(sections: Iterable[ReportSection], verdict: Severity) -> int:
    return sum(one.verdict is verdict for section in sections for one in section.findings)


def as_data(sections: Iterable[ReportSection]) -> dict[str, Any]:
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
