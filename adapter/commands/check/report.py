"""The report of a check: sections of findings, each a sentence with a verdict; as text and as JSON."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from adapter.kube.errors import Forbidden

_REFUSAL = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)


class FindingLevel(StrEnum):
    """Whether a finding is fine, wrong, worth knowing, or about something that could not be checked from here.

    One WRONG makes the check fail.
    """

    OK = "ok"
    WRONG = "wrong"
    NOTE = "note"
    SKIPPED = "skip"


class SubjectKind(StrEnum):
    """The kinds of things that the summary counts."""

    REGISTRY = "registry"
    SERVICE = "service"
    POLICY = "policy"
    HPA = "HPA"
    SERVER = "server"
    FILE = "file"


_PLURALS = {SubjectKind.REGISTRY: "registries", SubjectKind.POLICY: "policies"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a file a finding is: `line` from 1 (None: unknown), `field` as faults write it."""

    file: str
    line: int | None = None
    field: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.field}" if self.field else where


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence."""

    verdict: FindingLevel
    text: str
    place: Place | None = None


@dataclass(slots=True)
class ReportSection:
    """The findings about one thing; `kind` is its kind where the summary counts such things.

    What adds a finding returns the section.
    """

    about: str
    kind: SubjectKind | None = None
    findings: list[Finding] = field(default_factory=list)

    def ok(self, text: str) -> Self:
        self.findings.append(Finding(FindingLevel.OK, text))
        return self

    def wrong(self, text: str, *, place: Place | None = None) -> Self:
        self.findings.append(Finding(FindingLevel.WRONG, text, place))
        return self

    def note(self, text: str) -> Self:
        self.findings.append(Finding(FindingLevel.NOTE, text))
        return self

    def skipped(self, text: str, *, place: Place | None = None) -> Self:
        self.findings.append(Finding(FindingLevel.SKIPPED, f"not checked: {text}", place))
        return self


def all_ok(sections: Iterable[ReportSection]) -> bool:
    """Whether nothing is wrong."""
    return all(finding.verdict is not FindingLevel.WRONG for section in sections for finding in section.findings)


def report_lines(sections: Iterable[ReportSection], *, verbose: bool = False) -> Iterator[str]:
    """The sections as text: one line for each finding, its severity first, and the summary last.

    Unless `verbose`, one line stands for all findings that are ok.
    """
    kept, has_others = list(sections), False
    for section in kept:
        findings = [finding for finding in section.findings if verbose or finding.verdict is not FindingLevel.OK]
        if findings:
            has_others = True
            yield section.about
            for finding in findings:
                place = f"{finding.place}: " if finding.place else ""
                yield f"  {finding.verdict.value:5}  {place}{finding.text}"
    well = counted(
        section for section in kept if {finding.verdict for finding in section.findings} == {FindingLevel.OK}
    )
    if well and not verbose and has_others:
        yield f"{FindingLevel.OK.value:7}{well} (--verbose lists the findings)"
    yield summary(kept)


def summary(sections: Iterable[ReportSection]) -> str:
    """One line: how many things were checked, and how many findings are wrong, notes, or not checked."""
    kept = list(sections)
    numbers = Counter(finding.verdict for section in kept for finding in section.findings)
    wrong, notes, skipped = (numbers[one] for one in (FindingLevel.WRONG, FindingLevel.NOTE, FindingLevel.SKIPPED))
    counts = [f"{wrong} wrong" if wrong else "nothing wrong", *[f"{notes} note{'s' * (notes != 1)}"] * bool(notes)]
    counts += [f"{skipped} not checked"] * bool(skipped)
    result = ", ".join(counts) if wrong or notes or skipped else "all is well"
    return f"{counted(kept) or 'no policies and no registries'}: {result}"


def counted(sections: Iterable[ReportSection]) -> str:
    """The number of sections of each kind; empty where there are none."""
    numbers = Counter(section.kind for section in sections)
    words = {
        kind: kind.value if number == 1 else _PLURALS.get(kind, f"{kind}s") for kind, number in numbers.items() if kind
    }
    return ", ".join(f"{numbers[kind]} {words[kind]}" for kind in SubjectKind if numbers[kind])


def report_data(sections: Iterable[ReportSection]) -> dict[str, Any]:
    """The sections as plain data for JSON; what a finding does not have is left out."""
    kept = list(sections)
    data = [
        {
            "about": section.about,
            "findings": [
                {"verdict": finding.verdict.value, "text": finding.text}
                | (asdict(finding.place) if finding.place else {})
                for finding in section.findings
            ],
        }
        for section in kept
        if section.findings
    ]
    return {"ok": all_ok(kept), "sections": data}


def reason(error: Exception) -> str:
    """A refusal as `this account may not list pods in namespace shop`; any other error as it is."""
    if not isinstance(error, Forbidden):
        return str(error)
    found = _REFUSAL.search(error.message)
    if found is None:
        return str(error)
    resource = f"{found['resource']}.{found['group']}" if found["group"] else found["resource"]
    where = f" in namespace {found['namespace']}" if found["namespace"] else ""
    return f"this account may not {found['verb']} {resource}{where}"
