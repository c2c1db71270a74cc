"""Keeps the serving certificate: our own in a Secret with its authority in the APIServices, or files that are given.

No failure here ends anything: it is logged, counted and tried again, and what is served stays.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from adapter.apiserver.ports import Api
from adapter.apiserver.serving import certificates
from adapter.apiserver.serving.ca_bundle import CaBundlePublisher
from adapter.apiserver.serving.certificates import KeyPair, Stock
from adapter.apiserver.serving.secret_store import SecretStore
from adapter.apiserver.status import CertificateError
from adapter.kube.errors import Conflict, KubeError
from adapter.runtime.backoff import exponential
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
_ROUND_SECONDS = 60.0
_POLL_SECONDS = 10.0
_FIRST_RETRY = 1.0
_TRIES = 5

Publish = Callable[[KeyPair], None]
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Where the serving certificate comes from.

    With `certificate` and `key` (files; cert-manager's or any) those are served and watched; `authority` (a file) is
    then announced to the APIServices, if given. Without them our own pair is kept in the Secret `secret`.
    """

    namespace: str
    service: str
    secret: str
    api_services: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    round_seconds: float = _ROUND_SECONDS
    poll_seconds: float = _POLL_SECONDS

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names of the Service, the one that the aggregator verifies first."""
        name, namespace = self.service, self.namespace
        return (f"{name}.{namespace}.svc", f"{name}.{namespace}", name, f"{name}.{namespace}.svc.cluster.local")


class CertificateManager:
    """Publishes the pair to serve whenever there is another one; `now` is in epoch seconds."""

    def __init__(
        self, api: Api, options: TlsOptions, metrics: Metrics, publish: Publish, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.current: KeyPair | None = None
        self._api = api
        self._options = options
        self._metrics = metrics
        self._publish = publish
        self._sleep = sleep
        self._store = SecretStore(api, options.namespace, options.secret)
        self._announcer = CaBundlePublisher(api, options.api_services, options.namespace, options.service)
        self._files_seen: object = None
        self._fault = ""

    async def run(self) -> None:
        """Keep the certificate until cancelled."""
        given = self._options.certificate is not None
        once, pause = (self.look, self._options.poll_seconds) if given else (self.keep, self._options.round_seconds)
        retries = 0
        while True:
            if await self._succeeds(once):
                retries = 0
                await self._sleep(pause)
            else:
                wait = exponential(retries, _FIRST_RETRY, pause)
                await self._sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311 - spreads replicas, guards nothing
                retries += 1

    def check(self) -> str | None:
        """Why there is nothing to serve, None where there is."""
        if self.current is not None:
            return None
        return (
            f"there is no serving certificate: {self._fault}" if self._fault else "there is no serving certificate yet"
        )

    async def keep(self) -> None:
        """One round with our own pair: read or make it, announce its authority, renew what is due. Raises KubeError."""
        stock = await self._settled(certificates.with_new_authority)
        self._serve(stock.serving)
        self._metrics.certificate_expiry.labels("authority").set(stock.authority_expires_at)
        try:
            await self._announcer.announce(stock.authorities)
        except KubeError:
            if stock.is_current:  # an authority that is known already may go on to sign
                await self._renew()
            raise
        await self._renew()

    async def _renew(self) -> None:
        renewed = await self._settled(lambda known, now: certificates.with_new_leaf(known, self._options.names, now))
        self._serve(renewed.serving)

    async def look(self) -> None:
        """One look at the files: serve them if they changed, announce their authority. Raises CertificateError."""
        files = await asyncio.to_thread(_changed_files, self._options, self._files_seen)
        if files is not None:
            self._serve(files.pair)
            self._files_seen = files.seen
        if self._options.authority is not None:
            await self._announcer.announce(await asyncio.to_thread(self._options.authority.read_text))

    async def _settled(self, change: Callable[[Stock, float], Stock]) -> Stock:
        """The Secret's content after a change that all replicas agree on: who is late adopts what it finds."""
        for _ in range(_TRIES):
            before, stock = await self._store.read()
            now = self._api.now()
            wanted = change(self._usable(stock, now) or certificates.create(self._options.names, now), now)
            if wanted == stock:
                return stock
            try:
                await self._store.write(before, wanted)
            except Conflict:
                continue
            _log.info("serving_certificate_written", secret=self._options.secret)
            return wanted
        raise CertificateError(f"Secret {self._options.secret} changed under our hands {_TRIES} times")

    def _usable(self, stock: Stock | None, now: float) -> Stock | None:
        try:
            return certificates.judged(stock, now) if stock is not None else None
        except CertificateError as error:
            _log.warning("serving_secret_unusable", secret=self._options.secret, error=str(error))
            return None

    def _serve(self, pair: KeyPair) -> None:
        if pair == self.current:
            return
        self._metrics.certificate_expiry.labels("serving").set(pair.expires_at)
        self.current = pair
        self._publish(pair)

    async def _succeeds(self, once: Callable[[], Awaitable[None]]) -> bool:
        try:
            await once()
        except (KubeError, CertificateError, msgspec.MsgspecError, OSError, ValueError) as error:
            self._fault = str(error)
            self._metrics.errors.labels("certificate").inc()
            _log.warning("serving_certificate_failed", error=str(error))
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Files:
    pair: KeyPair
    seen: object


def _changed_files(options: TlsOptions, seen: object) -> _Files | None:
    """The files' content if they are not those already seen. Raises CertificateError for a pair that does not fit."""
    if options.certificate is None or options.key is None:
        raise CertificateError("a certificate file needs its key file")
    stats = [path.stat() for path in (options.certificate, options.key)]
    now_seen = [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats]
    if now_seen == seen:
        return None
    pair = KeyPair(options.certificate.read_text(), options.key.read_text())
    return _Files(certificates.check(pair), now_seen)
