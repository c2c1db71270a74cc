"""Delegated authentication, in Go's order: the front proxy's word, a client certificate, a bearer token that the API
server vouches for.

A stranger, who shows neither certificate nor token, costs next to nothing: none of the request is looked at. Reviews
of tokens are bounded in number and length, and those that proved good lately never wait behind those that never did.
"""

import asyncio
import hashlib
from collections.abc import Callable

import msgspec
import structlog
from cachetools import LRUCache, TTLCache
from multidict import CIMultiDictProxy

from adapter.apiserver.authentication.identity import Identity, identify
from adapter.apiserver.authentication.identity_headers import IdentityHeaders, RawHeaders
from adapter.apiserver.authentication.requestheader import NO_TRUST, Peer, Trust
from adapter.apiserver.authorization.fair_gate import FairGate
from adapter.apiserver.reviews import Reviews
from adapter.apiserver.status import StatusError, TooEarlyError, unauthorized, unavailable
from adapter.kube.api import TOKEN_REVIEWS
from adapter.kube.errors import KubeError
from adapter.runtime.single_flight import SingleFlight
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
_REVIEWS = TOKEN_REVIEWS.collection()
_TOKEN_SECONDS = 10.0
_TOKENS = 1024
_BAD_TOKENS = 4096
_LONGEST_TOKEN = 16 * 1024
"""Characters of a bearer token. Those with hundreds of groups have 11,000."""
_AT_ONCE = 16
_AT_ONCE_OF_ONE = 4
_WAITING_OF_ONE = 64
"""Reviews of one address's tokens that are not known to be good."""
_DEADLINE = 2.0
_COMPLAIN_SECONDS = 60.0


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
        self._words = IdentityHeaders(NO_TRUST)
        self._unread = unread
        self._reviews = reviews
        self._wall = wall
        self._monotonic = monotonic
        self._tokens: TTLCache[bytes, Identity] = TTLCache(_TOKENS, _TOKEN_SECONDS, timer=monotonic)
        self._bad: TTLCache[bytes, None] = TTLCache(_BAD_TOKENS, _TOKEN_SECONDS, timer=monotonic)
        self._confirmed: LRUCache[bytes, None] = LRUCache(_TOKENS)
        self._flights: SingleFlight[bytes, Identity | None] = SingleFlight()
        self._gate = FairGate(_AT_ONCE, _AT_ONCE_OF_ONE, _WAITING_OF_ONE)
        self._proven_gate = asyncio.Semaphore(_AT_ONCE)
        self._results = metrics.authentications
        self._by_proxy = metrics.authentications.labels("front-proxy", "ok")
        self._by_certificate = metrics.authentications.labels("certificate", "ok")
        self._strangers = metrics.authentications.labels("none", "refused")
        self._complained = -_COMPLAIN_SECONDS

    @property
    def trust(self) -> Trust:
        """Who the front proxy is, and whose CA users' certificates are."""
        return self._words.trust

    @trust.setter
    def trust(self, trust: Trust) -> None:
        self._words = IdentityHeaders(trust)

    def knows(self, headers: CIMultiDictProxy[str], raw: RawHeaders, peer: Peer) -> Identity | None:
        """The identity where it takes no wait to find: by certificate. None where a token has to be looked at.

        Raises StatusError 401 where there is no credential at all; 503 instead while the front proxy is not known, for
        then its own requests look like these.
        """
        if peer.chain:
            identity = self._by_chain(raw, peer)
            if identity is not None:
                return identity
        if "Authorization" not in headers:
            raise self._early(peer) or self._stranger()
        return None

    def _by_chain(self, raw: RawHeaders, peer: Peer) -> Identity | None:
        now = self._wall()
        trust = self._words.trust
        is_front_proxy = peer.is_front_proxy(trust, now)
        if is_front_proxy:
            identity = self._words.identity(self._words.said(raw))
            if identity is not None:
                self._by_proxy.inc()
                return identity
        user = peer.user(trust, now)
        if user is not None:
            self._by_certificate.inc()
            return user
        if not is_front_proxy:
            self._complain(raw, peer)
        return None

    def _complain(self, raw: RawHeaders, peer: Peer) -> None:
        """Say why identity headers are not taken from a certificate that the handshake took; strangers have none."""
        if self._words.said(raw) and self._may_complain():
            _log.warning(
                "identity_headers_refused",
                common_name=peer.common_name,
                allowed=sorted(self.trust.allowed),
                error="the certificate is expired, or not the front proxy's by authority or common name",
            )

    def _may_complain(self) -> bool:
        """Whether something may be logged: the first time and then once a minute, for anybody can bring it about."""
        if self._monotonic() - self._complained < _COMPLAIN_SECONDS:
            return False
        self._complained = self._monotonic()
        return True

    def _early(self, peer: Peer) -> TooEarlyError | None:
        """The 503 for a peer that may be the front proxy but could not show it, None for any other."""
        sentence = self._unread()
        if sentence is None and self.trust.bundle and not peer.asked:
            sentence = "this connection began before the front proxy was known; connect again"
        if sentence is None:
            return None
        self._results.labels("front-proxy", "error").inc()
        return TooEarlyError(f"nobody can say yet who asks: {sentence}")

    def _stranger(self) -> StatusError:
        self._strangers.inc()
        return unauthorized()

    async def by_token(self, headers: CIMultiDictProxy[str], raw: RawHeaders, peer: Peer, address: str) -> Identity:
        """The identity that the bearer token stands for, which the client at this address shows.

        Raises StatusError: 401, 503 where nobody can say, 429 where too many tokens from this address wait already.
        Identity headers beside a token are the front proxy's to send; from anybody else they are refused.
        """
        identity = await self._of_token(headers.get("Authorization", ""), address)
        if not peer.is_front_proxy(self.trust, self._wall()) and self._words.said(raw):
            raise self._refused("front-proxy")
        self._results.labels("token", "ok").inc()
        return identity

    async def _of_token(self, authorization: str, address: str) -> Identity:
        if len(authorization) > _LONGEST_TOKEN:
            raise self._refused("token")
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            raise self._refused("token")
        key = hashlib.sha256(token.encode()).digest()
        identity = self._tokens.get(key)
        if identity is None and key not in self._bad:
            identity = await self._flights.join(key, lambda: self._review(key, token, address))
        if identity is None:
            raise self._refused("token")
        return identity

    async def close(self) -> None:
        """End the reviews under way."""
        await self._flights.close()

    async def _review(self, key: bytes, token: str, address: str) -> Identity | None:
        """Tokens that proved good lately wait for each other alone; of all others addresses take turns."""
        place = self._proven_gate if key in self._confirmed else self._gate.turn(address, _DEADLINE)
        try:
            async with place:
                return await self._reviewed(key, token)
        except StatusError:
            self._results.labels("token", "error").inc()
            raise

    async def _reviewed(self, key: bytes, token: str) -> Identity | None:
        review = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": {"token": token}}
        try:
            body = await self._reviews.create(_REVIEWS, msgspec.json.encode(review), _DEADLINE)
            status = msgspec.json.decode(body, type=_Review).status
        except (KubeError, msgspec.MsgspecError) as error:
            if self._may_complain():
                _log.warning("token_review_failed", error=str(error))
            raise unavailable("the token cannot be verified now; the server's log says why") from error
        if not status.authenticated:
            self._bad[key] = None
            self._confirmed.pop(key, None)
            return None
        user = status.user
        extra = tuple(sorted((name.lower(), tuple(values)) for name, values in (user.extra or {}).items()))
        identity = self._tokens[key] = identify(user.username, user.uid, tuple(user.groups or ()), extra)
        self._confirmed[key] = None
        return identity

    def _refused(self, method: str) -> StatusError:
        self._results.labels(method, "refused").inc()
        return unauthorized()
