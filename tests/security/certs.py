"""Client certificates as clusters issue them: subjects with organizations, uses, intermediates."""

import datetime as dt
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = dt.timedelta(days=1)
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass
class Holder:
    """A certificate with its key and its chain. A CA issues others."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    above: tuple[x509.Certificate, ...] = ()
    folder: Path | None = field(default=None, repr=False)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def fingerprint(self) -> str:
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    def configure_cert(self, context: ssl.SSLContext) -> None:
        """Present this certificate and its chain, as `trustme.LeafCert` does."""
        assert self.folder is not None
        file = self.folder / f"{self.certificate.serial_number}.pem"
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = [one.public_bytes(serialization.Encoding.PEM) for one in (self.certificate, *self.above)]
        file.write_bytes(b"".join([key, *chain]))
        context.load_cert_chain(file)

    def issue(
        self,
        name: str,
        groups: Iterable[str] = (),
        *,
        uses: Iterable[x509.ObjectIdentifier] = (CLIENT,),
        authority: bool = False,
        until: dt.datetime | None = None,
    ) -> "Holder":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject += [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
        end = until or dt.datetime.now(dt.UTC) + 30 * _DAY
        made = _signed(x509.Name(subject), key, self.certificate.subject, self.key, end, authority, tuple(uses))
        above = (
            (self.certificate, *self.above) if self.above or self.certificate.issuer != self.certificate.subject else ()
        )
        return Holder(made, key, above, self.folder)


def root(folder: Path, name: str = "kubernetes", key: ec.EllipticCurvePrivateKey | None = None) -> Holder:
    """A root CA without key identifiers, as managed clouds have them."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return Holder(_signed(subject, key, subject, key, dt.datetime.now(dt.UTC) + 60 * _DAY, True, ()), key, (), folder)


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    end: dt.datetime,
    authority: bool,
    uses: tuple[x509.ObjectIdentifier, ...],
) -> x509.Certificate:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(dt.datetime.now(dt.UTC) - _DAY)
    builder = builder.not_valid_after(end)
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    if uses and not authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return builder.sign(by, hashes.SHA256())
