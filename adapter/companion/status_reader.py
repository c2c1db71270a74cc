"""Reads the policies' statuses, which hold what another leader wrote: conditions with their times, notifications."""

from typing import Any

import msgspec

from adapter.companion.state import State, WrittenStatus
from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.errors import MalformedAnswer
from adapter.kube.objects import ListMeta, ObjectMeta
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import parse_time
from adapter.snapshot import Key

PAGE = 500
STATUS_TIMEOUT_SECONDS = 2.0
"""The time limit for reading one policy; all steady writes wait for it."""


async def read_statuses(session: Session, namespace: str) -> dict[Key, State]:
    """The statuses in a namespace, or in all of them if it is empty. Raises KubeError."""
    states: dict[Key, State] = {}
    path, token = WATERMARK_POLICIES.collection(namespace), ""
    while True:
        page = _read(await session.get(path, params={"limit": str(PAGE), "continue": token}), path)
        for item in page.items:
            key = Key(item.metadata.namespace, item.metadata.name)
            states[key] = State(written=as_written(item.status or {}, session.now()))
        token = page.metadata.token
        if not token:
            return states


async def read_status(session: Session, key: Key) -> WrittenStatus:
    """The status of one policy; an empty one if there is no such policy. Raises KubeError."""
    # As a list, since the companion has the right to list anyway.
    path, only = WATERMARK_POLICIES.collection(key.namespace), {"fieldSelector": f"metadata.name={key.name}"}
    page = _read(await session.get(path, params=only, timeout=STATUS_TIMEOUT_SECONDS), path)
    return as_written(page.items[0].status or {}, session.now()) if page.items else WrittenStatus()


def as_written(status: dict[str, Any], now: float) -> WrittenStatus:
    """A status as it was read. Its time of writing is taken to be that of its assessment, and never after `now`."""
    at = parse_time(status.get("assessedAt"))
    return WrittenStatus(status=status, at=min(now, at) if at is not None else None)


class _Item(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: dict[str, Any] | None = None


class _Page(msgspec.Struct, frozen=True):
    items: list[_Item] = []
    metadata: ListMeta = ListMeta()


_DECODER = Decoder(_Page)


def _read(body: bytes, path: str) -> _Page:
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"{path}: {error}") from error
