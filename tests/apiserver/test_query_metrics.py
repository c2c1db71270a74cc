"""Policies and queries as External metrics, which the HPA adds up; queries on pods."""

import asyncio
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kube.selectors import parse_selector
from adapter.load.samples import time_text
from adapter.snapshot import Problem, Snapshot
from adapter.usage.query_results import Series
from tests.apiserver.conftest import StubScales
from tests.apiserver.metric_requests import CUSTOM, EXTERNAL, PODS, items, refused
from tests.apiserver.snapshots import NOW, measured, pod, query, series, snapshot, view


def two() -> Snapshot:
    return snapshot(view("a", target="a"), view("b", target="b", assessments=[measured(usage=250)]))


def depth(*found: Series, **more: Any) -> Snapshot:
    return snapshot(queries=[query("depth", *found, by_pod=False, **more)])


@pytest.mark.parametrize(
    "selector",
    ["policy%3Db", "policy%3D%3Db", "policy+in+%28b%2Cc%29", "policy%21%3Da", "policy+notin+%28a%29%2Cpolicy"],
)
async def test_one_selected_policy_gives_its_count_from_its_live_scale(selector: str) -> None:
    scales = StubScales()
    [found] = await items(two(), f"{EXTERNAL}/desired_replicas?labelSelector={selector}", scales=scales)
    assert (found["metricName"], found["metricLabels"], found["value"]) == ("desired_replicas", {"policy": "b"}, "7")
    assert len(scales.reads) == 1


QUEUES = depth(series(100, queue="x"), series(2500, queue="y"))
ONE_OLD = depth(series(100, queue="x"), series(2500, queue="y", at=NOW - 91))
FAILED = "Prometheus main: no answer within 10 s"


@pytest.mark.parametrize(
    ("picture", "target", "found"),
    [
        (two(), "effective_cpu?labelSelector=policy%3Db", [({"policy": "b", "metric": "cpu"}, "250m")]),
        (two(), "effective_pods", [({"policy": "a"}, "0"), ({"policy": "b"}, "0")]),
        (QUEUES, "depth?labelSelector=queue%3Dy", [({"namespace": "shop", "queue": "y"}, "2500m")]),
        (ONE_OLD, "depth?labelSelector=queue%3Dx", [({"namespace": "shop", "queue": "x"}, "100m")]),
        (depth(series(100), error=FAILED), "depth", [({"namespace": "shop"}, "100m")]),
        (
            snapshot(queries=[query("requests", series(100, pod="p1"))]),
            "requests",
            [({"namespace": "shop", "pod": "p1"}, "100m")],
        ),
    ],
)
async def test_each_selected_series_has_its_labels_and_value(
    picture: Snapshot, target: str, found: list[tuple[dict[str, str], str]]
) -> None:
    answer = await items(picture, f"{EXTERNAL}/{target}")
    assert [(item["metricLabels"], item["value"]) for item in answer] == found


ILL = view("c", target="c", problem=Problem(404, "NotFound", "HPA c does not exist"))
HOW = "selects; select one by its name: matchLabels: {policy: NAME}"
OLD = time_text(NOW - 91)
LATE = f"query depth was last answered at {time_text(NOW - 95)}, the limit is 90 s"


@pytest.mark.parametrize(
    ("picture", "target", "code", "says"),
    [
        (two(), "desired_replicas", 400, "2 policies are selected (a, b), and the HPA would add up"),
        (two(), "desired_replicas?labelSelector=policy%3Dc", 404, HOW),
        (two(), "desired_replicas?labelSelector=team%3Dred", 404, HOW),
        (two(), "desired_replicas?labelSelector=%21policy", 404, HOW),
        (two(), "effective_cpu?labelSelector=policy%3Dc", 404, HOW),
        (snapshot(view("b", namespace="other")), "desired_replicas?labelSelector=policy%3Db", 404, HOW),
        (snapshot(view("a", target="a"), ILL), "effective_cpu", 404, "HPA c does not exist"),
        (snapshot(), "nope", 404, "no WatermarkPolicy in namespace shop has an external metric nope; select one"),
        (ONE_OLD, "depth", 503, f"a series that counts was sampled at {OLD}"),
        (QUEUES, "depth?labelSelector=queue%3Dz", 404, "of a series that 'queue=z' selects in namespace shop"),
        (depth(fetched_at=None), "depth", 503, "has not been answered yet"),
        (depth(fetched_at=None, error=FAILED), "depth", 503, f"has not been answered yet: {FAILED}"),
        (depth(fetched_at=NOW - 95), "depth", 503, LATE),
        (depth(fetched_at=NOW - 95, error=FAILED), "depth", 503, f"{LATE}; {FAILED}"),
        (depth(series(1, at=NOW - 91), error=FAILED), "depth", 503, f"sampled at {OLD}, the limit is 90 s; {FAILED}"),
        (depth(error=FAILED), "depth", 503, f"query depth: {FAILED}"),
    ],
)
async def test_what_has_no_sum_is_refused_with_the_reason(picture: Snapshot, target: str, code: int, says: str) -> None:
    error = await refused(picture, f"{EXTERNAL}/{target}")
    assert (error.code, says in error.message) == (code, True)


