"""Discovery: from a kind to its paths, remembered, asked again in time."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from adapter.kube.errors import ServerError, UnknownKind
from adapter.kube.rest_mapper import RestMapper
from adapter.kube.session import ServerClock, Session
from adapter.kube.targets import BUILT_IN, ScalePaths
from adapter.telemetry.metrics import Metrics
from tests.kube.fake import FakeApi, status, text

APPS, DEPLOYMENT = "/apis/apps/v1", ("apps/v1", "Deployment")
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rollouts.argoproj.io"


def served(group_version: str, *resources: dict[str, Any]) -> Any:
    return text(json.dumps({"groupVersion": group_version, "resources": list(resources)}))


SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.HPAReplicas",
    "labelSelectorPath": ".status.selector",
}
OTHER = {**SCALE, "statusReplicasPath": ".status.replicas"}
VERSIONS = [
    {"name": "v1"},
    {"name": "v1alpha1", "subresources": {"scale": SCALE}},
    {"name": "v2", "subresources": {"scale": OTHER}},
]
NAMES = {"kind": "Rollout", "plural": "rollouts"}
ROLLOUTS = {"metadata": {"name": "x"}, "spec": {"group": "argoproj.io", "names": NAMES, "versions": VERSIONS}}


@pytest.fixture
def api(api: FakeApi) -> FakeApi:
    api.answers["/api/v1"] = served(
        "v1",
        {"name": "pods", "kind": "Pod", "namespaced": True},
        {"name": "nodes", "kind": "Node", "namespaced": False},
        {"name": "replicationcontrollers", "kind": "ReplicationController", "namespaced": True},
        {"name": "replicationcontrollers/scale", "kind": "Scale", "namespaced": True},
    )
    api.answers[APPS] = served(
        "apps/v1",
        {"name": "deployments/scale", "kind": "Scale", "namespaced": True},
        {"name": "deployments/status", "kind": "Deployment", "namespaced": True},
        {"name": "deployments", "kind": "Deployment", "namespaced": True},
        {"name": "daemonsets", "kind": "DaemonSet", "namespaced": True},
    )
    groups = [{"versions": [{"groupVersion": "apps/v1"}]}, {"versions": [{"groupVersion": "argoproj.io/v1alpha1"}]}]
    api.answers["/apis"] = text(json.dumps({"groups": groups}))
    api.answers["/apis/argoproj.io/v1alpha1"] = served(
        "argoproj.io/v1alpha1",
        {"name": "rollouts", "kind": "Rollout", "namespaced": True},
        {"name": "rollouts/scale", "kind": "Scale", "namespaced": True},
    )
    api.answers[CRD] = text(json.dumps(ROLLOUTS))
    return api


class Hands:
    seconds = 0.0


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
async def resources(api: FakeApi, metrics: Metrics, hands: Hands) -> Any:
    clock = ServerClock(lambda: hands.seconds, lambda: 0.0)
    async with Session(api.load, metrics=metrics, clock=clock) as session:
        yield RestMapper(session)


@pytest.mark.parametrize(
    ("api_version", "kind", "name", "paths"),
    [
        ("apps/v1", "Deployment", "deployments.apps", BUILT_IN),
        ("v1", "ReplicationController", "replicationcontrollers", BUILT_IN),  # the core group has no name
        (
            "argoproj.io/v1alpha1",
            "Rollout",
            "rollouts.argoproj.io",
            ScalePaths(".spec.replicas", ".status.HPAReplicas", ".status.selector"),
        ),
    ],
)
async def test_a_kind_is_found_with_its_paths(
    resources: RestMapper, api_version: str, kind: str, name: str, paths: ScalePaths
) -> None:
    found = await resources.scalable(api_version, kind)
    assert (found.name, found.api_version, found.paths) == (name, api_version, paths)
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    assert found.collection() == f"{root}/{found.plural}"
    assert found.collection("shop") == f"{root}/namespaces/shop/{found.plural}"
    assert found.path("shop", "web") == f"{root}/namespaces/shop/{found.plural}/web"
    assert found.scale_path("shop", "web") == f"{root}/namespaces/shop/{found.plural}/web/scale"


async def test_a_cluster_wide_kind_has_no_namespace_in_its_path(resources: RestMapper) -> None:
    assert (await resources.find("v1", "Node")).path("shop", "n") == "/api/v1/nodes/n"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [(status(404, "NotFound"), ""), (status(403, "Forbidden", "no right"), "may not be read: no right")],
)
async def test_without_its_crd_a_custom_resource_has_only_its_live_scale(
    api: FakeApi, resources: RestMapper, answer: Any, hint: str
) -> None:
    api.answers[CRD] = answer
    found = await resources.scalable("argoproj.io/v1alpha1", "Rollout")
    assert found.paths is None
    assert hint in found.hint
    assert bool(found.hint) is bool(hint)
    assert found.has_scale


async def test_a_kind_without_a_scale_cannot_be_scaled(resources: RestMapper) -> None:
    assert not (await resources.find("apps/v1", "DaemonSet")).has_scale
    with pytest.raises(UnknownKind, match=r"DaemonSet \(apps/v1\) cannot be scaled"):
        await resources.scalable("apps/v1", "DaemonSet")


@pytest.mark.parametrize(
    ("api_version", "kind", "sentence"),
    [
        ("apps/v1", "Rollout", "serves no kind Rollout in apps/v1"),
        ("nobody.io/v1", "Thing", "serves no nobody.io/v1, which Thing is said to be of"),
        ("apps/v1", "Scale", "serves no kind Scale"),
    ],
)
async def test_a_kind_that_is_not_served_is_named(
    resources: RestMapper, api_version: str, kind: str, sentence: str
) -> None:
    with pytest.raises(UnknownKind, match=sentence):
        await resources.find(api_version, kind)


async def test_what_was_found_is_remembered_for_ten_minutes(api: FakeApi, resources: RestMapper, hands: Hands) -> None:
    for _ in range(3):
        await resources.find(*DEPLOYMENT)
    hands.seconds = 599
    await resources.find(*DEPLOYMENT)
    assert len(api.asked) == 1
    hands.seconds = 600
    await resources.find(*DEPLOYMENT)
    assert len(api.asked) == 2


async def test_what_was_not_found_is_asked_for_again_after_thirty_seconds(
    api: FakeApi, resources: RestMapper, hands: Hands
) -> None:
    found = api.answers.pop("/apis/argoproj.io/v1alpha1")
    for hands.seconds in (0.0, 29.0):
        with pytest.raises(UnknownKind):
            await resources.find("argoproj.io/v1alpha1", "Rollout")
    assert len(api.asked) == 2  # which groups there are, and what this one has
    api.answers["/apis/argoproj.io/v1alpha1"] = found
    hands.seconds = 30.0
    assert (await resources.find("argoproj.io/v1alpha1", "Rollout")).plural == "rollouts"


async def test_a_failing_server_leaves_what_was_found(api: FakeApi, resources: RestMapper, hands: Hands) -> None:
    await resources.find(*DEPLOYMENT)
    api.answers[APPS] = status(503, "ServiceUnavailable")
    hands.seconds = 700
    assert (await resources.find(*DEPLOYMENT)).plural == "deployments"
    assert (await resources.find(*DEPLOYMENT)).plural == "deployments"
    assert len(api.asked) == 2  # not at each call
    hands.seconds = 731
    await resources.find(*DEPLOYMENT)
    assert len(api.asked) == 3


async def test_a_failing_server_is_not_taken_for_a_missing_kind(
    api: FakeApi, resources: RestMapper, hands: Hands
) -> None:
    answer = api.answers[APPS]
    api.answers[APPS] = status(503, "ServiceUnavailable")
    with pytest.raises(ServerError):
        await resources.find(*DEPLOYMENT)
    api.answers[APPS] = answer
    assert (await resources.find(*DEPLOYMENT)).plural == "deployments"


async def test_a_kind_that_is_forgotten_while_it_is_looked_up_is_not_remembered(
    api: FakeApi, resources: RestMapper, hands: Hands
) -> None:
    """Policies that come and go at once would leave their kinds in memory for ever."""
    answer, reached, proceed = api.answers[APPS], asyncio.Event(), asyncio.Event()

    async def held(request: web.Request) -> web.StreamResponse:
        reached.set()
        await proceed.wait()
        response: web.StreamResponse = await answer(request)
        return response

    api.answers[APPS] = held
    asking = asyncio.create_task(resources.find(*DEPLOYMENT))
    await reached.wait()
    asking.cancel()
    resources.forget(*DEPLOYMENT)
    proceed.set()
    await resources.find("apps/v1", "DaemonSet")  # from the same document
    hands.seconds = 60.0
    api.answers[APPS] = status(500, "InternalError")
    with pytest.raises(ServerError):
        await resources.find(*DEPLOYMENT)
