"""The stage: pods' usage and annotations, the checks of a given cluster, and the cleanup."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from lab.demo.objects import KWOK_NODE, OURS, PULLED_OUT, STOCK, USAGE, Object
from lab.demo.observe import DemoError
from lab.demo.stage import Place, Stage, client_of, fit, given_place, staged
from lab.harness.client import ApiError, Client, Response
from lab.harness.control_plane import ControlPlane
from tests.demo.world import observation, pod, pods


def refused(status: int, message: str) -> ApiError:
    return ApiError(Response(status, {}, json.dumps({"message": message}).encode()), "GET /")


class FakeClient:
    """A client with answers by path, None for others; records writes."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = answers
        self.patched: list[tuple[str, Any]] = []
        self.created: list[Object] = []
        self.deleted: list[str] = []

    def find(self, path: str) -> Any:
        return self._answer(path)

    def list(self, path: str) -> Any:
        return self._answer(path) or []

    def _answer(self, path: str) -> Any:
        found = next((answer for part, answer in self.answers.items() if part in path), None)
        if isinstance(found, Exception):
            raise found
        return found

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        if (failure := self.answers.get("patch")) is not None:
            raise failure
        self.patched.append((path.rpartition("/")[2], body["metadata"]["annotations"]))

    def create(self, item: Object) -> Object:
        self.created.append(item)
        return item

    def wait_for(self, path: str, **_: Any) -> None:
        self._answer(path)

    def delete(self, path: str, *, wait: float = 0) -> None:
        if (failure := self.answers.get("delete")) is not None:
            raise failure
        self.deleted.append(path)


def stage(**answers: Any) -> tuple[Stage, FakeClient]:
    fake = FakeClient(**answers)
    return Stage(Place(cast("Client", fake), Path("kubeconfig"), own=True), "demo"), fake


# -- load and pull-out


def test_only_pods_whose_share_changed_are_set() -> None:
    made, fake = stage()
    ours = [pod(OURS, "a", usage=1100), pod(OURS, "b", usage=900)]
    made.load(observation(ours, pods(STOCK, 2, usage=1100)), 2200)
    assert fake.patched == [("b", {USAGE: "1100m"})]


def test_a_pulled_out_pod_idles_in_both_services_and_only_ours_is_annotated() -> None:
    made, fake = stage()
    made.pull_out(OURS, [f"{OURS}-0"], PULLED_OUT)
    made.pull_out(STOCK, [f"{STOCK}-0"], PULLED_OUT)
    assert fake.patched == [(f"{OURS}-0", {PULLED_OUT: "true"})]
    fake.patched.clear()
    made.load(observation(pods(OURS, 2), pods(STOCK, 2)), 2000)
    assert dict(fake.patched) == {
        f"{OURS}-0": {USAGE: "20m"},
        f"{OURS}-1": {USAGE: "2000m"},
        f"{STOCK}-0": {USAGE: "20m"},
        f"{STOCK}-1": {USAGE: "2000m"},
    }


def test_a_pod_deleted_meanwhile_is_ignored() -> None:
    made, _ = stage(patch=refused(404, "not found"))
    made.load(observation(pods(OURS, 1), pods(STOCK, 1)), 2000)


def test_any_other_refusal_is_raised() -> None:
    made, _ = stage(patch=refused(403, "forbidden"))
    with pytest.raises(ApiError):
        made.load(observation(pods(OURS, 1), pods(STOCK, 1)), 2000)


# -- a given cluster

WHOLE = {
    "/apis/effective-load.io/v1alpha1": {},
    "/apis/custom.metrics.k8s.io": {},
    "/apis/metrics.k8s.io": {},
    "/api/v1/nodes": [
        {"metadata": {"name": "kwok-0", "annotations": {KWOK_NODE: "fake"}}},
        {"metadata": {"name": "n"}},
    ],
}


