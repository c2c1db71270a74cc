"""The cluster's authentication configuration, and the identity of a TLS peer under it.

Two CA bundles count, each for its own purpose: a certificate of the requestheader CA may be the front proxy's, one of
the client CA is a cluster user's. A user certificate with the common name `front-proxy-client` is that user, not the
front proxy.
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
_DEFAULT_PREFIX = "x-remote-"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationConfig:
    """The front proxy and the client CA, as ConfigMap `extension-apiserver-authentication` describes them.

    `requestheader_ca` is the front proxy's PEM bundle (empty: there is no front proxy), `allowed_names` the common
    names it may have (empty set: any; the empty name is a name). Header names are lower case. Headers that are not
    configured are not read, because the front proxy does not remove a client's own copy of them. `client_ca` is the
    PEM bundle of users' certificates (empty: no user certificate is valid), `client_ca_error` why it cannot be read.
    """

    requestheader_ca: str = ""
    allowed_names: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    client_ca: str = ""
    client_ca_error: str = ""
    requestheader_certificates: tuple[x509.Certificate, ...] = field(default=(), compare=False, repr=False)
    client_ca_certificates: tuple[x509.Certificate, ...] = field(default=(), compare=False, repr=False)

    @property
    def ca_bundle(self) -> str:
        """The PEM bundle that a handshake verifies client certificates against; empty: it requests none."""
        return "\n".join(filter(None, (self.requestheader_ca, self.client_ca)))

    def is_identity_header(self, name: str) -> bool:
        """Whether a header (lower case) carries an identity, which only the front proxy may send."""
        plain = (*self.user_headers, *self.group_headers, *self.uid_headers)
        return name in plain or name.startswith((_DEFAULT_PREFIX, *self.extra_prefixes))


EMPTY_CONFIG = AuthenticationConfig()


def parse_config_map(data: Mapping[str, str]) -> AuthenticationConfig:
    """Parse the ConfigMap's data.

    Raises CertificateError if the front proxy's part is invalid; the caller then keeps the configuration it has. An
    invalid client CA only disables user certificates, and `client_ca_error` says why.
    """
    users, error = _load_client_ca(data.get("client-ca-file", "").strip())
    requestheader_ca = data.get("requestheader-client-ca-file", "").strip()
    clients = AuthenticationConfig(client_ca=_pem(users), client_ca_error=error, client_ca_certificates=users)
    if not requestheader_ca:
        return clients
    return replace(
        clients,
        requestheader_ca=requestheader_ca,
        allowed_names=frozenset(_string_list(data, "requestheader-allowed-names")),
        user_headers=_header_names(data, "requestheader-username-headers"),
        group_headers=_header_names(data, "requestheader-group-headers"),
        uid_headers=_header_names(data, "requestheader-uid-headers"),
        extra_prefixes=_header_names(data, "requestheader-extra-headers-prefix"),
        requestheader_certificates=_load_bundle(requestheader_ca, "requestheader-client-ca-file"),
    )


def _load_client_ca(bundle: str) -> tuple[tuple[x509.Certificate, ...], str]:
    try:
        return (_load_bundle(bundle, "client-ca-file") if bundle else ()), ""
    except CertificateError as error:
        return (), str(error)


def _load_bundle(bundle: str, key: str) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(bundle.encode()))
    except ValueError as error:
        raise CertificateError(f"{key} holds no certificates: {error}") from None


def _pem(roots: tuple[x509.Certificate, ...]) -> str:
    return "".join(root.public_bytes(serialization.Encoding.PEM).decode() for root in roots)


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


@dataclass(slots=True)
class Peer:
    """The client of a connection, identified by its certificate.

    `chain` is the chain that the handshake verified: the client's certificate, intermediates, and a CA of either
    bundle; empty if the client presented none. `certificate_requested`: whether the handshake requested a certificate;
    it cannot before the CAs have been read.
    """

    chain: tuple[x509.Certificate, ...] = ()
    certificate_requested: bool = True
    common_name: str = field(init=False, default="")
    _user: Identity | None = field(init=False, default=None, repr=False)
    _valid_until_by_bundle: dict[str, float] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.chain:
            self.common_name = next(iter([*_subject_values(self.chain[0], NameOID.COMMON_NAME)][-1:]), "")
            self._user = _user(self.chain[0], self.common_name)

    @property
    def certificate(self) -> x509.Certificate | None:
        """The client's own certificate, None if it presented none."""
        return self.chain[0] if self.chain else None

    def is_front_proxy(self, config: AuthenticationConfig, now: float) -> bool:
        """Whether this is the front proxy under the current configuration (`now`: this machine's clock).

        Checked at every request: a certificate may expire, or its CA be removed, while the connection lives.
        """
        if config.allowed_names and self.common_name not in config.allowed_names:
            return False
        return self._is_issued_under(config.requestheader_ca, config.requestheader_certificates, now)

    def client_identity(self, config: AuthenticationConfig, now: float) -> Identity | None:
        """The cluster user of this certificate under the current configuration, None if it is not a user's."""
        valid = self._user is not None and self._is_issued_under(config.client_ca, config.client_ca_certificates, now)
        return self._user if valid else None

    def _is_issued_under(self, bundle: str, roots: tuple[x509.Certificate, ...], now: float) -> bool:
        if not self.chain or not bundle:
            return False
        until = self._valid_until_by_bundle.get(bundle)
        if until is None:
            if len(self._valid_until_by_bundle) >= _MAX_BUNDLES:
                self._valid_until_by_bundle.clear()
            until = self._valid_until_by_bundle[bundle] = max(_expiries(self.chain, roots), default=0.0)
        return now < until


