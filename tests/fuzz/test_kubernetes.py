"""Faulty data of the API server: watched objects of every kind are decoded, or keep their last state."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from adapter.evaluation.object_index import decode_hpa, decode_policy
from adapter.kube import leader_election
from adapter.kube.errors import KubeError
from adapter.kube.pods import PodDecoder
from adapter.kube.reflector import Reflector
from adapter.kube.scale import decode_scale
from adapter.kube.targets import BUILT_IN, ScalePaths, target_decoder
from adapter.registries import kubernetes
from tests.fuzz.kit import fuzz
from tests.fuzz.spoil import TOKENS, mark, spoilt, written

TIME = "2026-01-01T12:00:00Z"
METADATA = {
    "name": "web",
    "namespace": "shop",
    "uid": "u-1",
    "resourceVersion": "7",
    "generation": 3,
    "creationTimestamp": TIME,
    "deletionTimestamp": None,
    "labels": {"app": "web", "pod-template-hash": "abc"},
    "annotations": {
        "effective-load.io/pulled-out": "true",
        "effective-load.io/hold-until": TIME,
        "controller.kubernetes.io/pod-deletion-cost": "-5",
    },
    "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "r", "controller": True}
    ],
    "managedFields": [
        {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:behavior": {"f:scaleUp": {"f:tolerance": {}}}}}}
    ],
}
CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "x",
    "message": "y",
    "lastTransitionTime": TIME,
    "lastUpdateTime": TIME,
}
CONTAINER = {
    "name": "app",
    "image": "shop/web:1",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1}},
    "ports": [{"containerPort": 8080}],
}
STATUS = {"name": "app", "state": {"running": {"startedAt": TIME}, "waiting": {"reason": "CrashLoopBackOff"}}}
POD = {
    "metadata": METADATA,
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "readinessGates": [{"conditionType": "in-service"}],
        "hostNetwork": False,
        "resources": {"requests": {"cpu": "2"}, "limits": None},
    },
    "status": {
        "phase": "Running",
        "startTime": TIME,
        "conditions": [CONDITION],
        "containerStatuses": [STATUS],
        "initContainerStatuses": [STATUS],
        "podIP": "10.0.0.10",
        "podIPs": [{"ip": "10.0.0.10"}],
        "hostIP": "10.0.1.1",
    },
}
DEPLOYMENT = {
    "metadata": METADATA,
    "spec": {
        "replicas": 3,
        "selector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        },
    },
    "status": {"replicas": 3, "conditions": [CONDITION], "labelSelector": "app=web,tier in (a,b)"},
}
HPA = {
    "metadata": METADATA,
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 9,
        "behavior": {
            "scaleUp": {
                "tolerance": "0",
                "stabilizationWindowSeconds": 0,
                "selectPolicy": "Max",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
            }
        },
        "metrics": [
            {
                "type": "Object",
                "object": {
                    "describedObject": {"apiVersion": "v1", "kind": "WatermarkPolicy", "name": "web"},
                    "metric": {"name": "desired_replicas", "selector": {"matchLabels": {"policy": "web"}}},
                    "target": {"type": "AverageValue", "averageValue": "1"},
                },
            },
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}},
            },
            {
                "type": "Pods",
                "pods": {"metric": {"name": "effective_cpu"}, "target": {"type": "AverageValue", "averageValue": "1"}},
            },
            {"type": "External", "external": {"metric": {"name": "x"}, "target": {"type": "Value", "value": 1}}},
        ],
    },
    "status": {"lastScaleTime": TIME, "conditions": [CONDITION]},
}
POLICY = {
    "metadata": METADATA,
    "spec": {
        "metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}],
    },
    "status": {"memory": {"pods": {}}},
}
SLICE = {
    "metadata": METADATA,
    "endpoints": [
        {"conditions": {"ready": True, "serving": None}, "targetRef": {"kind": "Pod", "name": "web-0", "uid": "u"}}
    ],
}
SCALE = {"spec": {"replicas": 3}, "status": {"replicas": 3, "selector": "app=web,tier in (a,b)"}}
LEASE = {
    "metadata": METADATA,
    "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": TIME, "leaseTransitions": 1},
}

Decode = Callable[[msgspec.Raw], Any]
KINDS: dict[str, tuple[Decode, Any]] = {
    "pod": (PodDecoder(), POD),
    "deployment": (target_decoder("apps/v1", "Deployment", BUILT_IN), DEPLOYMENT),
    "custom target": (
        target_decoder("a.io/v1", "Rollout", ScalePaths(".spec.replicas", ".status.replicas", ".status.labelSelector")),
        DEPLOYMENT,
    ),
    "hpa": (decode_hpa, HPA),
    "policy": (decode_policy, POLICY),
    "endpoint slice": (kubernetes.decode_slice, SLICE),
    "scale": (decode_scale, {"metadata": METADATA, **SCALE}),
    "lease": (leader_election.DECODER.decode, LEASE),
}


class Session:
    """A session with clocks, whose every answer is this one."""

    def __init__(self, answer: bytes = b"") -> None:
        self._answer = answer

    async def get(self, *_: Any, **__: Any) -> bytes:
        return self._answer

    def now(self) -> float:
        return 1.7e9

    def monotonic(self) -> float:
        return 0.0


def watched(kind: str, listed: bytes = b"") -> tuple[Reflector[Any], list[tuple[Any, Any]]]:
    """A reflector of this kind whose server lists this, and the list of its events."""
    told: list[tuple[Any, Any]] = []
    decode, _ = KINDS[kind]
    reflector: Reflector[Any] = Reflector(
        Session(listed),  # type: ignore[arg-type]
        "/apis/things",
        decode,
        name="things",
        on_event=lambda old, new: told.append((old, new)),
    )
    return reflector, told


def take(reflector: Reflector[Any], line: bytes) -> None:
    """Feeds one line of a watch: accepted, or refused with a message."""
    try:
        reflector._apply(line)  # noqa: SLF001  each line without a connection
    except KubeError as error:
        str(error).encode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_object_is_kept(kind: str) -> None:
    reflector, told = watched(kind)
    take(reflector, written({"type": "ADDED", "object": KINDS[kind][1]}))
    assert [old for old, _ in told] == [None]


@fuzz(100, kind=st.sampled_from(sorted(KINDS)), data=st.data())
def test_an_object_with_several_faults_is_read_or_left_as_it_was(kind: str, data: st.DataObject) -> None:
    reflector, _ = watched(kind)
    for body in data.draw(st.lists(spoilt(KINDS[kind][1]), min_size=1, max_size=3)):
        take(reflector, b'{"type":"MODIFIED","object":%b}' % body)


@fuzz(100, line=st.one_of(st.binary(max_size=200), spoilt({"type": "ADDED", "object": POD})))
def test_a_line_of_any_bytes_is_taken_or_refused(line: bytes) -> None:
    take(watched("pod")[0], line)


@pytest.mark.parametrize("token", TOKENS)
async def test_a_list_with_a_strange_object_is_read_or_refused(token: str) -> None:
    for document in ({"metadata": {"resourceVersion": "1"}, "items": [POD, mark(token)]}, {"metadata": mark(token)}):
        reflector, _ = watched("pod", written(document))
        try:
            await reflector._list()  # noqa: SLF001  what it reads, without its pauses
        except KubeError as error:
            str(error)
