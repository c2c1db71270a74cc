"""The serving certificate: our own CA and certificate in a Secret, with the CA in the APIServices, or given files.

Times are epoch seconds. A certificate is renewed after two thirds of its life. A CA that would end before a new
certificate does, after nearly ten years, is replaced together with its certificate. Failures are logged, counted and
retried; the certificate in use stays.
"""

import asyncio
import base64
import binascii
import datetime as dt
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.apiserver.status import CertificateError
from adapter.kube.api import API_SERVICES, JSON, MERGE_PATCH, SECRETS
from adapter.kube.errors import Conflict, Forbidden, KubeError, NotFound
from adapter.kube.objects import ApiService, Secret, ServiceReference
from adapter.kube.session import Session
from adapter.runtime.backoff import exponential
from adapter.settings.server import ServerSettings, Tls
from adapter.telemetry.metrics import Metrics

DAY = 86400.0
AUTHORITY_LIFE = 10 * 365 * DAY
LEAF_LIFE = 90 * DAY
SECRET_SECONDS, FILES_SECONDS = 60.0, 10.0
"""Between two readings of the Secret, and of the files."""
_BACKDATED = 3600.0  # clients' clocks differ
_FIRST_RETRY = 1.0
_DEADLINE = 5.0
_FIELDS = ("tls.crt", "tls.key", "ca.crt", "ca.key")
_CERT_MANAGER_ANNOTATIONS = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
)

_log = structlog.get_logger(__name__)
Sleep = Callable[[float], Awaitable[None]]


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
    """The Secret's content: the serving pair, and the CA that issued it."""

    serving: KeyPair
    authority: KeyPair


class CertificateManager:
    """Calls `publish` with every new key pair to serve. `seconds`: how often Secret or files are read."""

    def __init__(
        self,
        api: Session,
        settings: ServerSettings,
        metrics: Metrics,
        publish: Callable[[KeyPair], None],
        *,
        seconds: float | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.current: KeyPair | None = None
        self._api = api
        self._tls = tls = settings.tls
        self._seconds = seconds or (FILES_SECONDS if tls.mode == "Files" else SECRET_SECONDS)
        self._metrics = metrics
        self._publish = publish
        self._sleep = sleep
        self._api_services = settings.api_services
        self._left_alone: set[str] = set()
        self._published_elsewhere = asyncio.Event()
        self._files_version: object = None
        self._error = ""

    async def run(self) -> None:
        """Keep the certificate current until cancelled."""
        sync = self.sync_files if self._tls.mode == "Files" else self.sync_secret
        retries = 0
        while True:
            self._published_elsewhere.clear()
            try:
                await sync()
            except (KubeError, CertificateError, msgspec.MsgspecError, OSError, ValueError) as error:
                self._error = str(error)
                self._metrics.errors.labels("certificate").inc()
                _log.warning("serving_certificate_failed", error=str(error))
                spread = random.uniform(0.8, 1.2)  # noqa: S311 - spreads replicas, guards nothing
                seconds = exponential(retries, _FIRST_RETRY, self._seconds) * spread
                retries += 1
            else:
                seconds, retries = self._seconds, 0
            ends = [asyncio.ensure_future(one) for one in (self._sleep(seconds), self._published_elsewhere.wait())]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()

    def publish_in(self, api_services: tuple[str, ...]) -> None:
        """Publish the CA in these APIServices from now on, and at once where they are others than before."""
        if api_services != self._api_services:
            self._api_services = api_services
            self._published_elsewhere.set()

    def check(self) -> str | None:
        """Why there is no certificate to serve, None if there is one."""
        if self.current is not None:
            return None
        return (
            f"there is no serving certificate: {self._error}" if self._error else "there is no serving certificate yet"
        )

    async def sync_secret(self) -> None:
        """Read our own pair, create or renew it where that is due, and publish its CA. Raises KubeError."""
        try:
            bundle = await self._current_bundle()
        except Conflict:  # another replica was faster: its pair is ours
            bundle = await self._current_bundle()
        self._serve(bundle.serving)
        self._metrics.certificate_expiry.labels("authority").set(bundle.authority.expires_at)
        await self._publish_ca(bundle.authority.certificate)

    async def sync_files(self) -> None:
        """Serve the files if they changed. Raises CertificateError."""
        files = await asyncio.to_thread(_changed_files, self._tls, self._files_version)
        if files is not None:
            self._serve(files[0])
            self._files_version = files[1]

    def _serve(self, pair: KeyPair) -> None:
        if pair == self.current:
            return
        self._metrics.certificate_expiry.labels("serving").set(pair.expires_at)
        self.current = pair
        self._publish(pair)

    async def _current_bundle(self) -> CertificateBundle:
        """The Secret's content, renewed where that is due. Raises KubeError; a lost race is a Conflict."""
        before: Secret | None = None
        bundle: CertificateBundle | None = None
        try:
            body = await self._api.get(SECRETS.path(self._tls.namespace, self._tls.secret), timeout=_DEADLINE)
            before = msgspec.json.decode(body, type=Secret)
            data = before.data or {}
            texts = [base64.b64decode(data[name], validate=True).decode() for name in _FIELDS]
            bundle = CertificateBundle(KeyPair(texts[0], texts[1]), KeyPair(texts[2], texts[3]))
        except NotFound:
            pass
        except (KeyError, binascii.Error, UnicodeDecodeError):
            _log.info("serving_secret_incomplete", secret=self._tls.secret)
        now = self._api.now()
        try:
            valid = bundle and validated(bundle, now)
        except CertificateError as error:
            _log.warning("serving_secret_unusable", secret=self._tls.secret, error=str(error))
            valid = None
        names = self._tls.names
        desired = with_new_leaf(valid, names, now) if valid is not None else create_bundle(names, now)
        if desired != bundle:
            await self._write(before, desired)
            _log.info("serving_certificate_written", secret=self._tls.secret)
        return desired

    async def _write(self, before: Secret | None, bundle: CertificateBundle) -> None:
        """Replace the content read before. Raises Conflict if another replica has written since.

        Raises CertificateError if the Secret was deleted: the manifests create it, and our rights, which are for that
        one name, do not include creating it again.
        """
        namespace, name = self._tls.namespace, self._tls.secret
        if before is None:
            metadata = {"name": name, "namespace": namespace}
            secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}
            method, path, content_type = "POST", SECRETS.collection(namespace), JSON
        else:  # a merge patch keeps the type and the labels that a manifest gave it
            secret = {"metadata": {"resourceVersion": before.metadata.resource_version}}
            method, path, content_type = "PATCH", SECRETS.path(namespace, name), MERGE_PATCH
        texts = (bundle.serving.certificate, bundle.serving.key, bundle.authority.certificate, bundle.authority.key)
        encoded = (base64.b64encode(text.encode()).decode() for text in texts)
        body = msgspec.json.encode({**secret, "data": dict(zip(_FIELDS, encoded, strict=True))})
        try:
            await self._api.request(method, path, body=body, content_type=content_type, timeout=_DEADLINE)
        except Forbidden:
            if before is None:
                raise CertificateError(
                    f"Secret {name} of namespace {namespace}, which keeps the serving certificate, does not exist, and "
                    "the server may not create it: apply the manifests again"
                ) from None
            raise

    async def _publish_ca(self, bundle: str) -> None:
        """Write the PEM bundle into the APIServices of our Service where it differs. Raises KubeError.

        Those that do not exist, or that cert-manager keeps, are left alone.
        """
        encoded = base64.b64encode(bundle.encode()).decode()
        ours = ServiceReference(namespace=self._tls.namespace, name=self._tls.service)
        for name in self._api_services:
            path = API_SERVICES.path("", name)
            try:
                api_service = msgspec.json.decode(await self._api.get(path, timeout=_DEADLINE), type=ApiService)
            except NotFound:
                continue
            current, metadata, reason = api_service.spec, api_service.metadata, ""
            if current.service != ours:
                reason = "it points at another Service"
            elif any(key in _CERT_MANAGER_ANNOTATIONS for key in metadata.annotations or {}):
                reason = "cert-manager keeps its caBundle"
            if reason and name not in self._left_alone:
                _log.info("apiservice_left_alone", apiservice=name, reason=reason)
            (self._left_alone.add if reason else self._left_alone.discard)(name)
            if reason or (current.ca_bundle == encoded and not current.insecure_skip_tls_verify):
                continue
            spec: dict[str, Any] = {"caBundle": encoded}
            if current.insecure_skip_tls_verify:  # the two exclude each other
                spec["insecureSkipTLSVerify"] = None
            body = msgspec.json.encode({"metadata": {"resourceVersion": metadata.resource_version}, "spec": spec})
            await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout=_DEADLINE)
            _log.info("apiservice_ca_written", apiservice=name)


