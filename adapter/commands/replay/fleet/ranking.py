"""Ranks the services of a run: which gain most by the policy against the stock HPA on the raw average, which lose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.commands.replay.comparison import RAW, SUBJECT
from adapter.commands.replay.fleet.parts import FleetPart, RunRow, ServiceRow
from adapter.commands.terminal.output import aligned

OVER_HIGH, SHORTFALL = "overHigh", "shortfall"
_NO_SHORTFALL = 0.0001
_COLUMNS = ("SERVICE", "POD-HOURS", "SAVED", "COST SAVED", "OVER HIGH", "AVOIDED", "SHORTFALL")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A service with the stock HPA's run and the policy's. Gains are negative where the policy needs more."""

    row: ServiceRow
    stock: RunRow
    policy: RunRow

    @property
    def saved(self) -> float:
        """Pod-hours that the stock HPA uses more."""
        return self.stock.pod_hours - self.policy.pod_hours

    @property
    def saved_cost(self) -> float | None:
        """What those cost; None without a price."""
        if self.stock.cost is None or self.policy.cost is None:
            return None
        return self.stock.cost - self.policy.cost

    @property
    def avoided(self) -> float:
        """Seconds over the high watermark that the stock HPA has more."""
        return self.stock.over_high_seconds - self.policy.over_high_seconds

    @property
    def risks(self) -> tuple[str, ...]:
        """Why the service is at risk with the policy: more load beyond capacity than with the stock HPA.

        Where nobody knows the capacity, more time over the high watermark. A tenth more may be chance.
        """
        if self.policy.shortfall_ratio is not None:
            return (SHORTFALL,) if _shortfall(self.policy) > 1.1 * _shortfall(self.stock) + _NO_SHORTFALL else ()
        return (OVER_HIGH,) if self.policy.over_high_seconds > 1.1 * self.stock.over_high_seconds else ()


class Ranking(NamedTuple):
    """The services by what they gain, those at risk, and those that could not be replayed; each best or worst first."""

    saves: Sequence[Ranked]
    avoids: Sequence[Ranked]
    at_risk: Sequence[Ranked]
    failed: Sequence[ServiceRow]
    all: Sequence[Ranked]


def rank(part: FleetPart) -> Ranking:
    """Rank all services of a run. Equal ones are in order of their names."""
    services = [Ranked(row, row.runs[0], row.runs[SUBJECT]) for row in part.services if row.error is None]
    return Ranking(
        saves=sorted((one for one in services if one.saved > 0), key=lambda one: -one.saved),
        avoids=sorted((one for one in services if one.avoided > 0), key=lambda one: -one.avoided),
        at_risk=sorted((one for one in services if one.risks), key=lambda one: (one.avoided, -_shortfall(one.policy))),
        failed=[row for row in part.services if row.error is not None],
        all=services,
    )


def _shortfall(run: RunRow) -> float:
    return run.shortfall_ratio or 0.0


def data(part: FleetPart) -> dict[str, Any]:
    """The ranked report as JSON data. The three rankings name services; their figures are in `services`."""
    ranking = rank(part)
    costs = [one.saved_cost for one in ranking.all if one.saved_cost is not None]
    return {
        "run": dict(part.run),
        "serviceCount": len(part.services),
        "savedPodHours": round(sum(one.saved for one in ranking.all), 3),
        "savedCost": round(sum(costs), 4) if costs else None,
        "avoidedOverHighSeconds": sum(one.avoided for one in ranking.all),
        "mostSaved": [str(one.row.policy) for one in ranking.saves],
        "mostAvoided": [str(one.row.policy) for one in ranking.avoids],
        "atRisk": [{"policy": str(one.row.policy), "risks": list(one.risks)} for one in ranking.at_risk],
        "failed": [{"policy": str(row.policy), "error": row.error} for row in ranking.failed],
        "services": [_service(one) for one in ranking.all],
    }


def _service(one: Ranked) -> dict[str, Any]:
    return {
        "policy": {"namespace": one.row.policy.namespace, "name": one.row.policy.name},
        "savedPodHours": round(one.saved, 3),
        "savedCost": None if one.saved_cost is None else round(one.saved_cost, 4),
        "avoidedOverHighSeconds": one.avoided,
        "risks": list(one.risks),
        "podHours": {"stock": one.stock.pod_hours, "policy": one.policy.pod_hours},
        "overHighSeconds": {"stock": one.stock.over_high_seconds, "policy": one.policy.over_high_seconds},
        "shortfallRatio": {"stock": one.stock.shortfall_ratio, "policy": one.policy.shortfall_ratio},
    }


def lines(part: FleetPart, top: int) -> Iterator[str]:
    """The ranked report as text: up to `top` services in each ranking."""
    ranking, count = rank(part), len(part.services)
    yield f"Replay of {count} service{'s' * (count != 1)}, {part.run.get('from')} to {part.run.get('to')}: each policy"
    yield f"against the {RAW}: the one of today, else one that is as safe."
    yield f"{len(ranking.at_risk)} at risk, {len(ranking.failed)} not replayed."
    saved = sum(one.saved for one in ranking.all)
    avoided = sum(one.avoided for one in ranking.all)
    yield f"Together: {saved:+.1f} pod-hours saved, {avoided / 60:+.1f} minutes over a high watermark avoided."
    for title, services in (
        ("MOST POD-HOURS SAVED", ranking.saves),
        ("MOST TIME OVER A HIGH WATERMARK AVOIDED", ranking.avoids),
        ("AT RISK", ranking.at_risk),
    ):
        yield from _table(title, services, top)
    if ranking.failed:
        yield ""
        yield "NOT REPLAYED"
        yield from (f"{row.policy}: {row.error}" for row in ranking.failed[:top])
        yield from _more(len(ranking.failed), top)
    yield ""
    yield "Each pair: stock HPA → policy. OVER HIGH: minutes with more than a high watermark on a serving pod."


def _table(title: str, services: Sequence[Ranked], top: int) -> Iterator[str]:
    if not services:
        return
    yield ""
    yield title
    yield from aligned([_COLUMNS, *(_row(one) for one in services[:top])])
    yield from _more(len(services), top)


def _row(one: Ranked) -> list[str]:
    stock, policy = one.stock, one.policy
    return [
        str(one.row.policy),
        f"{stock.pod_hours:.1f} → {policy.pod_hours:.1f}",
        f"{one.saved:+.1f}",
        "" if one.saved_cost is None else f"{one.saved_cost:+.2f}",
        f"{stock.over_high_seconds / 60:.1f} → {policy.over_high_seconds / 60:.1f}",
        f"{one.avoided / 60:+.1f}",
        ""
        if policy.shortfall_ratio is None
        else f"{100 * _shortfall(stock):.3f} → {100 * policy.shortfall_ratio:.3f} %",
    ]


def _more(count: int, top: int) -> Iterator[str]:
    if count > top:
        yield f"… and {count - top} more (--top)"
