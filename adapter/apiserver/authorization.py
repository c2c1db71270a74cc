"""Delegated authorization: SubjectAccessReviews, cached by identity and attributes.

An allow is cached for five minutes, a deny for ten seconds. A failed review allows nothing. Requests that need the same
review at the same time share it.
"""

import hashlib
from collections.abc import Callable

import msgspec
from cachetools import TLRUCache

from adapter.apiserver.authentication import MASTERS, Identity
from adapter.apiserver.request_info import Attributes
from adapter.apiserver.status import StatusError, unauthorized, unavailable
from adapter.kube.api import SUBJECT_ACCESS_REVIEWS
from adapter.kube.errors import Forbidden, KubeError, decode_answer
from adapter.kube.objects import AnyObject
from adapter.kube.session import Session
from adapter.runtime.concurrency import SingleFlight
from adapter.runtime.decoding import Decoder
from adapter.telemetry.metrics import Metrics

ALLOW_SECONDS, DENY_SECONDS = 300.0, 10.0
_REVIEW = Decoder(AnyObject)
_MAX_REVIEWS = 16384  # of all users; an HPA needs one for each of its metrics
_REMEDY = "apply ClusterRole and ClusterRoleBinding effective-load-authorization of manifests/base, which give it"


class Authorizer:
    """Authorizes requests by SubjectAccessReview. `monotonic` ages cached results."""

    def __init__(self, api: Session, metrics: Metrics, monotonic: Callable[[], float]) -> None:
        self._api, self._outcomes, self.deadline_seconds = api, metrics.authorization_reviews, 3.0
        results: TLRUCache[bytes, str | None] = TLRUCache(
            _MAX_REVIEWS,
            lambda _, denial, now: now + (ALLOW_SECONDS if denial is None else DENY_SECONDS),
            timer=monotonic,
        )
        self._denials = SingleFlight(results)
        """By the digest of the review the reason of a denial, None for an allow. Long identities take no memory."""
        self.missing_right: str | None = None
        """The right that was missing at the last review, None if it was not."""

    async def check(self, identity: Identity, attributes: Attributes) -> None:
        """Return if the identity is allowed. Raises StatusError: 403 if it is not, 503 if the review fails."""
        if MASTERS in identity.groups:  # they may do everything
            return
        review = _review(identity, attributes)
        key = hashlib.sha256(review).digest()
        denial = await self._denials.join(key, lambda: self._ask(review, identity.user, attributes))
        if denial is not None:
            raise forbidden(identity, attributes, denial)

    async def _ask(self, review: bytes, user: str, attributes: Attributes) -> str | None:
        """The review's denial, None for an allow. A failure, and an answer to another question, allow nothing."""
        answer, fault, path = AnyObject(), "", SUBJECT_ACCESS_REVIEWS.collection()
        try:
            reply = await self._api.request("POST", path, body=review, timeout=self.deadline_seconds)
            answer = decode_answer(_REVIEW.decode, reply.body, path)
            self.missing_right = None
        except KubeError as error:
            fault = error.public  # a client reads neither addresses nor text of another server
            if isinstance(error, Forbidden):
                self.missing_right = fault = f"{error.message}; {_REMEDY}"
        spec, status = answer.spec or {}, answer.status or {}
        asked = spec.get("resourceAttributes") or spec.get("nonResourceAttributes")
        if not fault and (spec.get("user"), asked) != (user, _asked(attributes)):
            fault = "the API server answered another review"
        if fault:
            self._outcomes.labels("error").inc()
            raise unavailable(f"cannot authorize {user!r}: {fault}")
        allowed = status.get("allowed") is True and not status.get("denied")
        self._outcomes.labels("allowed" if allowed else "denied").inc()
        return None if allowed else str(status.get("reason") or "")


def _asked(attributes: Attributes) -> dict[str, str]:
    return {key: text for key, text in attributes._asdict().items() if text}


def _review(identity: Identity, attributes: Attributes) -> bytes:
    """The SubjectAccessReview as JSON. Raises StatusError 401 for an identity that is not UTF-8."""
    kind = "nonResourceAttributes" if attributes.path else "resourceAttributes"
    user = {**identity._asdict(), "extra": dict(identity.extra)}
    review = {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview"}
    try:
        return msgspec.json.encode({**review, "spec": {**user, kind: _asked(attributes)}})
    except UnicodeEncodeError:
        raise unauthorized("the identity is not UTF-8") from None


def forbidden(identity: Identity, attributes: Attributes, reason: str) -> StatusError:
    """403 with the message of the Go servers."""
    user, tail = f'User "{identity.user}" cannot {attributes.verb}', f": {reason}" if reason else ""
    if attributes.path:
        return StatusError(403, f'forbidden: {user} path "{attributes.path}"{tail}')
    kind, group, name = attributes.resource, attributes.group, attributes.name
    resource = "/".join(filter(None, (kind, attributes.subresource)))
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    what = f'{kind}.{group} "{name}"' if name else f"{kind}.{group}"
    message = f'{what} is forbidden: {user} resource "{resource}" in API group "{group}" {scope}{tail}'
    return StatusError(403, message, kind=kind, group=group, name=name)
