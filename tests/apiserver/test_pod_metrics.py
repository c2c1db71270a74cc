"""Pods metrics: measured values, values for pulled-out pods, and the settings' queries."""

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.pods import PodState
from adapter.load.quantity import parse_quantity
from adapter.load.spec import Capacity
from adapter.snapshot import PodsMetricTarget, Problem, Snapshot
from adapter.usage.query_results import Series
from tests.apiserver.metric_requests import CUSTOM, PODS, items, refused
from tests.apiserver.snapshots import (
    NOW,
    asks,
    measured,
    metric,
    pod,
    query,
    reading,
    rps,
    series,
    snapshot,
    view,
)

OUT = PodState.PULLED_OUT


async def values(picture: Snapshot, target: str, **more: object) -> dict[str, str]:
    found = await items(picture, target, **more)
    return {item["describedObject"]["name"]: item["value"] for item in found}


def four(*more_asking: PodsMetricTarget) -> Snapshot:
    pods = [reading("p1", cpu=3000), reading("p2", cpu=3000), reading("p3", OUT, cpu=10), reading("p4", OUT)]
    return snapshot(view(pods=pods, assessments=[measured(usage=3000)]), asking=more_asking)


@pytest.mark.parametrize(
    ("asking", "value"),
    [
        ([asks(1500)], "1500m"),
        ([], "3"),
        ([asks(100, metric="effective_memory"), asks(200, target="other")], "3"),
        ([asks(700, hpa="aaa"), asks(1500, hpa="checkout"), asks(900, hpa="zzz")], "1500m"),
    ],
    ids=["one asks", "none: the effective average", "of another metric or target", "the policy's own counts"],
)
async def test_a_pulled_out_pod_is_reported_exactly_at_the_target_of_the_hpa_that_asks(
    asking: list[PodsMetricTarget], value: str
) -> None:
    found = await values(four(*asking), f"{PODS}/effective_cpu?labelSelector=app%3Dweb")
    assert found == {"p1": "3", "p2": "3", "p3": value, "p4": value}


@given(
    loads=st.lists(st.integers(1, 5000), min_size=1, max_size=8),
    out=st.integers(0, 6),
    target=st.integers(1, 3000),
)
async def test_the_hpas_own_sum_asks_for_the_pods_needed_plus_those_out(
    loads: list[int], out: int, target: int
) -> None:
    pods = [reading(f"in-{i}", cpu=load) for i, load in enumerate(loads)]
    pods += [reading(f"out-{i}", OUT) for i in range(out)]
    average = Fraction(sum(loads), len(loads))
    picture = snapshot(view(pods=pods, assessments=[measured(usage=average)]), asking=[asks(target)])
    found = await values(picture, f"{PODS}/effective_cpu")
    total = sum(math.ceil(parse_quantity(value) * 1000) for value in found.values())
    assert math.ceil(Fraction(total, target)) == math.ceil(Fraction(sum(loads), target)) + out


async def test_a_serving_or_doubtful_pod_with_a_sample_has_its_own_value_and_the_others_are_left_out() -> None:
    states = [state for state in PodState if state is not OUT]
    pods = [reading(state.name, state, cpu=100) for state in states]
    picture = snapshot(view(pods=[*pods, reading("without a sample")]))
    assert await values(picture, f"{PODS}/effective_cpu") == {"SERVING": "100m", "DOUBTFUL": "100m"}


async def test_of_a_utilization_a_pod_has_its_share_of_its_own_limit() -> None:
    pods = [reading("p1", limit=2, memory=1500), reading("p2", limit=4, memory=1000), reading("p3", memory=1000)]
    picture = snapshot(
        view(
            metrics=[metric("memory", relative_to=Capacity.LIMIT)],
            assessments=[measured("memory", usage=500)],
            pods=pods,
        )
    )
    assert await values(picture, f"{PODS}/effective_memory") == {"p1": "750m", "p2": "250m"}


def asked(*found: Series, **more: Any) -> Snapshot:
    pods = [pod("p1"), pod("p2"), pod("p3", labels={"app": "other"})]
    return snapshot(queries=[query("requests", *found, **more)], pods=pods)


