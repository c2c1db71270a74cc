"""The serving certificate: our own CA and certificate in a Secret, with the CA in the APIServices, or given files.

Times are epoch seconds. A certificate is renewed after two thirds of its life; the CA lasts ten years, and is made
again where it would end before a new certificate, or the Secret is empty or unusable. Failures are logged, counted and
retried; the certificate in use stays.
"""

import asyncio
import base64
import datetime as dt
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.apiserver.refresh import Refresher
from adapter.apiserver.status import CertificateError
from adapter.kube.api import API_SERVICES, MERGE_PATCH, SECRETS
from adapter.kube.errors import Conflict, NotFound
from adapter.kube.objects import ApiService, KubeObject, ObjectMeta, ObjectReference
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings
from adapter.telemetry.metrics import Metrics

DAY = 86400.0
AUTHORITY_LIFE, LEAF_LIFE = 3650 * DAY, 90 * DAY
SECRET_SECONDS, FILES_SECONDS = 60.0, 10.0
_BACKDATED = 3600.0  # clients' clocks differ
_DEADLINE = 5.0
_CA_USAGE = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
"""Of a CA's key: digital signatures, certificates, revocation lists."""

Data = Mapping[str, bytes]
"""The data of the Secret: certificate and key of the server and of its CA (PEM). In JSON each is in base64."""

_log = structlog.get_logger(__name__)


class KeyPair(NamedTuple):
    """A certificate (PEM, with its chain) and its private key (PEM)."""

    certificate: bytes
    key: bytes

    @property
    def leaf(self) -> x509.Certificate:
        """The first certificate. Raises ValueError."""
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def expires_at(self) -> float:
        """Expiry of the first certificate."""
        return self.leaf.not_valid_after_utc.timestamp()


class _Secret(KubeObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, bytes] | None = None


class CertificateManager:
    """Keeps `current`, the key pair to serve, and its CA in `api_services`. `changed` is called with each change.

    `seconds`: how often Secret or files are read; `wake` does it at once.
    """

    def __init__(
        self,
        api: Session,
        settings: ServerSettings,
        metrics: Metrics,
        changed: Callable[[], None],
        *,
        seconds: float | None = None,
    ) -> None:
        self.current: KeyPair | None = None
        self._api, self._changed = api, changed
        self._tls, self.api_services = settings.tls, settings.api_services
        self._expiry = metrics.certificate_expiry
        is_secret = settings.tls.mode != "Files"
        sync, usual = (self.sync_secret, SECRET_SECONDS) if is_secret else (self.sync_files, FILES_SECONDS)
        failed = metrics.errors.labels("certificate").inc
        self._refresher = Refresher(sync, seconds or usual, "serving_certificate_failed", failed)
        self.run, self.wake = self._refresher.run, self._refresher.wake

    def check(self) -> str | None:
        """Why there is no certificate to serve, None if there is one."""
        error = self._refresher.error
        missing = f"there is no serving certificate{f': {error}' if error else ' yet'}"
        return missing if self.current is None else None

    async def sync_files(self) -> None:
        """Serve the files if they changed. Raises CertificateError and OSError."""
        files = Path(self._tls.cert_file), Path(self._tls.key_file)
        pair = KeyPair(*[await asyncio.to_thread(path.read_bytes) for path in files])
        if pair != self.current:
            await asyncio.to_thread(load_pair, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
            self._serve(pair)

    async def sync_secret(self) -> None:
        """Read our own pair, create or renew it where that is due, and publish its CA. Raises KubeError."""
        try:
            data = await self._current_data()
        except Conflict:  # another replica was faster: its pair is ours
            data = await self._current_data()
        serving, authority = pairs(data)
        self._serve(serving)
        self._expiry.labels("authority").set(authority.expires_at)
        await self._publish_ca(authority.certificate)

    def _serve(self, pair: KeyPair) -> None:
        if pair != self.current:
            self._expiry.labels("serving").set(pair.expires_at)
            self.current = pair
            self._changed()

    async def _current_data(self) -> Data:
        """The Secret's data, renewed where that is due. Raises KubeError; a lost race is a Conflict.

        Raises CertificateError if the Secret was deleted: the manifests create it, and our rights, which are for that
        one name, cannot include creating it again.
        """
        namespace, name = self._tls.namespace, self._tls.secret
        path = SECRETS.path(namespace, name)
        try:
            secret = msgspec.json.decode(await self._api.get(path, timeout=_DEADLINE), type=_Secret)
        except NotFound:
            missing = f"Secret {name} of namespace {namespace}, which keeps the serving certificate, does not exist"
            raise CertificateError(f"{missing}, and the server may not create it: apply the manifests again") from None
        before = secret.data or {}
        data = await asyncio.to_thread(renewed, before, self._tls.names, self._api.now())
        if data is not before:
            await self._patch(path, secret.metadata, data=data)
            _log.info("serving_certificate_written", secret=name)
        return data

    async def _publish_ca(self, authority: bytes) -> None:
        """Write the CA into the APIServices that lead to our Service, where it differs. Raises KubeError."""
        encoded = base64.b64encode(authority).decode()
        ours = ObjectReference(namespace=self._tls.namespace, name=self._tls.service)
        for name in self.api_services:
            path = API_SERVICES.path("", name)
            try:
                found = msgspec.json.decode(await self._api.get(path, timeout=_DEADLINE), type=ApiService)
            except NotFound:
                continue
            # The API server admits no insecureSkipTLSVerify beside a bundle.
            if found.spec.service == ours and found.spec.ca_bundle != encoded:
                await self._patch(path, found.metadata, spec={"caBundle": encoded, "insecureSkipTLSVerify": None})
                _log.info("apiservice_ca_written", apiservice=name)

    async def _patch(self, path: str, read: ObjectMeta, **fields: object) -> None:
        """Change fields of an object that was read before. Raises Conflict where it has changed since."""
        body = msgspec.json.encode({"metadata": {"resourceVersion": read.resource_version}, **fields})
        await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout=_DEADLINE)


