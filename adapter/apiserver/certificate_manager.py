"""Keeps the serving certificate current: our own from a Secret, with its CA in the APIServices, or given files.

Failures are logged, counted and retried; the certificate in use stays.
"""

import asyncio
import base64
import binascii
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from adapter.apiserver import certificates
from adapter.apiserver.certificates import CertificateBundle, KeyPair
from adapter.apiserver.status import CertificateError
from adapter.kube.api import API_SERVICES, JSON, MERGE_PATCH, SECRETS
from adapter.kube.errors import Conflict, Forbidden, KubeError, NotFound
from adapter.kube.objects import ApiService, Secret, ServiceReference
from adapter.kube.session import Session
from adapter.runtime.backoff import exponential
from adapter.settings.server import ServerSettings, Tls
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
SECRET_SECONDS = 60.0
FILES_SECONDS = 10.0
_FIRST_RETRY = 1.0
_MAX_TRIES = 5

Publish = Callable[[KeyPair], None]
Sleep = Callable[[float], Awaitable[None]]

_FIELDS = ("tls.crt", "tls.key", "ca.crt", "ca.key")

_DEADLINE = 5.0
_CERT_MANAGER_ANNOTATIONS = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
)


class CertificateManager:
    """Calls `publish` with every new key pair to serve. `seconds`: how often Secret or files are read."""

    def __init__(
        self,
        api: Session,
        settings: ServerSettings,
        metrics: Metrics,
        publish: Publish,
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
        self._store = SecretStore(api, tls.namespace, tls.secret)
        self._ca_publisher = CaBundlePublisher(api, settings.api_services, tls.namespace, tls.service)
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
        if api_services != self._ca_publisher.names:
            self._ca_publisher.names = api_services
            self._published_elsewhere.set()

    def check(self) -> str | None:
        """Why there is no certificate to serve, None if there is one."""
        if self.current is not None:
            return None
        return (
            f"there is no serving certificate: {self._error}" if self._error else "there is no serving certificate yet"
        )

    async def sync_secret(self) -> None:
        """Read or create our own pair, publish its CA, renew certificates that are due. Raises KubeError."""
        bundle = await self._update_secret(certificates.with_new_authority)
        self._serve(bundle.serving)
        self._metrics.certificate_expiry.labels("authority").set(bundle.ca_expires_at)
        try:
            await self._ca_publisher.publish(bundle.ca_certificates)
        except KubeError:
            if bundle.is_current:  # a CA that was published earlier may go on signing
                await self._renew()
            raise
        await self._renew()

    async def _renew(self) -> None:
        renewed = await self._update_secret(
            lambda certificates_now, now: certificates.with_new_leaf(certificates_now, self._tls.names, now)
        )
        self._serve(renewed.serving)

    async def sync_files(self) -> None:
        """Serve the files if they changed. Raises CertificateError."""
        files = await asyncio.to_thread(_changed_files, self._tls, self._files_version)
        if files is not None:
            self._serve(files[0])
            self._files_version = files[1]

    async def _update_secret(
        self, change: Callable[[CertificateBundle, float], CertificateBundle]
    ) -> CertificateBundle:
        """Change the Secret's content and return it; on a conflict, start again from the other replica's content."""
        for _ in range(_MAX_TRIES):
            before, bundle = await self._store.read()
            now = self._api.now()
            try:
                valid = bundle and certificates.validated(bundle, now)
            except CertificateError as error:
                _log.warning("serving_secret_unusable", secret=self._tls.secret, error=str(error))
                valid = None
            desired = change(valid or certificates.create_bundle(self._tls.names, now), now)
            if desired == bundle:
                return bundle
            try:
                await self._store.write(before, desired)
            except Conflict:
                continue
            _log.info("serving_certificate_written", secret=self._tls.secret)
            return desired
        raise CertificateError(f"other replicas changed Secret {self._tls.secret} {_MAX_TRIES} times in a row")

    def _serve(self, pair: KeyPair) -> None:
        if pair == self.current:
            return
        self._metrics.certificate_expiry.labels("serving").set(pair.expires_at)
        self.current = pair
        self._publish(pair)


def _changed_files(tls: Tls, version: object) -> tuple[KeyPair, object] | None:
    """The files' content and version, None if that has not changed. Raises CertificateError if the key does not fit."""
    certificate, key = Path(tls.cert_file), Path(tls.key_file)
    stats = [path.stat() for path in (certificate, key)]
    current = [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats]
    if current == version:
        return None
    return certificates.verify_pair(KeyPair(certificate.read_text(), key.read_text())), current


class SecretStore:
    """Reads and writes the Secret. Raises KubeError; a lost race is a Conflict."""

    def __init__(self, api: Session, namespace: str, name: str) -> None:
        self._api = api
        self._collection = SECRETS.collection(namespace)
        self._path = SECRETS.path(namespace, name)
        self._metadata = {"name": name, "namespace": namespace}

    async def read(self) -> tuple[Secret | None, CertificateBundle | None]:
        """The Secret as a handle for `write`, and its certificates; None for a Secret or content that is missing."""
        try:
            body = await self._api.get(self._path, timeout=_DEADLINE)
        except NotFound:
            return None, None
        secret = msgspec.json.decode(body, type=Secret)
        data = secret.data or {}
        try:
            texts = [base64.b64decode(data[name], validate=True).decode() for name in _FIELDS]
        except (KeyError, binascii.Error, UnicodeDecodeError):
            return secret, None
        certificate, key, ca_certificates, ca_key = texts
        return secret, CertificateBundle(KeyPair(certificate, key), ca_certificates, ca_key)

    async def write(self, before: Secret | None, bundle: CertificateBundle) -> None:
        """Replace the content read before. Raises Conflict if another replica has written since.

        Raises CertificateError if the Secret was deleted: the manifests create it, and our rights, which are for that
        one name, do not include creating it again.
        """
        if before is None:
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": self._metadata}
            method, path, content_type = "POST", self._collection, JSON
        else:  # a merge patch keeps the type and the labels that a manifest gave it
            secret = {"metadata": {"resourceVersion": before.metadata.resource_version}}
            method, path, content_type = "PATCH", self._path, MERGE_PATCH
        texts = (bundle.serving.certificate, bundle.serving.key, bundle.ca_certificates, bundle.ca_key)
        encoded = (base64.b64encode(text.encode()).decode() for text in texts)
        body = msgspec.json.encode({**secret, "data": dict(zip(_FIELDS, encoded, strict=True))})
        try:
            await self._api.request(method, path, body=body, content_type=content_type, timeout=_DEADLINE)
        except Forbidden:
            if before is None:
                raise CertificateError(
                    f"Secret {self._metadata['name']} of namespace {self._metadata['namespace']}, which keeps the "
                    "serving certificate, does not exist, and the server may not create it: apply the manifests again"
                ) from None
            raise


class CaBundlePublisher:
    """Keeps the CA bundle in the APIServices `names` that point at our Service, unless cert-manager manages it."""

    def __init__(self, api: Session, names: tuple[str, ...], namespace: str, service: str) -> None:
        self._api = api
        self.names = names
        self._service = ServiceReference(namespace=namespace, name=service)
        self._left_alone: set[str] = set()

    async def publish(self, bundle: str) -> None:
        """Write the PEM bundle where it differs; APIServices that do not exist are skipped. Raises KubeError."""
        encoded = base64.b64encode(bundle.encode()).decode()
        for name in self.names:
            try:
                body = await self._api.get(API_SERVICES.path("", name), timeout=_DEADLINE)
            except NotFound:
                continue
            api_service = msgspec.json.decode(body, type=ApiService)
            current, metadata, reason = api_service.spec, api_service.metadata, ""
            if current.service != self._service:
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
            path = API_SERVICES.path("", name)
            await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout=_DEADLINE)
            _log.info("apiservice_ca_written", apiservice=name)
