"""The names of policies, for tab completion."""

import asyncio

from adapter.kube.api import WATERMARK_POLICIES
from adapter.kube.credentials import default_namespace
from adapter.kube.objects import ObjectList, WatchedObject
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder

_SECONDS = 2.0
_MOST = 500


_LIST, _OBJECT = Decoder(ObjectList), Decoder(WatchedObject)


def policies(kubeconfig: str | None, context: str, namespace: str) -> list[str]:
    """The names of a namespace's policies; empty for the context's own namespace. Raises KubeError."""
    return asyncio.run(_policies(kubeconfig, context, namespace or default_namespace(kubeconfig, context)))


async def _policies(kubeconfig: str | None, context: str, namespace: str) -> list[str]:
    async with await Session.open(kubeconfig, context=context) as session:
        path = WATERMARK_POLICIES.collection(namespace)
        body = await session.get(path, params={"limit": str(_MOST)}, timeout=_SECONDS)
    return [_OBJECT.decode(item).metadata.name for item in _LIST.decode(body).items or ()]
