"""Which client certificates are the front proxy's, and which headers it puts identities in.

Only the requestheader authority counts. A cluster user's certificate comes from another authority (the client CA), so a
user whose certificate says `front-proxy-client` is nobody here.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from adapter.apiserver.status import CertificateError

CONFIG_MAP = "extension-apiserver-authentication"
CONFIG_NAMESPACE = "kube-system"
_USUAL_PREFIX = "x-remote-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The front proxy as `extension-apiserver-authentication` describes it. Without `authority` there is none.

    `authority` is a PEM bundle, `allowed` the common names that count (none named: any). Headers' names are lower case;
    one that is not configured is not read, for then the proxy does not clear it either.
    """

    authority: str = ""
    allowed: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    roots: tuple[x509.Certificate, ...] = field(default=(), compare=False, repr=False)

    def is_identity_header(self, name: str) -> bool:
        """Whether a header (lower case) tells an identity, which only the front proxy may."""
        plain = (*self.user_headers, *self.group_headers, *self.uid_headers)
        return name in plain or name.startswith((_USUAL_PREFIX, *self.extra_prefixes))


NO_TRUST = Trust()


def read(data: Mapping[str, str]) -> Trust:
    """The ConfigMap's data as trust. Raises CertificateError where it cannot be read; what is known then stays."""
    authority = data.get("requestheader-client-ca-file", "").strip()
    if not authority:
        return NO_TRUST
    return Trust(
        authority=authority,
        allowed=frozenset(_names(data, "requestheader-allowed-names")),
        user_headers=_headers(data, "requestheader-username-headers"),
        group_headers=_headers(data, "requestheader-group-headers"),
        uid_headers=_headers(data, "requestheader-uid-headers"),
        extra_prefixes=_headers(data, "requestheader-extra-headers-prefix"),
        roots=_roots(authority),
    )


def _roots(authority: str) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(authority.encode()))
    except ValueError as error:
        raise CertificateError(f"requestheader-client-ca-file holds no certificates: {error}") from None


def _names(data: Mapping[str, str], key: str) -> list[str]:
    text = data.get(key, "").strip()
    if not text:
        return []
    try:
        return [name for name in msgspec.json.decode(text, type=list[str]) if name]
    except msgspec.MsgspecError as error:
        raise CertificateError(f"{key} is no JSON list of names: {error}") from None


def _headers(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _names(data, key))


@dataclass(slots=True)
class Peer:
    """The client at the other end of a connection, as its certificate tells (empty `common_name`: it showed none).

    `authority` is the bundle that the handshake verified it against. `asked`: whether the handshake requested a
    certificate at all; before the front proxy is known it cannot.
    """

    certificate: x509.Certificate | None
    common_name: str
    not_after: float
    authority: str
    _verified: str = ""
    asked: bool = True

    def is_front_proxy(self, trust: Trust, now: float) -> bool:
        """Whether this is the front proxy under the trust of this moment (`now`: this machine's clock).

        A connection lives long: a certificate may expire and its authority be dropped after the handshake.
        """
        if self.certificate is None or not trust.authority or now >= self.not_after:
            return False
        if trust.allowed and self.common_name not in trust.allowed:
            return False
        return trust.authority in {self.authority, self._verified} or self._verify(trust, now)

    def _verify(self, trust: Trust, now: float) -> bool:
        valid = (root for root in trust.roots if now < root.not_valid_after_utc.timestamp())
        if not any(_issued(self.certificate, root) for root in valid):
            return False
        self._verified = trust.authority
        return True


def _issued(certificate: x509.Certificate | None, root: x509.Certificate) -> bool:
    try:
        if certificate is not None:
            certificate.verify_directly_issued_by(root)
            return True
    except (ValueError, TypeError, InvalidSignature):
        pass
    return False


NOBODY = Peer(None, "", 0.0, "")
UNASKED = Peer(None, "", 0.0, "", asked=False)


def peer_of(transport: asyncio.BaseTransport, authority_of: Callable[[ssl.SSLContext], str]) -> Peer:
    """The peer of a connection; NOBODY where it is plain or showed no certificate, UNASKED where none was requested.

    `authority_of` tells which bundle a TLS context verifies against.
    """
    tls, context = transport.get_extra_info("ssl_object"), transport.get_extra_info("sslcontext")
    if not isinstance(tls, ssl.SSLObject) or not isinstance(context, ssl.SSLContext):
        return NOBODY
    der, authority = tls.getpeercert(binary_form=True), authority_of(context)
    if der is None:
        return NOBODY if authority else UNASKED
    return _peer(der, authority)


def _peer(der: bytes, authority: str) -> Peer:
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        return NOBODY
    common_name = str(names[-1].value) if names else ""
    return Peer(certificate, common_name, certificate.not_valid_after_utc.timestamp(), authority)
