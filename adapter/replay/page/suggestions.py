"""The suggestions on the page: the front of cost and risk, the figures of each candidate, and its patch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adapter.load.spec import Policy
from adapter.replay.page.charts import rounded
from adapter.replay.page.markup import Html, join, tag
from adapter.replay.page.texts import NOT_KNOWN, change_text, count_text, duration_text, hours, minutes, share_text
from adapter.replay.patch import patch_text
from adapter.replay.service import Summary
from adapter.replay.suggest import Candidate, Suggestions, watermark_text


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
    checked = present.checked is not None
    rows = (_row(known, present, checked=checked) for known in suggestions.candidates)
    head = tag("tr", (tag("th", title, scope="col") for title in _titles(suggestions, checked=checked)))
    return tag(
        "section",
        tag("h2", "Suggestions"),
        tag(
            "p",
            f"{suggestions.tried} policies were played. Every one is judged by the same load: {measure.name}, "
            f"{watermark_text(metric, measure.load)} of {metric.name} for each pod. ",
            "They were chosen on the first part of the history; “later” is the rest, which the choice has not seen."
            if checked
            else "The history is too short to check them on a part that the choice has not seen.",
        ),
        tag(
            "figure",
            tag(
                "figcaption",
                "Cost and risk",
                tag("span", "lower left is better; the square is the present policy", class_="key"),
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


def _titles(suggestions: Suggestions, *, checked: bool) -> Iterable[str]:
    yield from ("Candidate", "High", "Low", "Velocity up / down", "Cooldown up / down")
    yield from ("Pod-hours", "Change", f"Minutes over {suggestions.yardstick.name}", "Shortfall", "Flaps")
    if checked:
        yield from ("Later: change of pod-hours", "Later: minutes over", "Later: flaps")


def _row(known: Candidate, present: Candidate, *, checked: bool) -> Html:
    policy = known.policy
    metric = policy.metrics[0]
    cells = [
        watermark_text(metric, metric.high) or NOT_KNOWN,
        watermark_text(metric, metric.low) or NOT_KNOWN,
        _pair(
            [
                f"{percent} %" if percent is not None else "no limit"
                for percent in (policy.velocity.up, policy.velocity.down)
            ]
        ),
        _pair(
            [duration_text(seconds) if seconds else "none" for seconds in (policy.cooldown.up, policy.cooldown.down)]
        ),
        *_figures(known.learned, present.learned),
    ]
    if checked and known.checked and present.checked:
        cells += [
            change_text(known.checked.pod_seconds, present.checked.pod_seconds),
            count_text(minutes(known.checked.over_high)),
            count_text(known.checked.flaps),
        ]
    name = tag("th", known.name, scope="row")
    return tag("tr", name, (tag("td", cell) for cell in cells), class_="subject" if known.is_present else None)


def _pair(values: Sequence[str]) -> str:
    return values[0] if len(set(values)) == 1 else " / ".join(values)


def _figures(summary: Summary, present: Summary) -> Iterable[str]:
    yield count_text(hours(summary.pod_seconds))
    yield change_text(summary.pod_seconds, present.pod_seconds)
    yield count_text(minutes(summary.over_high))
    yield share_text(summary.shortfall)
    yield count_text(summary.flaps)


def _patch(present: Policy, known: Candidate, manifest: Mapping[str, Any]) -> Html:
    notes = [tag("p", "Warning: ", warning, class_="warning") for warning in known.warnings]
    title = f"Patch of candidate {known.name}"
    return tag(
        "details",
        tag("summary", title),
        join(notes),
        tag("pre", tag("code", patch_text(present, known.policy, manifest)), tabindex="0"),
    )
