"""The suggestions on the page: the front of cost and risk, the figures of each candidate, and its patch."""

from collections.abc import Iterable, Mapping
from typing import Any

from adapter.commands.replay.page.charts import rounded
from adapter.commands.replay.page.markup import Html, join, tag
from adapter.commands.replay.page.texts import NOT_KNOWN, change_text, count_text, hours, minutes, share_text
from adapter.commands.replay.patch import patch_text
from adapter.commands.replay.service import Summary
from adapter.commands.replay.suggest import Candidate, Suggestions, watermark_text
from adapter.commands.replay.suggestion_report import behavior_texts
from adapter.load.spec import Policy


def front_data(suggestions: Suggestions | None) -> dict[str, Any] | None:
    """The points of the front's chart: pod-hours and the risk in percent, on the part they were chosen on."""
    if suggestions is None:
        return None
    return {
        "risk": _risk_title(suggestions),
        "points": [
            {
                "name": known.name,
                "cost": rounded(hours(known.learned.pod_seconds)),
                "risk": rounded(100 * suggestions.yardstick.risk(known.learned)),
                "present": known.is_present,
            }
            for known in suggestions.candidates
        ],
    }


def suggestions_section(suggestions: Suggestions | None, manifest: Mapping[str, Any]) -> Html:
    """The section, empty where nothing was asked for."""
    if suggestions is None:
        return Html()
    present, *others = suggestions.candidates
    metric = present.policy.metrics[0]
    measure = suggestions.yardstick
    checked, capacity = present.checked is not None, measure.is_capacity
    rows = (_row(known, present, capacity=capacity) for known in suggestions.candidates)
    head = tag("tr", (tag("th", title, scope="col") for title in _titles(capacity=capacity, checked=checked)))
    return tag(
        "section",
        tag("h2", "Suggestions"),
        tag(
            "p",
            tag("strong", suggestions.recommendation()),
            f" {suggestions.tried} plans were played. Every one is judged by the same load: {measure.name}, "
            f"{watermark_text(metric, measure.load)} of {metric.name} for each pod; “minutes over” are over that. ",
            "They were chosen on the first part of the history; “later” is the rest, which the choice has not seen."
            if checked
            else "The history is too short to check them on a part that the choice has not seen.",
        ),
        tag(
            "figure",
            tag(
                "figcaption",
                "Cost and risk",
                tag("span", "lower left is better; the square is the present policy", class_="hint"),
            ),
            tag("div", class_="plot", id="chart-front", role="img", aria_label="Candidates by cost and risk"),
        ),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="scroll wide", tabindex="0"),
        tag("p", "Nothing is applied. Look at the replay of a candidate, then paste its patch.", class_="hint"),
        (_patch(present.policy, known, manifest) for known in others),
        class_="suggestions",
    )


def _risk_title(suggestions: Suggestions) -> str:
    if suggestions.yardstick.is_capacity:
        return "Shortfall, % of the load"
    return "Time over the present high watermark, %"


def _titles(*, capacity: bool, checked: bool) -> Iterable[str]:
    yield from ("Candidate", "High", "Low", "Saturation", "Scale up", "Scale down", "Pod-hours", "Minutes over")
    if capacity:
        yield "Shortfall"
    yield "Flaps"
    if checked:
        yield from ("Later: pod-hours", "minutes over", "flaps")


def _row(known: Candidate, present: Candidate, *, capacity: bool) -> Html:
    policy = known.policy
    metric = policy.metrics[0]
    cells = [
        watermark_text(metric, metric.high) or NOT_KNOWN,
        watermark_text(metric, metric.low) or NOT_KNOWN,
        *behavior_texts(known.plan).values(),
        _pod_hours(known.learned, None if known.is_present else present.learned),
        count_text(minutes(known.learned.over_high)),
        *([share_text(known.learned.shortfall)] if capacity else []),
        count_text(known.learned.flaps),
    ]
    if known.checked and present.checked:
        cells += [
            _pod_hours(known.checked, None if known.is_present else present.checked),
            count_text(minutes(known.checked.over_high)),
            count_text(known.checked.flaps),
        ]
    name = tag("th", known.name, scope="row")
    return tag("tr", name, (tag("td", cell) for cell in cells), class_="subject" if known.is_present else None)


def _pod_hours(summary: Summary, present: Summary | None) -> Html:
    """Pod-hours, and below them how many more or less than at present."""
    change = change_text(summary.pod_seconds, present.pod_seconds) if present else ""
    return join([count_text(hours(summary.pod_seconds)), tag("small", change) if change else ""])


def _patch(present: Policy, known: Candidate, manifest: Mapping[str, Any]) -> Html:
    notes = [tag("p", "Warning: ", warning, class_="warning") for warning in known.warnings]
    title = f"Patch of candidate {known.name}"
    return tag(
        "details",
        tag("summary", title),
        join(notes),
        tag("pre", tag("code", patch_text(present, known.plan, manifest)), tabindex="0"),
    )
