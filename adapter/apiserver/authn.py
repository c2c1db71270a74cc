"""Delegated authentication: the front proxy's word, or a bearer token that the API server vouches for."""

import asyncio
import hashlib
from collections.abc import Callable

import msgspec
from cachetools import TTLCache

from adapter.apiserver.identity import Identity, identify
from adapter.apiserver.reviews import Reviews
from adapter.apiserver.status import StatusError, TooEarlyError, unauthorized, unavailable
from adapter.apiserver.trust import NO_TRUST, Peer, Trust
from adapter.apiserver.words import RawHeaders, Words
from adapter.kube.errors import KubeError
from adapter.kube.flight import SingleFlight
from adapter.telemetry.metrics import Metrics

_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_TOKEN_SECONDS = 10.0
_TOKENS = 1024
_LONGEST_TOKEN = 32 * 1024
_AT_ONCE = 16
_DEADLINE = 2.0


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    error: str = ""


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


class Authenticator:
    """Finds out who asks. Certificates are checked against `wall`, this machine's clock; `monotonic` ages tokens.

    `unread` gives the sentence why the front proxy is not known yet, None once it is.
    """

    def __init__(
        self,
        reviews: Reviews,
        metrics: Metrics,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        unread: Callable[[], str | None],
    ) -> None:
        self._words = Words(NO_TRUST)
        self._unread = unread
        self._reviews = reviews
        self._wall = wall
        self._tokens: TTLCache[bytes, Identity | None] = TTLCache(_TOKENS, _TOKEN_SECONDS, timer=monotonic)
        self._flights: SingleFlight[bytes, Identity | None] = SingleFlight()
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._by_proxy = metrics.authentications.labels("front-proxy", "ok")
        self._results = metrics.authentications

    @property
    def trust(self) -> Trust:
        """Who the front proxy is."""
        return self._words.trust

    @trust.setter
    def trust(self, trust: Trust) -> None:
        self._words = Words(trust)

    def knows(self, raw: RawHeaders, peer: Peer) -> Identity | None:
        """The identity where it takes no wait to find: the front proxy's word. None where a token has to be looked at.

        Raises StatusError 401 for identity headers that somebody else sent, and where there is no credential at all;
        503 instead while the front proxy is not known, for then its own requests look like these.
        """
        said = self._words.said(raw)
        if peer.is_front_proxy(self._words.trust, self._wall()):
            identity = self._words.identity(said)
            if identity is not None:
                self._by_proxy.inc()
                return identity
        elif said:
            raise self._early(peer) or self._refused(
                "front-proxy", "identity headers are taken from the front proxy only"
            )
        if not any(name.lower() == b"authorization" for name, _ in raw):
            raise self._early(peer) or self._refused("none", "Unauthorized")
        return None

    def _early(self, peer: Peer) -> TooEarlyError | None:
        """The 503 for a peer that may be the front proxy but could not show it, None for any other."""
        sentence = self._unread()
        if sentence is None and self.trust.authority and not peer.asked:
            sentence = "this connection began before the front proxy was known; connect again"
        if sentence is None:
            return None
        self._results.labels("front-proxy", "error").inc()
        return TooEarlyError(f"nobody can say yet who asks: {sentence}")

    async def by_token(self, authorization: str) -> Identity:
        """The identity that the bearer token stands for. Raises StatusError 401, or 503 where nobody can say."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN or not token.isascii():
            raise self._refused("token", "Unauthorized")
        key = hashlib.sha256(token.encode()).digest()
        try:
            identity = self._tokens[key]
        except KeyError:
            identity = await self._flights.join(key, lambda: self._review(key, token))
        if identity is None:
            raise self._refused("token", "Unauthorized")
        self._results.labels("token", "ok").inc()
        return identity

    async def close(self) -> None:
        """End the reviews under way."""
        await self._flights.close()

    async def _review(self, key: bytes, token: str) -> Identity | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        try:
            async with self._gate:
                body = await self._reviews.create(_REVIEWS, msgspec.json.encode(review), _DEADLINE)
            status = msgspec.json.decode(body, type=_Review).status
        except (KubeError, msgspec.MsgspecError) as error:
            self._results.labels("token", "error").inc()
            raise unavailable(f"the token cannot be verified: {_public(error)}") from error
        user = status.user
        extra = tuple(sorted((name.lower(), tuple(values)) for name, values in (user.extra or {}).items()))
        identity = identify(user.username, user.uid, tuple(user.groups or ()), extra) if status.authenticated else None
        self._tokens[key] = identity
        return identity

    def _refused(self, method: str, message: str) -> StatusError:
        self._results.labels(method, "refused").inc()
        return unauthorized(message)


def _public(error: KubeError | msgspec.MsgspecError) -> str:
    """What a stranger may know of it: no addresses, and no words of another server."""
    return error.public if isinstance(error, KubeError) else "the API server's answer cannot be read"
