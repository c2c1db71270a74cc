"""The algorithms of the autoscalers that objects are migrated from, to be replayed against the migrated pairs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from adapter.commands.migrate.migration import migrate
from adapter.commands.migrate.original import MigrationError
from adapter.commands.migrate.pair import Keda, Original, StockHpa, Wpa, WpaMetric
from adapter.commands.replay.autoscalers import ModelPods, answer
from adapter.commands.replay.service import Autoscaler, View
from adapter.hpa.controller import Controller, Values
from adapter.hpa.go_numbers import milli
from adapter.load.pods import FINISHED_PHASES, Pod
from adapter.load.spec import Policy
from adapter.policy.hpa import MetricSourceType
from adapter.runtime.faults import Fault

_RESOURCE = MetricSourceType.RESOURCE
_RESOURCES = {_RESOURCE, MetricSourceType.CONTAINER_RESOURCE}
_PENDING = "Pending"


class AgainstOriginal(NamedTuple):
    """An original to compare a policy with: what reports call it, and the metrics that it needs."""

    name: str
    original: Original
    metrics: tuple[str, ...]


def read_original(text: str, file: str, policy: Policy) -> AgainstOriginal:
    """The original of a file: the one that becomes this policy, or the only one. Raises MigrationError.

    Its metrics have the names that the migration gives them.
    """
    pairs = migrate([(file, text)]).pairs
    chosen = [pair for pair in pairs if (pair.namespace or "default", pair.name) == (policy.namespace, policy.name)]
    chosen = chosen or list(pairs)
    if len(chosen) != 1:
        names = ", ".join(pair.name for pair in pairs)
        advice = f"has several originals ({names}) and none that becomes policy {policy.name}; give a file with one"
        raise MigrationError([Fault(file, None, advice)], "this cannot be replayed")
    (pair,) = chosen
    assert pair.original is not None
    metrics = tuple(str(metric["name"]) for metric in pair.policy["spec"]["metrics"])
    return AgainstOriginal(f"{pair.source} {pair.name}", pair.original, metrics)


def autoscaler_of(original: Original, name: str) -> Autoscaler:
    """A new autoscaler with the original's algorithm; `name` is what reports call it."""
    match original:
        case Wpa():
            return WpaAutoscaler(original, name)
        case Keda():
            return KedaAutoscaler(original, name)
        case StockHpa():
            return StockAutoscaler(original, name)


class StockAutoscaler:
    """The controller for an original's HPA; metrics that were not migrated are left out, for nobody knows them."""

    def __init__(self, stock: StockHpa, name: str) -> None:
        self.name = name
        self._places = [place for place, name in enumerate(stock.names) if name]
        self._per_replica = stock.per_replica
        metrics = [stock.hpa.metrics[place] for place in self._places]
        self._asked = [replace(stock.hpa.metrics[place], name=stock.names[place]) for place in self._places]
        # A history has whole pods only.
        whole = [
            replace(metric, kind=_RESOURCE, container="") if metric.kind in _RESOURCES else metric for metric in metrics
        ]
        self._controller = Controller(replace(stock.hpa, metrics=tuple(whole)))
        self._models = ModelPods()

    def sync(self, view: View) -> int:
        """One sync of the controller."""
        values: list[Values] = []
        for place, metric in zip(self._places, self._asked, strict=True):
            name = answer(metric, view)
            if place in self._per_replica and not isinstance(name, str | Mapping) and view.status_replicas:
                # kube-metrics-adapter divides in floats, and cuts to milli-units.
                name = [int(value / 1000 / view.status_replicas * 1000) for value in name]
            values.append(name)
        pods = self._models.of(view.pods)
        return self._controller.sync(view.now, view.replicas, values, pods, view.status_replicas).replicas


