"""Pods metrics: measured values, values for pulled-out pods, and the settings' queries."""

import asyncio
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver.status import StatusError
from adapter.load.pods import PodState
from adapter.load.quantity import parse_quantity
from adapter.load.spec import Capacity
from adapter.snapshot import Problem, Snapshot
from tests.apiserver.metric_requests import CUSTOM, PODS, ask, items
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


async def refused(picture: Snapshot, target: str, **more: object) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await ask(picture, target, **more)  # type: ignore[arg-type]
    return caught.value


def four(*more_asking: object) -> Snapshot:
    pods = [reading("p1", cpu=3000), reading("p2", cpu=3000), reading("p3", OUT, cpu=10), reading("p4", OUT)]
    return snapshot(view(pods=pods, assessments=[measured(usage=3000)]), asking=more_asking)  # type: ignore[arg-type]


async def test_a_pulled_out_pod_is_reported_exactly_at_the_target_of_the_hpa_that_asks() -> None:
    found = await values(four(asks(1500)), f"{PODS}/effective_cpu?labelSelector=app%3Dweb")
    assert found == {"p1": "3", "p2": "3", "p3": "1500m", "p4": "1500m"}


async def test_without_an_hpa_that_asks_a_pulled_out_pod_is_reported_at_the_effective_average() -> None:
    assert (await values(four(), f"{PODS}/effective_cpu"))["p3"] == "3"


async def test_an_hpa_counts_only_with_this_metric_on_the_target_of_this_policy() -> None:
    picture = four(asks(100, metric="effective_memory"), asks(200, target="other"))
    assert (await values(picture, f"{PODS}/effective_cpu"))["p3"] == "3"


async def test_of_several_hpas_that_ask_the_policys_own_counts() -> None:
    picture = four(asks(700, hpa="aaa"), asks(1500, hpa="checkout"), asks(900, hpa="zzz"))
    assert (await values(picture, f"{PODS}/effective_cpu"))["p3"] == "1500m"


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


async def test_a_doubtful_pod_has_its_own_value() -> None:
    picture = snapshot(view(pods=[reading("p1", cpu=100), reading("p2", PodState.DOUBTFUL, cpu=20)]))
    assert await values(picture, f"{PODS}/effective_cpu") == {"p1": "100m", "p2": "20m"}


@pytest.mark.parametrize("state", [PodState.STARTING, PodState.UNREADY, PodState.TERMINATING, PodState.FINISHED])
async def test_a_pod_that_does_not_serve_is_left_out(state: PodState) -> None:
    picture = snapshot(view(pods=[reading("p1", cpu=100), reading("p2", state, cpu=20)]))
    assert await values(picture, f"{PODS}/effective_cpu") == {"p1": "100m"}


async def test_a_serving_pod_without_a_sample_is_left_out_for_the_hpa_to_fill() -> None:
    picture = snapshot(view(pods=[reading("p1", cpu=100), reading("p2")]))
    assert await values(picture, f"{PODS}/effective_cpu") == {"p1": "100m"}


async def test_of_a_utilization_a_pod_has_its_share_of_its_own_limit() -> None:
    pods = [reading("p1", limit=2, memory=1500), reading("p2", limit=4, memory=1000), reading("p3", memory=1000)]
    picture = snapshot(
        view(metrics=[metric("memory", of=Capacity.LIMIT)], assessments=[measured("memory", usage=500)], pods=pods)
    )
    assert await values(picture, f"{PODS}/effective_memory") == {"p1": "750m", "p2": "250m"}


async def test_a_single_pod_can_be_asked_for() -> None:
    assert await values(four(asks(1500)), f"{CUSTOM}/pods/p3/effective_cpu") == {"p3": "1500m"}
    error = await refused(four(), f"{CUSTOM}/pods/p9/effective_cpu")
    assert (error.code, "pod p9" in error.message) == (404, True)


