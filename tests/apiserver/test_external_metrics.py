"""Policies and queries as External metrics, which the HPA adds up."""

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
from tests.apiserver.metric_requests import EXTERNAL, items, refused
from tests.apiserver.snapshots import NOW, measured, query, series, snapshot, view


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
