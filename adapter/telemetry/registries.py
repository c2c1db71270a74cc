"""The series of each service that is followed in a registry."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.telemetry.families import Family

REGISTRY_LABELS = ("registry", "registry_namespace", "group", "service")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRow:
    """A service as its series show it: the age of the last valid answer (seconds), its instances by state."""

    registry: str
    registry_namespace: str
    group: str
    service: str
    age: float | None = None
    instances: Mapping[str, float] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, ...]:
        """The values of the labels in `REGISTRY_LABELS`."""
        return self.registry, self.registry_namespace, self.group, self.service


_R = "effective_load_registry_"
REGISTRY_FAMILIES: tuple[Family[RegistryRow], ...] = (
    Family(
        REGISTRY_LABELS,
        f"{_R}roster_age_seconds",
        "Time since the registry last gave a valid answer about the service",
        "",
        lambda row: (("", row.age),),
    ),
    Family(
        REGISTRY_LABELS,
        f"{_R}instances",
        "Instances in the last valid answer by what they say of themselves: in, out, unhealthy",
        "state",
        lambda row: row.instances.items(),
    ),
)
