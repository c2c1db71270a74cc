"""Reads both services from the API server: pods, counts, and the metrics of both HPAs."""

import datetime as dt
import email.utils
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.load.quantity import QuantityError, parse_quantity
from lab.demo.objects import OURS, STOCK, USAGE, Object
from lab.demo.sharing import Replica
from lab.harness.client import ApiError, Client, condition_true

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
FIGURES = ("effective_cpu", "raw_cpu", "effective_pods", "pulled_out_pods", "desired_replicas")


class DemoError(Exception):
    """The demo cannot continue; the message is one sentence for the user: what is wrong, and what to do."""


@dataclass(frozen=True)
class Observation:
    """The API server's data at one moment. `now` is its own time; `figures` are the adapter's, in milli-units."""

    now: dt.datetime
    pods: Mapping[str, list[Object]]
    deployments: Mapping[str, Object]
    hpas: Mapping[str, Object]
    usage: list[Object]
    figures: Mapping[str, int] = field(default_factory=dict)

    def replicas(self, name: str) -> list[Replica]:
        return [replica(pod) for pod in self.pods[name]]

    def count(self, name: str) -> int:
        """The replica count that the HPA has set."""
        if name not in self.deployments:
            raise DemoError(f"Deployment {name} does not exist any more: another client has deleted it")
        return int(self.deployments[name]["spec"].get("replicas", 0))

    def stock_average(self) -> int | None:
        """The stock HPA's average at its last sync, in millicores."""
        status = self.hpas.get(STOCK, {}).get("status") or {}
        for metric in status.get("currentMetrics") or []:
            value = metric.get("resource", {}).get("current", {}).get("averageValue")
            if value is not None:
                return _milli(value)
        return None

    def sampled(self, name: str) -> dict[str, int]:
        """Millicores of each pod of a service in metrics.k8s.io."""
        names = {pod["metadata"]["name"] for pod in self.pods[name]}
        containers = {item["metadata"]["name"]: item["containers"] for item in self.usage}
        return {pod: sum(_milli(one["usage"]["cpu"]) for one in containers[pod]) for pod in names & set(containers)}


def replica(pod: Object) -> Replica:
    """A pod in the form that the sharing of demand uses."""
    metadata = pod["metadata"]
    usage = (metadata.get("annotations") or {}).get(USAGE)
    return Replica(
        name=metadata["name"],
        ready=condition_true(pod, "Ready"),
        leaving="deletionTimestamp" in metadata,
        created=metadata.get("creationTimestamp", ""),
        usage=None if usage is None else _milli(usage),
    )


def _milli(text: str) -> int:
    try:
        return round(parse_quantity(text) * 1000)
    except QuantityError:
        return 0


@dataclass(frozen=True)
class ClusterReader:
    """Reads one namespace as one user."""

    client: Client
    namespace: str

    def path(self, kind: str, name: str = "") -> str:
        group = {"pods": "/api/v1", "deployments": "/apis/apps/v1", "horizontalpodautoscalers": "/apis/autoscaling/v2"}
        return f"{group[kind]}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def observe(self) -> Observation:
        """Reads everything at once. Raises ApiError and OSError; metrics that fail to be read are missing."""
        answer = self.client.raw(self.path("pods"))
        if answer.status >= 400:
            raise ApiError(answer, "pods")
        pods = answer.json()["items"]
        return Observation(
            now=email.utils.parsedate_to_datetime(answer.headers["Date"]),
            pods={
                name: [pod for pod in pods if pod["metadata"]["labels"].get("app") == name] for name in (OURS, STOCK)
            },
            deployments=self._by_name("deployments"),
            hpas=self._by_name("horizontalpodautoscalers"),
            usage=self._usage(),
            figures=self.figures(),
        )

    def _by_name(self, kind: str) -> dict[str, Object]:
        return {item["metadata"]["name"]: item for item in self.client.list(self.path(kind))}

    def _usage(self) -> list[Object]:
        answer = self.client.raw(f"/apis/metrics.k8s.io/v1beta1/namespaces/{self.namespace}/pods")
        return list(answer.json()["items"]) if answer.status == 200 else []

    def scraped_at(self) -> str:
        """The time of the newest sample, empty without samples."""
        return max((str(item["timestamp"]) for item in self._usage()), default="")

    def figure_path(self, metric: str) -> str:
        policy = f"watermarkpolicies.effective-load.io/{OURS}"
        return f"{CUSTOM}/namespaces/{self.namespace}/{policy}/{metric}"

    def figures(self) -> dict[str, int]:
        """The adapter's figures in milli-units, without those in error."""
        return {name: value for name in FIGURES if (value := self._figure(name)) is not None}

    def _figure(self, metric: str) -> int | None:
        answer = self.client.raw(self.figure_path(metric))
        items: list[dict[str, Any]] = answer.json().get("items", []) if answer.status == 200 else []
        return _milli(items[0]["value"]) if items else None

    def rescale_message(self, name: str, count: int, patience: float = 1.5) -> str:
        """The message of the HPA's event for this count, empty if none arrives; it follows the count after a moment."""
        fields = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={name},reason=SuccessfulRescale"
        path = f"/api/v1/namespaces/{self.namespace}/events?{urllib.parse.urlencode({'fieldSelector': fields})}"
        deadline = time.monotonic() + patience
        while True:
            events = sorted(self.client.get(path)["items"], key=_when, reverse=True)
            for event in events:
                if f"New size: {count};" in event["message"]:
                    return str(event["message"])
            if time.monotonic() > deadline:
                return ""
            time.sleep(0.1)

    def active(self, name: str) -> Object | None:
        """The HPA's condition ScalingActive, None before its first sync."""
        hpa = self.client.find(self.path("horizontalpodautoscalers", name)) or {}
        conditions = hpa.get("status", {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == "ScalingActive"), None)


def _when(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
