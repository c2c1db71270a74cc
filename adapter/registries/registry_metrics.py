"""A service as the registry metrics show it."""

from collections import Counter
from collections.abc import Iterable

from adapter.load.membership import out_reason
from adapter.load.roster import Instance
from adapter.registries.roster import ServiceKey
from adapter.telemetry.registries import RegistryRow

STATES = ("in", "out", "unhealthy")


def row(key: ServiceKey, age: float | None, instances: Iterable[Instance]) -> RegistryRow:
    """The row of a service; `age` in seconds, None where no valid answer came yet."""
    counts = Counter(map(_state, instances)) if age is not None else Counter()
    return RegistryRow(
        registry=key.registry,
        registry_namespace=key.namespace,
        group=key.group,
        service=key.service,
        age=age,
        instances={state: float(counts[state]) for state in STATES} if age is not None else {},
    )


def _state(instance: Instance) -> str:
    if out_reason(instance):
        return "out"
    return "in" if instance.healthy else "unhealthy"
