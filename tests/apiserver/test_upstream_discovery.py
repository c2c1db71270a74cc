"""Discovery merged with that of the adapters behind this one."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapter.apiserver import upstreams as upstreams_module
from adapter.apiserver.discovery import MOST_NAMES, Discovery, ListedParent, encode_in_slices
from adapter.apiserver.request_info import POLICIES_RESOURCE
from adapter.apiserver.upstream import KEEP_SECONDS, OwnNames, UpstreamAdapter, Upstreams
from adapter.settings import NamedQuery, UpstreamsSettings
from adapter.snapshot import Snapshot, SnapshotIndex
from adapter.telemetry.metrics import Metrics
from tests.apiserver import snapshots
from tests.apiserver.conftest import Clock
from tests.apiserver.upstream import CUSTOM, EXTERNAL, FakeUpstream, names
from tests.waiting import eventually

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2, V1 = f"{CUSTOM}/v1beta2", f"{CUSTOM}/v1beta1"
QUERIES = (
    NamedQuery(name="requests", server="main", query="x"),
    NamedQuery(name="depth", server="main", query="x", scope="Service"),
    NamedQuery(name="waiting", server="main", query='x{namespace="$namespace"}'),
)


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
async def custom(upstream: FakeUpstream, clock: Clock) -> AsyncIterator[UpstreamAdapter]:
    """The upstream for custom.metrics.k8s.io behind an adapter with two named queries."""
    settings = upstream.settings("custom").custom
    assert settings is not None
    made = UpstreamAdapter(CUSTOM, settings, OwnNames.of(QUERIES), Metrics(), clock=clock)
    yield made
    await made.close()


def listed(upstream: UpstreamAdapter, version: str = "v1beta2") -> list[str]:
    return names_of(upstream.listed(version))


def names_of(parents: tuple[ListedParent, ...]) -> list[str]:
    for parent in parents:  # the encoded entries say the same as the names
        entries = json.loads(b"[" + parent.legacy + b"]")
        assert {entry["name"] for entry in entries} == parent.metrics
        assert {entry["namespaced"] for entry in entries} == {parent.namespaced}
    return sorted(metric for parent in parents for metric in parent.metrics)


async def test_both_versions_are_asked_and_listed_apart_if_they_are_served(
    custom: UpstreamAdapter, upstream: FakeUpstream
) -> None:
    for listed_v2 in ([], ["pods/rps", "services/rps"]):
        if listed_v2:
            upstream.documents[V2] = names(CUSTOM, "v1beta2", *listed_v2)
        upstream.documents[V1] = names(CUSTOM, "v1beta1", "pods/rps")
        assert await custom.refresh()
        assert (listed(custom), listed(custom, "v1beta1"), custom.problem()) == (listed_v2, ["pods/rps"], None)
    assert {seen.headers["authorization"] for seen in upstream.seen} == {"Bearer low-privilege"}


async def test_names_of_a_silent_upstream_are_kept_for_a_bounded_time(
    custom: UpstreamAdapter, upstream: FakeUpstream, clock: Clock
) -> None:
    upstream.documents = {V2: names(CUSTOM, "v1beta2", "pods/rps")}
    assert await custom.refresh()
    await upstream.refuse()
    clock.now = KEEP_SECONDS
    assert not await custom.refresh()
    assert listed(custom) == ["pods/rps"]
    clock.now = KEEP_SECONDS + 1
    assert listed(custom) == []
    await upstream.start()
    assert await custom.refresh()
    assert listed(custom) == ["pods/rps"]


async def test_a_version_that_is_not_answered_keeps_its_names_beside_one_that_is(
    custom: UpstreamAdapter, upstream: FakeUpstream, clock: Clock
) -> None:
    upstream.documents = {V2: names(CUSTOM, "v1beta2", "pods/rps"), V1: names(CUSTOM, "v1beta1", "pods/rps")}
    await custom.refresh()
    upstream.documents = {V2: names(CUSTOM, "v1beta2", "pods/depth")}
    clock.now = KEEP_SECONDS
    assert await custom.refresh()
    assert (listed(custom), listed(custom, "v1beta1")) == (["pods/depth"], ["pods/rps"])
    clock.now = KEEP_SECONDS + 1
    assert (listed(custom), listed(custom, "v1beta1")) == (["pods/depth"], [])


async def test_a_very_long_list_is_cut_and_an_upstream_without_a_metric_any_more_lists_none(
    custom: UpstreamAdapter, upstream: FakeUpstream
) -> None:
    many = [f"pods/m{number:05}" for number in range(MOST_NAMES + 50)]
    upstream.documents = {V2: names(CUSTOM, "v1beta2", *many)}
    await custom.refresh()
    assert listed(custom) == many[:MOST_NAMES]
    upstream.documents = {V2: {**names(CUSTOM, "v1beta2"), "resources": None}}
    assert await custom.refresh()
    assert listed(custom) == []


async def test_names_of_ours_and_names_that_are_none_are_not_listed(
    custom: UpstreamAdapter, upstream: FakeUpstream
) -> None:
    ours = ("pods/requests", "deployments.apps/effective_x", "services/desired_replicas", f"{POLICIES_RESOURCE}/rps")
    none = ("pods", "pods/", "/rps", "pods/a/b", "../../x", "pods/a\nb", "Pods/x", "pods/" + "x" * 300)
    others = ("pods/rps", "services/requests", "pods/depth", "namespaces/depth", "pods/waiting")
    document = names(CUSTOM, "v1beta2", *ours, *none, *others)
    upstream.documents = {V2: document}
    assert await custom.refresh()
    assert listed(custom) == sorted(others)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"kind": "APIResourceList"},
        {**names(CUSTOM, "v1beta1", "pods/x"), "kind": "Secret"},
        names(CUSTOM, "v1beta1", "pods/wrong-version"),
        {**names(CUSTOM, "v1beta2"), "resources": [{"name": 3}]},
        {**names(CUSTOM, "v1beta2", "pods/x"), "padding": "x" * (5 << 20)},
    ],
    ids=lambda _: "",
)
async def test_a_document_that_cannot_be_read_keeps_the_names(
    custom: UpstreamAdapter, upstream: FakeUpstream, document: Any
) -> None:
    upstream.documents = {V2: names(CUSTOM, "v1beta2", "pods/rps")}
    assert await custom.refresh()
    upstream.documents = {V2: document}
    assert not await custom.refresh()
    assert listed(custom) == ["pods/rps"]
    assert "does not answer discovery: v1beta2: " in (custom.problem() or "")


async def merged(metrics: dict[str, bool], group: str = CUSTOM) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The resources of the legacy document, and the aggregated document."""
    upstream = await encode_in_slices(group, metrics)
    index = SnapshotIndex(snapshots.snapshot(snapshots.view()))
    discovery = Discovery(lambda asked, _: upstream if asked == group else ())
    legacy = discovery.resources(index, group, {CUSTOM: "v1beta2", EXTERNAL: "v1beta1"}[group])
    assert legacy is not None
    return json.loads(legacy.body)["resources"], json.loads(discovery.groups(index, AGGREGATED).body)