_MAX_BUNDLES = 4


def _expiries(chain: tuple[x509.Certificate, ...], roots: tuple[x509.Certificate, ...]) -> Iterator[float]:
    """For each path from the leaf to one of these CAs: when the first certificate on the path expires.

    The handshake has verified the chain itself (signatures, client usage, path length); only the CA may have changed.
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


def _subject_values(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> Iterator[str]:
    for attribute in certificate.subject.get_attributes_for_oid(oid):
        if isinstance(attribute.value, str):
            yield attribute.value


def _user(certificate: x509.Certificate, name: str) -> Identity | None:
    """The user as kube-apiserver reads it: common name as user, organizations as groups. None without a common name."""
    if not name:
        return None
    groups = tuple(_subject_values(certificate, NameOID.ORGANIZATION_NAME))
    return identify(
        name, "", groups, ((_CREDENTIAL, (f"X509SHA256={certificate.fingerprint(hashes.SHA256()).hex()}",)),)
    )


NO_CERTIFICATE = Peer()
CERTIFICATE_NOT_REQUESTED = Peer(certificate_requested=False)


def peer_of(transport: asyncio.BaseTransport, authority_of: Callable[[ssl.SSLContext], str]) -> Peer:
    """The peer of a connection, NO_CERTIFICATE for plain TCP and for clients without a certificate.

    CERTIFICATE_NOT_REQUESTED if the TLS context requested none; `authority_of` returns the CA bundle of a context.
    """
    tls, context = transport.get_extra_info("ssl_object"), transport.get_extra_info("sslcontext")
    if not isinstance(tls, ssl.SSLObject) or not isinstance(context, ssl.SSLContext):
        return NO_CERTIFICATE
    der = tls.getpeercert(binary_form=True)
    if der is None:
        return NO_CERTIFICATE if authority_of(context) else CERTIFICATE_NOT_REQUESTED
    try:
        return Peer(tuple(map(x509.load_der_x509_certificate, _verified_chain(tls) or [der])))
    except ValueError:
        return NO_CERTIFICATE


def _verified_chain(tls: ssl.SSLObject) -> list[bytes]:
    """The chain that the handshake verified, as DER; empty if the TLS session was resumed."""
    if sys.version_info >= (3, 13):
        return tls.get_verified_chain()
    # The private name of the same method before Python 3.13.
    chain = tls._sslobj.get_verified_chain() or []  # type: ignore[attr-defined]  # noqa: SLF001
    return [certificate.public_bytes(_DER) for certificate in chain]


_DER = 2  # of the private `_ssl.Certificate`: ENCODING_DER
