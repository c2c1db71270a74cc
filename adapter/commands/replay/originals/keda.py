"""KEDA: its HPA between minimum and maximum, and KEDA itself between the idle count and the minimum."""

from adapter.commands.migrate.originals import Keda
from adapter.commands.replay.originals.stock import StockAutoscaler
from adapter.commands.replay.service import View
from adapter.hpa.go_numbers import milli


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
        if self._is_active(view):
            self._last_active = view.now
            return minimum if view.replicas <= idle else count
        if self._last_active is None:
            self._last_active = view.now  # the history begins in the middle: it was active until now
        rests = view.now - self._last_active >= self._keda.cooldown
        return idle if rests and view.replicas > idle else count

    def _is_active(self, view: View) -> bool:
        """Whether one trigger's value is above its activation threshold; one without a value is not."""
        loads = {name: view.load.get(name) for name in self._keda.activations}
        return any(load is not None and milli(load) > self._keda.activations[name] for name, load in loads.items())