async def test_our_names_come_first_and_none_twice() -> None:
    resources, _ = await merged({"pods/rps": True, "deployments.apps/desired_replicas": True})
    every = [one["name"] for one in resources]
    assert every.count("deployments.apps/desired_replicas") == 1
    assert every.index("pods/effective_cpu") < every.index("pods/rps")
    assert {one["kind"] for one in resources} == {"MetricValueList"}


async def test_each_parent_has_one_scope_in_both_forms() -> None:
    # pods/rps is not listed: our pods are namespaced
    resources, aggregated = await merged({"pods/rps": False, "namespaces/rps": False, "namespaces/depth": True})
    scopes = {(one["name"].partition("/")[0], one["namespaced"]) for one in resources}
    assert {("pods", True), ("namespaces", False)} <= scopes
    assert len({parent for parent, _ in scopes}) == len(scopes)
    version = next(group for group in aggregated["items"] if group["metadata"]["name"] == CUSTOM)["versions"][0]
    found = {one["resource"]: one["scope"] for one in version["resources"]}
    assert (found["pods"], found["namespaces"]) == ("Namespaced", "Cluster")
    assert len(found) == len(version["resources"])


async def test_external_names_are_listed_beside_ours() -> None:
    resources, _ = await merged({"externalmetrics": True}, group=EXTERNAL)
    every = [one["name"] for one in resources]
    assert every[-1] == "externalmetrics"
    assert "desired_replicas" in every


async def test_the_etag_follows_the_upstream() -> None:
    more: list[ListedParent] = []
    discovery = Discovery(lambda group, _: tuple(more) if group == CUSTOM else ())
    index = SnapshotIndex(Snapshot())
    first = discovery.groups(index, AGGREGATED).etag
    assert discovery.groups(index, AGGREGATED).etag == first
    more += await encode_in_slices(CUSTOM, {"services/rps": True})
    assert discovery.groups(index, AGGREGATED).etag != first


async def test_names_are_refreshed_in_the_background_and_follow_the_settings(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstreams_module, "REFRESH_SECONDS", 0.05)
    monkeypatch.setattr(upstreams_module, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(upstreams_module, "RETIRE_SECONDS", 0.05)
    closed = []
    close = UpstreamAdapter.close

    async def spied(adapter: UpstreamAdapter) -> None:
        await close(adapter)
        closed.append(adapter)

    monkeypatch.setattr(UpstreamAdapter, "close", spied)
    metrics = Metrics()
    both = Upstreams(upstream.settings(), QUERIES, metrics)
    running = asyncio.create_task(both.run())
    await eventually(lambda: "does not answer discovery" in (both.warning() or ""))
    upstream.documents = {f"{EXTERNAL}/v1beta1": names(EXTERNAL, "v1beta1", "externalmetrics", "depth")}
    await eventually(lambda: names_of(both.listed(EXTERNAL, "v1beta1")) == ["externalmetrics"])
    external = both.by_group[EXTERNAL]
    both.apply_settings(upstream.settings("external"), QUERIES)  # custom is gone, external stays as it is
    assert both.by_group == {EXTERNAL: external}
    both.apply_settings(upstream.settings("external", timeout_seconds=1), QUERIES)
    assert both.by_group[EXTERNAL] is not external
    assert names_of(both.listed(EXTERNAL, "v1beta1")) == ["externalmetrics"]  # no gap
    both.apply_settings(upstream.settings("external"), ())
    # `depth` is no query of ours any more.
    await eventually(lambda: len(names_of(both.listed(EXTERNAL, "v1beta1"))) == 2)
    await eventually(lambda: external in closed)
    both.apply_settings(UpstreamsSettings(), ())
    assert (both.listed(EXTERNAL, "v1beta1"), both.warning()) == ((), None)
    assert "effective_load_upstream_up{" not in (await metrics.exposition()).decode()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
