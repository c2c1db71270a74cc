"""Discovery documents: never empty, one scope per parent, unchanged until names change."""

import json
from dataclasses import replace
from typing import Any

from adapter.apiserver.discovery import COMMON_METRICS, MOST_NAMES, document
from adapter.apiserver.request_info import parse_target
from adapter.snapshot import PolicyView, Snapshot
from tests.apiserver.snapshots import measured, metric, query, snapshot, view

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"


def read(target: str, picture: Snapshot = Snapshot()) -> Any:  # noqa: B008  it is frozen
    found = document(parse_target(target), picture)
    return None if found is None else json.loads(found)


def names(picture: Snapshot, group: str = CUSTOM, version: str = "v1beta2") -> list[str]:
    found = read(f"/apis/{group}/{version}", picture)
    return [resource["name"] for resource in found["resources"]]


def test_an_empty_snapshot_still_lists_policies_and_usual_targets() -> None:
    parents = ("watermarkpolicies.effective-load.io", "deployments.apps", "statefulsets.apps")
    common = {f"{parent}/{name}" for parent in parents for name in COMMON_METRICS}
    assert set(names(Snapshot())) == set(names(Snapshot(), version="v1beta1")) == common
    assert set(names(Snapshot(), EXTERNAL, "v1beta1")) == set(COMMON_METRICS)


def test_metrics_of_policies_and_queries_are_listed_where_they_are_served() -> None:
    picture = snapshot(
        view(metrics=[metric("cpu"), metric("mem")], assessments=[measured()]),
        queries=[query("requests"), query("depth", by_pod=False)],
    )
    custom, external = names(picture), names(picture, EXTERNAL, "v1beta1")
    assert {"deployments.apps/raw_mem", "pods/requests"} <= set(custom)
    assert not {"pods/depth", "pods/effective_mem", "pods/desired_replicas"} & set(custom)
    assert {"desired_replicas", "effective_cpu", "requests", "depth"} <= set(external)


def test_a_tenant_with_thousands_of_metrics_and_many_kinds_makes_no_document_that_clients_cannot_hold() -> None:
    def crowd(number: int) -> PolicyView:
        metrics = [metric(f"m{number:03}-{each}") for each in range(10)]
        return replace(view(f"p{number}", metrics=metrics), target_resource=f"k{number % 200}.x.io")

    picture = snapshot(*map(crowd, range(1000)))
    for group, version in ((CUSTOM, "v1beta2"), (EXTERNAL, "v1beta1")):
        found = names(picture, group, version)
        assert len(found) < 2 * MOST_NAMES
        assert sum("desired_replicas" in name for name in found) == (1 if group == EXTERNAL else 203)


def test_what_is_not_served_is_not_found() -> None:
    for target in (
        f"/apis/{EXTERNAL}/v1beta2",
        f"/apis/{CUSTOM}/v1",
        "/apis/metrics.k8s.io",
        "/openapi/v2",
        "/nowhere",
    ):
        assert read(target) is None
    assert [group["name"] for group in read("/apis")["groups"]] == [CUSTOM, EXTERNAL]


def test_a_group_names_all_its_versions_the_preferred_one_first() -> None:
    found = read(f"/apis/{CUSTOM}")
    assert (found["kind"], found["apiVersion"], found["name"]) == ("APIGroup", "v1", CUSTOM)
    assert [version["version"] for version in found["versions"]] == ["v1beta2", "v1beta1"]
    assert found["preferredVersion"] == {"groupVersion": f"{CUSTOM}/v1beta2", "version": "v1beta2"}