async def test_a_pod_is_described_as_a_pod_with_the_time_of_its_samples() -> None:
    [found, *_] = await items(four(), f"{PODS}/effective_cpu")
    assert found["describedObject"] == {"kind": "Pod", "namespace": "shop", "name": "p1", "apiVersion": "v1"}
    assert (found["timestamp"], found["windowSeconds"]) == ("2027-01-15T07:59:48Z", 30)


async def test_the_label_selector_selects_pods_and_the_metric_label_selector_policies() -> None:
    blue = reading("b1", cpu=50)
    picture = snapshot(view("a", target="a", pods=[reading("a1", cpu=100)]), view("b", target="b", pods=[blue]))
    assert await values(picture, f"{PODS}/effective_cpu?metricLabelSelector=policy%3Db") == {"b1": "50m"}
    assert (await refused(picture, f"{PODS}/effective_cpu?labelSelector=app%3Dother")).code == 404
    error = await refused(picture, f"{PODS}/effective_cpu?metricLabelSelector=policy%3Dc")
    assert (error.code, "selects no policy" in error.message) == (404, True)


async def test_a_metric_in_error_is_a_503_for_its_pods_and_no_matter_to_others() -> None:
    other = pod("b1", labels={"app": "other"})
    broken = view("b", target="b", pods=[reading("b1")], assessments=[measured(usage=None, error="refused")])
    picture = snapshot(view("a", target="a", pods=[reading("a1", cpu=100)]), broken, pods=[other])
    error = await refused(picture, f"{PODS}/effective_cpu")
    assert (error.code, "refused" in error.message) == (503, True)
    assert await values(picture, f"{CUSTOM}/pods/a1/effective_cpu") == {"a1": "100m"}


async def test_a_policy_with_a_problem_is_the_answer_where_nothing_else_is() -> None:
    ill = view("b", target="b", problem=Problem(404, "NotFound", "HPA b does not exist"))
    assert (await refused(snapshot(ill), f"{PODS}/effective_cpu")).message == "HPA b does not exist"
    well = view("a", target="a", pods=[reading("a1", cpu=100)])
    assert await values(snapshot(well, ill), f"{PODS}/effective_cpu") == {"a1": "100m"}


async def test_a_service_total_is_on_no_pod_and_the_answer_says_where_it_is() -> None:
    picture = snapshot(view(metrics=[rps()], assessments=[measured("rps", total=True)], pods=[reading("p1")]))
    error = await refused(picture, f"{PODS}/effective_rps")
    assert (error.code, "whole service" in error.message, "checkout" in error.message) == (404, True, True)


async def test_pods_of_another_namespace_are_not_seen() -> None:
    picture = snapshot(view(namespace="other", pods=[reading("p1", cpu=100)]))
    assert (await refused(picture, f"{PODS}/effective_cpu")).code == 404


async def test_an_unknown_metric_on_pods_is_a_404_that_names_what_exists() -> None:
    picture = snapshot(view(), queries=[query("requests"), query("depth", by_pod=False)])
    error = await refused(picture, f"{PODS}/nope")
    assert (error.code, "effective_cpu, requests" in error.message, "depth" in error.message) == (404, True, False)


async def test_an_error_names_a_few_of_a_tenants_thousands_of_metrics() -> None:
    crowd = [view(f"p{n}", metrics=[metric(f"m{n:03}-{each}") for each in range(10)]) for n in range(1000)]
    for path in (f"{PODS}/nope", "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/nope"):
        error = await refused(snapshot(*crowd), path)
        assert (error.code, len(error.message) < 2048, "effective_m000-0, " in error.message) == (404, True, True)


# --- named queries


def asked(*found: object, **more: object) -> Snapshot:
    pods = [pod("p1"), pod("p2"), pod("p3", labels={"app": "other"})]
    return snapshot(queries=[query("requests", *found, **more)], pods=pods)  # type: ignore[arg-type]