keys = st.sampled_from(["queue", "zone"])
some = st.sampled_from(["a", "b", "c"])
clauses = st.one_of(
    st.builds("{}={}".format, keys, some),
    st.builds("{}!={}".format, keys, some),
    st.builds("{} in ({},{})".format, keys, some, some),
    st.builds("{} notin ({},{})".format, keys, some, some),
    st.builds("!{}".format, keys),
    keys,
)


@given(
    st.lists(st.dictionaries(keys, some), min_size=1, max_size=6),
    st.lists(clauses, min_size=1, max_size=3).map(",".join),
)
async def test_any_selector_serves_exactly_the_series_that_it_selects(
    labels: list[dict[str, str]], selector: str
) -> None:
    found = [series(number + 1, at=NOW - 1, **each) for number, each in enumerate(labels)]
    wanted = [
        f"{n + 1}m" for n, each in enumerate(labels) if parse_selector(selector).matches({"namespace": "shop", **each})
    ]
    target = f"{EXTERNAL}/depth?labelSelector={quote_plus(selector)}"
    if wanted:
        assert [item["value"] for item in await items(depth(*found), target)] == wanted
    else:
        assert (await refused(depth(*found), target)).code == 404


# --- queries on pods


async def values(picture: Snapshot, target: str, **more: object) -> dict[str, str]:
    found = await items(picture, target, **more)
    return {item["describedObject"]["name"]: item["value"] for item in found}


def on_pods(*found: Series, **more: Any) -> Snapshot:
    pods = [pod("p1"), pod("p2"), pod("p3", labels={"app": "other"})]
    return snapshot(queries=[query("requests", *found, **more)], pods=pods)


DOWN = "Prometheus main: connection refused"
SOME = on_pods(series(100, pod="p1"), series(2500, pod="p2"), series(7, pod="p3"), series(9, pod="gone"))
REPEATED = on_pods(series(1, pod="p1", code="200"), series(2, pod="p1", code="500"))
OLD_POD = series(5, at=NOW - 91, pod="p2")


@pytest.mark.parametrize(
    ("picture", "target", "found"),
    [
        (SOME, "%2A/requests?labelSelector=app%3Dweb", {"p1": "100m", "p2": "2500m"}),
        (SOME, "p3/requests", {"p3": "7m"}),
        (on_pods(series(100, kubernetes_pod="p1"), pod_label="kubernetes_pod"), "%2A/requests", {"p1": "100m"}),
        (on_pods(series(100, pod="p1"), OLD_POD), "%2A/requests", {"p1": "100m"}),
        (on_pods(series(100, pod="p1"), OLD_POD, error=DOWN), "%2A/requests", {"p1": "100m"}),
        (REPEATED, "%2A/requests?metricLabelSelector=code%3D500", {"p1": "2m"}),
    ],
)
async def test_the_pods_that_are_asked_for_and_have_a_value_are_served(
    picture: Snapshot, target: str, found: dict[str, str]
) -> None:
    assert await values(picture, f"{CUSTOM}/pods/{target}") == found


BOTH = snapshot(view(), queries=[query("requests"), query("depth", by_pod=False)])


@pytest.mark.parametrize(
    ("picture", "target", "code", "says"),
    [
        (BOTH, "%2A/effective_cpu", 404, "effective_cpu has no value on pods: pods of a namespace have the metrics of"),
        (BOTH, "%2A/depth", 404, "depth has no value on pods"),
        (on_pods(OLD_POD), "%2A/requests", 404, "query requests has no fresh sample of a pod in namespace shop"),
        (REPEATED, "%2A/requests", 503, "several series of pod p1; write it as `sum by (namespace, pod) (…)`"),
        (on_pods(OLD_POD, error=DOWN), "%2A/requests", 503, f"query requests: {DOWN}"),
        (on_pods(fetched_at=None), "%2A/requests", 503, "query requests has not been answered yet"),
    ],
)
async def test_what_is_on_no_pod_is_refused_with_the_reason(
    picture: Snapshot, target: str, code: int, says: str
) -> None:
    error = await refused(picture, f"{CUSTOM}/pods/{target}")
    assert (error.code, says in error.message) == (code, True)


async def test_a_query_is_not_answered_while_watches_are_silent() -> None:
    assert (await refused(SOME, f"{PODS}/requests", stale="silent")).code == 503


async def test_list_of_ten_thousand_pods_is_complete_and_lets_other_requests_pass() -> None:
    crowd = [f"p{number}" for number in range(10_000)]
    found = [series(100, pod=name) for name in crowd]
    picture = snapshot(queries=[query("requests", *found)], pods=map(pod, crowd))
    passes = 0

    async def other() -> None:
        nonlocal passes
        while True:
            await asyncio.sleep(0)
            passes += 1

    beside = asyncio.create_task(other())
    assert list(await values(picture, f"{PODS}/requests")) == crowd
    beside.cancel()
    assert passes > 20
