"""The distribution of demand over the serving pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.demo.sharing import IDLE, Replica, serving, share, to_pull_out, usages


def replicas(count: int) -> list[Replica]:
    return [Replica(f"web-{index}", created=f"2026-01-01T00:00:{index:02d}Z") for index in range(count)]


def test_each_of_the_serving_pods_gets_an_equal_share() -> None:
    assert usages(replicas(5), set(), 7500) == {f"web-{index}": 1500 for index in range(5)}


def test_an_additional_pod_lowers_the_load_of_the_others() -> None:
    assert set(usages(replicas(7), set(), 7500).values()) == {1071}


def test_a_pulled_out_pod_idles_and_the_others_carry_its_share() -> None:
    found = usages(replicas(7), {"web-0", "web-3"}, 8000)
    assert found == {**{f"web-{index}": 1600 for index in (1, 2, 4, 5, 6)}, "web-0": IDLE, "web-3": IDLE}


def test_a_pod_that_is_not_ready_carries_nothing() -> None:
    found = usages([*replicas(2), Replica("late", ready=False)], set(), 1000)
    assert found == {"web-0": 500, "web-1": 500, "late": IDLE}


def test_a_leaving_pod_neither_serves_nor_is_set() -> None:
    assert usages([*replicas(1), Replica("old", leaving=True)], set(), 1000) == {"web-0": 1000}


def test_without_serving_pods_there_is_no_share() -> None:
    assert usages(replicas(2), {"web-0", "web-1"}, 9000) == {"web-0": IDLE, "web-1": IDLE}
    assert share(9000, 0) is None


@given(st.integers(0, 100_000), st.integers(1, 60), st.sets(st.integers(0, 59)))
def test_the_shares_add_up_to_the_demand(demand: int, count: int, out: set[int]) -> None:
    pulled_out = {f"web-{index}" for index in out}
    carriers = [one.name for one in serving(replicas(count), pulled_out)]
    found = usages(replicas(count), pulled_out, demand)
    carried = sum(found[name] for name in carriers)
    assert not carriers or abs(carried - demand) <= len(carriers) / 2


def test_the_oldest_serving_pods_are_pulled_out_first() -> None:
    mixed = [Replica("new", created="2026-01-02"), Replica("old", created="2026-01-01"), Replica("dead", leaving=True)]
    assert to_pull_out(mixed, 1) == ["old"]


def test_pods_of_the_same_age_are_ordered_by_name() -> None:
    assert to_pull_out([Replica("b"), Replica("a"), Replica("c")], 2) == ["a", "b"]


@pytest.mark.parametrize(("already", "expected"), [(set(), ["web-0", "web-1"]), ({"web-0"}, ["web-1", "web-2"])])
def test_a_pod_is_not_pulled_out_twice(already: set[str], expected: list[str]) -> None:
    assert to_pull_out(replicas(4), 2, already) == expected
