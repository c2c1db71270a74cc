"""The report of a check: sections of findings, each a sentence with a verdict; as text and as JSON.

A fault may be the symptom of another one: `folded` leaves it out and names it with its cause.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from adapter.kube.errors import Forbidden
from adapter.runtime.faults import first_names

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


_NAMED = 5
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
    """One sentence.

    `cause` is what the finding is the cause of, where it is wrong: findings with the same text in `symptom_of` follow
    from it. `explains` names the sections of those.
    """

    verdict: FindingLevel
    text: str
    place: Place | None = None
    cause: str = ""
    symptom_of: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()


@dataclass(slots=True)
class ReportSection:
    """The findings about one thing; `kind` is its kind where the summary counts such things.

    `is_explained`: findings were left out, for the cause that was found. What adds a finding returns the section.
    """

    about: str
    kind: SubjectKind | None = None
    findings: list[Finding] = field(default_factory=list)
    is_explained: bool = False

    def ok(self, text: str) -> Self:
        self.findings.append(Finding(FindingLevel.OK, text))
        return self

    def wrong(
        self, text: str, *, place: Place | None = None, cause: str = "", symptom_of: tuple[str, ...] = ()
    ) -> Self:
        self.findings.append(Finding(FindingLevel.WRONG, text, place, cause, symptom_of))
        return self

    def note(self, text: str) -> Self:
        self.findings.append(Finding(FindingLevel.NOTE, text))
        return self

    def skipped(self, text: str, *, place: Place | None = None) -> Self:
        self.findings.append(Finding(FindingLevel.SKIPPED, f"not checked: {text}", place))
        return self


def folded(sections: Iterable[ReportSection]) -> list[ReportSection]:
    """The sections without the symptoms of causes that were found; each cause names the sections it explains.

    What is itself a symptom hands on what it would explain. A section of which nothing is left stays, without a
    finding: its subject was checked, and counts.
    """
    kept = list(sections)
    wrong = [finding for section in kept for finding in section.findings if finding.verdict is FindingLevel.WRONG]
    causes = {section.cause for section in wrong} - {""}
    parents = {section.cause: _parent(section, causes) for section in wrong if section.cause}
    explained: dict[str, dict[str, None]] = {cause: {} for cause in causes}
    result = []
    for section in kept:
        own_findings = []
        for finding in section.findings:
            root = _parent(finding, causes)
            seen = {root}
            while (parent := parents.get(root, "")) and parent not in seen:
                seen.add(parent)
                root = parent
            if root and root != finding.cause:  # causes in a circle do not hide each other
                explained[root][section.about] = None
            else:
                own_findings.append(finding)
        result.append(
            ReportSection(section.about, section.kind, own_findings, len(own_findings) < len(section.findings))
        )
    for section in result:
        section.findings = [
            replace(finding, explains=tuple(name for name in explained.pop(finding.cause) if name != section.about))
            if finding.cause in explained
            else finding
            for finding in section.findings
        ]
    return result


def _parent(finding: Finding, causes: Collection[str]) -> str:
    """The cause, among those found, that a finding is a symptom of; empty where there is none."""
    if finding.verdict is not FindingLevel.WRONG:
        return ""
    return next((name for name in finding.symptom_of if name in causes and name != finding.cause), "")


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
                if finding.explains:
                    yield f"         this explains faults of {first_names(finding.explains, _NAMED)}"
    well = counted(
        section
        for section in kept
        if {finding.verdict for finding in section.findings} == {FindingLevel.OK} and not section.is_explained
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
                | ({"explains": list(finding.explains)} if finding.explains else {})
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
