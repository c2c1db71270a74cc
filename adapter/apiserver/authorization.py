"""Delegated authorization: SubjectAccessReviews, cached by identity and attributes.

An allow is fresh for a minute; for four more minutes it is still used while a renewal runs in the background, so that
a slow API server stalls no HPA. A deny is cached for ten seconds. A failed review allows nothing. Concurrent reviews
are bounded per user and in total, so that one user's requests cannot delay another's.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from adapter.apiserver.authentication import MASTERS, Identity
from adapter.apiserver.fair_gate import FairGate
from adapter.apiserver.request_info import Attributes
from adapter.apiserver.status import StatusError, unauthorized, unavailable
from adapter.kube.api import SUBJECT_ACCESS_REVIEWS
from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.objects import AccessReview
from adapter.kube.session import Session
from adapter.runtime.concurrency import SingleFlight
from adapter.telemetry.metrics import Metrics

_FRESH_SECONDS = 60.0
_DEADLINE = 3.0
_MAX_REVIEWS_IN_FLIGHT = 32
_MAX_REVIEWS_PER_USER = 8
_MAX_RENEWALS = 8  # results cached together expire together; nothing waits for renewals, so few run at once
_MAX_RENEWALS_PER_USER = 4
_RENEWAL_QUEUE_SECONDS = 30.0
_MAX_WAITING_PER_USER = 256

ALLOW_SECONDS = 300.0
DENY_SECONDS = 10.0
MAX_REVIEWS = 16384
"""Cached reviews of all users; an HPA needs one for each of its metrics."""
MAX_KEY_SIZE = 8192
"""Characters of identity and attributes; larger ones are not cached."""

ReviewKey = tuple[Identity, Attributes]

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
            answer = await self._api.exchange("POST", _REVIEWS_PATH, body=review, timeout=timeout)
        except Forbidden as error:
            self._forbidden = f"{error.message}; {_REMEDY}"
            raise KubeError(self._forbidden, public=self._forbidden) from error
        self._forbidden = ""
        return answer


class ReviewResult(NamedTuple):
    """The API server's answer to one review, and when it was given (monotonic)."""

    allowed: bool
    reason: str
    at: float


class ReviewCache:
    """Review results by identity and attributes; `now` is monotonic.

    When full, the flow with the most entries loses its oldest, so that a user with ever new requests evicts only their
    own results.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._results: dict[ReviewKey, ReviewResult] = {}
        self._flows: dict[str, OrderedDict[ReviewKey, None]] = {}

    def get(self, key: ReviewKey) -> ReviewResult | None:
        """The cached result, None if there is none or it has expired."""
        result = self._results.get(key)
        if result is None or self._now() - result.at > (ALLOW_SECONDS if result.allowed else DENY_SECONDS):
            return None
        return result

    def put(self, key: ReviewKey, result: ReviewResult) -> None:
        """Cache a result, unless its key is too large."""
        identity, attributes = key
        if identity.size + sum(map(len, attributes)) > MAX_KEY_SIZE:
            return
        self._results[key] = result
        flow = self._flows.setdefault(identity.flow, OrderedDict())
        flow[key] = None
        flow.move_to_end(key)
        if len(self._results) > MAX_REVIEWS:
            name = max(self._flows, key=lambda flow: len(self._flows[flow]))
            oldest, _ = self._flows[name].popitem(last=False)
            del self._results[oldest]
            if not self._flows[name]:
                del self._flows[name]


class Authorizer:
    """Authorizes requests by SubjectAccessReview. `monotonic` ages cached results."""

    def __init__(
        self, reviews: ReviewClient, metrics: Metrics, monotonic: Callable[[], float], *, deadline: float = _DEADLINE
    ) -> None:
        self._client = reviews
        self._now = monotonic
        self._deadline = deadline
        self._review_results = metrics.authorization_reviews
        self._cache = ReviewCache(monotonic)
        self._reviews_in_flight: SingleFlight[ReviewKey, ReviewResult] = SingleFlight()
        self.renewals: SingleFlight[ReviewKey, ReviewResult] = SingleFlight()
        self._gate = FairGate(_MAX_REVIEWS_IN_FLIGHT, _MAX_REVIEWS_PER_USER, _MAX_WAITING_PER_USER)
        self._renewal_gate = FairGate(_MAX_RENEWALS, _MAX_RENEWALS_PER_USER, _MAX_WAITING_PER_USER)

    async def check(self, identity: Identity, attributes: Attributes) -> None:
        """Return if the identity is allowed.

        Raises StatusError: 403 if it is not, 503 if the review fails, 429 if too many reviews of this user wait.
        """
        if MASTERS in identity.groups:  # they may do everything
            return
        key = (identity, attributes)
        result = self._cache.get(key)
        if result is None:
            result = await self._reviews_in_flight.join(key, lambda: self._review(key, self._gate, self._deadline))
        elif result.allowed and self._now() - result.at > _FRESH_SECONDS:
            self.renewals.begin(key, lambda: self._review(key, self._renewal_gate, _RENEWAL_QUEUE_SECONDS))
        if not result.allowed:
            raise forbidden(identity, attributes, result.reason)

    async def close(self) -> None:
        """Cancel the reviews in flight."""
        await self._reviews_in_flight.close()
        await self.renewals.close()

    async def _review(self, key: ReviewKey, gate: FairGate, queue_timeout: float) -> ReviewResult:
        """Review and cache; waits `queue_timeout` seconds at most for a slot of the gate."""
        identity, attributes = key
        resource = attributes._asdict()
        asked: dict[str, Any] = {"resourceAttributes": resource}
        if path := resource.pop("path"):
            asked = {"nonResourceAttributes": {"verb": attributes.verb, "path": path}}
        review = {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview"}
        try:
            body = msgspec.json.encode({**review, "spec": identity.review() | asked})
        except UnicodeEncodeError:
            raise unauthorized("the identity is not UTF-8") from None
        try:
            async with gate.slot(identity.flow, queue_timeout):
                answer = await self._client.create(body, self._deadline)
            status = msgspec.json.decode(answer, type=AccessReview).status
        except (KubeError, msgspec.MsgspecError) as error:
            self._review_results.labels("error").inc()
            # a client reads neither addresses nor text of another server
            public = error.public if isinstance(error, KubeError) else "the API server's answer cannot be read"
            raise unavailable(f"cannot authorize {identity.user!r}: {public}") from error
        allowed = status.allowed and not status.denied
        self._review_results.labels("allowed" if allowed else "denied").inc()
        result = ReviewResult(allowed, status.reason, self._now())
        self._cache.put(key, result)
        return result


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