def fit_nodes(**answers: Any) -> tuple[str, ...]:
    return fit(cast("Client", FakeClient(**answers)), Path("their.kubeconfig"))


def test_the_story_uses_the_nodes_that_kwok_simulates() -> None:
    assert fit_nodes(**WHOLE) == ("kwok-0",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"/apis/effective-load.io/v1alpha1": None}, "the adapter is not installed in the cluster of their.kubeconfig"),
        ({"/apis/custom.metrics.k8s.io": None}, "the adapter is not installed"),
        ({"/apis/metrics.k8s.io": None}, "has no metrics.k8s.io: install metrics-server"),
        ({"/api/v1/nodes": [{"metadata": {"name": "real"}}]}, "none of that cluster's nodes is KWOK's"),
        ({"/api/v1/nodes": refused(403, "nodes is forbidden")}, "refuses the demo: nodes is forbidden"),
        ({"/apis/effective-load.io/v1alpha1": ConnectionRefusedError("no answer")}, "cannot be reached: no answer"),
    ],
)
def test_a_missing_requirement_of_a_given_cluster_is_named_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DemoError, match=r"^[^\n]+$") as failure:
        fit_nodes(**{**WHOLE, **changes})
    assert words in str(failure.value)


def given(fake: FakeClient) -> Place:
    return Place(cast("Client", fake), Path("kubeconfig"), own=False)


def test_the_namespace_in_a_given_cluster_is_always_removed() -> None:
    fake = FakeClient()
    with pytest.raises(KeyboardInterrupt), staged(given(fake), print) as made:
        raise KeyboardInterrupt
    (namespace,) = fake.created
    assert namespace["metadata"]["name"] == made.namespace
    assert made.namespace.startswith("effective-load-demo-")
    assert fake.deleted == [f"/api/v1/namespaces/{made.namespace}"]


def test_a_namespace_that_is_never_ready_is_removed_too() -> None:
    fake = FakeClient(serviceaccounts=TimeoutError("no account"))
    with pytest.raises(TimeoutError), staged(given(fake), print):
        pass
    assert len(fake.deleted) == 1


def test_a_namespace_that_cannot_be_removed_is_named() -> None:
    fake = FakeClient(delete=refused(500, "etcd is away"))
    words = "may still exist: kubectl delete namespace effective-load-demo-"
    with pytest.raises(DemoError, match=words), staged(given(fake), print):
        pass


# -- kubeconfigs


def kubeconfig(folder: Path, server: str, user: Mapping[str, Any]) -> Path:
    """Writes a kubeconfig without an authority."""
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "here", "user": dict(user)}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
    }
    path.write_text(json.dumps(content))
    return path


def test_a_kubeconfigs_server_and_token_are_used(tmp_path: Path) -> None:
    client = client_of(kubeconfig(tmp_path, "https://cluster.example:6443", {"token": "abc"}))
    assert (client.host, client.port) == ("cluster.example", 6443)
    assert client.headers == {"Authorization": "Bearer abc"}


def test_a_server_without_a_port_is_at_443(tmp_path: Path) -> None:
    client = client_of(kubeconfig(tmp_path, "https://cluster.example", {}))
    assert (client.port, client.headers) == (443, {})


@pytest.mark.parametrize("server", ["http://cluster.example", "https://proxy.example/clusters/c-1"])
def test_an_unsupported_server_is_named(tmp_path: Path, server: str) -> None:
    with pytest.raises(DemoError, match=server):
        client_of(kubeconfig(tmp_path, server, {}))


def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("nonsense: [")
    with pytest.raises(DemoError, match="cannot be used as a kubeconfig"):
        client_of(path)


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="is no file"), given_place(tmp_path / "nowhere"):
        pass


@pytest.mark.integration
def test_a_real_cluster_without_the_adapter_is_refused(api_server: ControlPlane) -> None:
    with pytest.raises(DemoError, match=r"not installed|has no metrics"), given_place(api_server.kubeconfig):
        pass
