"""Delegated authentication in Go's order: front-proxy headers, client certificate, bearer token (TokenReview).

A client without certificate and token costs next to nothing: its request is not parsed. TokenReviews are bounded in
number and length, and tokens that were valid recently never queue behind unknown ones.
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
from adapter.apiserver.authentication.requestheader import EMPTY_CONFIG, AuthenticationConfig, Peer
from adapter.apiserver.fair_gate import FairGate
from adapter.apiserver.reviews import ReviewClient
from adapter.apiserver.status import FrontProxyUnknownError, StatusError, unauthorized, unavailable
from adapter.kube.api import TOKEN_REVIEWS
from adapter.kube.errors import KubeError
from adapter.runtime.single_flight import SingleFlight
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
_REVIEWS = TOKEN_REVIEWS.collection()
_TOKEN_SECONDS = 10.0
_MAX_TOKENS = 1024
_MAX_REJECTED_TOKENS = 4096
_MAX_TOKEN_SIZE = 16 * 1024
"""Characters of a bearer token; tokens with hundreds of groups have 11,000."""
_MAX_REVIEWS = 16
_MAX_REVIEWS_PER_ADDRESS = 4
_MAX_WAITING_PER_ADDRESS = 64
"""Waiting reviews of one address's tokens; recently valid tokens do not count."""
_DEADLINE = 2.0
_LOG_SECONDS = 60.0


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
    """Authenticates requests. `wall` (this machine's clock) checks certificates, `monotonic` ages cached tokens.

    `pending_reason` returns why the front proxy is not known yet, None once it is.
    """

    def __init__(
        self,
        reviews: ReviewClient,
        metrics: Metrics,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        pending_reason: Callable[[], str | None],
    ) -> None:
        self._identity_headers = IdentityHeaders(EMPTY_CONFIG)
        self._pending_reason = pending_reason
        self._reviews = reviews
        self._wall = wall
        self._monotonic = monotonic
        self._tokens: TTLCache[bytes, Identity] = TTLCache(_MAX_TOKENS, _TOKEN_SECONDS, timer=monotonic)
        self._rejected: TTLCache[bytes, None] = TTLCache(_MAX_REJECTED_TOKENS, _TOKEN_SECONDS, timer=monotonic)
        self._confirmed: LRUCache[bytes, None] = LRUCache(_MAX_TOKENS)
        self._flights: SingleFlight[bytes, Identity | None] = SingleFlight()
        self._gate = FairGate(_MAX_REVIEWS, _MAX_REVIEWS_PER_ADDRESS, _MAX_WAITING_PER_ADDRESS)
        self._confirmed_gate = asyncio.Semaphore(_MAX_REVIEWS)
        self._results = metrics.authentications
        self._ok_by_proxy = metrics.authentications.labels("front-proxy", "ok")
        self._ok_by_certificate = metrics.authentications.labels("certificate", "ok")
        self._without_credentials = metrics.authentications.labels("none", "refused")
        self._logged_at = -_LOG_SECONDS

    @property
    def config(self) -> AuthenticationConfig:
        """The configuration of front proxy and client CA in use."""
        return self._identity_headers.config

    @config.setter
    def config(self, config: AuthenticationConfig) -> None:
        self._identity_headers = IdentityHeaders(config)

    def by_certificate(self, headers: CIMultiDictProxy[str], raw: RawHeaders, peer: Peer) -> Identity | None:
        """The identity of front proxy or client certificate; None if a bearer token has to be reviewed.

        Raises StatusError 401 for a request without credentials, and 503 instead while the front proxy is not known:
        its own requests look the same until then.
        """
        if peer.chain:
            identity = self._from_certificate(raw, peer)
            if identity is not None:
                return identity
        if "Authorization" not in headers:
            raise self._front_proxy_unknown(peer) or self._no_credentials()
        return None

    def _from_certificate(self, raw: RawHeaders, peer: Peer) -> Identity | None:
        now = self._wall()
        config = self._identity_headers.config
        is_front_proxy = peer.is_front_proxy(config, now)
        if is_front_proxy:
            identity = self._identity_headers.identity(self._identity_headers.select(raw))
            if identity is not None:
                self._ok_by_proxy.inc()
                return identity
        user = peer.client_identity(config, now)
        if user is not None:
            self._ok_by_certificate.inc()
            return user
        if not is_front_proxy:
            self._log_ignored_headers(raw, peer)
        return None

    def _log_ignored_headers(self, raw: RawHeaders, peer: Peer) -> None:
        """Log why identity headers are ignored although the handshake accepted the client's certificate."""
        if self._identity_headers.select(raw) and self._may_log():
            _log.warning(
                "identity_headers_refused",
                common_name=peer.common_name,
                allowed=sorted(self.config.allowed_names),
                error="the certificate is expired, or not the front proxy's by authority or common name",
            )

    def _may_log(self) -> bool:
        """Whether to log now: at most once a minute, because any client can cause these messages."""
        if self._monotonic() - self._logged_at < _LOG_SECONDS:
            return False
        self._logged_at = self._monotonic()
        return True

    def _front_proxy_unknown(self, peer: Peer) -> FrontProxyUnknownError | None:
        """The 503 for a peer that may be the front proxy but had no chance to prove it, None for any other."""
        sentence = self._pending_reason()
        if sentence is None and self.config.ca_bundle and not peer.certificate_requested:
            sentence = "this connection began before the front proxy was known; connect again"
        if sentence is None:
            return None
        self._results.labels("front-proxy", "error").inc()
        return FrontProxyUnknownError(f"requests cannot be authenticated yet: {sentence}")

    def _no_credentials(self) -> StatusError:
        self._without_credentials.inc()
        return unauthorized()

    async def by_token(self, headers: CIMultiDictProxy[str], raw: RawHeaders, peer: Peer, address: str) -> Identity:
        """The identity of the request's bearer token; `address` is the client's, by which reviews are limited.

        Raises StatusError: 401 for an invalid token, 503 if the review fails, 429 if too many reviews of this address
        wait. Only the front proxy may send identity headers beside a token; from other clients they are a 401.
        """
        identity = await self._from_token(headers.get("Authorization", ""), address)
        if not peer.is_front_proxy(self.config, self._wall()) and self._identity_headers.select(raw):
            raise self._rejection("front-proxy")
        self._results.labels("token", "ok").inc()
        return identity

    async def _from_token(self, authorization: str, address: str) -> Identity:
        if len(authorization) > _MAX_TOKEN_SIZE:
            raise self._rejection("token")
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            raise self._rejection("token")
        key = hashlib.sha256(token.encode()).digest()
        identity = self._tokens.get(key)
        if identity is None and key not in self._rejected:
            identity = await self._flights.join(key, lambda: self._review(key, token, address))
        if identity is None:
            raise self._rejection("token")
        return identity

    async def close(self) -> None:
        """Cancel the reviews in flight."""
        await self._flights.close()

    async def _review(self, key: bytes, token: str, address: str) -> Identity | None:
        """Review a token; recently valid tokens queue among themselves, all others in turns by address."""
        slot = self._confirmed_gate if key in self._confirmed else self._gate.slot(address, _DEADLINE)
        try:
            async with slot:
                return await self._create_review(key, token)
        except StatusError:
            self._results.labels("token", "error").inc()
            raise

    async def _create_review(self, key: bytes, token: str) -> Identity | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        try:
            body = await self._reviews.create(_REVIEWS, msgspec.json.encode(review), _DEADLINE)
            status = msgspec.json.decode(body, type=_Review).status
        except (KubeError, msgspec.MsgspecError) as error:
            if self._may_log():
                _log.warning("token_review_failed", error=str(error))
            raise unavailable("the token cannot be verified now; the server's log says why") from error
        if not status.authenticated:
            self._rejected[key] = None
            self._confirmed.pop(key, None)
            return None
        user = status.user
        extra = tuple(sorted((name.lower(), tuple(values)) for name, values in (user.extra or {}).items()))
        identity = self._tokens[key] = identify(user.username, user.uid, tuple(user.groups or ()), extra)
        self._confirmed[key] = None
        return identity

    def _rejection(self, method: str) -> StatusError:
        self._results.labels(method, "refused").inc()
        return unauthorized()
