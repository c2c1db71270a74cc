"""Delegated authorization: SubjectAccessReviews, remembered by everything they ask about.

An allow is taken as fresh for a minute; then, for four minutes more, it is still given while the next review is under
way, so that a slow API server stalls no HPA. A deny is remembered for ten seconds, and nothing is allowed on failure.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from cachetools import TLRUCache

from adapter.apiserver.identity import Identity
from adapter.apiserver.reviews import Reviews
from adapter.apiserver.routes import Attributes
from adapter.apiserver.status import StatusError, unauthorized, unavailable
from adapter.kube.errors import KubeError
from adapter.kube.flight import SingleFlight
from adapter.telemetry.metrics import Metrics

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_FRESH_SECONDS = 60.0
_ALLOW_SECONDS = 300.0
_DENY_SECONDS = 10.0
_REMEMBERED = 16384
_DEADLINE = 3.0
_RENEWALS_AT_ONCE = 4  # all that were allowed together grow old together, and nobody waits for them

_Question = tuple[Identity, Attributes]


class Ruling(NamedTuple):
    """The API server's answer to one question, and when it was given (monotonic)."""

    allowed: bool
    reason: str
    at: float


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


class Authorizer:
    """Asks whether an identity may do what it asks for. `monotonic` ages what is remembered."""

    def __init__(
        self, reviews: Reviews, metrics: Metrics, monotonic: Callable[[], float], *, deadline: float = _DEADLINE
    ) -> None:
        self._client = reviews
        self._now = monotonic
        self._deadline = deadline
        self._reviews = metrics.authorization_reviews
        self._known: TLRUCache[_Question, Ruling] = TLRUCache(_REMEMBERED, _until, timer=monotonic)
        self._recent: dict[_Question, float] = {}
        """When each was last allowed: nearly every request is answered from here, without the cache's own work."""
        self._flights: SingleFlight[_Question, Ruling] = SingleFlight()
        self._renewals: SingleFlight[_Question, Ruling] = SingleFlight()
        self._gate = asyncio.Semaphore(_RENEWALS_AT_ONCE)

    async def check(self, identity: Identity, attributes: Attributes) -> None:
        """Return where the identity may. Raises StatusError: 403 where not, 503 where nobody can say."""
        if identity.is_master:
            return
        question = (identity, attributes)
        recent = self._recent.get(question)
        if recent is not None and self._now() - recent <= _FRESH_SECONDS:
            return
        try:
            ruling = self._known[question]
        except KeyError:
            ruling = await self._flights.join(question, lambda: self._review(question))
        if ruling.allowed and self._now() - ruling.at > _FRESH_SECONDS:
            self._renewals.begin(question, lambda: self._renew(question))
        if not ruling.allowed:
            raise forbidden(identity, attributes, ruling.reason)

    async def close(self) -> None:
        """End the reviews under way."""
        await self._flights.close()
        await self._renewals.close()

    async def _renew(self, question: _Question) -> Ruling:
        async with self._gate:
            return await self._review(question)

    async def _review(self, question: _Question) -> Ruling:
        identity, attributes = question
        try:
            body = msgspec.json.encode(_spec(identity, attributes))
        except UnicodeEncodeError:
            raise unauthorized("the identity is not UTF-8") from None
        try:
            answer = await self._client.create(_REVIEWS, body, self._deadline)
            status = msgspec.json.decode(answer, type=_Review).status
        except (KubeError, msgspec.MsgspecError) as error:
            self._reviews.labels("error").inc()
            raise unavailable(f"nobody can say whether {identity.user!r} may: {_public(error)}") from error
        allowed = status.allowed and not status.denied
        self._reviews.labels("allowed" if allowed else "denied").inc()
        ruling = self._known[question] = Ruling(allowed, status.reason, self._now())
        self._remember(question, ruling)
        return ruling

    def _remember(self, question: _Question, ruling: Ruling) -> None:
        if len(self._recent) >= _REMEMBERED:
            self._recent.clear()
        if ruling.allowed:
            self._recent[question] = ruling.at
        else:
            self._recent.pop(question, None)


def _until(_question: _Question, ruling: Ruling, now: float) -> float:
    return now + (_ALLOW_SECONDS if ruling.allowed else _DENY_SECONDS)


def _spec(identity: Identity, attributes: Attributes) -> dict[str, Any]:
    spec = identity.review()
    if attributes.path:
        spec["nonResourceAttributes"] = {"verb": attributes.verb, "path": attributes.path}
    else:
        spec["resourceAttributes"] = {
            "verb": attributes.verb,
            "group": attributes.group,
            "version": attributes.version,
            "resource": attributes.resource,
            "subresource": attributes.subresource,
            "name": attributes.name,
            "namespace": attributes.namespace,
        }
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def forbidden(identity: Identity, attributes: Attributes, reason: str) -> StatusError:
    """403 in the words of the Go servers."""
    tail = f": {reason}" if reason else ""
    if attributes.path:
        return StatusError(
            403,
            "Forbidden",
            f'forbidden: User "{identity.user}" cannot {attributes.verb} path "{attributes.path}"{tail}',
        )
    resource = "/".join(filter(None, (attributes.resource, attributes.subresource)))
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    name = f' "{attributes.name}"' if attributes.name else ""
    return StatusError(
        403,
        "Forbidden",
        f'{attributes.resource}.{attributes.group}{name} is forbidden: User "{identity.user}" cannot {attributes.verb} '
        f'resource "{resource}" in API group "{attributes.group}" {scope}{tail}',
        kind=attributes.resource,
        group=attributes.group,
        name=attributes.name,
    )


def _public(error: KubeError | msgspec.MsgspecError) -> str:
    """What a stranger may know of it: no addresses, and no words of another server."""
    return error.public if isinstance(error, KubeError) else "the API server's answer cannot be read"
