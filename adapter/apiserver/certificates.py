"""Creates, validates and renews our own CA and serving certificate. Pure except for the random keys.

Times are epoch seconds. A certificate is renewed after two thirds of its lifetime. A new CA is published beside the old
one first; it signs the serving certificate only after that.
"""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.apiserver.status import CertificateError

DAY = 86400.0
AUTHORITY_LIFE = 10 * 365 * DAY
LEAF_LIFE = 90 * DAY
_BACKDATED = 3600.0  # clients' clocks differ


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate (PEM, with its chain) and its private key (PEM)."""

    certificate: str
    key: str

    @property
    def leaf(self) -> x509.Certificate:
        """The first certificate. Raises CertificateError."""
        return load_certificates(self.certificate)[0]

    @property
    def expires_at(self) -> float:
        """Expiry of the first certificate."""
        return self.leaf.not_valid_after_utc.timestamp()


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """The Secret's content: the serving pair, the published CA certificates (newest first), and the newest CA's key."""

    serving: KeyPair
    ca_certificates: str
    ca_key: str

    @property
    def is_current(self) -> bool:
        """Whether the newest CA issued the serving certificate."""
        return _is_issued(self.serving.leaf, load_certificates(self.ca_certificates)[0])

    @property
    def ca_expires_at(self) -> float:
        """Expiry of the newest CA."""
        return load_certificates(self.ca_certificates)[0].not_valid_after_utc.timestamp()


def load_certificates(pem: str) -> list[x509.Certificate]:
    """Parse the certificates of a PEM text, at least one. Raises CertificateError."""
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise CertificateError(f"no certificate can be read: {error}") from None


def verify_pair(pair: KeyPair) -> KeyPair:
    """Return the pair if its key fits its certificate. Raises CertificateError."""
    if _public(_private(pair.key)) != _public(pair.leaf):
        raise CertificateError("the private key does not belong to the certificate")
    return pair


def create_bundle(names: Iterable[str], now: float) -> CertificateBundle:
    """A new CA, and a serving certificate issued by it for these DNS names (the first is the subject)."""
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(key, now)
    return CertificateBundle(_leaf(authority, key, list(names), now), _pem(authority), _key_pem(key))


def validated(bundle: CertificateBundle, now: float) -> CertificateBundle:
    """Return the bundle if it can be served. Raises CertificateError with the reason."""
    verify_pair(bundle.serving)
    authorities = load_certificates(bundle.ca_certificates)
    if _public(_private(bundle.ca_key)) != _public(authorities[0]):
        raise CertificateError("the CA's key does not belong to its certificate")
    if not any(_is_issued(bundle.serving.leaf, authority) for authority in authorities):
        raise CertificateError("none of the CA certificates issued the serving certificate")
    if now >= bundle.ca_expires_at:
        raise CertificateError("the CA has expired")
    return bundle


def with_new_authority(bundle: CertificateBundle, now: float) -> CertificateBundle:
    """The bundle without expired CAs, and with a new CA beside the old one if that is due for renewal."""
    published = load_certificates(bundle.ca_certificates)
    authorities = [authority for authority in published if now < authority.not_valid_after_utc.timestamp()]
    if authorities and not _is_due(authorities[0], now):
        kept = "".join(map(_pem, authorities))
        return bundle if kept == bundle.ca_certificates else replace(bundle, ca_certificates=kept)
    key = ec.generate_private_key(ec.SECP256R1())
    fresh = _authority(key, now)
    return replace(bundle, ca_certificates="".join(map(_pem, [fresh, *authorities])), ca_key=_key_pem(key))


def with_new_leaf(bundle: CertificateBundle, names: Iterable[str], now: float) -> CertificateBundle:
    """The bundle with a new serving certificate from the newest CA, if the present one is due or does not fit."""
    wanted = list(names)
    leaf = bundle.serving.leaf
    if not _is_due(leaf, now) and bundle.is_current and set(wanted) <= set(dns_names(leaf)):
        return bundle
    authority = load_certificates(bundle.ca_certificates)[0]
    return replace(bundle, serving=_leaf(authority, _private(bundle.ca_key), wanted, now))


def dns_names(certificate: x509.Certificate) -> list[str]:
    """The certificate's DNS names."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return extension.value.get_values_for_type(x509.DNSName)


def _authority(key: ec.EllipticCurvePrivateKey, now: float) -> x509.Certificate:
    # Each CA has its own subject, so that no client verifies a chain against another CA's key.
    subject = _name(f"effective-load-ca@{int(now)}")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _leaf(
    authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, names: list[str], now: float
) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    life = min(LEAF_LIFE, authority.not_valid_after_utc.timestamp() - now)
    builder = _builder(_name(names[0][:64]), authority.subject, key.public_key(), now, life)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False),
        (issuer, False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    return KeyPair(_pem(builder.sign(authority_key, hashes.SHA256())), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: float, life: float
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number())
    begin, end = (dt.datetime.fromtimestamp(int(at), dt.UTC) for at in (now - _BACKDATED, now + life))
    builder = builder.not_valid_before(begin).not_valid_after(end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


def _private(pem: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"the private key cannot be read: {error}") from None
    return key  # type: ignore[return-value]  # a given pair may be RSA; only its public key is used


def _public(holder: x509.Certificate | ec.EllipticCurvePrivateKey) -> bytes:
    """The public key of a certificate or of a private key."""
    return holder.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _is_issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_due(certificate: x509.Certificate, now: float) -> bool:
    begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    return now >= begin + (end - begin) * 2 / 3