ILL = view("b", target="b", problem=Problem(404, "NotFound", "HPA b does not exist"))
A, B = (view(name, target=name, pods=[reading(f"{name}1", cpu=100)]) for name in "ab")
BROKEN = view("b", target="b", pods=[reading("b1")], assessments=[measured(usage=None, error="refused")])
FAILED = "Prometheus main: connection refused"
SOME = asked(series(100, pod="p1"), series(2500, pod="p2"), series(7, pod="p3"), series(9, pod="gone"))
REPEATED = asked(series(1, pod="p1", code="200"), series(2, pod="p1", code="500"))
OLD = series(5, at=NOW - 91, pod="p2")


@pytest.mark.parametrize(
    ("picture", "target", "found"),
    [
        (four(asks(1500)), "p3/effective_cpu", {"p3": "1500m"}),
        (snapshot(A, B), "%2A/effective_cpu?metricLabelSelector=policy%3Db", {"b1": "100m"}),
        (snapshot(A, BROKEN), "a1/effective_cpu", {"a1": "100m"}),
        (snapshot(A, ILL), "%2A/effective_cpu", {"a1": "100m"}),
        (SOME, "%2A/requests?labelSelector=app%3Dweb", {"p1": "100m", "p2": "2500m"}),
        (SOME, "p3/requests", {"p3": "7m"}),
        (asked(series(100, kubernetes_pod="p1"), pod_label="kubernetes_pod"), "%2A/requests", {"p1": "100m"}),
        (asked(series(100, pod="p1"), OLD), "%2A/requests", {"p1": "100m"}),
        (asked(series(100, pod="p1"), OLD, error=FAILED), "%2A/requests", {"p1": "100m"}),
        (REPEATED, "%2A/requests?metricLabelSelector=code%3D500", {"p1": "2m"}),
    ],
)
async def test_the_pods_that_are_asked_for_and_have_a_value_are_served(
    picture: Snapshot, target: str, found: dict[str, str]
) -> None:
    assert await values(picture, f"{CUSTOM}/pods/{target}") == found


TOTAL = view(metrics=[rps()], assessments=[measured("rps", total=True)], pods=[reading("p1")])
BOTH = snapshot(view(), queries=[query("requests"), query("depth", by_pod=False)])


@pytest.mark.parametrize(
    ("picture", "target", "code", "says"),
    [
        (four(), "p9/effective_cpu", 404, "effective_cpu has no value on pods in namespace shop: no policy or query"),
        (
            snapshot(A),
            "%2A/effective_cpu?labelSelector=app%3Dother",
            404,
            "on pods that 'app=other' selects in namespace",
        ),
        (snapshot(A), "%2A/effective_cpu?metricLabelSelector=policy%3Dc", 404, "on pods that 'policy=c' selects"),
        (
            snapshot(A, BROKEN, pods=[pod("b1", labels={"app": "other"})]),
            "%2A/effective_cpu",
            503,
            "metric cpu of WatermarkPolicy shop/b: refused",
        ),
        (snapshot(ILL), "%2A/effective_cpu", 404, "HPA b does not exist"),
        (snapshot(TOTAL), "%2A/effective_rps", 404, "effective_rps has no value on pods"),
        (BOTH, "%2A/depth", 404, "depth has no value on pods in namespace shop"),
        (asked(OLD), "%2A/requests", 404, "query requests has no fresh sample of a pod in namespace shop"),
        (REPEATED, "%2A/requests", 503, "several series of pod p1; write it as `sum by (namespace, pod) (…)`"),
        (asked(OLD, error=FAILED), "%2A/requests", 503, f"query requests: {FAILED}"),
        (asked(fetched_at=None), "%2A/requests", 503, "query requests has not been answered yet"),
    ],
)
async def test_what_is_on_no_pod_is_refused_with_the_reason(
    picture: Snapshot, target: str, code: int, says: str
) -> None:
    error = await refused(picture, f"{CUSTOM}/pods/{target}")
    assert (error.code, says in error.message) == (code, True)


async def test_a_query_is_not_answered_while_watches_are_silent() -> None:
    assert (await refused(SOME, f"{PODS}/requests", stale="silent")).code == 503
