"""Delegated authentication: the front proxy's word, or a bearer token that the API server vouches for."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from urllib.parse import unquote

import msgspec
from cachetools import TTLCache
from multidict import CIMultiDictProxy

from adapter.apiserver.identity import Identity, identify
from adapter.apiserver.ports import Api
from adapter.apiserver.status import StatusError, unauthorized, unavailable
from adapter.apiserver.trust import NO_TRUST, Peer, Trust
from adapter.kube.errors import KubeError
from adapter.kube.flight import SingleFlight
from adapter.telemetry.metrics import Metrics

_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_TOKEN_SECONDS = 10.0
_TOKENS = 1024
_LONGEST_TOKEN = 32 * 1024
_AT_ONCE = 16
_DEADLINE = 2.0


Headers = CIMultiDictProxy[str]


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
    """Finds out who asks. Certificates are checked against `wall`, this machine's clock; `monotonic` ages tokens."""

    def __init__(self, api: Api, metrics: Metrics, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.trust = NO_TRUST
        self._api = api
        self._wall = wall
        self._tokens: TTLCache[bytes, Identity | None] = TTLCache(_TOKENS, _TOKEN_SECONDS, timer=monotonic)
        self._flights: SingleFlight[bytes, Identity | None] = SingleFlight()
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._by_proxy = metrics.authentications.labels("front-proxy", "ok")
        self._results = metrics.authentications

    def knows(self, headers: Headers, peer: Peer) -> Identity | None:
        """The identity where it takes no wait to find: the front proxy's word. None where a token has to be looked at.

        Raises StatusError 401 for identity headers that somebody else sent, and where there is no credential at all.
        """
        trust = self.trust
        if peer.is_front_proxy(trust, self._wall()):
            identity = _from_headers(headers, trust)
            if identity is not None:
                self._by_proxy.inc()
                return identity
        elif any(trust.is_identity_header(name.lower()) for name in headers):
            raise self._refused("front-proxy", "identity headers are taken from the front proxy only")
        if "Authorization" not in headers:
            raise self._refused("none", "Unauthorized")
        return None

    async def by_token(self, headers: Headers) -> Identity:
        """The identity that the bearer token stands for. Raises StatusError 401, or 503 where nobody can say."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
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
                answer = await self._api.request("POST", _REVIEWS, body=msgspec.json.encode(review), timeout=_DEADLINE)
            status = msgspec.json.decode(answer.body, type=_Review).status
        except (KubeError, msgspec.MsgspecError) as error:
            self._results.labels("token", "error").inc()
            raise unavailable(f"the token cannot be verified: {error}") from error
        user = status.user
        extra = tuple(sorted((name.lower(), tuple(values)) for name, values in (user.extra or {}).items()))
        identity = identify(user.username, user.uid, tuple(user.groups or ()), extra) if status.authenticated else None
        self._tokens[key] = identity
        return identity

    def _refused(self, method: str, message: str) -> StatusError:
        self._results.labels(method, "refused").inc()
        return unauthorized(message)


def _from_headers(headers: Headers, trust: Trust) -> Identity | None:
    """The identity that the front proxy tells, None where it tells none."""
    user = next(filter(None, map(headers.get, trust.user_headers)), None)
    if user is None:
        return None
    uid = next(filter(None, map(headers.get, trust.uid_headers)), "")
    groups = tuple(group for name in trust.group_headers for group in headers.getall(name, []))
    return identify(user, uid, groups, _extra(headers, trust.extra_prefixes))


def _extra(headers: Headers, prefixes: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: Mapping[str, list[str]] = {
        lower: headers.getall(name, []) for name in headers if (lower := name.lower()).startswith(prefixes)
    }
    if not found:
        return ()
    return tuple(sorted((_extra_key(name, prefixes), tuple(values)) for name, values in found.items()))


def _extra_key(name: str, prefixes: tuple[str, ...]) -> str:
    prefix = next(prefix for prefix in prefixes if name.startswith(prefix))
    return unquote(name.removeprefix(prefix))
