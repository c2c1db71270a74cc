"""The scale of a target: read live, once at a time for a path, within half a second; and as its object holds it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from adapter.kube.errors import Forbidden, KubeError, TimedOut
from adapter.kube.objects import AnyObject
from adapter.kube.scale import BUILT_IN, ScalePaths, ScaleReader, decode_scale, target_decoder, watched_scale
from adapter.kube.session import Session
from adapter.load.spec import Scale, Target
from adapter.telemetry.metrics import Metrics
from tests.kube.conftest import Clock
from tests.kube.fake import FakeApi, status

PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
OTHER = "/apis/apps/v1/namespaces/shop/deployments/db/scale"
WATCHED = Scale(replicas=3, status_replicas=3, selector="app=web")
FIVE, THIRTEEN = Scale(replicas=5, status_replicas=4), Scale(replicas=13, status_replicas=4)


class Server:
    """Serves a scale, counts how often, and may be held."""

    def __init__(self, api: FakeApi) -> None:
        self.replicas = 5
        self.asked = 0
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        api.answers[PATH] = api.answers[OTHER] = self.answer

    async def answer(self, _request: web.Request) -> web.StreamResponse:
        self.asked += 1
        replicas = self.replicas
        self.reached.set()
        await self.go.wait()
        body = {"spec": {"replicas": replicas}, "status": {"replicas": 4, "selector": "app=web"}}
        return web.Response(text=json.dumps(body))


@pytest.fixture
async def server(api: FakeApi) -> AsyncIterator[Server]:
    server = Server(api)
    yield server
    server.go.set()


@pytest.fixture
def reader(session: Session, metrics: Metrics, clock: Clock) -> ScaleReader:
    return ScaleReader(session, metrics, timer=lambda: clock.monotonic)


def reads(metrics: Metrics, result: str) -> float:
    name = "effective_load_scale_read_duration_seconds_count"
    return metrics.registry.get_sample_value(name, {"result": result}) or 0.0


@pytest.mark.parametrize(
    ("body", "scale"),
    [
        (b'{"spec":{},"status":{"replicas":0}}', Scale(replicas=0, status_replicas=0)),  # 0 is left out on the wire
        (
            b'{"spec":{"replicas":5},"status":{"replicas":4,"selector":"tier in (b,a),app==web"}}',
            Scale(replicas=5, status_replicas=4, selector="app=web,tier in (a,b)"),
        ),
    ],
)
def test_scale_has_its_selector_in_canonical_form(body: bytes, scale: Scale) -> None:
    assert decode_scale(body) == scale


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"spec":{"replicas":"5"}}',
        b'{"spec":{"replicas":-1}}',
        b'{"spec":{"replicas":null}}',
        b'{"spec":{"replicas":5},"status":{"replicas":"5"}}',
        b'{"spec":{"replicas":5},"status":{"replicas":-1}}',
    ],
)
def test_answer_without_a_count_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_scale(body)


async def test_live_count_is_read(reader: ScaleReader, server: Server, metrics: Metrics) -> None:
    assert await reader.read(PATH, WATCHED, None) == Scale(replicas=5, status_replicas=4, selector="app=web")
    assert reads(metrics, "live") == 1


async def test_concurrent_reads_of_a_target_share_one_request(reader: ScaleReader, server: Server) -> None:
    server.go.clear()
    callers = [asyncio.create_task(reader.read(path, None, None)) for path in (PATH, OTHER) for _ in range(20)]
    await server.reached.wait()
    server.go.set()
    assert {answer.replicas for answer in await asyncio.gather(*callers)} == {5}
    assert server.asked == 2


async def test_answer_is_used_again_for_a_second(
    reader: ScaleReader, server: Server, clock: Clock, metrics: Metrics
) -> None:
    await reader.read(PATH, None, None)
    server.replicas = 6
    clock.pass_(0.99)
    assert (await reader.read(PATH, None, None)).replicas == 5
    clock.pass_(0.02)
    assert (await reader.read(PATH, None, None)).replicas == 6
    assert server.asked == 2
    assert (reads(metrics, "live"), reads(metrics, "cached")) == (2, 1)


async def test_answer_is_dropped_once_another_count_is_watched(reader: ScaleReader, server: Server) -> None:
    # Somebody scales from 5 to 13 within the second: an answer about 5 would take that back.
    await reader.read(PATH, FIVE, None)
    server.replicas = 13
    assert (await reader.read(PATH, THIRTEEN, None)).replicas == 13
    assert (await reader.read(PATH, THIRTEEN, None)).replicas == 13
    assert server.asked == 2


async def test_read_under_way_is_not_shared_after_another_watched_count(reader: ScaleReader, server: Server) -> None:
    # The first request was answered from 5 and is slow; a caller who knows of 13 must not get that answer.
    server.go.clear()
    early = asyncio.create_task(reader.read(PATH, FIVE, None))
    await server.reached.wait()
    server.replicas = 13
    server.reached.clear()
    late = asyncio.create_task(reader.read(PATH, THIRTEEN, None))
    await asyncio.wait_for(server.reached.wait(), 5)
    server.go.set()
    assert (await late).replicas == 13
    assert (await early).replicas == 5
    assert (await reader.read(PATH, THIRTEEN, None)).replicas == 13


async def test_failed_read_uses_the_count_watched_within_5_s(
    api: FakeApi, reader: ScaleReader, session: Session, metrics: Metrics
) -> None:
    api.answers[PATH] = status(500, "InternalError")
    assert await reader.read(PATH, WATCHED, session.monotonic() - 4.5) == WATCHED
    assert reads(metrics, "watched") == 1


async def test_older_watched_count_is_an_error_with_target_and_cause(
    api: FakeApi, reader: ScaleReader, session: Session, metrics: Metrics
) -> None:
    api.answers[PATH] = status(403, "Forbidden", "no get on deployments/scale")
    with pytest.raises(KubeError) as caught:
        await reader.read(PATH, WATCHED, session.monotonic() - 6)
    assert str(caught.value).count(PATH) == 1
    assert "no get on deployments/scale" in str(caught.value)
    assert isinstance(caught.value.__cause__, Forbidden)
    assert reads(metrics, "failed") == 1


async def test_slow_answer_is_given_up_after_half_a_second(
    reader: ScaleReader, server: Server, session: Session
) -> None:
    server.go.clear()
    with pytest.raises(KubeError) as caught:
        await reader.read(PATH, None, None)
    assert isinstance(caught.value.__cause__, TimedOut)
    assert "no answer within 0.5 s" in str(caught.value)
    assert await reader.read(PATH, WATCHED, session.monotonic()) == WATCHED


# --- as its own object holds it

ROLLOUT = ScalePaths(".spec.replicas", ".status.HPAReplicas", ".status.selector")
ODD = ScalePaths(".spec.size.wanted", ".status.size.seen", ".status.labelSelector")


def thing(**parts: Any) -> AnyObject:
    return msgspec.json.decode(msgspec.json.encode(parts), type=AnyObject)


IN_TIERS = {"key": "tier", "operator": "In", "values": ["y", "x"]}
HAS_APP = {"key": "app", "operator": "Exists"}


@pytest.mark.parametrize(
    ("spec", "status", "paths", "scale"),
    [
        (
            {"replicas": 5, "selector": {"matchLabels": {"b": "2", "a": "1"}}},
            {"replicas": 4},
            BUILT_IN,
            (5, 4, "a=1,b=2"),
        ),
        (
            {"replicas": 0, "selector": {"matchLabels": {"a": "1"}, "matchExpressions": [IN_TIERS]}},
            None,
            BUILT_IN,
            (0, 0, "a=1,tier in (x,y)"),
        ),
        # A built-in's replicas default to 1, and a ReplicationController's selector is a plain map.
        ({"selector": {"app": "web"}}, None, BUILT_IN, (1, 0, "app=web")),
        ({"selector": {"matchExpressions": [HAS_APP]}}, None, BUILT_IN, (1, 0, "app")),
        (
            {"replicas": 5},
            {"HPAReplicas": 6, "selector": "tier in (b,a),app=web"},
            ROLLOUT,
            (5, 6, "app=web,tier in (a,b)"),
        ),
        ({"size": {"wanted": 2}}, {"size": {"seen": 1}, "labelSelector": "app=web"}, ODD, (2, 1, "app=web")),
        # A custom resource that its controller has not seen yet: the API server answers 0 and no selector.
        ({"replicas": 2}, None, ROLLOUT, (2, 0, "")),
        ({"replicas": 2}, {"selector": "a=b"}, ScalePaths(".spec.replicas", ".status.replicas"), (2, 0, "")),
        # A text that is no selector is passed on; who reads it says so.
        ({"replicas": 2}, {"selector": "not a selector"}, ROLLOUT, (2, 0, "not a selector")),
    ],
)
def test_the_scale_is_what_the_scale_subresource_would_answer(
    spec: Any, status: Any, paths: ScalePaths, scale: tuple[int, int, str]
) -> None:
    found = watched_scale(thing(spec=spec) if status is None else thing(spec=spec, status=status), paths)
    assert found is not None
    assert (found.replicas, found.status_replicas, found.selector) == scale


@pytest.mark.parametrize(
    ("parts", "paths"),
    [
        ({"spec": {"replicas": 2}}, None),
        ({"spec": {}}, ROLLOUT),
        ({}, ROLLOUT),
        ({"spec": {"replicas": "two"}}, ROLLOUT),
        ({"spec": {"replicas": True}}, ROLLOUT),
        ({"spec": {"replicas": -1}}, ROLLOUT),
        ({"spec": {"size": 5}}, ODD),
        ({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}, BUILT_IN),
        ({"spec": {"selector": {"matchExpressions": ["a"]}}}, BUILT_IN),
        ({"spec": {"selector": {"matchExpressions": [{"operator": "In"}]}}}, BUILT_IN),
    ],
)
def test_where_the_object_does_not_tell_there_is_no_scale(parts: dict[str, Any], paths: ScalePaths | None) -> None:
    assert watched_scale(thing(**parts), paths) is None


def decode(kind: str, parts: dict[str, Any], paths: ScalePaths | None = BUILT_IN) -> Any:
    return target_decoder("apps/v1", kind, paths)(msgspec.json.encode(parts))


def test_a_target_is_named_by_the_kind_that_was_asked_for() -> None:
    """Items of a list carry neither kind nor apiVersion."""
    found = decode(
        "Deployment",
        {
            "metadata": {"name": "web", "namespace": "shop", "uid": "d-1"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}},
            "status": {
                "replicas": 3,
                "conditions": [
                    {"type": "Available", "status": "True"},
                    {
                        "type": "Progressing",
                        "status": "True",
                        "reason": "NewReplicaSetAvailable",
                        "lastUpdateTime": "2026-01-01T12:00:00Z",
                        "lastTransitionTime": "2025-01-01T12:00:00Z",
                    },
                ],
            },
        },
    )
    assert found.target == Target(
        api_version="apps/v1",
        kind="Deployment",
        name="web",
        uid="d-1",
        progressing="NewReplicaSetAvailable",
        progressing_since=1767268800.0,
    )
    assert found.namespace == "shop"
    assert found.scale == Scale(replicas=3, status_replicas=3, selector="app=web")


@pytest.mark.parametrize(
    "conditions", [None, [], [{"type": "Available"}], "none", [5], {"Progressing": True}, [{"type": 5}]]
)
def test_a_target_without_a_usable_condition_does_not_progress(conditions: Any) -> None:
    found = decode("StatefulSet", {"metadata": {"name": "db"}, "status": {"conditions": conditions}})
    assert (found.target.progressing, found.target.progressing_since) == ("", None)
