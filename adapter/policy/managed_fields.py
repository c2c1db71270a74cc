"""Who wrote an HPA's behavior: what its managedFields tell."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

FIELD_MANAGER = "effective-load-companion"
"""The companion's own field manager."""
DIRECTIONS = ("scaleUp", "scaleDown")


@dataclass(frozen=True, slots=True)
class FieldManagers:
    """`owners` of the fields of behavior (`scaleUp.tolerance`, …); `last`: who wrote the spec, the companion aside."""

    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    last: str = ""

    def others(self, name: str) -> tuple[str, ...]:
        """The owners of a field other than the companion."""
        return tuple(owner for owner in self.owners.get(name, ()) if owner != FIELD_MANAGER)


def read_field_managers(managed_fields: object) -> FieldManagers:
    """Read metadata.managedFields; what is not as the API server writes it tells nothing."""
    owners: dict[str, list[str]] = {}
    last, at = "", ""
    for manager, time, spec in _entries(managed_fields):
        for name in _behavior(spec):
            owners.setdefault(name, []).append(manager)
        if manager != FIELD_MANAGER and time >= at:
            last, at = manager, time
    return FieldManagers({name: tuple(found) for name, found in owners.items()}, last)


def _entries(managed_fields: object) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(manager, time, its fields of the spec) of each who wrote any."""
    for entry in managed_fields if isinstance(managed_fields, list) else ():
        spec = _in(_in(entry, "fieldsV1"), "f:spec")
        if spec and not entry.get("subresource"):
            yield _text(entry.get("manager")) or "unknown", _text(entry.get("time")), spec


def _behavior(spec: Mapping[str, Any]) -> Iterator[str]:
    for direction in DIRECTIONS:
        for name in _in(_in(spec, "f:behavior"), f"f:{direction}"):
            if name.startswith("f:"):
                yield f"{direction}.{name.removeprefix('f:')}"


def _text(found: object) -> str:
    return found if isinstance(found, str) else ""


def _in(found: object, key: str) -> Mapping[str, Any]:
    inner = found.get(key) if isinstance(found, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}
