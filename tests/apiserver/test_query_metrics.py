"""Named queries on pods."""

from typing import Any

import pytest

from adapter.snapshot import Snapshot
from adapter.usage.query_results import Series
from tests.apiserver.metric_requests import CUSTOM, PODS, items, refused
from tests.apiserver.snapshots import NOW, pod, query, series, snapshot, view


async def values(picture: Snapshot, target: str, **more: object) -> dict[str, str]:
    found = await items(picture, target, **more)
    return {item["describedObject"]["name"]: item["value"] for item in found}


def asked(*found: Series, **more: Any) -> Snapshot:
    pods = [pod("p1"), pod("p2"), pod("p3", labels={"app": "other"})]
    return snapshot(queries=[query("requests", *found, **more)], pods=pods)


FAILED = "Prometheus main: connection refused"
SOME = asked(series(100, pod="p1"), series(2500, pod="p2"), series(7, pod="p3"), series(9, pod="gone"))
REPEATED = asked(series(1, pod="p1", code="200"), series(2, pod="p1", code="500"))
OLD = series(5, at=NOW - 91, pod="p2")


@pytest.mark.parametrize(
    ("picture", "target", "found"),
    [
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


BOTH = snapshot(view(), queries=[query("requests"), query("depth", by_pod=False)])


@pytest.mark.parametrize(
    ("picture", "target", "code", "says"),
    [
        (BOTH, "%2A/effective_cpu", 404, "effective_cpu has no value on pods: pods of a namespace have the metrics of"),
        (BOTH, "%2A/depth", 404, "depth has no value on pods"),
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
