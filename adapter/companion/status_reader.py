"""The policies' statuses as another leader left them: what conditions say since when is in there."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from adapter.companion.context import State, Written
from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.errors import MalformedAnswer
from adapter.kube.objects import ListMeta, ObjectMeta
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder
from adapter.runtime.times import parse_time
from adapter.snapshot import Key

PAGE = 500
READ_SECONDS = 2.0
"""How long one policy may take to be read: everything that can wait waits for it."""


async def found(session: Session, namespaces: Iterable[str]) -> dict[Key, State]:
    """What the statuses in these namespaces say, in all of them where none is named. Raises KubeError."""
    pasts: dict[Key, State] = {}
    for path in [WATERMARK_POLICIES.collection(one) for one in tuple(namespaces) or ("",)]:
        token = ""
        while True:
            page = _read(_PAGE, await session.get(path, params={"limit": str(PAGE), "continue": token}), path)
            for item in page.items:
                key = Key(item.metadata.namespace, item.metadata.name)
                pasts[key] = State(written=written(item.status or {}, session.now()))
            token = page.metadata.token
            if not token:
                break
    return pasts


async def reread(session: Session, key: Key) -> Written:
    """What one policy's status says now; nothing where there is no such policy. Raises KubeError."""
    # As a list, for which the right is there anyhow.
    path, only = WATERMARK_POLICIES.collection(key.namespace), {"fieldSelector": f"metadata.name={key.name}"}
    page = _read(_PAGE, await session.get(path, params=only, timeout=READ_SECONDS), path)
    return written(page.items[0].status or {}, session.now()) if page.items else Written()


def written(status: dict[str, Any], now: float) -> Written:
    """A status as it was found. It was written when it was assessed, for all that is known, and not after now."""
    at = parse_time(status.get("assessedAt"))
    return Written(status=status, at=min(now, at) if at is not None else None)


class _Item(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: dict[str, Any] | None = None


class _Page(msgspec.Struct, frozen=True):
    items: list[_Item] = []
    metadata: ListMeta = ListMeta()


_PAGE = Decoder(_Page)
T = TypeVar("T")


def _read(decoder: Decoder[T], body: bytes, path: str) -> T:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"{path}: {error}") from error
