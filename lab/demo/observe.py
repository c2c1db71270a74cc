"""What there is of both services at one moment: pods, counts, and the metrics of both HPAs."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.load.quantity import QuantityError, parse_quantity
from lab.demo.curve import Replica
from lab.demo.objects import STOCK, Object
from lab.harness.client import condition_true
from lab.harness.kwok import USAGE_CPU


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
        return int(self.deployments[name]["spec"]["replicas"])

    def stock_average(self) -> int | None:
        """The stock HPA's average at its last sync, in millicores."""
        metrics = (self.hpas[STOCK].get("status") or {}).get("currentMetrics") or []
        averages = [metric.get("resource", {}).get("current", {}).get("averageValue") for metric in metrics]
        return next((milli_of(average) for average in averages if average is not None), None)

    def sampled(self, name: str) -> dict[str, int]:
        """Millicores of each pod of a service in metrics.k8s.io."""
        names = {pod["metadata"]["name"] for pod in self.pods[name]}
        containers = {item["metadata"]["name"]: item["containers"] for item in self.usage}
        return {pod: sum(milli_of(one["usage"]["cpu"]) for one in containers[pod]) for pod in names & set(containers)}


def replica(pod: Object) -> Replica:
    """A pod in the form that the sharing of demand uses."""
    metadata = pod["metadata"]
    usage = (metadata.get("annotations") or {}).get(USAGE_CPU)
    return Replica(
        name=metadata["name"],
        ready=condition_true(pod, "Ready"),
        leaving="deletionTimestamp" in metadata,
        created=metadata.get("creationTimestamp", ""),
        usage=None if usage is None else milli_of(usage),
    )


def milli_of(text: str) -> int:
    """A quantity in milli-units, 0 where it is none."""
    try:
        return round(parse_quantity(text) * 1000)
    except QuantityError:
        return 0
