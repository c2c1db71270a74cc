"""Which client certificates are the front proxy's and which are users', and which headers identities come in.

Two bundles of authorities count, each for its own: certificates of the requestheader authority may be the front
proxy's, those of the client CA are cluster users'. A user's that says `front-proxy-client` is a user's of that name.
"""

import asyncio
import math
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from adapter.apiserver.authentication.identity import Identity, identify
from adapter.apiserver.status import CertificateError

CONFIG_MAP = "extension-apiserver-authentication"
CONFIG_NAMESPACE = "kube-system"
_USUAL_PREFIX = "x-remote-"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationConfig:
    """The front proxy and the client CA, as `extension-apiserver-authentication` describes them.

    `authority` is the front proxy's PEM bundle (empty: there is no front proxy), `allowed` the common names that count
    (none listed: any; the empty name is a name). Headers' names are lower case; one that is not configured is not read,
    for then the proxy does not clear it either. `client_authority` is the PEM bundle of users' certificates (empty:
    none count), `client_fault` why it cannot be read.
    """

    authority: str = ""
    allowed: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    client_authority: str = ""
    client_fault: str = ""
    roots: tuple[x509.Certificate, ...] = field(default=(), compare=False, repr=False)
    client_roots: tuple[x509.Certificate, ...] = field(default=(), compare=False, repr=False)

    @property
    def bundle(self) -> str:
        """The PEM bundle of all authorities that a handshake verifies clients against; empty: it asks for none."""
        return "\n".join(filter(None, (self.authority, self.client_authority)))

    def is_identity_header(self, name: str) -> bool:
        """Whether a header (lower case) tells an identity, which only the front proxy may."""
        plain = (*self.user_headers, *self.group_headers, *self.uid_headers)
        return name in plain or name.startswith((_USUAL_PREFIX, *self.extra_prefixes))


EMPTY_CONFIG = AuthenticationConfig()


def parse_config_map(data: Mapping[str, str]) -> AuthenticationConfig:
    """The ConfigMap's data as trust. Raises CertificateError where the front proxy's part cannot be read; what is known
    then stays. A client CA that cannot be read takes away users' certificates only, and `client_fault` says so.
    """
    users, fault = _clients(data.get("client-ca-file", "").strip())
    authority = data.get("requestheader-client-ca-file", "").strip()
    clients = AuthenticationConfig(client_authority=_pem(users), client_fault=fault, client_roots=users)
    if not authority:
        return clients
    return replace(
        clients,
        authority=authority,
        allowed=frozenset(_names(data, "requestheader-allowed-names")),
        user_headers=_headers(data, "requestheader-username-headers"),
        group_headers=_headers(data, "requestheader-group-headers"),
        uid_headers=_headers(data, "requestheader-uid-headers"),
        extra_prefixes=_headers(data, "requestheader-extra-headers-prefix"),
        roots=_roots(authority, "requestheader-client-ca-file"),
    )


def _clients(bundle: str) -> tuple[tuple[x509.Certificate, ...], str]:
    try:
        return (_roots(bundle, "client-ca-file") if bundle else ()), ""
    except CertificateError as error:
        return (), str(error)


def _roots(bundle: str, key: str) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(bundle.encode()))
    except ValueError as error:
        raise CertificateError(f"{key} holds no certificates: {error}") from None


def _pem(roots: tuple[x509.Certificate, ...]) -> str:
    return "".join(root.public_bytes(serialization.Encoding.PEM).decode() for root in roots)


def _names(data: Mapping[str, str], key: str) -> list[str]:
    text = data.get(key, "").strip()
    if not text:
        return []
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError as error:
        raise CertificateError(f"{key} is no JSON list of names: {error}") from None


def _headers(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _names(data, key) if name)


