"""A registry's list of instances as JSON, as a document for `decide` has it. Times are RFC 3339."""

import msgspec

from adapter.load.roster import Instance, Roster


class Time(float):
    """Seconds since the epoch, in JSON as RFC 3339: who converts reads them in a `dec_hook`."""


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
    registered_at: Time | None = None
    metadata: dict[str, str] = {}


class InstanceList(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The list of one service at `at`. Fields have the meaning of `Roster`."""

    at: Time
    valid: bool = True
    protected: bool = False
    error: str | None = None
    absence_counts: bool = True
    instances: list[_Instance] = []

    def roster(self) -> Roster:
        """The list as the arithmetic takes it."""
        listed = [(msgspec.structs.asdict(one), one.registered_at) for one in self.instances]
        instances = [Instance(**one | {"registered_at": None if at is None else at + 0.0}) for one, at in listed]
        return Roster(**msgspec.structs.asdict(self) | {"at": self.at + 0.0, "instances": tuple(instances)})
