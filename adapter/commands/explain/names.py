"""The names of policies, for tab completion."""

import asyncio

import msgspec

from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.credentials import default_namespace
from adapter.kube.objects import ObjectMeta
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder

_SECONDS = 2.0
_MOST = 500


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _List(msgspec.Struct, frozen=True):
    items: tuple[_Named, ...] = ()


_LIST = Decoder(_List)


def policies(kubeconfig: str | None, context: str, namespace: str) -> list[str]:
    """The names of a namespace's policies; empty for the context's own namespace. Raises KubeError."""
    return asyncio.run(_policies(kubeconfig, context, namespace or default_namespace(kubeconfig, context)))


async def _policies(kubeconfig: str | None, context: str, namespace: str) -> list[str]:
    async with await Session.open(kubeconfig, context=context) as session:
        path = WATERMARK_POLICIES.collection(namespace)
        body = await session.get(path, params={"limit": str(_MOST)}, timeout=_SECONDS)
    return [one.metadata.name for one in _LIST.decode(body).items]