@dataclass(slots=True)
class Peer:
    """The client at the other end of a connection, as its certificate tells.

    `chain` is what the handshake verified: the client's certificate, those that vouch for it, and an authority of
    either bundle; empty where it showed none. `asked`: whether the handshake requested a certificate at all; before
    the authorities are known it cannot.
    """

    chain: tuple[x509.Certificate, ...] = ()
    asked: bool = True
    common_name: str = field(init=False, default="")
    _user: Identity | None = field(init=False, default=None, repr=False)
    _vouched: dict[str, float] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.chain:
            self.common_name = next(iter([*_texts(self.chain[0], NameOID.COMMON_NAME)][-1:]), "")
            self._user = _user(self.chain[0], self.common_name)

    @property
    def certificate(self) -> x509.Certificate | None:
        """The client's own certificate, None where it showed none."""
        return self.chain[0] if self.chain else None

    def is_front_proxy(self, trust: AuthenticationConfig, now: float) -> bool:
        """Whether this is the front proxy under the trust of this moment (`now`: this machine's clock).

        A connection lives long: a certificate may expire and its authority be dropped after the handshake.
        """
        if trust.allowed and self.common_name not in trust.allowed:
            return False
        return self._is_vouched_for(trust.authority, trust.roots, now)

    def user(self, trust: AuthenticationConfig, now: float) -> Identity | None:
        """The cluster user whose certificate this is under the trust of this moment, None where it is nobody's."""
        vouched = self._user is not None and self._is_vouched_for(trust.client_authority, trust.client_roots, now)
        return self._user if vouched else None

    def _is_vouched_for(self, bundle: str, roots: tuple[x509.Certificate, ...], now: float) -> bool:
        if not self.chain or not bundle:
            return False
        until = self._vouched.get(bundle)
        if until is None:
            if len(self._vouched) >= _MOST_BUNDLES:
                self._vouched.clear()
            until = self._vouched[bundle] = max(_vouched_until(self.chain, roots), default=0.0)
        return now < until


_MOST_BUNDLES = 4


def _vouched_until(chain: tuple[x509.Certificate, ...], roots: tuple[x509.Certificate, ...]) -> Iterator[float]:
    """For each way from the first certificate to one of these authorities: when the first on this way expires.

    The handshake has verified the chain itself (signatures, use as a client, lengths); here only the authority is new.
    """
    until = math.inf
    for certificate in chain:
        until = min(until, certificate.not_valid_after_utc.timestamp())
        for root in roots:
            if certificate == root or _is_issued(certificate, root):
                yield min(until, root.not_valid_after_utc.timestamp())


def _is_issued(certificate: x509.Certificate, root: x509.Certificate) -> bool:
    if certificate.issuer != root.subject or not _is_authority(root):
        return False
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_authority(root: x509.Certificate) -> bool:
    try:
        return root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return root.version is x509.Version.v1
    except ValueError:
        return False


def _texts(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> Iterator[str]:
    for attribute in certificate.subject.get_attributes_for_oid(oid):
        if isinstance(attribute.value, str):
            yield attribute.value


def _user(certificate: x509.Certificate, name: str) -> Identity | None:
    """The user as the API server names it: the common name, and each organization a group. None without a name."""
    if not name:
        return None
    groups = tuple(_texts(certificate, NameOID.ORGANIZATION_NAME))
    return identify(
        name, "", groups, ((_CREDENTIAL, (f"X509SHA256={certificate.fingerprint(hashes.SHA256()).hex()}",)),)
    )


NO_CERTIFICATE = Peer()
CERTIFICATE_NOT_REQUESTED = Peer(asked=False)


def peer_of(transport: asyncio.BaseTransport, authority_of: Callable[[ssl.SSLContext], str]) -> Peer:
    """The peer of a connection; NOBODY where it is plain or showed no certificate, UNASKED where none was requested.

    `authority_of` tells which bundle a TLS context verifies against.
    """
    tls, context = transport.get_extra_info("ssl_object"), transport.get_extra_info("sslcontext")
    if not isinstance(tls, ssl.SSLObject) or not isinstance(context, ssl.SSLContext):
        return NO_CERTIFICATE
    der = tls.getpeercert(binary_form=True)
    if der is None:
        return NO_CERTIFICATE if authority_of(context) else CERTIFICATE_NOT_REQUESTED
    try:
        return Peer(tuple(map(x509.load_der_x509_certificate, _verified(tls) or [der])))
    except ValueError:
        return NO_CERTIFICATE


def _verified(tls: ssl.SSLObject) -> list[bytes]:
    """The chain that the handshake verified, as DER; empty where the session was taken up from an earlier handshake."""
    if sys.version_info >= (3, 13):
        return tls.get_verified_chain()
    # The same, before it had a public name.
    chain = tls._sslobj.get_verified_chain() or []  # type: ignore[attr-defined]  # noqa: SLF001
    return [certificate.public_bytes(_DER) for certificate in chain]


_DER = 2  # of the private `_ssl.Certificate`: ENCODING_DER
