"""Discovery: from a kind to its paths, cached for a time."""

import json
from typing import Any

import pytest

from adapter.kube.api import PODS
from adapter.kube.errors import KubeError, UnknownKind
from adapter.kube.rest_mapper import RestMapper
from adapter.kube.scale import BUILT_IN, ScalePaths
from adapter.kube.session import Session
from tests.kube.conftest import Clock
from tests.kube.fake import FakeApi, status, text

APPS, DEPLOYMENT, ROLLOUT = "/apis/apps/v1", ("apps/v1", "Deployment"), ("argoproj.io/v1alpha1", "Rollout")
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


@pytest.fixture
def resources(api: FakeApi, timed: Session) -> RestMapper:
    return RestMapper(timed)


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
async def test_kind_is_found_with_its_paths(
    resources: RestMapper, api_version: str, kind: str, name: str, paths: ScalePaths
) -> None:
    found = await resources.scalable(api_version, kind)
    assert (found.name, found.api_version, found.paths) == (name, api_version, paths)
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    assert found.collection() == f"{root}/{found.plural}"
    assert found.collection("shop") == f"{root}/namespaces/shop/{found.plural}"
    assert found.path("shop", "web") == f"{root}/namespaces/shop/{found.plural}/web"
    assert found.scale_path("shop", "web") == f"{root}/namespaces/shop/{found.plural}/web/scale"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [(status(404, "NotFound"), ""), (status(403, "Forbidden", "no right"), "may not be read: no right")],
)
async def test_custom_resource_without_its_crd_has_only_its_live_scale(
    api: FakeApi, resources: RestMapper, answer: Any, hint: str
) -> None:
    api.answers[CRD] = answer
    found = await resources.scalable("argoproj.io/v1alpha1", "Rollout")
    assert found.paths is None
    assert hint in found.hint
    assert bool(found.hint) is bool(hint)
    assert found.has_scale


@pytest.mark.parametrize(("api_version", "kind"), [("apps/v1beta2", "Deployment"), ("apps/v1", "deployment")])
async def test_group_and_kind_are_mapped_as_by_the_hpa_controller(
    resources: RestMapper, api_version: str, kind: str
) -> None:
    found = await resources.scalable(api_version, kind)
    assert (found.api_version, found.kind, found.plural) == ("apps/v1", "Deployment", "deployments")


async def test_old_version_of_a_custom_kind_is_mapped_to_the_served_one(resources: RestMapper) -> None:
    found = await resources.scalable("argoproj.io/v1alpha0", "rollout")
    assert (found.api_version, found.kind) == ("argoproj.io/v1alpha1", "Rollout")


async def test_kind_without_a_scale_cannot_be_scaled(resources: RestMapper) -> None:
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
async def test_kind_that_is_not_served_is_named(
    resources: RestMapper, api_version: str, kind: str, sentence: str
) -> None:
    with pytest.raises(UnknownKind, match=sentence):
        await resources.find(api_version, kind)


async def test_discovery_is_read_again_after_10_s(api: FakeApi, resources: RestMapper, clock: Clock) -> None:
    found = api.answers.pop("/apis/argoproj.io/v1alpha1")
    with pytest.raises(UnknownKind):
        await resources.find(*ROLLOUT)
    api.answers["/apis/argoproj.io/v1alpha1"] = found
    clock.pass_(9)
    with pytest.raises(UnknownKind):
        await resources.find(*ROLLOUT)
    clock.pass_(1)
    assert (await resources.find(*ROLLOUT)).plural == "rollouts"


async def test_invented_group_is_not_requested_by_its_name(api: FakeApi, resources: RestMapper) -> None:
    for number in range(5):
        with pytest.raises(UnknownKind, match="serves no"):
            await resources.find(f"invented{number}.example.org/v1", "Thing")
    assert [path for path, _ in api.asked] == ["/apis"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_no_name_turns_an_objects_path_into_another(name: str) -> None:
    assert PODS.path("shop", "web-0") == "/api/v1/namespaces/shop/pods/web-0"
    with pytest.raises(KubeError):
        PODS.path("shop", name)
