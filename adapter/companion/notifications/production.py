"""Which namespaces are production: by name, or by a label that is asked for now and then."""

from fnmatch import fnmatchcase

import msgspec
import structlog

from adapter.kube.api import NAMESPACES
from adapter.kube.errors import KubeError
from adapter.kube.objects import ObjectMeta
from adapter.kube.session import Session
from adapter.runtime.decoding import Decoder
from adapter.settings.notifications import Production

KNOWN_SECONDS = 300.0
"""So long a namespace is not asked again, whether it had answered or not."""
ASK_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class _Namespace(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_DECODER = Decoder(_Namespace)


class Namespaces:
    """The labels of namespaces, remembered for a while."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._labels: dict[str, tuple[float, dict[str, str]]] = {}
        self._complained = False

    async def is_production(self, namespace: str, production: Production) -> bool:
        """Whether it is. Where its label cannot be read it counts as it was, or else its name alone."""
        if any(fnmatchcase(namespace, pattern) for pattern in production.namespaces):
            return True
        return bool(production.label) and is_labelled(await self._labels_of(namespace), production.label)

    async def _labels_of(self, namespace: str) -> dict[str, str]:
        now = self._session.now()
        known = self._labels.get(namespace)
        if known is not None and now - known[0] < KNOWN_SECONDS:
            return known[1]
        answer = await self._asked(namespace)
        labels = answer if answer is not None else known[1] if known is not None else {}
        self._labels[namespace] = (now, labels)
        return labels

    async def _asked(self, namespace: str) -> dict[str, str] | None:
        """Its labels; None where they cannot be read."""
        try:
            body = await self._session.get(NAMESPACES.path("", namespace), timeout=ASK_SECONDS)
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