class KedaAutoscaler:
    """A ScaledObject. An HPA does nothing at 0, so leaving it is up to KEDA."""

    def __init__(self, keda: Keda, name: str) -> None:
        self.name = name
        self._keda = keda
        self._stock = StockAutoscaler(keda.stock, name)
        self._last_active: float | None = None
        self._last_poll: float | None = None

    def sync(self, view: View) -> int:
        """One sync of the HPA, and a look of KEDA where it is time for one."""
        count = self._stock.sync(view)
        idle = self._keda.idle
        if idle is None or (self._last_poll is not None and view.now - self._last_poll < self._keda.polling):
            return count
        self._last_poll = view.now
        minimum = self._keda.stock.hpa.bounds.minimum
        # A trigger without a value is not active.
        if any(milli(view.load[name]) > most for name, most in self._keda.activations.items() if name in view.load):
            self._last_active = view.now
            return minimum if view.replicas <= idle else count
        if self._last_active is None:
            self._last_active = view.now  # the history begins in the middle: it was active until now
        rests = view.now - self._last_active >= self._keda.cooldown
        return idle if rests and view.replicas > idle else count


class WpaProposal(NamedTuple):
    """What one metric proposes, and whether its usage is above or below the band."""

    replicas: int
    above: bool = False
    below: bool = False


class Ready(NamedTuple):
    """The pods that count as ready, and all that are listed for the smallest share of ready ones."""

    ready: int
    listed: int


class WpaAutoscaler:
    """The controller for one object."""

    def __init__(self, wpa: Wpa, name: str) -> None:
        self.name = name
        self._wpa = wpa
        self._last_scale: float | None = None
        self._since: dict[bool, float] = {}
        """Since when (seconds) one of the metrics has been above (True) or below the band."""

    def sync(self, view: View) -> int:
        """One reconciliation."""
        found = [_proposal_of(self._wpa, metric, view) for metric in self._wpa.metrics]
        proposals = [found_value for found_value in found if found_value is not None]
        if len(proposals) < len(found):
            proposals = []  # one that fails ends the reconciliation
        above, below = any(proposal.above for proposal in proposals), any(proposal.below for proposal in proposals)
        for is_above, holds in ((True, above), (False, below)):
            if holds:
                self._since.setdefault(is_above, view.now)
            else:
                self._since.pop(is_above, None)
        if not proposals:
            return view.replicas  # the bounds are not enforced either
        ready = ready_pods(view, self._wpa.readiness_delay).ready
        desired = limited(self._wpa, view.replicas, max(proposal.replicas for proposal in proposals), ready)
        rescales = self._may(view, desired, is_stable=not (above or below))
        forced = _forced(self._wpa, view)
        if forced is not None:
            desired, rescales = forced, view.replicas != 0
        if not rescales:
            return view.replicas
        self._last_scale = view.now
        return view.replicas if self._wpa.dry_run else desired

    def _may(self, view: View, desired: int, *, is_stable: bool) -> bool:
        """Whether the forbidden windows and delays allow it; the first reconciliation always writes."""
        if self._last_scale is None:
            return True
        if desired == view.replicas:
            return False
        up = desired > view.replicas
        wpa = self._wpa
        window, delay = (wpa.up_window, wpa.up_delay) if up else (wpa.down_window, wpa.down_delay)
        since = self._since.get(up)
        if delay and not is_stable and (since is None or int(view.now - since) < delay):
            return False
        return view.now - self._last_scale >= window


def _forced(wpa: Wpa, view: View) -> int | None:
    """The count that is set whatever windows and limits say; None where the rules decide."""
    if view.replicas == 0:
        return 0
    if view.replicas > wpa.maximum:
        return wpa.maximum
    if view.replicas < wpa.minimum:
        return wpa.minimum
    return 1 if view.status_replicas == 0 else None


def limited(wpa: Wpa, current: int, desired: int, ready: int) -> int:
    """The count after the limits of one step and the bounds."""
    if desired > current:
        reach = current + _step(current, wpa.up_factor)
        return max(wpa.minimum, min(desired, reach, wpa.maximum))
    if desired < current:
        reach = current - _step(current, wpa.down_factor)
        if desired < reach and 0 < ready < reach:
            return current
        return min(wpa.maximum, max(desired, reach, wpa.minimum))
    return max(wpa.minimum, min(desired, wpa.maximum))


