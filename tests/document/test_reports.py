"""Public reports on other autoscalers, and what such reports showed here at run time, as documents for `decide`.

S: what is only asked for, or only a part, is not believed. L: what the HPA accepts is served. P: whose pod it is, and
whose address. E: sentences.
"""

from typing import Any

import pytest

from adapter.commands.decide import reader
from adapter.policy.behavior import count_metric

Object = dict[str, Any]
NOW, READ = "2026-01-01T12:00:00Z", "2026-01-01T11:59:50Z"
CPU: Object = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}
SHARE: Object = {"highWatermark": "80%", "lowWatermark": "60%"}
MEMORY: Object = {"name": "memory", "resource": {"name": "memory", "relativeTo": "Limit"}, **SHARE}
REQUESTS: Object = {"name": "cpu", "resource": {"name": "cpu", "relativeTo": "Request"}, **SHARE}
TASKS: Object = {"name": "tasks", "query": {"name": "tasks"}, "highWatermark": "4", "lowWatermark": "2"}
QUEUE: Object = {"name": "queue", "query": {"promQL": "sum(queue)", "server": "main"}, "highWatermark": "10"}
SPEC: Object = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
UNLIMITED: Object = {"requests": {"cpu": "500m"}}
DEPLOYMENT: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CLONE_SET: Object = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web"}
REPLICA_SET: Object = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "rs"}


def pod(
    number: int,
    *,
    owner: Object = REPLICA_SET,
    asks: Object | None = None,
    in_force: Object | None = None,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    """A Ready pod; what its containers ask for, and what is in force, are the same unless given."""
    ready = {"status": "True", "lastTransitionTime": "2026-01-01T10:00:20Z"}
    container = {"name": "app", "state": {"running": {"startedAt": "2026-01-01T10:00:03Z"}}}
    return {
        "metadata": {
            "name": f"web-{number}",
            "uid": f"uid-web-{number}",
            "namespace": "shop",
            "creationTimestamp": "2026-01-01T10:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "abc"},
            "ownerReferences": [{**owner, "controller": True}],
            **metadata,
        },
        "spec": {"containers": [{"name": "app", "resources": asks or SPEC}]},
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T10:00:01Z",
            "podIP": f"10.0.0.{number}",
            "conditions": [{"type": "Ready", **ready}, {"type": "ContainersReady", **ready}],
            "containerStatuses": [container | ({"resources": in_force} if in_force else {})],
            **(status or {}),
        },
    }


