"""What the companion reads of its own accord: former statuses, who set a count, and the API server's version."""

import re
from typing import Any

from adapter.companion.state import WrittenStatus
from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.errors import KubeError, decode_answer
from adapter.kube.objects import AnyObjectList
from adapter.kube.session import Session
from adapter.load.spec import Target
from adapter.policy.documents import mapping_at
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import parse_time
from adapter.snapshot import Key

READ_SECONDS = 2.0
"""The time limit for reading one object; the writes of its lane wait for it."""
FIRST_WITH_TOLERANCE = (1, 35)
"""The first Kubernetes version whose HPAs have a tolerance by default."""
NAMELESS = "unknown"
"""The manager that the API server writes for a client without a user agent."""
_STATUSES, _ANY = Decoder(AnyObjectList), Decoder(dict[str, Any])


async def read_status(session: Session, key: Key) -> WrittenStatus:
    """The status of one policy; an empty one if there is no such policy. Raises KubeError."""
    # As a list, since the companion has the right to list anyway.
    path, only = WATERMARK_POLICIES.collection(key.namespace), {"fieldSelector": f"metadata.name={key.name}"}
    page = decode_answer(_STATUSES.decode, await session.get(path, params=only, timeout=READ_SECONDS), path)
    statuses = [item.status for item in page.items or () if item.metadata.name == key.name]
    return as_written(statuses[0] or {}, session.now()) if statuses else WrittenStatus()


def as_written(status: dict[str, Any], now: float) -> WrittenStatus:
    """A status as it was read. Its time of writing is taken to be that of its assessment, and never after `now`."""
    at = parse_time(status.get("assessedAt"))
    return WrittenStatus(status=status, at=min(now, at) if at is not None else None)


async def read_manager(session: Session, scale_path: str, target: Target) -> str:
    """The field manager that set a target's count; empty if nobody knows."""
    path, only = scale_path.removesuffix(f"/{target.name}/scale"), {"fieldSelector": f"metadata.name={target.name}"}
    try:
        body = await session.get(path, params=only, timeout=READ_SECONDS)
        found = decode_answer(_ANY.decode, body, path).get("items") or [{}]
    except KubeError:
        return ""
    entries = mapping_at(found[0], "metadata").get("managedFields") or ()
    owners = [entry for entry in entries if "f:replicas" in mapping_at(entry, "fieldsV1", "f:spec")]
    newest: dict[str, Any] = max(owners, key=lambda entry: str(entry.get("time", "")), default={})
    manager = str(newest.get("manager", ""))
    return "" if manager == NAMELESS else manager


async def has_tolerance(session: Session) -> bool | None:
    """Whether HPAs have the field `tolerance` by the API server's version; None if that is unknown."""
    try:
        version = decode_answer(_ANY.decode, await session.get("/version", timeout=READ_SECONDS), "/version")
    except KubeError:
        return None
    numbers = re.findall(r"\d+", f"{version.get('major')}.{version.get('minor')}")
    return tuple(map(int, numbers[:2])) >= FIRST_WITH_TOLERANCE if len(numbers) > 1 else None
