"""The aggregated API server: wires what answers, and keeps its TLS, its trust and its heartbeat going."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from adapter.apiserver.authentication.authenticator import Authenticator
from adapter.apiserver.authentication.requestheader import Peer, Trust
from adapter.apiserver.authentication.requestheader_watch import RequestheaderWatch
from adapter.apiserver.authorization.authorizer import Authorizer
from adapter.apiserver.discovery import Discovery
from adapter.apiserver.handler import Handler
from adapter.apiserver.health import TICK_SECONDS, Check, Health, Heart
from adapter.apiserver.ports import Api, Registries
from adapter.apiserver.provider import Decide, LiveScales, MetricsProvider
from adapter.apiserver.reviews import Reviews
from adapter.apiserver.roster_push import RosterPush
from adapter.apiserver.serving import certificates, tls
from adapter.apiserver.serving.certificate_manager import CertificateManager, TlsOptions
from adapter.apiserver.serving.certificates import KeyPair
from adapter.apiserver.serving.connections import Connections
from adapter.apiserver.status import CertificateError
from adapter.inbound.connections import LIMITS, Limits
from adapter.load.pipeline import decide
from adapter.snapshot import Key, SnapshotStore
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How the server is reached: address (empty: all), port (0: any), whether external metrics are served too."""

    tls: TlsOptions
    address: str
    port: int
    external: bool
    trust_seconds: float = 5.0
    grace_seconds: float = 5.0
    limits: Limits = LIMITS


class ApiServer:
    """Serves the picture. `ready` and `live` are more checks for `/readyz` and `/livez`, by name; `/readyz` shows what
    `warnings` say, and does not fail by it.

    `stale` gives the sentence why nothing may be decided on a policy, None where it may; with an empty name, on any
    policy of the namespace. `filling` gives the one that says what is still waited for before the picture is synced.
    `registries` take the word of platforms.
    """

    def __init__(
        self,
        *,
        picture: SnapshotStore,
        session: Api,
        scales: LiveScales,
        stale: Callable[[Key], str | None],
        filling: Callable[[], str],
        metrics: Metrics,
        options: ServerOptions,
        ready: Mapping[str, Check] | None = None,
        live: Mapping[str, Check] | None = None,
        warnings: Mapping[str, Check] | None = None,
        decide: Decide = decide,
        registries: Registries | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.started = asyncio.Event()
        self._options = options
        self._session = session
        self._errors = metrics.errors
        self._wall = wall
        self._dirty = asyncio.Event()
        self._served: tuple[KeyPair, str] | None = None
        self._temporary: KeyPair | None = None
        self._heart = Heart(monotonic)
        self._trust = RequestheaderWatch(session, metrics, self._apply, seconds=options.trust_seconds)
        reviews = Reviews(session)
        self._authenticator = Authenticator(reviews, metrics, wall, monotonic, self._trust.unread)
        self._authorizer = Authorizer(reviews, metrics, monotonic)
        self._certificates = CertificateManager(session, options.tls, metrics, lambda _: self._dirty.set())
        own: dict[str, Check] = {
            "caches": lambda: None if picture.current.synced else filling(),
            "certificate": self._certificates.check,
            "authentication": self._trust.check,
            "tls": self._in_use,
        }
        ready = {**own, **(ready or {})}
        health = Health(
            {"ping": lambda: None, "event-loop": self._heart.check, **(live or {})},
            ready,
            {"authorization": reviews.check, **(warnings or {})},
            clock=monotonic,
        )
        answers = MetricsProvider(picture, scales, stale, filling, session.now, decide=decide)
        self._listener = tls.Listener(options.address, options.port, options.limits)
        handler = Handler(
            self._authenticator,
            self._authorizer,
            answers,
            Discovery(external=options.external),
            health,
            RosterPush(registries),
            metrics,
            external=options.external,
        )
        self._http = Connections(handler, self._listener.authority_of, self._is_front_proxy, options.limits)

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self._listener.port

    async def run(self) -> None:
        """Serve until cancelled; then take no new connection and give what is under way a few seconds."""
        try:
            # Health has to be answered before the API server can be asked for anything.
            self._temporary = certificates.create(self._options.tls.names, self._wall()).serving
            await self._renew()
            self.started.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._beat(), name="heartbeat")
                tasks.create_task(self._certificates.run(), name="certificate")
                tasks.create_task(self._trust.run(), name="front proxy")
                tasks.create_task(self._follow(), name="tls")
        finally:
            await self._shut_down()

    async def _beat(self) -> None:
        while True:
            self._heart.beat()
            await asyncio.sleep(TICK_SECONDS)

    def _apply(self, trust: Trust) -> None:
        self._authenticator.trust = trust
        self._dirty.set()

    async def _follow(self) -> None:
        """Put every new certificate and authority to use."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._renew()

    async def _renew(self) -> None:
        pair = self._certificates.current or self._temporary
        wanted = (pair, self._authenticator.trust.bundle) if pair else None
        if wanted is None or wanted == self._served:
            return
        try:
            context = await asyncio.to_thread(tls.server_context, *wanted)
        except CertificateError as error:
            self._errors.labels("certificate").inc()
            _log.error("tls_context_failed", error=str(error))
            return
        await self._listener.serve(self._http, context, wanted[1])
        self._served = wanted
        self._dismiss()

    def _in_use(self) -> str | None:
        """Why new connections meet neither our certificate nor the request for theirs, None where they do."""
        pair, authority = self._served or (None, "")
        if pair is self._temporary:
            return "the serving certificate is not in use yet"
        wanted = self._authenticator.trust.bundle
        return "the front proxy's authority is not in use yet" if wanted and not authority else None

    def _dismiss(self) -> None:
        """Let go of clients whose authority is gone, and of peers not yet asked for a certificate; they come again."""
        trust, now = self._authenticator.trust, self._wall()

        def is_welcome(peer: Peer) -> bool:
            if not peer.chain:
                return peer.asked or not trust.bundle
            return peer.is_front_proxy(trust, now) or peer.user(trust, now) is not None

        self._http.dismiss(is_welcome)

    def _is_front_proxy(self, peer: Peer) -> bool:
        return peer.is_front_proxy(self._authenticator.trust, self._wall())

    async def _shut_down(self) -> None:
        self._listener.close()
        await self._http.finish(self._options.grace_seconds)
        await self._authenticator.close()
        await self._authorizer.close()
