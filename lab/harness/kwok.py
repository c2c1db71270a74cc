"""KWOK's configuration: ready nodes, and pods that start and end without containers, with usage from annotations.

Stages and metrics follow KWOK's own `stage/*/fast` and `metrics/*` kustomizations (Apache-2.0), with one addition for
tests: pods that become Ready late.
"""

from typing import Any

USAGE_CPU = "kwok.x-k8s.io/usage-cpu"
USAGE_MEMORY = "kwok.x-k8s.io/usage-memory"
READY_AFTER = "tests.effective-load.io/ready-after"
"""A pod with this annotation (a Go duration, "20s") runs at once and becomes Ready after that time."""

_POD = """
{{ $now := Now }}
conditions:
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: PodScheduled}
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: Initialized}
- {lastTransitionTime: {{ $now | Quote }}, status: "READY", type: Ready}
- {lastTransitionTime: {{ $now | Quote }}, status: "READY", type: ContainersReady}
{{ range .spec.readinessGates }}
- {lastTransitionTime: {{ $now | Quote }}, status: "READY", type: {{ .conditionType | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: READY
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
"""

_RUNNING = """
phase: Running
startTime: {{ $now | Quote }}
{{ $hostIPs := NodeIPsWith .spec.nodeName }}
{{ with $hostIPs }}
hostIP: {{ index . 0 | Quote }}
hostIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
{{ $podIPs := PodIPsWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
{{ with $podIPs }}
podIP: {{ index . 0 | Quote }}
podIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
"""  # noqa: E501 - a template line cannot be broken


_NODE_CONDITIONS = """
{{ $now := Now }}
{{ $since := or .metadata.creationTimestamp $now }}
conditions:
{{ range NodeConditions }}
- lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $since | Quote }}
  message: {{ .message | Quote }}
  reason: {{ .reason | Quote }}
  status: {{ .status | Quote }}
  type: {{ .type | Quote }}
{{ end }}
"""

_NODE_REST = """
addresses:
- {address: {{ NodeIP | Quote }}, type: InternalIP}
- {address: {{ .metadata.name | Quote }}, type: Hostname}
{{ with NodePort }}
daemonEndpoints: {kubeletEndpoint: {Port: {{ . }}}}
{{ end }}
nodeInfo:
  architecture: amd64
  bootID: ""
  containerRuntimeVersion: kwok
  kernelVersion: kwok
  kubeProxyVersion: ""
  kubeletVersion: kwok
  machineID: ""
  operatingSystem: linux
  osImage: ""
  systemUUID: ""
phase: Running
"""


def _where(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


_ALIVE = _where(".metadata.deletionTimestamp", "DoesNotExist")
_LATE = f'.metadata.annotations["{READY_AFTER}"]'
_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'


def _stage(name: str, where: list[dict[str, Any]], status: str = "", **more: Any) -> dict[str, Any]:
    """A stage of the kind that its name begins with, which writes this status, or does what `next` says."""
    reference = {"apiGroup": "v1", "kind": name.partition("-")[0].title()}
    spec = {"resourceRef": reference, "selector": {"matchExpressions": where}, "next": {"statusTemplate": status}}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec | more}


def stages() -> list[dict[str, Any]]:
    """Stages: node initialize and heartbeat; pod ready (at once or late), delete."""
    pending = [_ALIVE, _where(".status.phase", "In", "Pending")]
    running = _where(".status.phase", "In", "Running")
    is_late, unready = _where(_LATE, "Exists"), _where(".status.containerStatuses.[].ready", "In", "false")
    beat = {"durationMilliseconds": 20000, "jitterDurationMilliseconds": 25000}
    delay = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": _LATE}}
    return [
        _stage("node-initialize", [_where(_READY, "NotIn", "True")], _NODE_CONDITIONS + _NODE_REST),
        _stage(
            "node-heartbeat",
            [running, _where(_READY, "In", "True")],
            _NODE_CONDITIONS,
            delay=beat,
            immediateNextStage=True,
        ),
        _stage("pod-ready", [*pending, _where(_LATE, "DoesNotExist")], _pod("True") + _RUNNING),
        _stage("pod-starting", [*pending, is_late], _pod("False") + _RUNNING),
        _stage("pod-late", [_ALIVE, running, is_late, unready], _pod("True"), delay=delay),
        _stage("pod-delete", [_where(".metadata.deletionTimestamp", "Exists")], next={"delete": True}),
    ]


