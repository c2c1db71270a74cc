"""The aggregated API server: connects its parts and keeps TLS, front-proxy configuration and heartbeat up to date."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from adapter.apiserver.authentication.authenticator import Authenticator
from adapter.apiserver.authentication.requestheader import AuthenticationConfig, Peer
from adapter.apiserver.authentication.requestheader_watch import RequestheaderWatch
from adapter.apiserver.authorization.authorizer import Authorizer
from adapter.apiserver.decision_document import DecisionDocuments
from adapter.apiserver.discovery import Discovery
from adapter.apiserver.handler import Handler
from adapter.apiserver.health import TICK_SECONDS, Check, Health, Heartbeat
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.reviews import ReviewClient
from adapter.apiserver.roster_push import RosterPush
from adapter.apiserver.serving import certificates, tls
from adapter.apiserver.serving.certificate_manager import CertificateManager, TlsOptions
from adapter.apiserver.serving.certificates import KeyPair
from adapter.apiserver.serving.connections import PeerConnections
from adapter.apiserver.status import CertificateError
from adapter.apiserver.upstream.upstreams import Upstreams
from adapter.inbound.connections import DEFAULT_LIMITS, ConnectionLimits
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.registries.manager import RegistryManager
from adapter.snapshot import Key, SnapshotStore
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Address (empty: all interfaces) and port (0: any free one) to listen on, and what is served there.

    `external`: whether external.metrics.k8s.io is served too. `requestheader_seconds`: interval of reading the
    front proxy's configuration. `grace_seconds`: time for requests in flight at shutdown.
    """

    tls: TlsOptions
    address: str
    port: int
    external: bool
    requestheader_seconds: float = 5.0
    grace_seconds: float = 5.0
    limits: ConnectionLimits = DEFAULT_LIMITS


class ApiServer:
    """Serves metrics from the snapshots.

    `stale_reason` returns why a policy must not be decided on, or None; with an empty name it answers for all policies
    of the namespace. `unsynced_reason` says which caches are still being filled. `ready` adds checks to `/readyz`;
    `warnings` are listed there and fail nothing. `registries` receive pushed rosters; None rejects every push.
    `upstreams` answer the metrics that are not ours; None: nobody does.
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
        options: ServerOptions,
        ready: Mapping[str, Check] | None = None,
        warnings: Mapping[str, Check] | None = None,
        registries: RegistryManager | None = None,
        upstreams: Upstreams | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.started = asyncio.Event()
        self._options = options
        self._errors = metrics.errors
        self._wall = wall
        self._tls_changed = asyncio.Event()
        self._in_use: tuple[KeyPair, str] | None = None
        self._temporary: KeyPair | None = None
        self._heartbeat = Heartbeat(monotonic)
        self._requestheader = RequestheaderWatch(
            session, metrics, self._apply_config, seconds=options.requestheader_seconds
        )
        reviews = ReviewClient(session)
        self._authenticator = Authenticator(reviews, metrics, wall, monotonic, self._requestheader.pending_reason)
        self._authorizer = Authorizer(reviews, metrics, monotonic)
        self._certificates = CertificateManager(session, options.tls, metrics, lambda _: self._tls_changed.set())
        self._listener = tls.Listener(options.address, options.port, options.limits)
        readiness = self._readiness(lambda: None if snapshots.current.synced else unsynced_reason())
        live: dict[str, Check] = {"ping": lambda: None, "event-loop": self._heartbeat.check}
        provider = MetricsProvider(snapshots, scales, stale_reason, unsynced_reason, session.now)
        handler = Handler(
            self._authenticator,
            self._authorizer,
            provider,
            Discovery(external=options.external, **({"upstream": upstreams.listed} if upstreams else {})),
            Health(
                live,
                {**readiness, **(ready or {})},
                {"authorization": reviews.check, **(warnings or {})},
                clock=monotonic,
            ),
            RosterPush(registries),
            DecisionDocuments(provider),
            metrics,
            external=options.external,
            upstreams=upstreams,
        )
        self._connections = PeerConnections(handler, self._listener.authority_of, self._is_front_proxy, options.limits)

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self._listener.port

    async def run(self) -> None:
        """Serve until cancelled; then stop accepting and give requests in flight `grace_seconds`."""
        try:
            # Health must be served before the API server has answered anything, so a temporary certificate comes first.
            self._temporary = certificates.create_bundle(self._options.tls.names, self._wall()).serving
            await self._replace_context()
            self.started.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._run_heartbeat(), name="heartbeat")
                tasks.create_task(self._certificates.run(), name="certificate")
                tasks.create_task(self._requestheader.run(), name="front proxy")
                tasks.create_task(self._follow_tls(), name="tls")
        finally:
            await self._shut_down()

    def _readiness(self, caches: Check) -> dict[str, Check]:
        return {
            "caches": caches,
            "certificate": self._certificates.check,
            "authentication": self._requestheader.check,
            "tls": self._tls_check,
        }

    async def _run_heartbeat(self) -> None:
        while True:
            self._heartbeat.beat()
            await asyncio.sleep(TICK_SECONDS)

    def _apply_config(self, config: AuthenticationConfig) -> None:
        self._authenticator.config = config
        self._tls_changed.set()

    async def _follow_tls(self) -> None:
        """Replace the TLS context whenever the certificate or the client CAs change."""
        while True:
            await self._tls_changed.wait()
            self._tls_changed.clear()
            await self._replace_context()

    async def _replace_context(self) -> None:
        pair = self._certificates.current or self._temporary
        desired = (pair, self._authenticator.config.ca_bundle) if pair else None
        if desired is None or desired == self._in_use:
            return
        try:
            context = await asyncio.to_thread(tls.server_context, *desired)
        except CertificateError as error:
            self._errors.labels("certificate").inc()
            _log.error("tls_context_failed", error=str(error))
            return
        await self._listener.serve(self._connections, context, desired[1])
        self._in_use = desired
        self._dismiss_peers()

    def _tls_check(self) -> str | None:
        """Why new connections do not yet get the current certificate or client CAs; None when they do."""
        pair, client_cas = self._in_use or (None, "")
        if pair is self._temporary:
            return "the serving certificate is not in use yet"
        desired = self._authenticator.config.ca_bundle
        return "the front proxy's authority is not in use yet" if desired and not client_cas else None

    def _dismiss_peers(self) -> None:
        """Close connections whose CA was removed and those never asked for a certificate; clients reconnect."""
        config, now = self._authenticator.config, self._wall()

        def is_welcome(peer: Peer) -> bool:
            if not peer.chain:
                return peer.certificate_requested or not config.ca_bundle
            return peer.is_front_proxy(config, now) or peer.client_identity(config, now) is not None

        self._connections.dismiss(is_welcome)

    def _is_front_proxy(self, peer: Peer) -> bool:
        return peer.is_front_proxy(self._authenticator.config, self._wall())

    async def _shut_down(self) -> None:
        self._listener.close()
        await self._connections.finish(self._options.grace_seconds)
        await self._authenticator.close()
        await self._authorizer.close()
