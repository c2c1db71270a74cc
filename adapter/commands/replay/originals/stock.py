"""A native HPA as another adapter served it: the model of the controller on the original's own metrics."""

from collections.abc import Mapping
from dataclasses import replace

from adapter.commands.migrate.originals import StockHpa
from adapter.commands.replay.answers import MAX_AGE, ModelPods, answer
from adapter.commands.replay.service import View
from adapter.hpa.controller import Controller, Values
from adapter.policy.hpa import MetricSourceType

_RESOURCE = MetricSourceType.RESOURCE
_RESOURCES = {_RESOURCE, MetricSourceType.CONTAINER_RESOURCE}


class StockAutoscaler:
    """The controller for an original's HPA; metrics that were not migrated are left out, for nobody knows them."""

    def __init__(self, stock: StockHpa, name: str) -> None:
        self.name = name
        self._places = [place for place, known in enumerate(stock.names) if known]
        self._stock = stock
        metrics = [stock.hpa.metrics[one] for one in self._places]
        # A history has whole pods only.
        whole = [replace(one, kind=_RESOURCE, container="") if one.kind in _RESOURCES else one for one in metrics]
        self._controller = Controller(replace(stock.hpa, metrics=tuple(whole)))
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
