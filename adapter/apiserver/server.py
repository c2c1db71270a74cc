"""The aggregated API server: connects its parts and keeps TLS, front-proxy configuration and heartbeat up to date."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from aiohttp import web

from adapter.apiserver.authentication import Authenticator, RequestheaderConfig, RequestheaderWatch
from adapter.apiserver.authorization import Authorizer, ReviewClient
from adapter.apiserver.certificates import CertificateManager, KeyPair
from adapter.apiserver.discovery import Discovery
from adapter.apiserver.door import Door, server_context
from adapter.apiserver.handler import Handler
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.status import CertificateError
from adapter.apiserver.upstream import Upstreams
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings
from adapter.snapshot import Key, SnapshotStore
from adapter.telemetry.health import Check
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
LINE_BYTES = 64 * 1024
"""Limit for one header, and for the request line: a selector of a few thousand values."""
MOST_HEADERS = 2048
"""A user's identity may have hundreds of groups."""
IDLE_SECONDS = 90.0
"""As long as the API server keeps an idle connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds between readings of the front proxy's configuration, and of the certificate; None: its usual time.

    `grace`: time for requests in flight at shutdown.
    """

    requestheader: float = 5.0
    certificate: float | None = None
    grace: float = 5.0


class ApiServer:
    """Serves metrics from the snapshots to the front proxy.

    `stale_reason` returns why a policy must not be decided on, or None; with an empty name it answers for all policies
    of the namespace. `unsynced_reason` says which caches are still being filled. `upstreams` answer the metrics that
    are not ours; None: nobody does. `ready` and `warnings` are checks for `/readyz`.
    """

    def __init__(
        self,
        *,
        snapshots: SnapshotStore,
        session: Session,
        scales: ScaleReader,
        stale_reason: Callable[[Key], str | None],
        unsynced_reason: Callable[[], str],
        metrics: Metrics,
        settings: ServerSettings,
        timing: Timing = Timing(),
        upstreams: Upstreams | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.started = asyncio.Event()
        self._grace_seconds = timing.grace
        self._errors = metrics.errors
        self._tls_changed = asyncio.Event()
        self.in_use: tuple[KeyPair, str] | None = None
        self._requestheader = RequestheaderWatch(session, metrics, self._apply_config, seconds=timing.requestheader)
        reviews = ReviewClient(session)
        self._authenticator = Authenticator(metrics, wall, monotonic)
        self._authorizer = Authorizer(reviews, metrics, monotonic)
        self.certificates = CertificateManager(
            session, settings, metrics, lambda _: self._tls_changed.set(), seconds=timing.certificate
        )
        self.door = Door(settings.address, settings.port)
        self.handler = Handler(
            self.door.tls_of,
            self._authenticator,
            self._authorizer,
            MetricsProvider(snapshots, scales, stale_reason, unsynced_reason, session.now),
            Discovery(upstreams.listed) if upstreams else Discovery(),
            metrics,
            external=settings.external_metrics,
            upstreams=upstreams,
        )
        self.ready: dict[str, Check] = {
            "caches": lambda: None if snapshots.current.synced else unsynced_reason(),
            "certificate": self.certificates.check,
            "authentication": self._requestheader.check,
            "tls": self._tls_check,
        }
        self.warnings: dict[str, Check] = {"authorization": reviews.check}

    def apply_settings(self, settings: ServerSettings) -> None:
        """Serve external metrics or not, and publish the CA in the APIServices, as these say; the rest stays."""
        self.handler.external = settings.external_metrics
        self.certificates.publish_in(settings.api_services)

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self.door.port

    async def run(self) -> None:
        """Serve until cancelled; then stop accepting and give requests in flight `timing.grace` seconds."""
        http = web.Server(
            self.handler,
            handler_cancellation=True,
            access_log=None,
            max_headers=MOST_HEADERS,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            keepalive_timeout=IDLE_SECONDS,
        )
        try:
            self.door.listen()
            self.started.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.door.run(http), name="door")
                tasks.create_task(self.certificates.run(), name="certificate")
                tasks.create_task(self._requestheader.run(), name="front proxy")
                tasks.create_task(self._follow_tls(), name="tls")
        finally:
            http.pre_shutdown()
            await http.shutdown(self._grace_seconds)
            await self.door.end_connections()
            await self._authorizer.close()

    def _apply_config(self, config: RequestheaderConfig) -> None:
        self._authenticator.config = config
        self._tls_changed.set()

    async def _follow_tls(self) -> None:
        """Replace the TLS context whenever the certificate or the front proxy's CA changes."""
        while True:
            await self._tls_changed.wait()
            self._tls_changed.clear()
            pair, authority = self.certificates.current, self._authenticator.config.authority
            before = self.in_use
            if pair is None or (pair, authority) == before:
                continue
            try:
                context = await asyncio.to_thread(server_context, pair, authority) if authority else None
            except CertificateError as error:
                self._errors.labels("certificate").inc()
                _log.error("tls_context_failed", error=str(error))
                continue
            self.door.use(context, same_authority=before is not None and before[1] == authority)
            self.in_use = (pair, authority)

    def _tls_check(self) -> str | None:
        """Why new connections do not yet get the current certificate and CA; None when they do."""
        desired = (self.certificates.current, self._authenticator.config.authority)
        return None if desired == self.in_use else "the serving certificate and the front proxy's CA are not in use yet"
