"""The live scale of a target, read for each request: a held count is absolute, so a stale one would be wrong."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from cachetools import TTLCache

from adapter.kube import selectors
from adapter.kube.errors import KubeError, MalformedAnswer, ScaleUnread
from adapter.kube.objects import KubeObject
from adapter.kube.session import Session
from adapter.load.spec import Scale
from adapter.runtime.concurrency import SingleFlight
from adapter.runtime.decoding import Decoder
from adapter.telemetry.metrics import Metrics

DEADLINE_SECONDS = 0.5
REUSE_SECONDS = 1.0
FALLBACK_SECONDS = 5.0
_PATHS = 10_000
_UNREAD = "{cause}; and no watched count was confirmed within 5 s"


class _ScaleSpec(KubeObject, frozen=True):
    replicas: int = 0


class _ScaleStatus(KubeObject, frozen=True):
    replicas: int = 0
    selector: str = ""


class _ScaleObject(KubeObject, frozen=True):
    spec: _ScaleSpec
    status: _ScaleStatus = _ScaleStatus()


_SCALE = Decoder(_ScaleObject)


def decode_scale(body: bytes | msgspec.Raw) -> Scale:
    """The scale subresource (autoscaling/v1), its selector in canonical form. Raises msgspec.MsgspecError."""
    spec, status = (scale := _SCALE.decode(body)).spec, scale.status
    return Scale(replicas=spec.replicas, status_replicas=status.replicas, selector=selectors.canonical(status.selector))


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer, and what was watched when it was asked for."""

    answer: Scale | KubeError
    watched: Scale | None

    def holds(self, watched: Scale | None) -> bool:
        """Whether no other count was seen since, or none but the answer's own."""
        if watched is None or isinstance(self.answer, KubeError):
            return True
        return _counts(watched) in (_counts(self.answer), _counts(self.watched))


def _counts(scale: Scale | None) -> tuple[int, int] | None:
    return (scale.replicas, scale.status_replicas) if scale is not None else None


class ScaleReader:
    """Reads scale subresources: one at a time per path and watched count, with a deadline of 0.5 s.

    An answer is used again for a second, and one under way is shared, unless the watch has shown another count since.
    """

    def __init__(
        self, session: Session, metrics: Metrics | None = None, *, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._metrics = metrics or Metrics()
        self._timer = timer
        self._flights: SingleFlight[tuple[str, tuple[int, int] | None], Scale | KubeError] = SingleFlight()
        # Failures are cached as well, so that a slow API server gets one request a second, too.
        self._answers: TTLCache[str, _Kept] = TTLCache(_PATHS, REUSE_SECONDS, timer=timer)

    async def read(self, scale_path: str, watched: Scale | None, proven_at: float | None) -> Scale:
        """The scale at this path, at most a second old; if that fails the watched one, confirmed within 5 s.

        `proven_at` is by the session's monotonic clock. Raises a KubeError that names the path and the cause.
        """
        began = self._timer()
        kept = self._answers.get(scale_path)
        if kept is not None and kept.holds(watched):
            answer, result = kept.answer, "cached"
        else:
            key = scale_path, _counts(watched)  # a read that began before another count was seen may miss it
            answer, result = await self._flights.join(key, lambda: self._fetch(scale_path, watched)), "live"
        if isinstance(answer, Scale):
            self._observe(result, began)
            return answer
        recent = proven_at is not None and self._session.monotonic() - proven_at <= FALLBACK_SECONDS
        fallback = watched if recent else None
        self._observe("failed" if fallback is None else "watched", began)
        if fallback is None:
            raise ScaleUnread(_UNREAD.format(cause=answer), public=_UNREAD.format(cause=answer.public)) from answer
        return fallback

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._flights.close()

    def _observe(self, result: str, began: float) -> None:
        self._metrics.scale_reads.labels(result).observe(self._timer() - began)

    async def _fetch(self, path: str, watched: Scale | None) -> Scale | KubeError:
        answer: Scale | KubeError
        try:
            answer = decode_scale(await self._session.get(path, timeout=DEADLINE_SECONDS))
        except msgspec.MsgspecError as error:
            answer = MalformedAnswer(f"GET {path}: {error}")
        except KubeError as error:
            answer = error
        self._answers[path] = _Kept(answer, watched)
        return answer
