"""A native HPA as another adapter served it: the model of the controller on the original's own metrics."""

from collections.abc import Mapping
from dataclasses import replace

from adapter.migrate.originals import StockHpa
from adapter.policy.hpa import Hpa, HpaMetric, MetricSourceType
from adapter.replay.answers import MAX_AGE, ModelPods, answer
from adapter.replay.hpa.controller import Controller, Values
from adapter.replay.service import View

_RESOURCES = {MetricSourceType.RESOURCE, MetricSourceType.CONTAINER_RESOURCE}


class StockAutoscaler:
    """The controller for an original's HPA; metrics that were not migrated are left out, for nobody knows them."""

    def __init__(self, stock: StockHpa, name: str) -> None:
        self.name = name
        self._places = [place for place, known in enumerate(stock.names) if known]
        self._stock = stock
        self._hpa = _whole_pods(replace(stock.hpa, metrics=tuple(stock.hpa.metrics[one] for one in self._places)))
        self._controller = Controller(self._hpa)
        self._models = ModelPods()

    def sync(self, view: View) -> int:
        """One sync of the controller."""
        values = [self._answer(place, view) for place in self._places]
        pods = self._models.of(view.pods)
        return self._controller.sync(view.now, view.replicas, values, pods, view.status_replicas).replicas

    def _answer(self, place: int, view: View) -> Values:
        metric, name = self._stock.hpa.metrics[place], self._stock.names[place]
        values = answer(replace(metric, name=name), view, MAX_AGE)
        if place not in self._stock.per_replica or isinstance(values, str | Mapping) or not view.status_replicas:
            return values
        # kube-metrics-adapter divides in floats, and cuts to milli-units.
        return [int(value / 1000 / view.status_replicas * 1000) for value in values]


def _whole_pods(hpa: Hpa) -> Hpa:
    """The HPA with its container metrics taken of whole pods, which is what a history has."""
    return replace(hpa, metrics=tuple(map(_of_whole_pod, hpa.metrics)))


def _of_whole_pod(metric: HpaMetric) -> HpaMetric:
    return replace(metric, kind=MetricSourceType.RESOURCE, container="") if metric.kind in _RESOURCES else metric
