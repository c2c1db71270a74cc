"""The benchmark of control: services as they claim, perfect knowledge the least, the quick model as replay plays."""

import json
import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import pytest

from adapter.commands.replay.suggest import Plan
from adapter.policy.behavior import SHIPPED_PACE
from adapter.policy.hpa import ScalingRules
from lab.benchmarks.control import quick
from lab.benchmarks.control.contest import BANDS, LAGS, SHIPPED, policy, replayed, rules
from lab.benchmarks.control.perfect import pod_hours
from lab.benchmarks.control.services import CAPACITY, SERVICES, ticks
from lab.benchmarks.record import RESULTS, ROOT

STEP, PAID = 15.0, 35.0


def loads(name: str) -> list[float]:
    return [tick.load["cpu"] / CAPACITY for tick in ticks(name, 1)]


@pytest.mark.parametrize(
    ("name", "p99", "p999"), [("tidal", (1.0, 1.1), (1.0, 1.15)), ("spiky", (1.35, 1.5), (4.0, 6.0))]
)
def test_a_service_rises_within_45_seconds_as_real_ones_do(
    name: str, p99: tuple[float, float], p999: tuple[float, float]
) -> None:
    shown = loads(name)
    rises = sorted(after / before for before, after in zip(shown, shown[3:], strict=False))
    assert p99[0] <= rises[int(0.99 * len(rises))] <= p99[1]
    assert p999[0] <= rises[int(0.999 * len(rises))] <= p999[1]


def test_the_grainy_service_has_noise_of_thirty_percent() -> None:
    shown = loads("grainy")
    steps = [abs(after / before - 1) for before, after in pairwise(shown) if before > 0.5]
    assert 0.2 < sorted(steps)[len(steps) // 2] < 0.45


@pytest.mark.parametrize("name", SERVICES)
def test_a_part_of_a_history_is_the_same_whichever_part_is_read(name: str) -> None:
    whole = list(ticks(name, 1, 0.0, 7200.0))
    assert [*ticks(name, 1, 0.0, 3600.0), *ticks(name, 1, 3600.0, 3600.0)] == whole
    assert list(ticks(name, 2, 0.0, 7200.0)) != whole


@pytest.mark.parametrize("share", [Fraction(3, 5), Fraction(9, 10)])
@pytest.mark.parametrize("name", SERVICES)
def test_the_quick_model_is_the_replay(name: str, share: Fraction) -> None:
    begin, seconds = 8 * 3600.0, 3 * 3600.0
    part = [tick.load["cpu"] / CAPACITY for tick in ticks(name, 1, begin, seconds)]
    wide = Plan(policy(share, Fraction(3, 5)), ScalingRules(stabilization=300))
    bold = Plan(replace(policy(share), saturation_factor=Fraction(8, 5)), ScalingRules(stabilization=60))
    patient = Plan(replace(policy(share), saturation_factor=Fraction(1)), SHIPPED_PACE, 60)
    for plan in (None, SHIPPED, wide, bold, patient):
        kind = quick.Rules(1.0) if plan is None else rules(plan)
        found = quick.play(part, replace(kind, level=float(share)))
        known = replayed(plan, share, name, 1, begin, seconds)
        assert found.pod_seconds == pytest.approx(known.pod_seconds, rel=0.001)
        assert found.shortfall == pytest.approx(known.shortfall, rel=0.01, abs=1e-6)
        assert found.changes == pytest.approx(known.changes, abs=2)
        assert found.flaps == pytest.approx(known.flaps, abs=2)


@pytest.mark.parametrize("lag", LAGS.values(), ids=LAGS)
@pytest.mark.parametrize("plan", [None, SHIPPED], ids=["stock", "shipped"])
def test_the_quick_model_is_the_replay_at_every_lag(plan: Plan | None, lag: quick.Rules) -> None:
    begin, seconds, share = 8 * 3600.0, 3 * 3600.0, Fraction(4, 5)
    part = [tick.load["cpu"] / CAPACITY for tick in ticks("spiky", 1, begin, seconds)]
    kind = replace(lag if plan is None else rules(plan), level=float(share), start=lag.start, covered=lag.covered)
    found, known = quick.play(part, kind), replayed(plan, share, "spiky", 1, begin, seconds, lag)
    assert found.pod_seconds == pytest.approx(known.pod_seconds, rel=0.01)
    assert found.shortfall == pytest.approx(known.shortfall, rel=0.02)


def test_a_pod_is_kept_over_a_valley_that_is_shorter_than_its_start_and_goes_over_a_longer_one() -> None:
    peak, valley = [3.0] * 10, [1.0] * 2
    found = pod_hours([1.0] * 10 + peak + valley + peak + [1.0] * 10, STEP, PAID, 1, 0.0)
    assert found * 3600 == pytest.approx(42 * STEP + 2 * (22 * STEP + PAID))
    found = pod_hours([2.0] * 5 + [1.0] * 3 + [2.0] * 5, STEP, PAID, 1, 0.0)
    assert found * 3600 == pytest.approx(13 * STEP + 10 * STEP + 2 * PAID)


def test_perfect_knowledge_costs_what_the_cheapest_of_all_plans_does() -> None:
    rng = random.Random(5)
    for _ in range(5):
        shown = [rng.uniform(0, 3) for _ in range(8)]
        allowed = 0.02
        cheapest = min(
            sum(plan) * STEP + PAID * sum(max(0, b - a) for a, b in zip((1, *plan), plan, strict=False))
            for plan in product((1, 2, 3), repeat=len(shown))
            if sum(max(0.0, load - count) for load, count in zip(shown, plan, strict=True)) <= allowed * sum(shown)
        )
        found = pod_hours(shown, STEP, PAID, 1, allowed) * 3600
        assert cheapest - 1e-6 <= found <= 1.05 * cheapest


def stored() -> list[dict[str, Any]]:
    """The services of the stored result."""
    services: list[dict[str, Any]] = json.loads((RESULTS / "control.json").read_text(encoding="utf-8"))["services"]
    return services


def change(one: dict[str, Any], service: dict[str, Any]) -> str:
    """Pod-hours against the stock HPA's, as docs write it."""
    stock = service["aims"][0]["stock"]["pod_hours"]
    return f"{100 * (one['pod_hours'] / stock - 1):+.1f} %".replace("-", "−") if one["pod_hours"] else "never so small"


def band_rows() -> list[str]:
    """The rows of docs/watermarks.md on bands."""
    rows = []
    for name in BANDS:
        bands = [service["bands"][name] for service in stored()]
        label = name.removeprefix("low/high ").replace("as shipped", "`scaleDown` of 120 s and 10 % a minute")
        changes = " | ".join(change(band, service) for band, service in zip(bands, stored(), strict=True))
        flaps = ", ".join("–" if band["flaps"] is None else f"{band['flaps']:.0f}" for band in bands)
        rows.append(f"| {label} | {changes} | {flaps} |")
    flaps = ", ".join(f"{service['aims'][0]['stock']['flaps']:.0f}" for service in stored())
    return [*rows, f"| stock HPA | ±0 % | ±0 % | ±0 % | {flaps} |"]


def lag_rows() -> list[str]:
    """The rows of docs/watermarks.md on lag."""
    return [
        f"| {name} | {' | '.join(change(service['lags'][name], service) for service in stored())} |" for name in LAGS
    ]


def test_the_page_on_watermarks_has_the_stored_figures() -> None:
    page = (ROOT / "docs" / "watermarks.md").read_text(encoding="utf-8")
    for row in [*band_rows(), *lag_rows()]:
        assert row in page