def load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Serve the pair with this context. Raises CertificateError, for a key of another certificate too.

    Call it off the event loop: OpenSSL reads PEM texts from files only. On Linux that file is in memory.
    """
    is_linux = sys.platform == "linux"
    try:
        with open(os.memfd_create("serving"), "wb") if is_linux else tempfile.NamedTemporaryFile() as file:  # noqa: PTH123
            file.write(b"\n".join(pair))
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}" if is_linux else file.name)
    except (ssl.SSLError, ValueError, OSError) as error:
        raise CertificateError(f"the certificate and its private key cannot be used: {error}") from None


def pairs(data: Data) -> tuple[KeyPair, KeyPair]:
    """The serving pair and the CA of a Secret. Raises KeyError."""
    return KeyPair(data["tls.crt"], data["tls.key"]), KeyPair(data["ca.crt"], data["ca.key"])


def renewed(data: Data, names: Sequence[str], now: float) -> Data:
    """The Secret's data while they can be served; else with a new serving certificate, of a new CA if it is unusable.

    `names`: the DNS names of the serving certificate, the first one its subject. Reads no file but in memory.
    """
    try:
        if data:  # in the manifests it is empty
            serving, authority = pairs(data)
            for pair in (serving, authority):
                load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
            serving.leaf.verify_directly_issued_by(authority.leaf)
            known = serving.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            has_names = set(names) <= set(known.get_values_for_type(x509.DNSName))
            have_begun = now >= max(pair.leaf.not_valid_before_utc.timestamp() for pair in (serving, authority))
            if have_begun and has_names and now < serving.expires_at - LEAF_LIFE / 3:
                return data
            if have_begun and now + LEAF_LIFE < authority.expires_at:
                return _issued(authority, names, now)
    except (CertificateError, KeyError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        _log.warning("serving_secret_unusable", error=str(error) or type(error).__name__)
    # Each CA has its own subject, so that no client verifies a chain against another CA's key.
    usage = (x509.BasicConstraints(ca=True, path_length=0), _CA_USAGE)
    return _issued(_signed(f"effective-load-ca@{int(now)}", None, now, AUTHORITY_LIFE, *usage), names, now)


def _issued(authority: KeyPair, names: Sequence[str], now: float) -> Data:
    """The data with the CA and a new certificate of it. Raises ValueError and TypeError for a key that cannot sign."""
    extensions = (
        x509.BasicConstraints(ca=False, path_length=None),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName([x509.DNSName(name) for name in names]),
    )
    serving = _signed(names[0][:64], authority, now, LEAF_LIFE, *extensions)
    return dict(zip(("tls.crt", "tls.key", "ca.crt", "ca.key"), (*serving, *authority), strict=True))


def _signed(
    common_name: str, issuer: KeyPair | None, now: float, life: float, *extensions: x509.ExtensionType
) -> KeyPair:
    """A new certificate with its key; without an issuer it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    signing: Any = key if issuer is None else serialization.load_pem_private_key(issuer.key, password=None)
    begin, end = (dt.datetime.fromtimestamp(int(at), dt.UTC) for at in (now - _BACKDATED, now + life))
    by, serial = subject if issuer is None else issuer.leaf.subject, x509.random_serial_number()
    builder = x509.CertificateBuilder(by, subject, key.public_key(), serial, begin, end)
    identifiers = (
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
    )
    for extension in (*identifiers, *extensions):
        is_critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(extension, critical=is_critical)
    certificate = builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(certificate, key.private_bytes(*pem))
