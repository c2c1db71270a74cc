"""A server on loopback with real TLS, its cluster, and clients with every kind of certificate."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from adapter.apiserver import upstream as upstream_module
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.server import ApiServer
from adapter.kube.scale import ScaleReader
from adapter.kube.session import Session
from adapter.load.spec import Scale
from adapter.settings import UpstreamsSettings
from adapter.settings.server import ServerSettings, Tls
from adapter.snapshot import SnapshotStore
from adapter.telemetry.metrics import Metrics
from tests.apiserver import snapshots
from tests.apiserver.cluster import Cluster
from tests.apiserver.upstream import FakeUpstream
from tests.kube.conftest import Clock
from tests.kube.fake import session_to
from tests.waiting import eventually

HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


@dataclass
class Answer:
    """A response with its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def message(self) -> str:
        return str(self.json()["message"])


Ask = Callable[..., Awaitable[Answer]]


def refused(answer: Answer, code: int, reason: str = "") -> str:
    """Checks what holds for every error: a Status with a cause, and never a `Retry-After`; returns its message."""
    body = answer.json()
    assert answer.status == code
    assert answer.headers["Content-Type"] == "application/json"
    assert "Retry-After" not in answer.headers
    assert "retryAfterSeconds" not in body["details"]
    assert (body["kind"], body["apiVersion"], body["status"], body["code"]) == ("Status", "v1", "Failure", code)
    assert reason in {"", body["reason"]}
    assert body["details"]["causes"] == [{"reason": body["reason"], "message": body["message"]}]
    return str(body["message"])


@dataclass
class StubScales(ScaleReader):
    """A scale reader with one replica count for all paths, or an error."""

    scale: Scale = field(default_factory=lambda: Scale(replicas=5, status_replicas=5))
    error: Exception | None = None
    reads: list[str] = field(default_factory=list)

    async def read(self, scale_path: str, watched: Scale | None, proven_at: float | None) -> Scale:
        self.reads.append(scale_path)
        if self.error is not None:
            raise self.error
        return self.scale


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


TIMING: dict[str, float] = {"config_seconds": 0.05, "certificate_seconds": 0.05, "grace_seconds": 2}


class Service:
    """The server under test, with clients."""

    def __init__(
        self,
        cluster: Cluster,
        session: Session,
        options: ServerSettings,
        upstreams: UpstreamsSettings | None = None,
        timing: Mapping[str, float] = TIMING,
    ) -> None:
        self.cluster = cluster
        self.session = session
        self.settings = options
        self.snapshot_store = SnapshotStore()
        self.scales = StubScales()
        self.metrics = Metrics()
        self.sentence: str | None = None
        self.clock = Clock()
        self.clock.wall = session.now()
        provider = MetricsProvider(
            self.snapshot_store,
            self.scales,
            stale_reason=lambda _: self.sentence,
            unsynced_reason=lambda: "the Kubernetes caches are still being filled: pods",
            now=session.now,
        )
        behind = upstream_module.upstreams(upstreams or UpstreamsSettings(), self.metrics)
        clocks = {"wall": lambda: self.clock.wall, "monotonic": lambda: self.clock.monotonic}
        self.server = ApiServer(provider, session, self.metrics, options, behind, **timing, **clocks)
        self._clients: dict[int, aiohttp.ClientSession] = {}

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.door.port}"

    def unready(self) -> dict[str, str]:
        """The failing checks of readiness, with their reasons."""
        return {name: reason for name, check in self.server.ready.items() if (reason := check())}

    async def ready(self) -> None:
        """Wait until the server is ready."""
        await eventually(lambda: not self.unready())

    def context(self, leaf: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if leaf is not None:
            leaf.configure_cert(context)
        return context

    def client(self, leaf: trustme.LeafCert | None) -> aiohttp.ClientSession:
        """A keep-alive client with this certificate."""
        if id(leaf) not in self._clients:
            connector = aiohttp.TCPConnector(ssl=self.context(leaf))
            self._clients[id(leaf)] = aiohttp.ClientSession(connector=connector)
        return self._clients[id(leaf)]

    async def ask(
        self,
        target: str,
        *,
        leaf: trustme.LeafCert | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: object = None,
    ) -> Answer:
        """One request whose target goes out exactly as given."""
        url = URL(self.url + target, encoded=True)
        async with self.client(leaf).request(method, url, headers=headers, data=body) as response:
            return Answer(response.status, response.headers, await response.read())

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def session(cluster: Cluster) -> AsyncIterator[Session]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.answer)
    async with TestServer(app) as server, session_to(str(server.make_url("")).rstrip("/")) as session:
        yield session


@pytest.fixture(scope="session")
def front_proxy() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def proxy(front_proxy: trustme.CA) -> trustme.LeafCert:
    """The front proxy's client certificate."""
    return front_proxy.issue_cert("front-proxy.test", common_name="front-proxy-client")


@pytest.fixture(scope="session")
def client_authority() -> trustme.CA:
    """The CA of cluster users."""
    return trustme.CA()


@pytest.fixture
def options() -> ServerSettings:
    return ServerSettings(tls=Tls(namespace="adapter"), address="127.0.0.1", port=0, external_metrics=True)


@contextlib.asynccontextmanager
async def running(service: Service) -> AsyncIterator[Service]:
    task = asyncio.create_task(service.server.run())
    try:
        await eventually(lambda: service.server.door.port > 0)
        yield service
    finally:
        await service.close()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def made(cluster: Cluster, session: Session, options: ServerSettings, **more: Any) -> Service:
    """A server that is not started yet, with one policy, `shop/checkout`."""
    service = Service(cluster, session, options, **more)
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    return service


@pytest.fixture
async def service(
    cluster: Cluster, session: Session, options: ServerSettings, front_proxy: trustme.CA
) -> AsyncIterator[Service]:
    """A ready server with one policy, `shop/checkout`."""
    cluster.trust(pem(front_proxy))
    async with running(made(cluster, session, options)) as service:
        await service.ready()
        yield service


@pytest.fixture
def ask(service: Service, proxy: trustme.LeafCert) -> Ask:
    """Asks the server through the front proxy, as the HPA controller or another user."""

    async def asked(target: str, user: str = HPA, method: str = "GET", **headers: str) -> Answer:
        return await service.ask(target, leaf=proxy, headers={**as_user(user), **headers}, method=method)

    return asked


def as_user(user: str = HPA, *groups: str, **extra: str) -> dict[str, str]:
    """Identity headers, with the first of the groups."""
    headers = {"X-Remote-User": user, **extra}
    if groups:
        headers["X-Remote-Group"] = groups[0]
    return headers


@pytest.fixture
async def upstream(tmp_path: Path) -> AsyncIterator[FakeUpstream]:
    fake = FakeUpstream(tmp_path, trustme.CA())
    await fake.start()
    yield fake
    await fake.stop()