def _pod(ready: str) -> str:
    return _POD.replace("ready: READY", f"ready: {ready.lower()}").replace("READY", ready)


def usage_key(resource: str, namespace: str, app: str) -> str:
    """The key of the nodes' annotation with the usage of each pod of a workload, future pods included.

    It is on the nodes because a change of the pod template would start a rollout.
    """
    name = f"{namespace}.{app}"
    if len(name) > 63:
        raise ValueError(f"{name} is too long for the name of an annotation: shorten namespace or workload")
    return f"usage-{resource}.tests/{name}"


def _usage(resource: str, otherwise: str) -> dict[str, str]:
    """Usage of one container: the pod's annotation, its workload's on the node, or `otherwise`."""
    annotation = {"cpu": USAGE_CPU, "memory": USAGE_MEMORY}[resource]
    notes, nodes, labels = "pod.metadata.annotations", "node.metadata.annotations", "pod.metadata.labels"
    workload = f'("usage-{resource}.tests/" + pod.metadata.namespace + "." + {labels}["app"])'
    choice = (
        f'"{annotation}" in {notes} ? Quantity({notes}["{annotation}"])'
        f' : ("app" in {labels} && {workload} in {nodes} ? Quantity({nodes}[{workload}]) : Quantity("{otherwise}"))'
    )
    return {"expression": choice}


_CONTAINER_LABELS = [
    {"name": "container", "value": "container.name"},
    {"name": "namespace", "value": "pod.metadata.namespace"},
    {"name": "pod", "value": "pod.metadata.name"},
]


def _metric(name: str, dimension: str, kind: str, value: str) -> dict[str, Any]:
    labels = {"container": _CONTAINER_LABELS, "pod": _CONTAINER_LABELS[1:], "node": []}[dimension]
    entry = {"name": name, "dimension": dimension, "kind": kind, "help": name, "value": value}
    return entry | ({"labels": labels} if labels else {})


def usage_page(node: str) -> str:
    """The path of a node's page of usage at kwok."""
    return f"/metrics/nodes/{node}/metrics/resource"


def resource_metrics() -> dict[str, Any]:
    """The page /metrics/resource of a kubelet, which metrics-server scrapes."""
    cpu, memory = "cpu_usage_seconds_total", "memory_working_set_bytes"
    metrics = [
        _metric("scrape_error", "node", "gauge", "0"),
        _metric("container_start_time_seconds", "container", "gauge", "pod.SinceSecond()"),
        _metric(f"container_{cpu}", "container", "counter", 'pod.CumulativeUsage("cpu", container.name)'),
        _metric(f"container_{memory}", "container", "gauge", 'pod.Usage("memory", container.name)'),
    ]
    for dimension in ("pod", "node"):
        metrics += [
            _metric(f"{dimension}_{cpu}", dimension, "counter", f'{dimension}.CumulativeUsage("cpu")'),
            _metric(f"{dimension}_{memory}", dimension, "gauge", f'{dimension}.Usage("memory")'),
        ]
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Metric",
        "metadata": {"name": "metrics-resource"},
        "spec": {"path": usage_page("{nodeName}"), "metrics": metrics},
    }


def configuration() -> list[dict[str, Any]]:
    """All objects of kwok's --config file."""
    usage = {"usage": {"cpu": _usage("cpu", "1m"), "memory": _usage("memory", "1Mi")}}
    cluster_usage = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterResourceUsage",
        "metadata": {"name": "usage-from-annotation"},
        "spec": {"usages": [usage]},
    }
    return [*stages(), cluster_usage, resource_metrics()]


def node(name: str) -> dict[str, Any]:
    """A node that kwok simulates, and whose metrics metrics-server scrapes from kwok."""
    room = {"cpu": "1k", "memory": "4Ti", "pods": "1000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                "metrics.k8s.io/resource-metrics-path": usage_page(name),
            },
        },
        "status": {"allocatable": room, "capacity": room},
    }