def _changed_files(tls: Tls, version: object) -> tuple[KeyPair, object] | None:
    """The files' content and version, None if that has not changed. Raises CertificateError if the key does not fit."""
    certificate, key = Path(tls.cert_file), Path(tls.key_file)
    stats = [path.stat() for path in (certificate, key)]
    current = [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats]
    if current == version:
        return None
    return verify_pair(KeyPair(certificate.read_text(), key.read_text())), current


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
    return CertificateBundle(_leaf(authority, key, list(names), now), KeyPair(_pem(authority), _key_pem(key)))


def validated(bundle: CertificateBundle, now: float) -> CertificateBundle:
    """Return the bundle if it can be served. Raises CertificateError with the reason."""
    verify_pair(bundle.serving)
    verify_pair(bundle.authority)
    try:
        bundle.serving.leaf.verify_directly_issued_by(bundle.authority.leaf)
    except (ValueError, TypeError, InvalidSignature):
        raise CertificateError("the CA did not issue the serving certificate") from None
    if now > bundle.authority.expires_at - LEAF_LIFE:
        raise CertificateError("the CA ends before a new certificate would")
    return bundle


def with_new_leaf(bundle: CertificateBundle, names: Iterable[str], now: float) -> CertificateBundle:
    """The bundle with a new serving certificate, if the present one is due or lacks a name."""
    wanted, leaf = list(names), bundle.serving.leaf
    begin, end = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    if now < begin + (end - begin) * 2 / 3 and set(wanted) <= set(dns_names(leaf)):
        return bundle
    return replace(bundle, serving=_leaf(bundle.authority.leaf, _private(bundle.authority.key), wanted, now))


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
    builder = _builder(_name(names[0][:64]), authority.subject, key.public_key(), now, LEAF_LIFE)
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
