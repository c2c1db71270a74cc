"""A registry's list of instances as JSON, as a document for `decide` has it. Times are RFC 3339."""

from collections.abc import Callable
from typing import Any

import msgspec

from adapter.load.roster import Instance, Roster
from adapter.runtime.times import format_micro_time


class _Instance(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    ip: str = ""
    port: int | None = None
    enabled: bool = True
    healthy: bool = True
    weight: float | None = None
    isolated: bool = False
    status: str = ""
    pod_uid: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    registered_at: str | None = None
    metadata: dict[str, str] = {}


class InstanceList(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The list of one service at `at`. Fields have the meaning of `Roster`."""

    at: str
    valid: bool = True
    protected: bool = False
    error: str | None = None
    absence_counts: bool = True
    instances: list[_Instance] = []

    def roster(self, time: Callable[..., float]) -> Roster:
        """The list with its times in seconds; `time` reads one, from its text and its path."""
        instances = []
        for index, one in enumerate(self.instances):
            fields, written = msgspec.structs.asdict(one), one.registered_at
            at = None if written is None else time(written, "instances", index, "registeredAt")
            instances.append(Instance(**fields | {"registered_at": at}))
        fields = msgspec.structs.asdict(self) | {"at": time(self.at, "at"), "instances": tuple(instances)}
        return Roster(**fields)


def list_object(roster: Roster) -> dict[str, Any]:
    """The list without its instances, as JSON data without empty fields."""
    data = {"at": format_micro_time(roster.at), "valid": roster.valid, "protected": roster.protected}
    data |= {"absenceCounts": roster.absence_counts}
    return data | ({"error": roster.error} if roster.error else {})


def instance_object(instance: Instance, pod_name_key: str) -> dict[str, Any]:
    """An instance as JSON data without empty fields; of its metadata only what names its pod, which is no secret."""
    fields = {name: getattr(instance, name) for name in _Instance.__struct_fields__}
    fields["registered_at"] = None if instance.registered_at is None else format_micro_time(instance.registered_at)
    fields["metadata"] = {key: value for key, value in instance.metadata.items() if key == pod_name_key}
    data = msgspec.to_builtins(_Instance(**fields))
    return {key: value for key, value in data.items() if value not in (None, "", {})}
