"""Authentication: the front proxy as its ConfigMap describes it, and the user whom its headers name."""

import asyncio
import functools
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

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
MASTERS = "system:masters"


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

    The door admits no connection of another CA than the current one, so the CA need not be checked again.
    """

    common_name: str
    valid_until: float

    def is_front_proxy(self, config: RequestheaderConfig, now: float) -> bool:
        """Whether this is the front proxy under the current configuration (`now`: this machine's clock)."""
        return now < self.valid_until and (not config.allowed_names or self.common_name in config.allowed_names)


def peer_of(tls: ssl.SSLObject) -> Peer | None:
    """The peer of a finished handshake, None if it presented no readable certificate."""
    der = tls.getpeercert(binary_form=True)
    return None if der is None else _peer_of_certificate(der)


@functools.lru_cache(16)
def _peer_of_certificate(der: bytes) -> Peer | None:
    """Cached: an API server presents one certificate in all its requests."""
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

    def review(self) -> dict[str, Any]:
        """The user's fields of a SubjectAccessReview's spec."""
        extra = {key: list(values) for key, values in self.extra}
        return {"user": self.user, "uid": self.uid, "groups": list(self.groups), "extra": extra}


class Authenticator:
    """Authenticates requests under the front proxy's current `config`. `wall` is this machine's clock."""

    def __init__(self, metrics: Metrics, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.config = EMPTY_CONFIG
        self._wall = wall
        self._monotonic = monotonic
        self._accepted = metrics.authentications.labels("front-proxy", "ok")
        self._refused = metrics.authentications.labels("front-proxy", "refused")
        self._logged_at = -_LOG_SECONDS

    def identity(self, tls: ssl.SSLObject | None, raw: RawHeaders) -> Identity:
        """The user whom the front proxy names; `tls` is its connection, None if that is not admitted.

        Raises StatusError 401. The certificate is checked at every request: it may expire, or its name be removed,
        while the connection lives. Why it is refused is logged at most once a minute.
        """
        peer = None if tls is None else peer_of(tls)
        if peer is None or not peer.is_front_proxy(self.config, self._wall()):
            self._refused.inc()
            if peer is not None and self._monotonic() - self._logged_at >= _LOG_SECONDS:
                self._logged_at = self._monotonic()
                _log.warning(
                    "client_refused",
                    common_name=peer.common_name,
                    allowed=sorted(self.config.allowed_names),
                    error="the certificate is expired, or its common name is not one of the front proxy's",
                )
            raise unauthorized()
        identity = identity_of(self.config, raw)
        if identity is None:
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


def identity_of(config: RequestheaderConfig, raw: RawHeaders) -> Identity | None:
    """The identity that these headers name, None if they name no user."""
    values: dict[str, list[str]] = {}
    for key, value in raw:
        values.setdefault(key.decode("latin-1").lower(), []).append(value.decode("utf-8", "surrogateescape"))
    user = _first(values, config.user_headers)
    if not user:
        return None
    groups = tuple(group for name in config.group_headers for group in values.get(name, ()))
    # In group system:authenticated unless the user is anonymous or in system:unauthenticated.
    if user != ANONYMOUS and AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    extra = [
        (unquote(name.removeprefix(prefix)), tuple(texts))
        for name, texts in values.items()
        if (prefix := next(filter(name.startswith, config.extra_prefixes), None)) is not None
    ]
    return Identity(user, _first(values, config.uid_headers), groups, tuple(sorted(extra)))


def _first(values: dict[str, list[str]], names: tuple[str, ...]) -> str:
    """The first value of the first header that is present and not empty."""
    return next((values[name][0] for name in names if values.get(name, [""])[0]), "")
