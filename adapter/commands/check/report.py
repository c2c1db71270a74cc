"""The report of a check: sections of findings, each a sentence with a verdict; as text and as JSON.

A fault may be the symptom of another one: `folded` leaves it out and names it with its cause.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

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


_SHOWN = (FindingLevel.WRONG, FindingLevel.NOTE, FindingLevel.SKIPPED)
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

    `is_explained`: findings were left out, for the cause that was found.
    """

    about: str
    kind: SubjectKind | None = None
    findings: list[Finding] = field(default_factory=list)
    is_explained: bool = False

    def ok(self, text: str) -> None:
        self.findings.append(Finding(FindingLevel.OK, text))

    def wrong(
        self, text: str, *, place: Place | None = None, cause: str = "", symptom_of: tuple[str, ...] = ()
    ) -> None:
        self.findings.append(Finding(FindingLevel.WRONG, text, place, cause, symptom_of))

    def note(self, text: str) -> None:
        self.findings.append(Finding(FindingLevel.NOTE, text))

    def skipped(self, text: str, *, place: Place | None = None) -> None:
        self.findings.append(Finding(FindingLevel.SKIPPED, f"not checked: {text}", place))


def folded(sections: Iterable[ReportSection]) -> list[ReportSection]:
    """The sections without the symptoms of causes that were found; each cause names the sections it explains.

    What is itself a symptom hands on what it would explain. A section of which nothing is left stays, without a
    finding: its subject was checked, and counts.
    """
    kept = list(sections)
    wrong = [finding for section in kept for finding in section.findings if finding.verdict is FindingLevel.WRONG]
    causes = {one.cause for one in wrong} - {""}
    parents = {one.cause: _parent(one, causes) for one in wrong if one.cause}
    explained: dict[str, dict[str, None]] = {cause: {} for cause in causes}
    result = []
    for section in kept:
        own = []
        for finding in section.findings:
            parent = _parent(finding, causes)
            root = _root(parent, parents) if parent else ""
            if root and root != finding.cause:  # causes in a circle do not hide each other
                explained[root][section.about] = None
            else:
                own.append(finding)
        result.append(ReportSection(section.about, section.kind, own, len(own) < len(section.findings)))
    for section in result:
        section.findings = [
            replace(one, explains=tuple(name for name in explained.pop(one.cause) if name != section.about))
            if one.cause in explained
            else one
            for one in section.findings
        ]
    return result


def _parent(finding: Finding, causes: Collection[str]) -> str:
    """The cause, among those found, that a finding is a symptom of; empty where there is none."""
    if finding.verdict is not FindingLevel.WRONG:
        return ""
    return next((name for name in finding.symptom_of if name in causes and name != finding.cause), "")


def _root(cause: str, parents: Mapping[str, str]) -> str:
    seen = {cause}
    while (parent := parents.get(cause, "")) and parent not in seen:
        seen.add(parent)
        cause = parent
    return cause


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
            for finding in shown:
                place = f"{finding.place}: " if finding.place else ""
                yield f"  {finding.verdict.value:5}  {place}{finding.text}"
                if finding.explains:
                    yield f"         this explains faults of {first_names(finding.explains, _NAMED)}"
    well = counted(
        one
        for one in kept
        if {finding.verdict for finding in one.findings} == {FindingLevel.OK} and not one.is_explained
    )
    if well and not verbose and any(_number(kept, verdict) for verdict in _SHOWN):
        yield f"{FindingLevel.OK.value:7}{well} (--verbose lists the findings)"
    yield summary(kept)


def summary(sections: Iterable[ReportSection]) -> str:
    """One line: how many things were checked, and how many findings are wrong, notes, or not checked."""
    kept = list(sections)
    wrong, notes = _number(kept, FindingLevel.WRONG), _number(kept, FindingLevel.NOTE)
    skipped = _number(kept, FindingLevel.SKIPPED)
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


def _number(sections: Iterable[ReportSection], verdict: FindingLevel) -> int:
    return sum(finding.verdict is verdict for section in sections for finding in section.findings)


def report_data(sections: Iterable[ReportSection]) -> dict[str, Any]:
    """The sections as plain data for JSON."""
    kept = list(sections)
    return {
        "ok": all_ok(kept),
        "sections": [
            {"about": section.about, "findings": [_data(finding) for finding in section.findings]}
            for section in kept
            if section.findings
        ],
    }


def _data(finding: Finding) -> dict[str, Any]:
    """A finding as JSON data; what it does not have is left out."""
    data: dict[str, Any] = {"verdict": finding.verdict.value, "text": finding.text}
    if finding.place is not None:
        where = finding.place
        data |= {"file": where.file, "line": where.line, "field": where.field}
    if finding.explains:
        data["explains"] = list(finding.explains)
    return data


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
