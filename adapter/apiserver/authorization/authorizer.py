"""Delegated authorization: SubjectAccessReviews, remembered by everything they ask about.

An allow is taken as fresh for a minute; then, for four minutes more, it is still given while the next review is under
way, so that a slow API server stalls no HPA. A deny is remembered for ten seconds, and nothing is allowed on failure.
Reviews under way are bounded, for each user and in all, so that nobody's questions hold up those of others.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from adapter.apiserver.authentication.identity import Identity
from adapter.apiserver.authorization.fair_gate import FairGate
from adapter.apiserver.authorization.rulings import Question, Ruling, Rulings
from adapter.apiserver.reviews import Reviews
from adapter.apiserver.routes import Attributes
from adapter.apiserver.status import StatusError, unauthorized, unavailable
from adapter.kube.api import SUBJECT_ACCESS_REVIEWS
from adapter.kube.errors import KubeError
from adapter.runtime.single_flight import SingleFlight
from adapter.telemetry.metrics import Metrics

_REVIEWS = SUBJECT_ACCESS_REVIEWS.collection()
_FRESH_SECONDS = 60.0
_DEADLINE = 3.0
_AT_ONCE = 32
_AT_ONCE_OF_ONE = 8
_RENEWALS_AT_ONCE = 8  # all that were allowed together grow old together, and nobody waits for them
_RENEWALS_OF_ONE = 4
_RENEWAL_WAITS = 30.0
_WAITING_OF_ONE = 256


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
        self._rulings = Rulings(monotonic)
        self._flights: SingleFlight[Question, Ruling] = SingleFlight()
        self._renewals: SingleFlight[Question, Ruling] = SingleFlight()
        self._gate = FairGate(_AT_ONCE, _AT_ONCE_OF_ONE, _WAITING_OF_ONE)
        self._renewal_gate = FairGate(_RENEWALS_AT_ONCE, _RENEWALS_OF_ONE, _WAITING_OF_ONE)

    async def check(self, identity: Identity, attributes: Attributes) -> None:
        """Return where the identity may.

        Raises StatusError: 403 where not, 503 where nobody can say, 429 where too many of the same user wait already.
        """
        if identity.is_master:
            return
        question = (identity, attributes)
        ruling = self._rulings.get(question)
        if ruling is None:
            ruling = await self._flights.join(question, lambda: self._review(question, self._gate, self._deadline))
        elif ruling.allowed and self._now() - ruling.at > _FRESH_SECONDS:
            self._renewals.begin(question, lambda: self._review(question, self._renewal_gate, _RENEWAL_WAITS))
        if not ruling.allowed:
            raise forbidden(identity, attributes, ruling.reason)

    async def close(self) -> None:
        """End the reviews under way."""
        await self._flights.close()
        await self._renewals.close()

    async def _review(self, question: Question, gate: FairGate, patience: float) -> Ruling:
        """Ask the API server, after so many seconds in the queue at most."""
        identity, attributes = question
        try:
            body = msgspec.json.encode(_spec(identity, attributes))
        except UnicodeEncodeError:
            raise unauthorized("the identity is not UTF-8") from None
        try:
            async with gate.turn(identity.share, patience):
                answer = await self._client.create(_REVIEWS, body, self._deadline)
            status = msgspec.json.decode(answer, type=_Review).status
        except (KubeError, msgspec.MsgspecError) as error:
            self._reviews.labels("error").inc()
            raise unavailable(f"nobody can say whether {identity.user!r} may: {_public(error)}") from error
        allowed = status.allowed and not status.denied
        self._reviews.labels("allowed" if allowed else "denied").inc()
        ruling = Ruling(allowed, status.reason, self._now())
        self._rulings.put(question, ruling)
        return ruling


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
    return {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}


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
