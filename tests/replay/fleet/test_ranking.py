"""The ranked report: who gains most, who is at risk, and what could not be replayed."""

from adapter.commands.replay.fleet import command
from adapter.commands.replay.fleet.services import ServiceRow
from tests.replay.fleet.kit import RUN, row

SAVES = row("saves", {"hours": 100, "over": 60, "cost": 50}, {"hours": 80, "over": 60, "cost": 40})
AVOIDS = row("avoids", {"hours": 100, "over": 3600, "cost": 50}, {"hours": 110, "over": 0, "cost": 55})
WORSE = row("worse", {"hours": 100, "over": 0, "cost": 50}, {"hours": 90, "over": 120, "cost": 45})
SHORT = row("short", {"hours": 9, "shortfall": 0.01, "cost": 1}, {"hours": 9, "shortfall": 0.02, "cost": 1})
FAILED = ServiceRow(namespace="shop", name="failed", error="no value of it")
ALL = [AVOIDS, FAILED, SAVES, SHORT, WORSE]


def test_each_ranking_has_the_most_first() -> None:
    ranked = command.rank(ALL)
    assert [one.row for one in ranked.saves] == [SAVES, WORSE]
    assert [one.row for one in ranked.avoids] == [AVOIDS]
    assert [one.row for one in ranked.at_risk] == [WORSE, SHORT]
    assert ranked.failed == [FAILED]


def test_a_service_that_improved_is_not_at_risk_though_some_load_is_beyond_its_capacity() -> None:
    better = row("better", {"hours": 9, "shortfall": 0.5, "cost": 1}, {"hours": 9, "shortfall": 0.02, "cost": 1})
    longer = row("longer", {"over": 0, "shortfall": 0.02, "cost": 1}, {"over": 9, "shortfall": 0.02, "cost": 1})
    assert command.rank([better, longer]).at_risk == []


def test_the_data_has_sums_ranks_and_figures() -> None:
    data = command.data(RUN, ALL)
    assert (data["serviceCount"], data["savedPodHours"], data["savedCost"]) == (5, 20, 10)
    assert data["avoidedOverHighSeconds"] == 3480
    assert data["atRisk"] == [
        {"policy": "shop/worse", "risks": ["overHigh"]},
        {"policy": "shop/short", "risks": ["shortfall"]},
    ]
    assert data["failed"] == [{"policy": "shop/failed", "error": "no value of it"}]
    assert [one["policy"]["name"] for one in data["services"]] == ["avoids", "saves", "short", "worse"]


def test_the_text_shows_the_top_of_each_ranking() -> None:
    text = "\n".join(command.lines(RUN, ALL, 1))
    assert "Replay of 5 services, 2026-11-01T00:00:00Z to 2026-11-08T00:00:00Z" in text
    assert "Together: +20.0 pod-hours saved, +58.0 minutes over a high watermark avoided." in text
    assert "shop/saves  100.0 → 80.0  +20.0      +10.00  1.0 → 1.0     +0.0" in text
    assert "… and 1 more (-o json)" in text
    assert "shop/failed: no value of it" in text
    assert "shop/short" not in text
