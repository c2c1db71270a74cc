"""A registry's list of instances as JSON, as a document for `decide` has it. Times are RFC 3339."""

from collections.abc import Callable

import msgspec

from adapter.load.roster import Instance, Roster


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
