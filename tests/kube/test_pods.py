"""Pods: from the API's JSON to what the arithmetic sees."""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from adapter.kube.pods import PodDecoder
from adapter.load.pods import Container, Owner, Pod, PodCondition
from adapter.load.quantity import NANO

CREATED = 1767268800.0
GI = (1 << 30) * NANO


def full() -> dict[str, Any]:
    """A pod as the API server returns it, with much that is not needed."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-7d9c-x1",
            "namespace": "shop",
            "uid": "u-1",
            "resourceVersion": "77",
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "7d9c"},
            "annotations": {"kubectl.kubernetes.io/restartedAt": "2026"},
            "ownerReferences": [
                {"kind": "Node", "name": "n", "uid": "n-1", "controller": False},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9c", "uid": "rs-1", "controller": True},
            ],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {
                    "name": "app",
                    "image": "app:1",
                    "resources": {
                        "requests": {"cpu": "500m", "memory": "1Gi"},
                        "limits": {"cpu": "1", "memory": "2Gi"},
                    },
                },
                {"name": "proxy", "resources": {}},
            ],
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T12:00:01Z",
            "podIP": "10.0.0.7",
            "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}],
            "hostIP": "192.168.0.1",
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastProbeTime": None,
                    "lastTransitionTime": "2026-01-01T12:00:09Z",
                },
                {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T12:00:08Z"},
            ],
            "containerStatuses": [
                {"name": "app", "state": {"running": {"startedAt": "2026-01-01T12:00:02Z"}}},
                {"name": "proxy", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ],
        },
    }


def decode(pod: dict[str, Any]) -> Pod:
    return PodDecoder()(msgspec.json.encode(pod))


def test_every_field_is_read() -> None:
    assert decode(full()) == Pod(
        namespace="shop",
        name="web-7d9c-x1",
        uid="u-1",
        created_at=CREATED,
        started_at=CREATED + 1,
        deleting=False,
        phase="Running",
        ready=PodCondition(status=True, since=CREATED + 9),
        containers_ready=True,
        gates={},
        pulled_out_annotation=False,
        endpoint_serving=None,
        ips=("10.0.0.7", "fd00::7"),
        host_ip="192.168.0.1",
        host_network=False,
        owner=Owner("ReplicaSet", "web-7d9c", "rs-1"),
        template_hash="7d9c",
        labels={"app": "web", "pod-template-hash": "7d9c"},
        containers=(
            Container(
                name="app",
                requests={"cpu": NANO // 2, "memory": GI},
                limits={"cpu": NANO, "memory": 2 * GI},
                running=True,
            ),
            Container(name="proxy", running=False, crash_looping=True),
        ),
    )


ANNOTATIONS = "metadata", "annotations"
PULLED_OUT, COST, MARK = (
    "effective-load.io/pulled-out",
    "controller.kubernetes.io/pod-deletion-cost",
    "effective-load.io/deletion-cost-set",
)


@pytest.mark.parametrize(
    ("place", "value", "field", "decoded"),
    [
        (("metadata", "deletionTimestamp"), "2026-01-01T13:00:00Z", "deleting", True),
        ((*ANNOTATIONS, PULLED_OUT), "true", "pulled_out_annotation", True),
        ((*ANNOTATIONS, PULLED_OUT), "True", "pulled_out_annotation", False),
        ((*ANNOTATIONS, MARK), "true", "marked", True),
        (ANNOTATIONS, None, "marked", False),
        (("metadata", "labels"), {"rollouts-pod-template-hash": "abc"}, "template_hash", "abc"),
        (("metadata", "ownerReferences"), [{"kind": "Job", "name": "j", "uid": "1"}], "owner", None),  # no controller
        (("status", "podIPs"), None, "ips", ("10.0.0.7",)),
        (("spec", "hostNetwork"), True, "host_network", True),
        (("spec", "resources"), {"requests": {"cpu": "2"}}, "pod_requests", {"cpu": 2 * NANO}),
        (("spec", "resources"), {"limits": {"memory": "1Gi"}}, "pod_limits", {"memory": GI}),
        (
            ("status", "conditions"),
            [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}],
            "waits_for",
            "0/3 nodes are available",
        ),
        (("status", "conditions"), [{"type": "PodScheduled", "status": "True", "message": "x"}], "waits_for", ""),
    ],
)
def test_what_only_some_pods_have_is_read(place: tuple[str, ...], value: Any, field: str, decoded: Any) -> None:
    pod = full()
    *parents, last = place
    functools.reduce(dict.__getitem__, parents, pod)[last] = value
    assert getattr(decode(pod), field) == decoded


# As the ReplicaSet controller reads it.
@pytest.mark.parametrize(
    ("written", "cost"),
    [
        ("-2147483648", -(2**31)), ("7", 7), ("0", 0), ("", 0), ("2147483648", 0), ("1.5", 0), ("07", 0), ("+7", 0),
        ("much", 0), ("9" * 40, 0),
    ],
)  # fmt: skip
def test_a_deletion_cost_is_an_integer_of_32_bits_or_0(written: str, cost: int) -> None:
    assert decode({"metadata": {"name": "web", "annotations": {COST: written}}}).deletion_cost == cost


def test_a_readiness_gate_without_its_condition_is_false() -> None:
    pod = full()
    pod["spec"]["readinessGates"] = [{"conditionType": name} for name in ("in", "out", "odd", "missing")]
    pod["status"]["conditions"] += [
        {"type": "in", "status": "True"},
        {"type": "out", "status": "False"},
        {"type": "odd", "status": "Unknown"},
    ]
    assert decode(pod).gates == {"in": True, "out": False, "odd": False, "missing": False}


def test_containers_without_a_status_are_neither_running_nor_not() -> None:
    pod = full()
    del pod["status"]["containerStatuses"]
    assert [container.running for container in decode(pod).containers] == [None, None]


@pytest.mark.parametrize("state", [{"terminated": {"exitCode": 0}}, {"running": {}}])
def test_a_sidecar_counts_as_a_container_and_a_plain_init_container_does_not(state: dict[str, Any]) -> None:
    pod = full()
    pod["spec"]["initContainers"] = [
        {"name": "migrate", "resources": {"requests": {"cpu": "8"}}},
        {"name": "mesh", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}}},
    ]
    pod["status"]["initContainerStatuses"] = [
        {"name": "migrate", "state": state},
        {"name": "mesh", "state": {"running": {}}},
    ]
    containers = decode(pod).containers
    assert [container.name for container in containers] == ["app", "proxy", "mesh"]
    assert containers[2] == Container(name="mesh", limits={"memory": GI}, running=True)


def test_a_quantity_that_cannot_be_read_leaves_only_itself_out() -> None:
    pod = full()
    pod["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "lots", "memory": "2Gi", "gpu": -1, "n": 2, "f": 0.5}
    assert decode(pod).containers[0].limits == {"memory": 2 * GI, "n": 2 * NANO, "f": NANO // 2}


def test_what_is_shared_stays_bounded() -> None:
    decoder, pod = PodDecoder(), full()
    one, two = (decoder(msgspec.json.encode(pod)) for _ in range(2))
    assert all(getattr(one, part) is getattr(two, part) for part in ("labels", "containers", "owner", "namespace"))

    def labels(index: int) -> Mapping[str, str]:
        pod["metadata"]["labels"] = {"statefulset.kubernetes.io/pod-name": f"db-{index}"}
        return decoder(msgspec.json.encode(pod)).labels

    first = labels(0)
    assert labels(0) is first
    for index in range(1, 5000):
        last = labels(index)
    assert last == {"statefulset.kubernetes.io/pod-name": "db-4999"}
    assert labels(0) is not first, "4096 are kept at most"
