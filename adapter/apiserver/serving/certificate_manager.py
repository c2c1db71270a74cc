"""Keeps the serving certificate current: our own from a Secret, with its CA in the APIServices, or given files.

Failures are logged, counted and retried; the certificate in use stays.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from adapter.apiserver.serving import certificates
from adapter.apiserver.serving.ca_bundle import CaBundlePublisher
from adapter.apiserver.serving.certificates import CertificateBundle, KeyPair
from adapter.apiserver.serving.secret_store import SecretStore
from adapter.apiserver.status import CertificateError
from adapter.kube.errors import Conflict, KubeError
from adapter.kube.session import Session
from adapter.runtime.backoff import exponential
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
_SECRET_SECONDS = 60.0
_FILES_SECONDS = 10.0
_FIRST_RETRY = 1.0
_MAX_TRIES = 5

Publish = Callable[[KeyPair], None]
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Source of the serving certificate.

    With `certificate` and `key` (files, from cert-manager or elsewhere) those are served and watched. Without them our
    own pair is kept in Secret `secret`, and its CA in the APIServices named by `api_services`.
    """

    namespace: str
    service: str
    secret: str
    api_services: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    round_seconds: float = _SECRET_SECONDS
    poll_seconds: float = _FILES_SECONDS

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names of the Service; the aggregator verifies the first."""
        name, namespace = self.service, self.namespace
        return (f"{name}.{namespace}.svc", f"{name}.{namespace}", name, f"{name}.{namespace}.svc.cluster.local")


class CertificateManager:
    """Calls `publish` with every new key pair to serve."""

    def __init__(
        self, api: Session, options: TlsOptions, metrics: Metrics, publish: Publish, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.current: KeyPair | None = None
        self._api = api
        self._options = options
        self._metrics = metrics
        self._publish = publish
        self._sleep = sleep
        self._store = SecretStore(api, options.namespace, options.secret)
        self._ca_publisher = CaBundlePublisher(api, options.api_services, options.namespace, options.service)
        self._files_version: object = None
        self._error = ""

    async def run(self) -> None:
        """Keep the certificate current until cancelled."""
        sync, pause = self.sync_secret, self._options.round_seconds
        if self._options.certificate is not None:
            sync, pause = self.sync_files, self._options.poll_seconds
        retries = 0
        while True:
            if await self._try(sync):
                retries = 0
                await self._sleep(pause)
            else:
                wait = exponential(retries, _FIRST_RETRY, pause)
                await self._sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311 - spreads replicas, guards nothing
                retries += 1

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
            lambda known, now: certificates.with_new_leaf(known, self._options.names, now)
        )
        self._serve(renewed.serving)

    async def sync_files(self) -> None:
        """Serve the files if they changed. Raises CertificateError."""
        files = await asyncio.to_thread(_changed_files, self._options, self._files_version)
        if files is not None:
            self._serve(files.pair)
            self._files_version = files.version

    async def _update_secret(
        self, change: Callable[[CertificateBundle, float], CertificateBundle]
    ) -> CertificateBundle:
        """Change the Secret's content and return it; on a conflict, start again from the other replica's content."""
        for _ in range(_MAX_TRIES):
            before, bundle = await self._store.read()
            now = self._api.now()
            desired = change(self._if_valid(bundle, now) or certificates.create_bundle(self._options.names, now), now)
            if desired == bundle:
                return bundle
            try:
                await self._store.write(before, desired)
            except Conflict:
                continue
            _log.info("serving_certificate_written", secret=self._options.secret)
            return desired
        raise CertificateError(f"other replicas changed Secret {self._options.secret} {_MAX_TRIES} times in a row")

    def _if_valid(self, bundle: CertificateBundle | None, now: float) -> CertificateBundle | None:
        try:
            return certificates.validated(bundle, now) if bundle is not None else None
        except CertificateError as error:
            _log.warning("serving_secret_unusable", secret=self._options.secret, error=str(error))
            return None

    def _serve(self, pair: KeyPair) -> None:
        if pair == self.current:
            return
        self._metrics.certificate_expiry.labels("serving").set(pair.expires_at)
        self.current = pair
        self._publish(pair)

    async def _try(self, sync: Callable[[], Awaitable[None]]) -> bool:
        try:
            await sync()
        except (KubeError, CertificateError, msgspec.MsgspecError, OSError, ValueError) as error:
            self._error = str(error)
            self._metrics.errors.labels("certificate").inc()
            _log.warning("serving_certificate_failed", error=str(error))
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Files:
    pair: KeyPair
    version: object


def _changed_files(options: TlsOptions, version: object) -> _Files | None:
    """The files' content, None if they have not changed. Raises CertificateError if the key does not fit."""
    if options.certificate is None or options.key is None:
        raise CertificateError("a certificate file needs its key file")
    stats = [path.stat() for path in (options.certificate, options.key)]
    current = [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats]
    if current == version:
        return None
    pair = KeyPair(options.certificate.read_text(), options.key.read_text())
    return _Files(certificates.verify_pair(pair), current)
