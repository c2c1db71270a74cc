"""Client certificates as clusters issue them: uses, intermediates."""

import datetime as dt
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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
        *names: str,
        uses: Iterable[x509.ObjectIdentifier] = (CLIENT,),
        authority: bool = False,
    ) -> "Holder":
        """A certificate with these common names."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _signed(_named(*names), key, self.certificate.subject, self.key, authority, tuple(uses))
        is_root = self.certificate.issuer == self.certificate.subject
        return Holder(made, key, () if is_root else (self.certificate, *self.above), self.folder)


def root(folder: Path, name: str = "kubernetes") -> Holder:
    """A root CA without key identifiers, as managed clouds have them."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Holder(_signed(_named(name), key, _named(name), key, True, ()), key, (), folder)


def _named(*names: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    authority: bool,
    uses: tuple[x509.ObjectIdentifier, ...],
) -> x509.Certificate:
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - day).not_valid_after(now + 30 * day)
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    if uses and not authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return builder.sign(by, hashes.SHA256())
