"""The ranked report of many services as one self-contained HTML page, with a table that can be sorted and searched."""

from collections.abc import Iterable, Iterator

from adapter.commands.replay.comparison import RAW
from adapter.commands.replay.fleet.parts import FleetPart
from adapter.commands.replay.fleet.ranking import OVER_HIGH, SHORTFALL, Ranked, Ranking, rank
from adapter.commands.replay.page.markup import Html, document, join, tag
from adapter.commands.replay.page.texts import count_text, minutes, share_text, signed_text

_RISKS = {OVER_HIGH: "more time over high", SHORTFALL: "load beyond capacity"}


def fleet_page(part: FleetPart) -> str:
    """The page of a whole run."""
    ranking = rank(part)
    span = f"{part.run.get('from', '')} to {part.run.get('to', '')}"
    title = f"Replay of {len(part.services):,} services"
    body = join(
        [
            tag(
                "header",
                tag("p", "Replay", class_="kind"),
                tag("h1", title),
                tag("p", f"{span} · each policy against the {RAW}", class_="facts"),
            ),
            tag("main", _cards(part, ranking), _services(ranking), _failed(ranking)),
            tag("footer", "This page loads nothing and sends nothing."),
        ]
    )
    return document(title, body, {})


def _cards(part: FleetPart, ranking: Ranking) -> Html:
    costs = [one.saved_cost for one in ranking.all if one.saved_cost is not None]
    figures = [
        (signed_text(sum(one.saved for one in ranking.all)), "pod-hours saved"),
        *([(_money(sum(costs)), "cost saved")] if costs else []),
        (signed_text(minutes(sum(one.avoided for one in ranking.all))), "minutes over a high watermark avoided"),
        (count_text(len(ranking.at_risk)), f"of {len(part.services):,} services at risk with their policy"),
    ]
    cards = (
        tag("article", tag("p", tag("strong", text), name, class_="main"), class_="card") for text, name in figures
    )
    return tag("section", cards, class_="cards", aria_label="All services together")


def _services(ranking: Ranking) -> Html:
    has_cost = any(one.saved_cost is not None for one in ranking.all)
    has_capacity = any(one.policy.shortfall_ratio is not None for one in ranking.all)
    head = (
        tag("th", tag("button", title, type="button"), scope="col", aria_sort=direction)
        for title, direction in _titles(has_cost=has_cost, has_capacity=has_capacity)
    )
    ordered = sorted(ranking.all, key=lambda one: -one.saved)
    rows = (tag("tr", _row(one, has_cost=has_cost, has_capacity=has_capacity)) for one in ordered)
    search = tag("label", "Search ", tag("input", type="search", data_search="services"))
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", rows), class_="sortable", id="services")
    return tag(
        "section",
        tag("h2", "Services"),
        tag("p", search, class_="search"),
        tag("div", table, class_="scroll wide", tabindex="0"),
        tag("p", f"Saved and avoided: by the policy, against the {RAW}. Negative: the policy has more.", class_="hint"),
    )


def _titles(*, has_cost: bool, has_capacity: bool) -> Iterator[tuple[str, str]]:
    yield "Service", "none"
    yield "Pod-hours saved", "descending"
    if has_cost:
        yield "Cost saved", "none"
    yield from ((title, "none") for title in ("Pod-hours, stock", "policy"))
    yield from ((title, "none") for title in ("Minutes over avoided", "stock", "policy"))
    if has_capacity:
        yield from (("Shortfall, stock", "none"), ("policy", "none"))
    yield "Risks", "none"


def _row(one: Ranked, *, has_cost: bool, has_capacity: bool) -> Iterable[Html]:
    stock, policy = one.stock, one.policy
    yield tag("th", tag("bdi", str(one.row.policy)), scope="row")
    yield _number(one.saved, signed_text(one.saved))
    if has_cost:
        saved = one.saved_cost
        yield _number(saved, "" if saved is None else _money(saved))
    yield from (_number(run.pod_hours, count_text(run.pod_hours)) for run in (stock, policy))
    yield _number(one.avoided, signed_text(minutes(one.avoided)))
    yield from (_number(run.over_high_seconds, count_text(minutes(run.over_high_seconds))) for run in (stock, policy))
    if has_capacity:
        yield from (_number(run.shortfall_ratio, share_text(run.shortfall_ratio)) for run in (stock, policy))
    risks = ", ".join(_RISKS[risk] for risk in one.risks)
    yield tag("td", risks, class_="warning" if risks else None, data_value=str(len(one.risks)))


def _number(value: float | None, text: str) -> Html:
    return tag("td", text, data_value="" if value is None else repr(float(value)))


def _money(value: float) -> str:
    return f"{value:+,.2f}".replace("-", "−")


def _failed(ranking: Ranking) -> Html:
    if not ranking.failed:
        return Html()
    rows = (tag("li", tag("bdi", str(row.policy)), ": ", row.error or "") for row in ranking.failed)
    return tag("section", tag("h2", "Not replayed"), tag("ul", rows))
