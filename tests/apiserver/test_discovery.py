"""Discovery documents: never empty, one scope per parent, unchanged until names change."""

import json
import weakref
from dataclasses import replace
from typing import Any

from adapter.apiserver.discovery import MOST_NAMES, Discovery
from adapter.apiserver.policy_figures import COMMON_METRICS
from adapter.snapshot import PolicyView, Snapshot, SnapshotIndex
from tests.apiserver.snapshots import measured, metric, query, snapshot, view

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"


def read(document: bytes | None) -> Any:
    assert document is not None
    return json.loads(document)


def names(picture: Snapshot, group: str = CUSTOM, version: str = "v1beta2") -> list[str]:
    found = read(Discovery().resources(SnapshotIndex(picture), group, version))
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
    assert {"deployments.apps/raw_mem", "pods/effective_cpu", "pods/effective_mem", "pods/requests"} <= set(custom)
    assert not {"pods/depth", "pods/raw_mem", "pods/desired_replicas"} & set(custom)
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


def test_no_name_is_listed_twice() -> None:
    picture = snapshot(view(), queries=[query("effective_cpu"), query("desired_replicas", by_pod=False)])
    for group, version in ((CUSTOM, "v1beta2"), (EXTERNAL, "v1beta1")):
        found = names(picture, group, version)
        assert len(found) == len(set(found))


def test_what_is_not_served_is_not_found() -> None:
    discovery, directory = Discovery(), SnapshotIndex(Snapshot())
    assert discovery.resources(directory, EXTERNAL, "v1beta2") is None
    assert discovery.resources(directory, CUSTOM, "v1") is None
    assert discovery.group("metrics.k8s.io") is None
    assert [g["name"] for g in read(discovery.groups())["groups"]] == [CUSTOM, EXTERNAL]


def test_a_group_names_all_its_versions_the_preferred_one_first() -> None:
    found = read(Discovery().group(CUSTOM))
    assert (found["kind"], found["apiVersion"], found["name"]) == ("APIGroup", "v1", CUSTOM)
    assert [version["version"] for version in found["versions"]] == ["v1beta2", "v1beta1"]
    assert found["preferredVersion"] == {"groupVersion": f"{CUSTOM}/v1beta2", "version": "v1beta2"}


def test_a_list_is_made_again_only_where_its_names_have_changed() -> None:
    discovery = Discovery()
    first = discovery.resources(SnapshotIndex(snapshot(view())), CUSTOM, "v1beta2")
    same = SnapshotIndex(snapshot(view(assessments=[measured(usage=1)])))
    assert discovery.resources(same, CUSTOM, "v1beta2") is first
    other = SnapshotIndex(snapshot(view(metrics=[metric("mem")], assessments=[])))
    assert discovery.resources(other, CUSTOM, "v1beta2") != first


def test_discovery_keeps_no_reference_to_a_snapshot() -> None:
    discovery, directory = Discovery(), SnapshotIndex(snapshot(view()))
    discovery.resources(directory, CUSTOM, "v1beta2")
    held = weakref.ref(directory)
    del directory
    assert held() is None, "all views of an old picture would be kept, and let go in one long step"
