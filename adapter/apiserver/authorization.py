"""Delegated authorization: SubjectAccessReviews, cached by identity and attributes.

An allow is cached for five minutes, a deny for ten seconds. A failed review allows nothing. Requests that need the same
review at the same time share it.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from cachetools import TLRUCache

from adapter.apiserver.authentication import MASTERS, Identity
from adapter.apiserver.request_info import Attributes
from adapter.apiserver.status import StatusError, unauthorized, unavailable
from adapter.kube.api import SUBJECT_ACCESS_REVIEWS
from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.objects import AccessReview
from adapter.kube.session import Session
from adapter.runtime.concurrency import SingleFlight
from adapter.telemetry.metrics import Metrics

_DEADLINE = 3.0
ALLOW_SECONDS = 300.0
DENY_SECONDS = 10.0
MAX_REVIEWS = 16384
"""Cached reviews of all users; an HPA needs one for each of its metrics."""

_REVIEWS_PATH = SUBJECT_ACCESS_REVIEWS.collection()
_REMEDY = (
    "apply ClusterRole and ClusterRoleBinding effective-load-authorization of manifests/base, which give this right"
)


class ReviewClient:
    """Creates SubjectAccessReviews."""

    def __init__(self, api: Session) -> None:
        self._api = api
        self._forbidden = ""

    def check(self) -> str | None:
        """The right that was missing at the last attempt, None if it was not."""
        return self._forbidden or None

    async def create(self, review: bytes, timeout: float) -> bytes:  # noqa: ASYNC109  as the session has it
        """The review with its status. Raises KubeError; for a missing right, with the manifest that grants it."""
        try:
            answer = await self._api.request("POST", _REVIEWS_PATH, body=review, timeout=timeout)
        except Forbidden as error:
            self._forbidden = f"{error.message}; {_REMEDY}"
            raise KubeError(self._forbidden, public=self._forbidden) from error
        self._forbidden = ""
        return answer.body


class ReviewResult(NamedTuple):
    """The API server's answer to one review."""

    allowed: bool
    reason: str


class Authorizer:
    """Authorizes requests by SubjectAccessReview. `monotonic` ages cached results."""

    def __init__(
        self, reviews: ReviewClient, metrics: Metrics, monotonic: Callable[[], float], *, deadline: float = _DEADLINE
    ) -> None:
        self._client = reviews
        self._deadline = deadline
        self._review_results = metrics.authorization_reviews
        self._results: TLRUCache[bytes, ReviewResult] = TLRUCache(
            MAX_REVIEWS,
            ttu=lambda _, result, now: now + (ALLOW_SECONDS if result.allowed else DENY_SECONDS),
            timer=monotonic,
        )
        """By the digest of the review: identities of thousands of groups take no memory."""
        self._reviews_in_flight: SingleFlight[bytes, ReviewResult] = SingleFlight()

    async def check(self, identity: Identity, attributes: Attributes) -> None:
        """Return if the identity is allowed. Raises StatusError: 403 if it is not, 503 if the review fails."""
        if MASTERS in identity.groups:  # they may do everything
            return
        review = _review(identity, attributes)
        key = hashlib.sha256(review).digest()
        result = self._results.get(key)
        if result is None:
            result = await self._reviews_in_flight.join(key, lambda: self._ask(key, review, identity.user, attributes))
        if not result.allowed:
            raise forbidden(identity, attributes, result.reason)

    async def close(self) -> None:
        """Cancel the reviews in flight."""
        await self._reviews_in_flight.close()

    async def _ask(self, key: bytes, review: bytes, user: str, attributes: Attributes) -> ReviewResult:
        """Review and cache. An answer to another question allows nothing."""
        try:
            answer = msgspec.json.decode(await self._client.create(review, self._deadline), type=AccessReview)
        except (KubeError, msgspec.MsgspecError) as error:
            self._review_results.labels("error").inc()
            # a client reads neither addresses nor text of another server
            public = error.public if isinstance(error, KubeError) else "the API server's answer cannot be read"
            raise unavailable(f"cannot authorize {user!r}: {public}") from error
        asked, status = answer.spec.resource_attributes or answer.spec.non_resource_attributes, answer.status
        if (answer.spec.user, asked) != (user, _asked(attributes)):
            self._review_results.labels("error").inc()
            raise unavailable(f"cannot authorize {user!r}: the API server answered another review")
        allowed = status.allowed and not status.denied
        self._review_results.labels("allowed" if allowed else "denied").inc()
        result = self._results[key] = ReviewResult(allowed, status.reason)
        return result


def _asked(attributes: Attributes) -> dict[str, str]:
    return {key: text for key, text in attributes._asdict().items() if text}


def _review(identity: Identity, attributes: Attributes) -> bytes:
    """The SubjectAccessReview as JSON. Raises StatusError 401 for an identity that is not UTF-8."""
    kind = "nonResourceAttributes" if attributes.path else "resourceAttributes"
    review = {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview"}
    try:
        return msgspec.json.encode({**review, "spec": {**identity.review(), kind: _asked(attributes)}})
    except UnicodeEncodeError:
        raise unauthorized("the identity is not UTF-8") from None


def forbidden(identity: Identity, attributes: Attributes, reason: str) -> StatusError:
    """403 with the message of the Go servers."""
    tail = f": {reason}" if reason else ""
    if attributes.path:
        return StatusError(
            403, f'forbidden: User "{identity.user}" cannot {attributes.verb} path "{attributes.path}"{tail}'
        )
    resource = "/".join(filter(None, (attributes.resource, attributes.subresource)))
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    name = f' "{attributes.name}"' if attributes.name else ""
    return StatusError(
        403,
        f'{attributes.resource}.{attributes.group}{name} is forbidden: User "{identity.user}" cannot {attributes.verb} '
        f'resource "{resource}" in API group "{attributes.group}" {scope}{tail}',
        kind=attributes.resource,
        group=attributes.group,
        name=attributes.name,
    )