def _step(current: int, factor: int) -> int:
    """How far one step may go; `factor` is in thousandths of a percent, and less than one percent still moves a pod."""
    if factor == 0:
        return 0
    return max(1, math.floor(factor / 1000 * current / 100))


def ready_pods(view: View, delay: float) -> Ready:
    """The ready pods of an External metric: Running and Ready, or Pending for less than the delay."""
    ready = listed = 0
    for pod in view.pods:
        if pod.phase in FINISHED_PHASES:
            continue
        listed += 1
        if pod.deleting or pod.ready is None or pod.started_at is None:
            continue
        waits = pod.phase == _PENDING and view.now - (pod.ready.since or 0.0) < delay
        ready += (pod.phase == "Running" and pod.is_ready) or waits
    return Ready(min(ready, view.status_replicas), listed)


def _proposal_of(wpa: Wpa, metric: WpaMetric, view: View) -> WpaProposal | None:
    if metric.resource:
        samples: Mapping[str, int] = view.samples.get(metric.name, {})
        ignored = {pod.name for pod in view.pods if _is_ignored(metric, pod, samples, wpa.readiness_delay)}
        ready = sum(pod.name in samples and pod.name not in ignored for pod in view.pods)
        pods = Ready(ready, len(view.pods) - len(ignored))
        usages = [milli(value) for name, value in samples.items() if name not in ignored]
    else:
        pods = ready_pods(view, wpa.readiness_delay)
        usages = [milli(view.load[metric.name])] if metric.name in view.load else []
    if not usages or not pods.listed or not pods.ready or 100 * pods.ready // pods.listed < wpa.min_available:
        return None
    if not metric.resource and sum(usages) == 0 and not wpa.tolerate_zero:
        return WpaProposal(pods.ready)
    return propose(wpa, metric, sum(usages), pods.ready, view.replicas)


def _is_ignored(metric: WpaMetric, pod: Pod, samples: Mapping[str, int], delay: float) -> bool:
    if pod.phase in {"Failed", _PENDING}:
        return True
    if metric.resource != "cpu" or pod.name not in samples:
        return False
    if pod.ready is None or pod.started_at is None:
        return True
    # A pod that was Ready sooner than the delay is ignored for ever.
    return not pod.ready.status or pod.started_at + delay > (pod.ready.since or 0.0)


def propose(wpa: Wpa, metric: WpaMetric, total: int, ready: int, current: int) -> WpaProposal:
    """What a metric proposes for a total (milli-units). In floats, in the controller's own order."""
    usage = float(total) / (float(ready) if wpa.average else 1.0)
    if usage > metric.high + metric.high * wpa.tolerance // 1000:
        count = _rounded(math.ceil(ready * usage / metric.high) if metric.high else current, wpa.modulo)
        return WpaProposal(max(count, current), above=True)
    if usage < metric.low - metric.low * wpa.tolerance // 1000:
        count = _rounded(max(1, math.floor(ready * usage / metric.low)), wpa.modulo)
        return WpaProposal(min(count, current), below=True)
    return WpaProposal(_converged(wpa, metric, usage, ready, current))


def _rounded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _converged(wpa: Wpa, metric: WpaMetric, usage: float, ready: int, current: int) -> int:
    """One step towards a watermark inside the band, unless that would leave it."""
    if wpa.converge == "highwatermark":
        least = math.ceil(ready / metric.high * usage) if metric.high else current
        step = max(current - wpa.modulo, 1)
        return current if step < min(max(least, wpa.minimum), wpa.maximum) else step
    if wpa.converge == "lowwatermark":
        most = math.floor(ready / metric.low * usage) if metric.low else current
        step = current + wpa.modulo
        return current if step > min(max(most, wpa.minimum), wpa.maximum) else step
    return current
