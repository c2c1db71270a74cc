"""An API server with the companion's admission policies. Its account has every right, so that only they can refuse."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from lab.harness import objects
from lab.harness.client import ApiError, Client, Object, Response
from lab.harness.companion import account_of, companion_kubeconfig
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import resource_metric, until

FEATURES = ("deletion-cost", "fast-scale-up", "hpa-configuration")
USER = f"system:serviceaccount:effective-load:{account_of(FEATURES)}"
OWN = "fieldManager=effective-load-companion"


class Confined(NamedTuple):
    """The admin's client and the companion's; RBAC allows the companion everything."""

    admin: Client
    companion: Client
    namespace: str

    def refusal(self, path: str, body: Any, kind: str = "merge", *, dry: bool = False) -> str:
        """The message with which an admission policy rejects a patch of the companion; empty if admitted."""
        try:
            self.companion.patch(f"{path}?{OWN}{'&dryRun=All' if dry else ''}", body, kind)
        except ApiError as error:
            return error.message if "ValidatingAdmissionPolicy" in error.message else ""
        return ""

    def forbidden(self, path: str, body: Any, kind: str = "merge") -> str:
        """The message with which a patch of the companion is forbidden, which it must be."""
        with pytest.raises(ApiError) as refused:
            self.companion.patch(f"{path}?{OWN}", body, kind)
        assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
        return refused.value.message

    def ask(self, method: str, path: str, body: Any = None) -> Response:
        """The answer to any request of the companion."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        payload = None if body is None else json.dumps(body).encode()
        return self.companion.raw(path, {"Content-Type": kind}, method=method, body=payload)


@contextmanager
def confined(cluster: ControlPlane) -> Iterator[Confined]:
    """The companion with every right, and the admission policies of all its components."""
    companion_kubeconfig(cluster, FEATURES)
    everything = bound(USER, "cluster-admin")
    cluster.client.apply(everything)
    namespace = f"confined-{secrets.token_hex(3)}"
    cluster.client.apply(objects.namespace(namespace))
    client = cluster.client_with_token(cluster.token("effective-load", account_of(FEATURES)))
    made = Confined(cluster.client, client, namespace)
    wait_in_force(made)
    try:
        yield made
    finally:
        cluster.client.delete(everything)
        client.close()


def bound(user: str, role: str) -> Object:
    """A binding of a user to a ClusterRole."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"tests-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }


def wait_in_force(cluster: Confined) -> None:
    """Wait until policies and rights take effect, a moment after they are written."""
    labels = {"metadata": {"labels": {"probe": "1"}}}
    for make, tail, change in ((pod, "", labels), (hpa, "", labels), (deployment, "/scale", {"spec": {"replicas": 0}})):
        path = cluster.admin.path(cluster.admin.create(make(cluster.namespace, "probe"))) + tail
        until(lambda: cluster.refusal(path, change, dry=True), 30, lambda: f"{path} is open")  # noqa: B023


def meta(namespace: str, name: str, **more: Any) -> Object:
    return {"name": name, "namespace": namespace, **more}


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "11111111-1111-1111-1111-111111111111"}
CONTAINERS = [{"name": "app", "image": "app:1"}]


def pod(namespace: str, name: str, **annotations: str) -> Object:
    notes = {"example.com/team": "shop", **annotations}
    head = meta(namespace, name, labels={"app": "web"}, annotations=notes, ownerReferences=[OWNER])
    spec = {"containers": [*map(dict, CONTAINERS)], "serviceAccountName": "none"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}


def hpa(namespace: str, name: str) -> Object:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 9,
        "metrics": [resource_metric("cpu", utilization=60)],
    }
    head = meta(namespace, name, labels={"app": "web"}, annotations={"example.com/team": "shop"})
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": head, "spec": spec}


def deployment(namespace: str, name: str) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": CONTAINERS}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(namespace, name), "spec": spec}


def named(value: object) -> str:
    """The id of a test parameter."""
    return value if isinstance(value, str) else "-"
