"""A scale target's identity and rollout, from the object of whatever kind."""

from collections.abc import Mapping
from typing import Any

from adapter.kube.objects import AnyObject
from adapter.kube.times import known_time
from adapter.load.spec import Target


def target_of(api_version: str, kind: str, name: str, known: AnyObject | None) -> Target:
    """The scale target as the arithmetic sees it: its identity, and its Progressing condition."""
    conditions = (known.status or {}).get("conditions") if known is not None else None
    progressing: Mapping[str, Any] = next((c for c in conditions or () if c.get("type") == "Progressing"), {})
    return Target(
        api_version=api_version,
        kind=kind,
        name=name,
        uid=known.metadata.uid if known is not None else "",
        progressing=str(progressing.get("reason", "")),
        progressing_since=known_time(progressing.get("lastUpdateTime")),
    )