async def test_a_query_by_pod_is_served_on_the_pods_that_the_selector_selects() -> None:
    picture = asked(series(100, pod="p1"), series(2500, pod="p2"), series(7, pod="p3"), series(9, pod="gone"))
    assert await values(picture, f"{PODS}/requests?labelSelector=app%3Dweb") == {"p1": "100m", "p2": "2500m"}
    assert await values(picture, f"{CUSTOM}/pods/p3/requests") == {"p3": "7m"}


async def test_pods_that_come_while_a_querys_values_are_read_change_none_of_them() -> None:
    found = [series(number + 1, pod=f"p{number}") for number in range(3000)]
    picture = snapshot(queries=[query("requests", *found)], pods=[pod(f"p{number}") for number in range(3000)])
    reading, number = asyncio.ensure_future(values(picture, f"{PODS}/requests")), 0
    while not reading.done():
        picture.pods["shop"].put(pod(f"new-{number}"))  # type: ignore[attr-defined]
        number += 1
        await asyncio.sleep(0)
    assert (len(await reading), number > 1) == (3000, True)


async def test_a_querys_point_carries_its_own_time() -> None:
    [found] = await items(asked(series(100, at=NOW - 30, pod="p1")), f"{PODS}/requests")
    assert found["timestamp"] == "2027-01-15T07:59:30Z"
    assert "windowSeconds" not in found


async def test_a_query_may_name_its_pods_by_another_label() -> None:
    picture = asked(series(100, kubernetes_pod="p1"), pod_label="kubernetes_pod")
    assert await values(picture, f"{PODS}/requests") == {"p1": "100m"}


async def test_a_stale_point_leaves_its_pod_out() -> None:
    picture = asked(series(100, pod="p1"), series(5, at=NOW - 91, pod="p2"))
    assert await values(picture, f"{PODS}/requests") == {"p1": "100m"}
    assert (await refused(asked(series(5, at=NOW - 91, pod="p2")), f"{PODS}/requests")).code == 404


async def test_two_series_of_one_pod_are_an_error_that_says_how_to_write_the_query() -> None:
    picture = asked(series(1, pod="p1", code="200"), series(2, pod="p1", code="500"))
    error = await refused(picture, f"{PODS}/requests")
    assert (error.code, "sum by (namespace, pod)" in error.message) == (503, True)
    assert await values(picture, f"{PODS}/requests?metricLabelSelector=code%3D500") == {"p1": "2m"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"fetched_at": None}, "has not been answered yet"),
        ({"fetched_at": None, "error": "main: connection refused"}, "answered yet: main: connection refused"),
        ({"fetched_at": NOW - 95, "error": "main: connection refused"}, "limit is 90 s; main: connection refused"),
    ],
)
async def test_a_query_without_an_answer_or_with_an_old_one_is_a_503_that_says_why(
    more: dict[str, object], says: str
) -> None:
    error = await refused(asked(series(100, pod="p1"), **more), f"{PODS}/requests")
    assert (error.code, says in error.message) == (503, True)


async def test_a_failed_poll_changes_nothing_until_the_points_are_too_old() -> None:
    failed = "Prometheus main: connection refused"
    picture = asked(series(100, pod="p1"), series(5, at=NOW - 91, pod="p2"), error=failed)
    assert await values(picture, f"{PODS}/requests") == {"p1": "100m"}
    error = await refused(asked(series(5, at=NOW - 91, pod="p2"), error=failed), f"{PODS}/requests")
    assert (error.code, error.message) == (503, f"query requests: {failed}")


async def test_a_query_for_the_service_is_not_on_pods() -> None:
    assert (await refused(asked(series(1), by_pod=False), f"{PODS}/requests")).code == 404


async def test_a_query_is_not_answered_while_watches_are_silent() -> None:
    assert (await refused(asked(series(1, pod="p1")), f"{PODS}/requests", stale="silent")).code == 503
