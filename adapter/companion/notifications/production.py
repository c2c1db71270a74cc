"""Which namespaces are production: by name, or by a label that is read every few minutes."""

from fnmatch import fnmatchcase

import msgspec
import structlog

from adapter.kube.api import NAMESPACES
from adapter.kube.errors import KubeError
from adapter.kube.objects import ObjectMeta
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder
from adapter.settings.notifications import Production

LABEL_CACHE_SECONDS = 300.0
"""How long a namespace is not read again, whether that succeeded or not."""
LABEL_TIMEOUT_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class _Namespace(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_DECODER = Decoder(_Namespace)


class ProductionNamespaces:
    """Tells production namespaces, with a cache of their labels."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._labels: dict[str, tuple[float, dict[str, str]]] = {}
        self._complained = False

    async def is_production(self, namespace: str, production: Production) -> bool:
        """Whether a namespace is production. A label that cannot be read counts as it last was, else as absent."""
        if any(fnmatchcase(namespace, pattern) for pattern in production.namespaces):
            return True
        return bool(production.label) and is_labelled(await self._labels_of(namespace), production.label)

    async def _labels_of(self, namespace: str) -> dict[str, str]:
        now = self._session.now()
        known = self._labels.get(namespace)
        if known is not None and now - known[0] < LABEL_CACHE_SECONDS:
            return known[1]
        answer = await self._read(namespace)
        labels = answer if answer is not None else known[1] if known is not None else {}
        self._labels[namespace] = (now, labels)
        return labels

    async def _read(self, namespace: str) -> dict[str, str] | None:
        """The labels of a namespace; None if they cannot be read."""
        try:
            body = await self._session.get(NAMESPACES.path("", namespace), timeout=LABEL_TIMEOUT_SECONDS)
            return _DECODER.decode(body).metadata.labels or {}
        except (KubeError, msgspec.MsgspecError) as error:
            if not self._complained:
                self._complained = True
                _log.warning("a namespace's label cannot be read", namespace=namespace, error=str(error))
            return None


def is_labelled(labels: dict[str, str], wanted: str) -> bool:
    """Whether labels have `key=value`, or `key` with any value but `false`."""
    key, equals, value = wanted.partition("=")
    return labels.get(key) == value if equals else labels.get(key, "false") != "false"
