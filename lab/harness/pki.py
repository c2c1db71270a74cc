"""Certificates of a temporary cluster: authorities, serving and client certificates, the service accounts' key."""

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key as PEM, and the paths of their files."""

    certificate: bytes
    key: bytes
    cert_file: Path
    key_file: Path


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(common: str, groups: Iterable[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class Authority:
    """A certificate authority that writes the certificates it issues into one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._self_signed()
        self.certificate = self._certificate.public_bytes(serialization.Encoding.PEM)
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self.certificate)
        self.key_file = write_private(folder / f"{name}.key", _key_pem(self._key))

    def _builder(self, subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(_name(self.name)).public_key(public)
        builder = builder.serial_number(x509.random_serial_number())
        # A day back, because the clocks of a machine and its container may differ.
        builder = builder.not_valid_before(now - DAY).not_valid_after(now + 30 * DAY)
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)

    def _self_signed(self) -> x509.Certificate:
        # Signature, commitment, three of encipherment and agreement, certificates, CRLs, two more.
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = self._builder(_name(self.name), self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())

    def issue(
        self,
        common: str,
        *,
        groups: Iterable[str] = (),
        hosts: Iterable[str] = (),
        file: str | None = None,
        mutual: bool = False,
    ) -> Pair:
        """Issues a certificate for the common name: a serving one if it has hosts, else a client's; `mutual`: both."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [_alternative(host) for host in hosts]
        serving, client = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
        purposes = [serving, client] if mutual else [serving if names else client]
        builder = self._builder(_name(common, groups), key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return self._write(file or f"{self.name}-{common}".replace(":", "-").replace("/", "-"), certificate, key)

    def _write(self, stem: str, certificate: bytes, key: ec.EllipticCurvePrivateKey) -> Pair:
        cert_file = self.folder / f"{stem}.crt"
        cert_file.write_bytes(certificate)
        pem = _key_pem(key)
        return Pair(certificate, pem, cert_file, write_private(self.folder / f"{stem}.key", pem))


def write_private(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


class ClusterPki:
    """All keys of one control plane."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._clients: dict[tuple[str, ...], Pair] = {}
        self.cluster = Authority(folder, "cluster-ca")
        self.front_proxy = Authority(folder, "front-proxy-ca")
        self.front_proxy_client = self.front_proxy.issue("front-proxy-client")
        self.serving = self.cluster.issue(
            "serving", hosts=["127.0.0.1", "localhost", "kubernetes", "kubernetes.default"]
        )
        account = ec.generate_private_key(ec.SECP256R1())
        public = account.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.account_key = write_private(folder / "service-account.key", _key_pem(account))
        self.account_public = write_private(folder / "service-account.pub", public)

    def client(self, user: str, *groups: str) -> Pair:
        """A client certificate for a user; repeated calls return the same one."""
        identity = (user, *groups)
        if identity not in self._clients:
            stem = "client-" + "-".join(identity).replace(":", "_").replace("/", "_")
            self._clients[identity] = self.cluster.issue(user, groups=groups, file=stem)
        return self._clients[identity]
