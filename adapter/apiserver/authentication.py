"""Authentication: the front proxy as its ConfigMap describes it, and the user whom its headers name."""

import functools
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

import msgspec
import structlog
from cryptography import x509

from adapter.apiserver.door import Certificate
from adapter.apiserver.refresh import Refresher
from adapter.apiserver.status import CertificateError, unauthorized
from adapter.kube.api import CONFIG_MAPS
from adapter.kube.objects import ConfigMap
from adapter.kube.session import Session
from adapter.runtime.backoff import LogOnce
from adapter.telemetry.metrics import Metrics

RawHeaders = tuple[tuple[bytes, bytes], ...]
"""Undecoded names and values of the request's headers."""

AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
ANONYMOUS, MASTERS = "system:anonymous", "system:masters"
_CONFIG_MAP = ("kube-system", "extension-apiserver-authentication")
_DEADLINE = 5.0

_log = structlog.get_logger(__name__)

_expiry = functools.lru_cache(64)(ssl.cert_time_to_seconds)  # by strptime: 2 % of the work in a fleet


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


def parse_config_map(data: Mapping[str, str]) -> RequestheaderConfig:
    """Parse the ConfigMap's data. Raises CertificateError if it is invalid; the caller keeps what it has."""

    def listed(kind: str) -> list[str]:
        return msgspec.json.decode(data.get(f"requestheader-{kind}", "").strip() or "[]", type=list[str])

    def headers(kind: str) -> tuple[str, ...]:
        return tuple(name.lower() for name in listed(kind) if name)

    authority = data.get("requestheader-client-ca-file", "").strip()
    if not authority:
        return RequestheaderConfig()
    try:
        x509.load_pem_x509_certificates(authority.encode())
        return RequestheaderConfig(
            authority=authority,
            allowed_names=frozenset(listed("allowed-names")),
            user_headers=headers("username-headers"),
            group_headers=headers("group-headers"),
            uid_headers=headers("uid-headers"),
            extra_prefixes=headers("extra-headers-prefix"),
        )
    except (ValueError, msgspec.MsgspecError) as error:
        raise CertificateError(f"ConfigMap {'/'.join(_CONFIG_MAP)} describes no front proxy: {error}") from None


class Identity(NamedTuple):
    """An authenticated user. `extra` is sorted by key; keys are lower case."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Authenticator:
    """Authenticates requests under the front proxy's current `config`, and keeps that current.

    The ConfigMap is polled every `seconds`, since a watch can stall unnoticed; while reading fails, the last one stays
    in use. `changed` is called with each change. `wall` is this machine's clock.
    """

    def __init__(
        self, api: Session, metrics: Metrics, changed: Callable[[], None], wall: Callable[[], float], *, seconds: float
    ) -> None:
        self.config, self._is_read = RequestheaderConfig(), False
        self._api, self._changed, self._wall = api, changed, wall
        self._accepted = metrics.authentications.labels("front-proxy", "ok")
        self._refused = metrics.authentications.labels("front-proxy", "refused")
        self._log_once = LogOnce()
        failed = metrics.errors.labels("authentication_config").inc
        self._refresher = Refresher(self.read_once, seconds, "front_proxy_unknown", failed)
        self.run = self._refresher.run

    def identity(self, certificate: Certificate | None, raw: RawHeaders) -> Identity:
        """The user whom the front proxy names; `certificate` is its own, None if its connection is not admitted.

        Raises StatusError 401. The certificate is checked at every request: it may expire, or its name be removed,
        while the connection lives. A refused name is logged once in a row.
        """
        if certificate is None or not self.is_front_proxy(certificate):
            self._refused.inc()
            raise unauthorized("Unauthorized")
        if (identity := identity_of(self.config, raw)) is None:
            raise unauthorized("Unauthorized")
        self._accepted.inc()
        return identity

    def is_front_proxy(self, certificate: Certificate) -> bool:
        """Whether the certificate, which the handshake verified, is valid and has an allowed name."""
        names = [text for part in certificate.get("subject", ()) for key, text in part if key == "commonName"]
        name, allowed = names[-1] if names else "", self.config.allowed_names  # of several the last, as in Go
        if self._wall() < _expiry(certificate["notAfter"]) and (not allowed or name in allowed):
            return True
        if self._log_once.is_new(name):
            why = "the certificate is expired, or its common name is not one of the front proxy's"
            _log.warning("client_refused", common_name=name, allowed=sorted(allowed), error=why)
        return False

    def check(self) -> str | None:
        """Why no client can connect, None once the front proxy is known."""
        where, error = f"ConfigMap {'/'.join(_CONFIG_MAP)}", self._refresher.error
        if not self._is_read:
            return f"{where} has not been read yet{f': {error}' if error else ''}"
        if not self.config.authority:
            return f"{where} names no requestheader-client-ca-file: the API server has no front proxy; set its flags"
        return None

    async def read_once(self) -> None:
        """Read and apply the ConfigMap. Raises KubeError, and CertificateError for invalid content."""
        body = await self._api.get(CONFIG_MAPS.path(*_CONFIG_MAP), timeout=_DEADLINE)
        config = parse_config_map(msgspec.json.decode(body, type=ConfigMap).data or {})
        if config != self.config or not self._is_read:
            self.config, self._is_read = config, True
            self._changed()
            _log.info("front_proxy_known", allowed=sorted(config.allowed_names))


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
    extra: dict[str, tuple[str, ...]] = {}
    for name, texts in values.items():
        prefix = next(filter(name.startswith, config.extra_prefixes), None)
        if prefix is not None:
            field = unquote(name.removeprefix(prefix))  # two names may be escapes of one field
            extra[field] = (*extra.get(field, ()), *texts)
    return Identity(user, _first(values, config.uid_headers), groups, tuple(sorted(extra.items())))


def _first(values: dict[str, list[str]], names: tuple[str, ...]) -> str:
    """The first value of the first header that is present and not empty."""
    return next((values[name][0] for name in names if values.get(name, [""])[0]), "")
