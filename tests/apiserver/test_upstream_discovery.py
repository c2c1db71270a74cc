"""Discovery merged with that of the adapters behind this one."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapter.apiserver.discovery import document
from adapter.apiserver.request_info import POLICIES_RESOURCE, parse_target
from adapter.apiserver.upstream import Upstream, Upstreams
from adapter.settings import NamedQuery, UpstreamsSettings
from adapter.telemetry.metrics import Metrics
from tests.apiserver import snapshots
from tests.apiserver.upstream import CUSTOM, EXTERNAL, FakeUpstream, names
from tests.waiting import eventually

V2, V1 = f"{CUSTOM}/v1beta2", f"{CUSTOM}/v1beta1"
QUERIES = (
    NamedQuery(name="requests", server="main", query="x"),
    NamedQuery(name="depth", server="main", query="x", scope="Service"),
    NamedQuery(name="waiting", server="main", query='x{namespace="$namespace"}'),
)

SCOPES = {"requests": "Pods", "depth": "Service"}
"""The scopes of those that are served: `waiting` has a variable."""


@pytest.fixture
async def custom(upstream: FakeUpstream) -> AsyncIterator[Upstream]:
    """The upstream for custom.metrics.k8s.io behind an adapter with two named queries."""
    given = upstream.settings("custom").custom
    assert given is not None
    made = Upstream(CUSTOM, given, SCOPES, Metrics())
    yield made
    await made.close()


async def test_names_are_those_of_the_first_version_that_answers(custom: Upstream, upstream: FakeUpstream) -> None:
    upstream.documents[V1] = names(CUSTOM, "v1beta1", "pods/rps")
    assert await custom.read_names() is None
    assert list(custom.names) == ["pods/rps"]
    upstream.documents[V2] = names(CUSTOM, "v1beta2", "pods/depth", "services/rps")
    assert await custom.read_names() is None
    assert list(custom.names) == ["pods/depth", "services/rps"]
    assert {seen.headers["authorization"] for seen in upstream.seen} == {"Bearer low-privilege"}


async def test_names_of_an_upstream_that_is_down_stay(custom: Upstream, upstream: FakeUpstream) -> None:
    upstream.documents = {V2: names(CUSTOM, "v1beta2", "pods/rps")}
    await custom.read_names()
    await upstream.refuse()
    assert "does not answer discovery" in (await custom.read_names() or "")
    assert list(custom.names) == ["pods/rps"]


async def test_names_of_ours_and_names_that_are_none_are_not_listed(custom: Upstream, upstream: FakeUpstream) -> None:
    ours = ("pods/requests", "deployments.apps/effective_x", "services/desired_replicas", f"{POLICIES_RESOURCE}/rps")
    none = ("pods", "pods/", "/rps", "pods/a/b", "../../x", "pods/a\nb", "Pods/x", "pods/" + "x" * 300)
    others = ("pods/rps", "services/requests", "pods/depth", "namespaces/depth", "pods/waiting")
    upstream.documents = {V2: names(CUSTOM, "v1beta2", *ours, *none, *others)}
    await custom.read_names()
    assert list(custom.names) == sorted(others)


def merged(theirs: dict[str, bool]) -> list[dict[str, Any]]:
    """The resources of the list."""
    made = document(parse_target(f"/apis/{V2}"), snapshots.snapshot(snapshots.view()), theirs)
    assert made is not None
    found: list[dict[str, Any]] = json.loads(made)["resources"]
    return found


def test_our_names_come_first_and_none_twice() -> None:
    resources = merged({"pods/rps": True, "deployments.apps/desired_replicas": True})
    every = [one["name"] for one in resources]
    assert every.count("deployments.apps/desired_replicas") == 1
    assert every.index("pods/effective_cpu") < every.index("pods/rps")
    assert {one["kind"] for one in resources} == {"MetricValueList"}


def test_each_parent_has_one_scope() -> None:
    # pods/rps is not listed: our pods are namespaced
    resources = merged({"pods/rps": False, "namespaces/rps": False, "namespaces/depth": True})
    scopes = {(one["name"].partition("/")[0], one["namespaced"]) for one in resources}
    assert {("pods", True), ("namespaces", False)} <= scopes
    assert len({parent for parent, _ in scopes}) == len(scopes)


async def test_names_are_refreshed_in_the_background_and_follow_the_settings(upstream: FakeUpstream) -> None:
    metrics = Metrics()
    both = Upstreams(upstream.settings(), QUERIES, metrics, seconds=0.05)
    running = asyncio.create_task(both.run())
    await eventually(lambda: "does not answer discovery" in (both.warning() or ""))
    upstream.documents = {f"{EXTERNAL}/v1beta1": names(EXTERNAL, "v1beta1", "externalmetrics", "depth")}
    await eventually(lambda: list(both.listed(EXTERNAL)) == ["externalmetrics"])
    both.apply_settings(upstream.settings("external"), ())  # `depth` is no query of ours any more
    await eventually(lambda: list(both.listed(EXTERNAL)) == ["depth", "externalmetrics"])
    both.apply_settings(UpstreamsSettings(), ())
    assert (both.listed(EXTERNAL), both.warning()) == ({}, None)
    assert "effective_load_upstream_up{" not in (await metrics.exposition()).decode()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
