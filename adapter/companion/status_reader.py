"""The policies' statuses as another leader left them: what conditions say since when is in there."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from adapter.companion.context import State, WrittenStatus
from adapter.kube.errors import MalformedAnswer
from adapter.kube.paths import collection
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import parse_time
from adapter.snapshot import Key

PAGE = 500
READ_SECONDS = 2.0
"""How long one policy may take to be read: everything that can wait waits for it."""
_POLICIES = ("effective-load.io/v1alpha1", "watermarkpolicies")


async def read_statuses(session: Session, namespaces: Iterable[str]) -> dict[Key, State]:
    """What the statuses in these namespaces say, in all of them where none is named. Raises KubeError."""
    states: dict[Key, State] = {}
    for path in [collection(*_POLICIES, one) for one in tuple(namespaces) or ("",)]:
        token = ""
        while True:
            page = _read(_PAGE, await session.get(path, params={"limit": str(PAGE), "continue": token}), path)
            for item in page.items:
                key = Key(item.metadata.namespace, item.metadata.name)
                states[key] = State(written=as_written(item.status or {}, session.now()))
            token = page.metadata.continue_
            if not token:
                break
    return states


async def read_status(session: Session, key: Key) -> WrittenStatus:
    """What one policy's status says now; nothing where there is no such policy. Raises KubeError."""
    # As a list, for which the right is there anyhow.
    path, only = collection(*_POLICIES, key.namespace), {"fieldSelector": f"metadata.name={key.name}"}
    page = _read(_PAGE, await session.get(path, params=only, timeout=READ_SECONDS), path)
    return as_written(page.items[0].status or {}, session.now()) if page.items else WrittenStatus()


def as_written(status: dict[str, Any], now: float) -> WrittenStatus:
    """A status as it was found. It was written when it was assessed, for all that is known, and not after now."""
    at = parse_time(status.get("assessedAt"))
    return WrittenStatus(status=status, at=min(now, at) if at is not None else None)


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Item(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: dict[str, Any] | None = None


class _ListMetadata(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, frozen=True):
    items: list[_Item] = []
    metadata: _ListMetadata = _ListMetadata()


_PAGE = Decoder(_Page)
T = TypeVar("T")


def _read(decoder: Decoder[T], body: bytes, path: str) -> T:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"{path}: {error}") from error
