"""Authentication: the front proxy as its ConfigMap describes it, and the user whom its headers name."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import structlog
from cryptography import x509
from cryptography.x509.oid import NameOID

from adapter.apiserver.status import CertificateError, unauthorized
from adapter.kube.api import CONFIG_MAPS
from adapter.kube.errors import KubeError
from adapter.kube.objects import ConfigMap
from adapter.kube.session import Session
from adapter.runtime.backoff import exponential
from adapter.telemetry.metrics import Metrics

CONFIG_MAP = "extension-apiserver-authentication"
CONFIG_NAMESPACE = "kube-system"

_log = structlog.get_logger(__name__)
_LOG_SECONDS = 60.0

_CONFIG_MAP_PATH = CONFIG_MAPS.path(CONFIG_NAMESPACE, CONFIG_MAP)
_DEADLINE = 5.0
_FIRST_RETRY = 1.0

RawHeaders = tuple[tuple[bytes, bytes], ...]
"""Undecoded names and values of the request's headers."""

_MAX_IDENTITIES = 4096
_MAX_IDENTITY_SIZE = 4096
"""Largest sum of an identity's headers that is cached, in bytes."""

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
MASTERS = "system:masters"
_ACCOUNTS = "system:serviceaccount:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestheaderConfig:
    """The front proxy, as ConfigMap `extension-apiserver-authentication` describes it.

    `authority` is its PEM bundle (empty: there is no front proxy), `allowed_names` the common names it may have (empty
    set: any; the empty name is a name). Header names are lower case. Headers that are not configured are not read,
    because the front proxy does not remove a client's own copy of them.
    """

    authority: str = ""
    allowed_names: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    certificates: tuple[x509.Certificate, ...] = field(default=(), compare=False, repr=False)


EMPTY_CONFIG = RequestheaderConfig()


def parse_config_map(data: Mapping[str, str]) -> RequestheaderConfig:
    """Parse the ConfigMap's data. Raises CertificateError if it is invalid; the caller keeps what it has."""
    authority = data.get("requestheader-client-ca-file", "").strip()
    if not authority:
        return EMPTY_CONFIG
    try:
        certificates = tuple(x509.load_pem_x509_certificates(authority.encode()))
    except ValueError as error:
        raise CertificateError(f"requestheader-client-ca-file holds no certificates: {error}") from None
    return RequestheaderConfig(
        authority=authority,
        allowed_names=frozenset(_string_list(data, "requestheader-allowed-names")),
        user_headers=_header_names(data, "requestheader-username-headers"),
        group_headers=_header_names(data, "requestheader-group-headers"),
        uid_headers=_header_names(data, "requestheader-uid-headers"),
        extra_prefixes=_header_names(data, "requestheader-extra-headers-prefix"),
        certificates=certificates,
    )


def _string_list(data: Mapping[str, str], key: str) -> list[str]:
    text = data.get(key, "").strip()
    if not text:
        return []
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError as error:
        raise CertificateError(f"{key} is no JSON list of names: {error}") from None


def _header_names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _string_list(data, key) if name)


class Peer(NamedTuple):
    """The client of a connection: the common name of the certificate that the handshake verified, and when it expires.

    The connection is closed when the requestheader CA changes, so the CA need not be checked again.
    """

    common_name: str
    valid_until: float

    def is_front_proxy(self, config: RequestheaderConfig, now: float) -> bool:
        """Whether this is the front proxy under the current configuration (`now`: this machine's clock)."""
        return now < self.valid_until and (not config.allowed_names or self.common_name in config.allowed_names)


def peer_of(tls: ssl.SSLObject) -> Peer | None:
    """The peer of a finished handshake, None if it presented no readable certificate."""
    der = tls.getpeercert(binary_form=True)
    if der is None:
        return None
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = [
            attribute.value
            for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            if isinstance(attribute.value, str)
        ]
        return Peer(names[-1] if names else "", certificate.not_valid_after_utc.timestamp())
    except ValueError:
        return None


