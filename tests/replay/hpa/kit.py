"""Many HPAs on a real controller, over targets that nobody else moves, with metrics from a stand-in.

Everything that went into a sync is known afterwards: its time and its outcome by the controller's log, and every
value that the stand-in gave, in order.
"""

import http.server
import json
import random
import re
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

from adapter.hpa.controller import Flags, Values
from adapter.hpa.pods import CpuRules, ModelPod, ModelSample
from adapter.runtime.times import format_time
from lab.harness import binaries, objects
from lab.harness.control_plane import ControlPlane

NAMESPACE = "series"
APIS = (("custom.metrics.k8s.io", "v1beta2"), ("external.metrics.k8s.io", "v1beta1"), ("metrics.k8s.io", "v1beta1"))
GROUP, KIND, PLURAL = "replay.example.com", "Workload", "workloads"
FLAGS = Flags(tolerance=0.1, down_window=5, cpu=CpuRules(40.0, 10.0), scale_to_zero=binaries.HPA_SCALES_TO_ZERO)
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": KIND, "plural": PLURAL, "singular": "workload"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}


@dataclass(kw_only=True)
class Series:
    """One HPA, its target's status and pods, and the values that its metrics gave so far, by metric."""

    name: str
    hpa: dict[str, Any]
    replicas: int
    status_replicas: int
    pods: tuple[ModelPod, ...]
    draw: Callable[[random.Random], float]
    given: dict[str, list[Values]] = field(default_factory=lambda: defaultdict(list))
    first_asked: float | None = None


class SeriesServer:
    """The three metrics APIs, as one server: each request draws a new value and notes it."""

    def __init__(self, series: Mapping[str, Series], certificate: tuple[Path, Path], port: int) -> None:
        self.series, self.random = series, random.Random(11)
        self.lock = threading.Lock()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = outer.answer(urlsplit(self.path))
                payload = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                pass

        http.server.ThreadingHTTPServer.daemon_threads = True
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, target: Any) -> tuple[int, Any]:
        parts = [unquote(part) for part in target.path.strip("/").split("/")]
        if len(parts) == 3:
            return 200, _resources("/".join(parts[1:]))
        if parts[:1] != ["apis"] or len(parts) < 6:
            return 404, _failure(404, "nothing here")
        selector = parse_qs(target.query).get("labelSelector", [""])[0].removeprefix("app=")
        with self.lock:
            match parts[1], parts[5:]:
                case "external.metrics.k8s.io", [metric]:
                    return self._given(self.series[metric.partition(".")[0]], metric, self._external)
                case "custom.metrics.k8s.io", ["pods", "*", metric]:
                    return self._given(self.series[selector], metric, self._pods)
                case "custom.metrics.k8s.io", [_, name, metric]:
                    return self._given(self.series[name], metric, self._object)
                case "metrics.k8s.io", ["pods"]:
                    return self._given(self.series[selector], "cpu", self._resource)
        return 404, _failure(404, "no such metric")

    def _given(self, series: Series, metric: str, made: Callable[[Series, str], Any]) -> tuple[int, Any]:
        """An answer, or one time in twenty a failure."""
        series.first_asked = series.first_asked or time.time()
        if self.random.random() < 0.05:
            series.given[metric].append("failed")
            return 503, _failure(503, "failed")
        return 200, made(series, metric)

    def _external(self, series: Series, metric: str) -> Any:
        values = [round(series.draw(self.random)) for _ in range(self.random.choice((1, 1, 1, 3)))]
        series.given[metric].append(values)
        items = [
            {"metricName": metric, "metricLabels": {}, "timestamp": _stamp(), "value": f"{value}m"} for value in values
        ]
        return {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "items": items}

    def _object(self, series: Series, metric: str) -> Any:
        value = round(series.draw(self.random))
        series.given[metric].append([value])
        return _values([({"kind": KIND, "name": series.name}, metric, value)])

    def _pods(self, series: Series, metric: str) -> Any:
        values = self._by_pod(series)
        series.given[metric].append({name: ModelSample(value) for name, value in values.items()} or "failed")
        return _values([({"kind": "Pod", "name": name}, metric, value) for name, value in values.items()])

    def _by_pod(self, series: Series) -> dict[str, int]:
        return {
            pod.name: max(0, round(series.draw(self.random) / 4)) for pod in series.pods if self.random.random() > 0.1
        }

    def _resource(self, series: Series, metric: str) -> Any:
        now = datetime.now(UTC).replace(microsecond=0)
        window = self.random.choice((5, 15, 30))
        values = self._by_pod(series)
        known = {name: ModelSample(value, now.timestamp(), window) for name, value in values.items()}
        series.given[metric].append(known or "failed")
        items = [
            {
                "metadata": {"name": name, "namespace": NAMESPACE},
                "timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "window": f"{window}s",
                "containers": [{"name": "app", "usage": {"cpu": f"{value}m", "memory": "1Mi"}}],
            }
            for name, value in values.items()
        ]
        return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _failure(code: int, message: str) -> Any:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}


