"""An HPA with a tolerance of its own: steps that it would swallow are held, and it never ratchets."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from adapter.load.assessment import Decision, Limited
from adapter.load.decide import served_value, within_hpa_tolerance
from adapter.load.spec import Bounds, HpaTolerance, Mode, Scale
from tests.load.kit import BOUNDS, assess_and_decide, cpu, policy, same, scale, usage

TENTH = HpaTolerance(Fraction(1, 10), Fraction(1, 10))
COARSE = replace(BOUNDS, tolerance=TENTH)


def stock_hpa(served: int, at: Scale, bounds: Bounds, up: float, down: float) -> int:
    """What the stock HPA sets for an Object metric with averageValue 1, its behavior left aside.

    Within its tolerance it proposes status.replicas, not spec.replicas.
    """
    ratio = float(served) / (1000.0 * at.status_replicas) if at.status_replicas else float("inf")
    inside = 1.0 - down <= ratio <= 1.0 + up
    proposal = at.status_replicas if inside else -(-served // 1000)
    return min(max(proposal, bounds.minimum), bounds.maximum)


def settled(wanted: int, current: int, status: int | None = None, bounds: Bounds = COARSE) -> int | None:
    found = within_hpa_tolerance(Limited(wanted, None), scale(current, status), bounds)
    return found.desired if isinstance(found, Limited) else None


def decision(count: int, load: str, status: int | None = None, **changes: object) -> Decision:
    pods, loads = same(count, load)
    rule = replace(policy(cpu("1200m", "400m")), **changes)  # type: ignore[arg-type]  # whatever the test names
    return assess_and_decide(rule, pods, usage(loads), status=status, bounds=COARSE)[1]


tolerances = st.sampled_from([Fraction(0), Fraction(1, 100), Fraction(1, 20), Fraction(1, 10), Fraction(1, 4)])
counts = st.integers(1, 400)


@given(wanted=counts, current=counts, status=st.integers(0, 500), up=tolerances, down=tolerances, lowest=counts)
def test_the_hpa_sets_the_decided_count_or_keeps_the_current_one(
    wanted: int, current: int, status: int, up: Fraction, down: Fraction, lowest: int
) -> None:
    bounds = Bounds(minimum=min(lowest, current, wanted), maximum=400, tolerance=HpaTolerance(up, down))
    at = scale(current, status)
    found = within_hpa_tolerance(Limited(wanted, None), at, bounds)
    if isinstance(found, str):
        # No answer: the HPA keeps the current count, which no value that means "hold" would have.
        assert stock_hpa(served_value(current, status), at, bounds, float(up), float(down)) != current
    else:
        assert found.desired in {wanted, current}
        assert stock_hpa(served_value(found.desired, status), at, bounds, float(up), float(down)) == found.desired


@given(wanted=counts, current=counts, up=tolerances, down=tolerances)
def test_only_counts_that_no_value_can_reach_are_suppressed(
    wanted: int, current: int, up: Fraction, down: Fraction
) -> None:
    bounds = Bounds(minimum=1, maximum=400, tolerance=HpaTolerance(up, down))
    at = scale(current)
    # A value between two whole ones says the same to the HPA, but may lie on another side of its tolerance.
    values = (1000 * wanted, 1000 * wanted - 500, 1000 * (wanted - 1) + 1)
    reachable = any(stock_hpa(value, at, bounds, float(up), float(down)) == wanted for value in values)
    assert settled(wanted, current, bounds=bounds) == (wanted if reachable else current)


def test_a_rollout_that_would_ratchet_has_no_answer_even_while_the_policy_rests() -> None:
    for mode in Mode:
        found = decision(100, "800m", status=110, mode=mode)
        assert found.desired is None
        assert "rollout in progress: 100 replicas are asked for and 110 pods exist" in (found.error or "")
    assert "pods are still being made" in (decision(11, "800m", status=10).error or "")


class TestFloats:
    """The HPA reads its tolerance as a float: the number before the suffix times a power of ten."""

    def test_a_milli_tolerance_may_be_the_next_float_to_the_nearest_one(self) -> None:
        tolerance = Fraction(118, 1000)
        assert float(tolerance) != 118 * 0.001
        assert stock_hpa(559_000, scale(500), BOUNDS, 118 * 0.001, 118 * 0.001) != stock_hpa(
            559_000, scale(500), BOUNDS, float(tolerance), float(tolerance)
        )
        bounds = replace(BOUNDS, tolerance=HpaTolerance(tolerance, tolerance))
        assert settled(559, 500, bounds=bounds) == stock_hpa(559_000, scale(500), BOUNDS, 118 * 0.001, 118 * 0.001)


def test_outside_its_bounds_the_hpa_does_not_ask() -> None:
    assert settled(0, 0, 11) == 0
    assert settled(40, 44, bounds=replace(COARSE, maximum=40)) == 40
