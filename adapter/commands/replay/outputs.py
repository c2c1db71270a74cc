"""What a replay of one service leaves behind: text or JSON, the page, and suggestions."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from adapter.commands.replay import front as fronts
from adapter.commands.replay import report, suggestion_report
from adapter.commands.replay.comparison import SUBJECT, Result
from adapter.commands.replay.history.progress import Progress
from adapter.commands.replay.page.markup import write_text
from adapter.commands.replay.page.report import Report, page
from adapter.commands.replay.player import capacity_of, suggest_for
from adapter.commands.replay.service import open_spool
from adapter.commands.replay.suggest import BUDGET, SuggestError, Suggestions
from adapter.runtime.faults import Fault, FaultyDocument


class OutputError(FaultyDocument):
    """Something that was asked for cannot be made; `faults` name the argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """A result with the suggestions that were asked for, the policy's object, and where the history is from."""

    result: Result
    manifest: Mapping[str, Any]
    source: str = ""
    suggestions: Suggestions | None = None
    front: fronts.Front | None = None

    def text(self) -> Iterator[str]:
        """The lines of the report."""
        yield from report.lines(self.result)
        if self.front:
            yield ""
            yield from fronts.lines(self.front)
        if self.suggestions:
            yield ""
            yield from suggestion_report.lines(self.suggestions, self.manifest)

    def as_json(self) -> str:
        """The report as JSON."""
        known = report.data(self.result)
        if self.front:
            known["front"] = fronts.data(self.front)
        if self.suggestions:
            known["suggestions"] = suggestion_report.data(self.suggestions, self.manifest)
        return json.dumps(known, indent=2)

    def write_page(self, file: str) -> None:
        """Write the HTML page. Raises FaultyDocument."""
        compared = self.result.comparison
        shown = Report(
            policy=compared.policy,
            setup=compared.setup,
            since=self.result.begin,
            until=self.result.end,
            runs=self.result.runs,
            subject=SUBJECT,
            load=next(iter(compared.judge.high), ""),
            source=self.source,
            price=compared.price,
            manifest=self.manifest,
            suggestions=self.suggestions,
            notes=tuple(report.notes(self.result)),
        )
        write_text(file, page(shown))


def suggestions_from(result: Result, spool: Path, aim: float | None) -> Suggestions:
    """Suggestions from a spooled history at a shortfall (see `suggest_for`).

    How far the search is goes to standard error. Raises OutputError where nothing can be suggested.
    """
    progress = Progress("policies played, at most:", BUDGET)
    try:
        return suggest_for(result, partial(open_spool, spool), progress.advance, aim=aim)
    except SuggestError as error:
        raise OutputError([Fault("--suggest", None, str(error))], "no suggestions") from error
    finally:
        progress.close()


def front_from(result: Result, spool: Path) -> fronts.Front:
    """The fronts of the compared autoscalers from a spooled history. Raises OutputError where there are none."""
    try:
        return fronts.front_of(result, capacity_of(result.comparison), partial(open_spool, spool))
    except SuggestError as error:
        raise OutputError([Fault("--front", None, str(error))], "no front") from error