class Identity(NamedTuple):
    """An authenticated user. `extra` is sorted by key; keys are lower case."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def flow(self) -> str:
        """The key by which requests share limits: the user, or the namespace of a service account.

        A namespace's service accounts share one flow, because their number is unbounded: a tenant may create more.
        """
        return self.user.rpartition(":")[0] if self.user.startswith(_ACCOUNTS) else self.user

    @property
    def size(self) -> int:
        """Characters of all fields together."""
        extra = sum(len(key) + sum(map(len, values)) for key, values in self.extra)
        return len(self.user) + len(self.uid) + sum(map(len, self.groups)) + extra

    def review(self) -> dict[str, Any]:
        """The user's fields of a SubjectAccessReview's spec."""
        extra = {key: list(values) for key, values in self.extra}
        return {"user": self.user, "uid": self.uid, "groups": list(self.groups), "extra": extra}


class Authenticator:
    """Authenticates connections and requests. `wall` is this machine's clock, for certificates."""

    def __init__(self, metrics: Metrics, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._identity_headers = IdentityHeaders(EMPTY_CONFIG)
        self._wall = wall
        self._monotonic = monotonic
        self._accepted = metrics.authentications.labels("front-proxy", "ok")
        self._refused = metrics.authentications.labels("front-proxy", "refused")
        self._logged_at = -_LOG_SECONDS

    @property
    def config(self) -> RequestheaderConfig:
        """The configuration of the front proxy in use."""
        return self._identity_headers.config

    @config.setter
    def config(self, config: RequestheaderConfig) -> None:
        self._identity_headers = IdentityHeaders(config)

    def is_front_proxy(self, peer: Peer) -> bool:
        """Whether a peer with a verified certificate may connect; logs at most once a minute why not."""
        if peer.is_front_proxy(self.config, self._wall()):
            return True
        self._refused.inc()
        if self._monotonic() - self._logged_at >= _LOG_SECONDS:
            self._logged_at = self._monotonic()
            _log.warning(
                "client_refused",
                common_name=peer.common_name,
                allowed=sorted(self.config.allowed_names),
                error="the certificate is expired, or its common name is not one of the front proxy's",
            )
        return False

    def identity(self, peer: Peer, raw: RawHeaders) -> Identity:
        """The user whom the front proxy names. Raises StatusError 401.

        The certificate is checked at every request: it may expire, or its name be removed, while the connection lives.
        """
        identity = self._identity_headers.identity(self._identity_headers.select(raw))
        if identity is None or not self.is_front_proxy(peer):
            raise unauthorized()
        self._accepted.inc()
        return identity


class RequestheaderWatch:
    """Polls the ConfigMap every few seconds and applies changes.

    It is one small object that changes once in years: polling costs less than a watch, and a watch can stall unnoticed.
    """

    def __init__(
        self,
        api: Session,
        metrics: Metrics,
        apply: Callable[[RequestheaderConfig], None],
        *,
        seconds: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._errors = metrics.errors
        self._apply = apply
        self._seconds = seconds
        self._sleep = sleep
        self._config: RequestheaderConfig | None = None
        self._error = ""

    def check(self) -> str | None:
        """Why no client can connect, None once the front proxy is known."""
        where = f"ConfigMap {CONFIG_NAMESPACE}/{CONFIG_MAP}"
        if self._config is None:
            return f"{where} has not been read yet{f': {self._error}' if self._error else ''}"
        if not self._config.authority:
            return f"{where} names no requestheader-client-ca-file: the API server has no front proxy; set its flags"
        return None

    async def run(self) -> None:
        """Poll until cancelled; while reading fails, the last configuration stays in use."""
        retries = 0
        while True:
            try:
                await self.read_once()
            except (KubeError, CertificateError, msgspec.MsgspecError) as error:
                self._errors.labels("authentication_config").inc()
                _log.warning("front_proxy_unknown", error=str(error))
                self._error = str(error)
                pause = exponential(retries, _FIRST_RETRY, self._seconds)
                retries += 1
            else:
                pause, retries = self._seconds, 0
            await self._sleep(pause)

    async def read_once(self) -> None:
        """Read and apply the ConfigMap. Raises KubeError, and CertificateError for invalid content."""
        body = await self._api.get(_CONFIG_MAP_PATH, timeout=_DEADLINE)
        config = parse_config_map(msgspec.json.decode(body, type=ConfigMap).data or {})
        if config == self._config:
            return
        self._config = config
        self._apply(config)
        _log.info(
            "front_proxy_known",
            authorities=len(config.certificates),
            allowed=sorted(config.allowed_names),
        )


class IdentityHeaders:
    """Decodes identity headers under one configuration."""

    def __init__(self, config: RequestheaderConfig) -> None:
        self.config = config
        plain = (*config.user_headers, *config.group_headers, *config.uid_headers)
        self._names = frozenset(name.encode() for name in plain)
        self._prefixes = tuple(prefix.encode() for prefix in config.extra_prefixes)
        self.identities: dict[RawHeaders, Identity | None] = {}

    def select(self, raw: RawHeaders) -> RawHeaders:
        """The headers that carry an identity."""
        names, prefixes = self._names, self._prefixes
        return tuple([pair for pair in raw if (name := pair[0].lower()) in names or name.startswith(prefixes)])

    def identity(self, headers: RawHeaders) -> Identity | None:
        """The identity that these headers name, None if they name no user."""
        try:
            return self.identities[headers]
        except KeyError:
            pass
        values: dict[str, list[str]] = {}
        for name, value in headers:
            values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("utf-8", "surrogateescape"))
        identity, user = None, _first(values, self.config.user_headers)
        if user:
            groups = tuple(group for name in self.config.group_headers for group in values.get(name, ()))
            # In group system:authenticated unless the user is anonymous or in system:unauthenticated.
            if user != ANONYMOUS and AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
                groups = (*groups, AUTHENTICATED)
            extra = [
                (unquote(name.removeprefix(prefix)), tuple(texts))
                for name, texts in values.items()
                if (prefix := next(filter(name.startswith, self.config.extra_prefixes), None)) is not None
            ]
            identity = Identity(user, _first(values, self.config.uid_headers), groups, tuple(sorted(extra)))
        if sum(len(name) + len(value) for name, value in headers) > _MAX_IDENTITY_SIZE:
            return identity
        if len(self.identities) >= _MAX_IDENTITIES:
            self.identities.clear()
        self.identities[headers] = identity
        return identity


def _first(values: dict[str, list[str]], names: tuple[str, ...]) -> str:
    """The first value of the first header that is present and not empty."""
    return next((values[name][0] for name in names if values.get(name, [""])[0]), "")