def _values(values: list[tuple[dict[str, str], str, int]]) -> Any:
    items = [
        {
            "describedObject": {**described, "namespace": NAMESPACE, "apiVersion": "v1"},
            "metric": {"name": metric},
            "timestamp": _stamp(),
            "value": f"{value}m",
        }
        for described, metric, value in values
    ]
    return {"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}, "items": items}


def _resources(version: str) -> Any:
    verbs = {"singularName": "", "namespaced": True, "verbs": ["get", "list"]}
    names = {
        "custom.metrics.k8s.io": [("*/*", "MetricValueList")],
        "external.metrics.k8s.io": [("*", "ExternalMetricValueList")],
        "metrics.k8s.io": [("pods", "PodMetrics")],
    }.get(version.partition("/")[0], [])
    resources = [{"name": name, "kind": kind, **verbs} for name, kind in names]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def register(cluster: ControlPlane, port: int) -> None:
    """Lets the metrics APIs be served on this port, and makes the targets' kind known."""
    client = cluster.client
    client.apply(objects.namespace(NAMESPACE))
    client.apply(objects.external_service("series", NAMESPACE, port))
    for group, version in APIS:
        client.apply(objects.api_service(group, version, (NAMESPACE, "series", port)))
    client.apply(CRD)
    for group, version in APIS:
        cluster.wait_api_service(f"{version}.{group}")
    client.wait_for(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default", lambda _: True, 30, "account")


def create(cluster: ControlPlane, series: Mapping[str, Series]) -> None:
    """Creates each series' pods, target and HPA; what the API server drops of the HPA is dropped from the series."""
    client, workloads = cluster.client, f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/{PLURAL}"
    client.wait_for(f"/apis/{GROUP}/v1", lambda _: True, 30, "the targets' kind")
    for one in series.values():
        metadata = {"name": one.name, "namespace": NAMESPACE}
        for pod in one.pods:
            _create_pod(cluster, one.name, pod)
        head = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "metadata": metadata}
        client.post(workloads, {**head, "spec": {"replicas": one.replicas}})
        status = {"replicas": one.status_replicas, "selector": f"app={one.name}"}
        client.patch_status(f"{workloads}/{one.name}", {"status": status})
    for one in series.values():
        one.hpa = client.post(f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers", one.hpa)


def _create_pod(cluster: ControlPlane, app: str, pod: ModelPod) -> None:
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    metadata = {"name": pod.name, "namespace": NAMESPACE, "labels": {"app": app}, "finalizers": ["example.com/stays"]}
    requests = {"cpu": f"{pod.containers['app']['cpu']}m"}
    container = {"name": "app", "image": "none", "resources": {"requests": requests}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    cluster.client.post(pods, body)
    status: dict[str, Any] = {"phase": pod.phase}
    if pod.started is not None:
        status["startTime"] = format_time(pod.started)
    if pod.ready:
        status["conditions"] = [
            {"type": "Ready", "status": pod.ready, "lastTransitionTime": format_time(pod.ready_since)}
        ]
    cluster.client.patch_status(f"{pods}/{pod.name}", {"status": status})
    if pod.deleting:
        cluster.client.delete(f"{pods}/{pod.name}")


class Line(NamedTuple):
    """How one sync ended, by the log: when it was normalized and when written (seconds), and the counts."""

    normalized_at: float
    written_at: float
    current: int
    desired: int
    proposed: int | None
    failed: bool = False


_HEADER = re.compile(r"^[IWE](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6})")
_TARGET = re.compile(rf'{KIND}/{NAMESPACE}/([a-z0-9-]+)|HPA="{NAMESPACE}/([a-z0-9-]+)"')


def syncs(lines: list[str]) -> Iterator[tuple[str, Line]]:
    """Every sync of every HPA in the order of the log; times are seconds of the local clock."""
    proposals: dict[str, tuple[float, int]] = {}
    for line in lines:
        header, target = _HEADER.match(line), _TARGET.search(line)
        if header is None or target is None:
            continue
        at, name = _seconds(header), target[1] or target[2]
        count = re.search(r"desiredReplicas=(-?\d+)", line)
        if '"Proposing desired replicas' in line and count is not None:
            proposals[name] = at, int(count[1])
        elif '"Decided not to scale"' in line and count is not None:
            begun, proposed = proposals.pop(name, (at, None))
            yield name, Line(begun, at, int(count[1]), int(count[1]), proposed)
        elif '"Successfully rescaled"' in line and count is not None:
            begun, proposed = proposals.pop(name, (at, None))
            current = re.search(r"currentReplicas=(\d+)", line)
            assert current is not None
            yield name, Line(begun, at, int(current[1]), int(count[1]), proposed)
        elif "failed to compute desired number of replicas" in line and "horizontal.go" in line:
            yield name, Line(at, at, -1, -1, None, failed=True)


def _seconds(header: re.Match[str]) -> float:
    month, day, hour, minute, second, micro = (int(part) for part in header.groups())
    year = datetime.now().astimezone().year
    return datetime(year, month, day, hour, minute, second, micro).astimezone().timestamp()