def asked(pods: list[Object], used: list[Object], *metrics: Object, target: Object = DEPLOYMENT, **more: Any) -> Object:
    """What is decided; `used` is the usage of the first pods."""
    metadata = {"name": "web", "namespace": "shop"}
    behavior = {"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "0", "stabilizationWindowSeconds": 60}}
    least, replicas = more.pop("least", 1), more.pop("replicas", len(pods))
    bounds = {"minReplicas": least, "maxReplicas": 1000}
    usage = [
        {
            "metadata": {"name": one["metadata"]["name"], "namespace": "shop"},
            "timestamp": READ,
            "window": "15s",
            "containers": [{"name": "app", "usage": load}],
        }
        for one, load in zip(pods, used, strict=False)
    ]
    document = {
        "now": NOW,
        "policy": {"metadata": metadata, "spec": {"metrics": list(metrics), **more.pop("spec", {})}},
        "hpa": {
            "metadata": metadata,
            "spec": {"scaleTargetRef": target, **bounds, "behavior": behavior, "metrics": [count_metric("web")]},
        },
        "scale": {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"}},
        "pods": pods,
        "usage": usage,
        **more,
    }
    return reader.decision_json(reader.read_data(document))


def answer(replicas: int, *metrics: Object, cpu: list[str] | None = None, **more: Any) -> Object:
    """What is decided for so many pods; `cpu` is the usage of the first of them."""
    pods = [pod(n, asks=UNLIMITED) for n in range(replicas)]
    return asked(pods, [{"cpu": used} for used in cpu or []], *metrics, **more)


def resources(of: str, **amounts: str) -> Object:
    return {**SPEC, of: {**SPEC[of], **amounts}}


def of_job(number: int, kind: str = "Job") -> Object:
    return pod(number, asks=UNLIMITED, owner={"apiVersion": "batch/v1", "kind": kind, "name": "web", "uid": "job"})


def listed(*instances: Object) -> Object:
    return {
        "spec": {"registry": {"name": "nacos", "service": "web"}},
        "instances": {"at": READ, "instances": [{"port": 80, **one} for one in instances]},
    }


CLONED = [pod(n, asks=UNLIMITED, owner={**CLONE_SET, "uid": "set"}) for n in range(4)]
BUSY, IDLE = {"cpu": "1300m"}, {"cpu": "50m"}
GONE = pod(9, deletionTimestamp="2026-01-01T11:50:00Z", status={"podIP": "10.0.0.0"})
EVICTED = pod(9, status={"podIP": "10.0.0.0", "phase": "Failed"})

DOWN: Object = {"tasks": {"error": "Prometheus main: connection refused"}}
FALLBACK: Object = {"fallback": {"afterSeconds": 60, "replicas": 2}}
LOST: Object = {"memory": {"errorSince": "2026-01-01T11:50:00Z"}}
CANARY: Object = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"}
STABLE = [pod(n, asks=UNLIMITED) for n in range(10)]


def canaries(**metadata: Any) -> list[Object]:
    """Five pods of the new template, which have no traffic yet."""
    owner, labels = {**REPLICA_SET, "name": "web-xyz", "uid": "new"}, {"app": "web", "pod-template-hash": "xyz"}
    return [pod(n, asks=UNLIMITED, owner=owner, labels=labels, **metadata) for n in range(10, 15)]


CANARY_LOADS: list[Object] = [BUSY] * 10 + [{"cpu": "10m"}] * 5
OUT: Object = {"effective-load.io/pulled-out": "true"}

REPORTS: dict[str, tuple[Object, Object]] = {
    "kubernetes/kubernetes#99394: the HPA shrinks though one of its metrics is missing": (
        answer(3, CPU, TASKS, cpu=["100m"] * 3, samples=DOWN),
        {"desiredReplicas": 3, "heldBy": "MetricError"},
    ),
    "kubernetes/kubernetes#61007: a missing metric stops the way up": (
        answer(3, CPU, TASKS, cpu=["2400m"] * 3, samples=DOWN),
        {"desiredReplicas": 6},
    ),
    "kubernetes/kubernetes#30471: one pod of 70 without a sample blocks everything": (
        answer(70, CPU, cpu=["2400m"] * 69),
        {"desiredReplicas": 138},
    ),
    "kubernetes/kubernetes#127193: one pod of 160 without a sample keeps the maximum for hours": (
        answer(160, CPU, cpu=["100m"] * 159),
        {"desiredReplicas": 42},
    ),
    "kubernetes/kubernetes#116984: 41 tasks for 10 pods of 4 tasks each are within the tolerance": (
        answer(10, TASKS, samples={"tasks": {"at": READ, "total": "41"}}),
        {"desiredReplicas": 11},
    ),
    "kedacore/keda#6659: the fallback replaces a larger count of another trigger": (
        answer(4, CPU, TASKS, cpu=["2400m"] * 4, samples=DOWN, **LOST, spec=FALLBACK),
        {"desiredReplicas": 8},
    ),
    "kedacore/keda#4249: the count oscillates between the minimum and the fallback": (
        answer(1, TASKS, samples=DOWN, **LOST, spec=FALLBACK),
        {"desiredReplicas": 2, "error": None},
    ),
    "kedacore/keda#7239: the fallback does not wake a service at 0": (
        answer(0, TASKS, samples=DOWN, least=0, **LOST, spec=FALLBACK),
        {"desiredReplicas": 2},
    ),
    "kedacore/keda#5432: a query without a result counts as 0": (
        answer(6, TASKS, samples={"tasks": {"at": READ}}),
        {"desiredReplicas": None},
    ),
    "alibaba/nacos#11835: a service vanishes with a restart of the server": (
        answer(6, CPU, cpu=["100m"] * 6, **listed()),
        {"desiredReplicas": 6},
    ),
    "alibaba/nacos#5243: an instance that was taken offline is online again": (
        answer(3, CPU, cpu=["10m", "1500m", "1500m"],
               **listed({"ip": "10.0.0.0", "enabled": False}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.2"})),
        {"counts": {"pulledOut": 1, "serving": 2}},
    ),
    "S F1: a larger limit that the kubelet refused": (
        asked([pod(n, asks=resources("limits", memory="4Gi"), in_force=SPEC) for n in range(6)],
              [{"memory": "720Mi"}] * 6, MEMORY),
        {"desiredReplicas": 6, "upperBound": None},
    ),
    "S: a smaller limit that is pending brings no pods for a throttling that is not": (
        asked([pod(n, asks=resources("limits", cpu="500m"), in_force=SPEC) for n in range(6)],
              [{"cpu": "490m"}] * 6, CPU),
        {"desiredReplicas": 6, "verdict": "Inside"},
    ),
    "S: a larger request that is deferred": (
        asked([pod(n, asks=resources("requests", cpu="2"), in_force=SPEC) for n in range(4)],
              [{"cpu": "350m"}] * 4, REQUESTS),
        {"desiredReplicas": 4},
    ),
    "S: half of the pods is resized, and the other half waits": (
        asked([pod(n, asks=resources("limits", memory="4Gi"),
                   in_force=SPEC if n < 3 else resources("limits", memory="4Gi")) for n in range(6)],
              [{"memory": "980Mi"}] * 3 + [{"memory": "720Mi"}] * 3, MEMORY),
        {"desiredReplicas": 3},
    ),
    "L F4: a target whose version is old": (
        asked([pod(n, asks=UNLIMITED) for n in range(5)], [BUSY] * 5, CPU,
              target={**DEPLOYMENT, "apiVersion": "apps/v1beta2"}),
        {"desiredReplicas": 6, "counts": {"serving": 5}},
    ),
    "L: a target whose kind is in other letters, beside a Job's pods": (
        asked([*(pod(n, asks=UNLIMITED) for n in range(5)), of_job(5)], [BUSY] * 5 + [IDLE], CPU, replicas=5,
              target={**DEPLOYMENT, "kind": "deployment"}),
        {"desiredReplicas": 6, "counts": {"serving": 5}},
    ),
    "L: a custom target whose kind is in other letters, beside another owner's pods": (
        asked([*CLONED, of_job(4)], [BUSY] * 4 + [IDLE], CPU, replicas=4, target={**CLONE_SET, "kind": "cloneset"}),
        {"desiredReplicas": 5, "counts": {"serving": 4}},
    ),
    "P: pods of another Deployment, and of a test run, with the same labels": (
        asked([*(pod(n, asks=UNLIMITED) for n in range(5)), pod(5, owner={**REPLICA_SET, "name": "b-abc"}), of_job(6)],
              [BUSY] * 5 + [IDLE] * 2, CPU, replicas=5),
        {"desiredReplicas": 6, "counts": {"serving": 5}},
    ),
    "P F5: a Job's pods with the labels of a CloneSet": (
        asked([*CLONED, *(of_job(n) for n in range(4, 8))], [BUSY] * 4 + [IDLE] * 4, CPU, target=CLONE_SET, replicas=4),
        {"desiredReplicas": 5, "counts": {"serving": 4}},
    ),
    "P: a DaemonSet's pods with the labels of a CloneSet without pods of its own": (
        asked([of_job(n, "DaemonSet") for n in range(3)], [BUSY] * 3, CPU, target=CLONE_SET, replicas=3),
        {"desiredReplicas": None, "counts": {}},
    ),
    "P F6: a canary that is marked as without traffic hides no overload of the stable pods": (
        asked([*STABLE, *canaries(annotations=OUT)], CANARY_LOADS, CPU, target=CANARY, replicas=10),
        {"desiredReplicas": 11, "counts": {"serving": 10, "pulledOut": 5}},
    ),
    "P F6: nor does one that a registry with traffic does not list": (
        asked([*STABLE, *canaries()], CANARY_LOADS, CPU, target=CANARY, replicas=10,
              **listed(*({"ip": f"10.0.0.{n}"} for n in range(10)))),
        {"desiredReplicas": 11, "counts": {"serving": 10, "doubtful": 5}},
    ),
    "P F6: an idle canary of which nothing is said takes no pod away": (
        asked([*STABLE, *canaries()], CANARY_LOADS, CPU, target=CANARY, replicas=10),
        {"desiredReplicas": 10, "counts": {"serving": 15}},
    ),
    "P F11: a pod that is being deleted has the address of a new one that is disabled": (
        asked([pod(0), pod(1), pod(2), GONE], [{"cpu": "800m"}] * 3, CPU, replicas=3,
              **listed({"ip": "10.0.0.0", "enabled": False}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.2"})),
        {"counts": {"pulledOut": 1, "serving": 2, "terminating": 1}},
    ),
    "P: an evicted pod has the address of a new one": (
        asked([pod(0), pod(1), pod(2), EVICTED], [{"cpu": "800m"}] * 3, CPU, replicas=3,
              **listed({"ip": "10.0.0.0"}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.2"})),
        {"counts": {"serving": 3, "finished": 1}},
    ),
    "P: two addresses of one pod, of which the registry has the second": (
        asked([pod(0, status={"podIPs": [{"ip": "10.0.0.0"}, {"ip": "fd00::7"}]}), pod(1), pod(2)],
              [{"cpu": "800m"}] * 3, CPU,
              **listed({"ip": "fd00:0:0:0:0:0:0:7", "enabled": False}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.2"})),
        {"counts": {"pulledOut": 1, "serving": 2}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("report", REPORTS)
def test_report_is_answered_as_its_users_expect(report: str) -> None:
    found, expected = REPORTS[report]
    assert {key: found[key] for key in expected} == expected, found["explanation"]


SENTENCES: dict[str, tuple[Object, str]] = {
    "E F13: an inline query has a name": (
        asked([pod(n) for n in range(2)], [], QUEUE, samples={"queue": {"at": "2026-01-01T11:50:00Z", "total": "5"}}),
        "query queue has no fresh sample",
    ),
    "E F15: a service that was scaled to 0 by hand": (
        asked([], [], QUEUE, replicas=0, samples={"queue": {"at": READ, "total": "35"}}),
        "the target was scaled to 0 by hand: an HPA with minReplicas 1 rests there",
    ),
    "E: a service at 0 that its HPA may leave says no such thing": (
        asked([], [], QUEUE, replicas=0, least=0, samples={"queue": {"at": READ, "total": "35"}}),
        "asks for 1 (now 0)",
    ),
    "E F16: the fallback is called one": (
        asked([pod(n) for n in range(4)], [], CPU, spec={"fallback": {"afterSeconds": 300, "replicas": 8}},
              memory={"errorSince": "2026-01-01T11:50:00Z"}),
        "nothing could be decided for 300 s: the fallback is 8",
    ),
    "E: a fallback that is not due yet is not": (
        asked([pod(n) for n in range(4)], [], CPU, spec={"fallback": {"afterSeconds": 300, "replicas": 8}},
              memory={"errorSince": "2026-01-01T11:59:00Z"}),
        "the fallback after 300 s is 8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("report", SENTENCES)
def test_explanation_names_the_cause(report: str) -> None:
    found, sentence = SENTENCES[report]
    text = "\n".join(found["explanation"])
    assert sentence in text
    assert "query  " not in text
    assert ("by hand" in text) is ("by hand" in sentence)
    assert ("the fallback is 8" in text) is ("the fallback is 8" in sentence)
