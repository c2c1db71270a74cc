"""The registries whose real servers can be started here, all with the same verbs: the worlds of `test_contract.py`.

Kubernetes' EndpointSlices are none of them: they have no instance list, no absence and no server of their own.
"""

import asyncio
import contextlib
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from kazoo.security import make_acl, make_digest_acl  # type: ignore[import-untyped]

from lab.harness.pki import Authority
from lab.harness.registries import eureka
from lab.harness.registries.consul import Consul
from lab.harness.registries.polaris import Polaris
from lab.harness.registries.zookeeper import ZooKeeper
from tests.registries import http_kit, zookeeper_kit
from tests.registries.kit import FollowedService, follow

ALL = (0, 1, 2, 3)
WRONG = "00000000-1111-2222-3333-444444444444"
SEES_SERVICES, SEES_NODES = 'service_prefix "" { policy = "read" }', 'node_prefix "" { policy = "read" }'
SEES_ALL = f"{SEES_SERVICES} {SEES_NODES}"
SEES_PART = {"no nodes": SEES_SERVICES, "no services": SEES_NODES}

Following = AbstractAsyncContextManager[FollowedService]


class Files(NamedTuple):
    """Certificate, key, both in one file, their authority, and another one, as PEM."""

    certificate: Path
    key: Path
    both: Path
    authority: Path
    stranger: Path

    @property
    def pair(self) -> tuple[Path, Path, Path]:
        """Certificate, key and authority."""
        return self.certificate, self.key, self.authority

    @classmethod
    def of(cls, folder: Path) -> "Files":
        """New ones in this folder, for 127.0.0.1 and localhost."""
        authority, stranger = Authority(folder, "registries"), Authority(folder, "stranger")
        pair = authority.issue("registry", hosts=["127.0.0.1", "localhost"], mutual=True)
        both, trusted = folder / "both.pem", folder / "ca.pem"  # ZooKeeper knows the format by the name
        both.write_bytes(pair.key + pair.certificate)
        trusted.write_bytes(authority.certificate)
        return cls(pair.cert_file, pair.key_file, both, trusted, stranger.file)


class World(ABC):
    """A service of a registry's server, and its clients. `web-<n>` is at 10.0.0.<10 + n>, port 8080.

    The server is shared with other worlds; it has the methods of a `LocalServer`. `password`: a file for the adapter's
    secret, if the server is a safe one: with TLS, and with credentials where it knows any.
    """

    kind: ClassVar[str]
    """The type of the registry in the settings."""
    means: ClassVar[tuple[Mapping[str, Any], ...]]
    """What pulls a pod out explicitly."""
    unknown: ClassVar[str] = "\0"
    """What the error about a service says that nobody registered, unless its list is empty."""
    hides: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """What makes a pod absent from the answers, as a deregistration does."""
    refusals: ClassVar[Mapping[str, str]] = {}
    """What the error says, by what is wrong with the credentials."""
    brief: ClassVar[Mapping[str, Any]] = {}
    """Settings with which a lost connection, and a question without an answer, are over soon."""
    lag: ClassVar[float] = 0.0
    """Seconds that the server itself takes to show a change."""
    user: ClassVar[Mapping[str, Any]] = {}
    """The settings of the adapter's user at a safe server."""
    secret_field: ClassVar[str] = ""
    """The setting that names the file of its secret."""

    def __init__(self, server: Any, service: str, stack: ExitStack, files: Files, password: Path | None) -> None:
        self.server, self.service, self.stack, self.files, self.password = server, service, stack, files, password

    @classmethod
    @abstractmethod
    def serve(cls, files: Files, *, safe: bool) -> Any:
        """A server, not started yet; a safe one has TLS and credentials."""

    @classmethod
    def can(cls, verb: str) -> bool:
        """Whether this registry has an optional verb."""
        return getattr(cls, verb) is not getattr(World, verb)

    @abstractmethod
    async def register(self, *numbers: int) -> None:
        """Register these pods."""

    @abstractmethod
    async def change(self, number: int, **means: Any) -> None:
        """Pull a pod out explicitly, by one of `means`; without any, put it back."""

    async def deregister(self, *numbers: int) -> None:
        """Take registrations away, which is evidence once it is confirmed. Optional."""
        raise NotImplementedError

    async def restart(self) -> None:
        """Start the server again after `kill`, with what it knew. Optional."""
        raise NotImplementedError

    async def authorize(self, wrong: str = "") -> None:
        """Let the adapter's credentials be right from now on, or wrong as one of `refusals`. Optional."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """The address of the server in the settings."""
        return str(self.server.url)

    def beside(self) -> "World":
        """Another service of the same server."""
        return type(self)(self.server, f"{self.service}-beside", self.stack, self.files, self.password)

    def following(self, **settings: Any) -> Following:
        """Follow the service while the block runs. `settings` are further ones of the registry."""
        servers = settings.pop("servers", self.address)
        return follow(self.kind, servers, self.service, **{**self.access(), **settings})

    @contextlib.asynccontextmanager
    async def serving(self, **settings: Any) -> AsyncIterator[FollowedService]:
        """Follow the service, whose pods all serve, while the block runs."""
        await self.register(*ALL)
        async with self.following(**settings) as followed:
            await self.heard(followed)
            assert followed.everyone_serves()
            yield followed

    def access(self) -> dict[str, Any]:
        """The settings with which a safe server lets the adapter in."""
        if self.password is None:
            return {}
        tls = {"ca_file": str(self.files.authority), "cert_file": str(self.files.both)}
        return {"tls": tls, **self.user, **({self.secret_field: str(self.password)} if self.secret_field else {})}

    def write(self, secret: str) -> None:
        """Let this be the adapter's secret from now on."""
        assert self.password is not None
        self.password.write_text(f"{secret}\n")

    async def heard(self, followed: FollowedService, count: int = 4) -> None:
        """Return once so many pods are listed."""
        await followed.until_listed(count)

    async def until_gone(self, followed: FollowedService) -> None:
        """Return once the adapter has heard that nobody is registered."""
        await followed.until(lambda: self.unknown in followed.error or (followed.listed == 0 and not followed.error))

    def kill(self) -> None:
        self.server.kill()

    async def resume(self) -> None:
        """Start the server where it does not run, in this thread: it dies with the one that started it."""
        self.server.component.start()
        await asyncio.to_thread(self.server.component.wait_ready, 180)

    async def wipe(self) -> None:
        """Kill the server, and start it without its data."""
        self.kill()
        self.server.wipe()
        await self.resume()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Connections stay meanwhile, answers do not arrive."""
        self.server.component.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.component.signal(signal.SIGCONT)


class PersistentWorld(World):
    """A registry that keeps its registrations on disk."""

    async def restart(self) -> None:
        await self.resume()


class ConsulWorld(PersistentWorld):
    kind = "Consul"
    means = ({"on": True},)
    refusals = {  # noqa: RUF012
        "unknown": "ACL not found; Consul does not know the token",
        **dict.fromkeys(SEES_PART, "may not see all"),
    }
    secret_field = "token_file"

    @classmethod
    def serve(cls, files: Files, *, safe: bool) -> Consul:
        return Consul(deny=True, tls=files.pair) if safe else Consul()

    async def register(self, *numbers: int) -> None:
        for n in numbers:
            await asyncio.to_thread(self.server.register, self.service, f"{self.service}-{n}", f"10.0.0.{10 + n}")

    async def deregister(self, *numbers: int) -> None:
        for number in numbers:
            await asyncio.to_thread(self.server.deregister, f"{self.service}-{number}")

    async def change(self, number: int, *, on: bool = False) -> None:
        await asyncio.to_thread(self.server.maintenance, f"{self.service}-{number}", on=on)

    async def authorize(self, wrong: str = "") -> None:
        known = wrong in {"", *SEES_PART}
        self.write((await asyncio.to_thread(self.server.token, SEES_PART.get(wrong, SEES_ALL)))[1] if known else WRONG)
        await self.register(9)  # only a change has the adapter read again
        await self.deregister(9)


class ZooKeeperWorld(PersistentWorld):
    """A layout of ZooKeeper; all pods register in one session."""

    kind = "ZooKeeper"
    layout: ClassVar[str]
    unknown = "ZooKeeper has no node"
    refusals = {"wrong": "does not let user reader read"}  # noqa: RUF012
    brief = {"session_seconds": 2}  # noqa: RUF012
    user = {"use_tls": True, "username": "reader"}  # noqa: RUF012
    secret_field = "password_file"
    _pods: zookeeper_kit.Processes | None = None
    home: "ZooKeeperWorld | None" = None
    """The world beside which this one is."""

    @classmethod
    def serve(cls, files: Files, *, safe: bool) -> ZooKeeper:
        return ZooKeeper(tls=(files.both, files.authority) if safe else None)

    def following(self, **settings: Any) -> Following:
        return super().following(layout=self.layout, **settings)

    @property
    def address(self) -> str:
        return str(self.server.secure_address if self.password else self.server.address)

    async def pods(self) -> zookeeper_kit.Processes:
        """The pods' processes in the session of this server's life."""
        if self._pods is None:
            if self.home is None:
                client = await asyncio.to_thread(self.stack.enter_context, self.server.session(20))
            else:
                client = (await self.home.pods()).client
            self._pods = zookeeper_kit.Processes(client, self.layout, self.service)
        return self._pods

    def beside(self) -> World:
        other = super().beside()
        assert isinstance(other, ZooKeeperWorld)
        other.home = self
        return other

    async def register(self, *numbers: int) -> None:
        await (await self.pods()).register(*numbers)

    async def deregister(self, *numbers: int) -> None:
        await (await self.pods()).deregister(*numbers)

    async def change(self, number: int, **means: Any) -> None:
        await (await self.pods()).change(number, **means)

    async def wipe(self) -> None:
        self.kill()
        if self._pods is not None:
            await asyncio.to_thread(self._pods.client.stop)  # it would wait for the end of a session that nobody knows
            self._pods = None
        await super().wipe()

    async def authorize(self, wrong: str = "") -> None:
        """Besides the password, the right to read: a session keeps the user that it has once shown.

        No change of a node wakes a client that may not read it any more: a new connection does.
        """
        pods = await self.pods()
        self.write(WRONG if wrong else "right")
        acl = [make_acl("world", "anyone", create=True, delete=True, admin=True)]
        acl += [] if wrong else [make_digest_acl("reader", "right", read=True)]
        await asyncio.to_thread(pods.client.set_acls, pods.folder, acl)
        if wrong:
            self.kill()
            await self.resume()


class DubboInterfaceWorld(ZooKeeperWorld):
    layout = zookeeper_kit.INTERFACE
    means = ({"disabled": "true"}, {"enabled": "false"}, {"weight": "0"})


class DubboApplicationWorld(ZooKeeperWorld):
    layout = zookeeper_kit.APPLICATION
    means = ({"enabled": False},)


class SpringZooKeeperWorld(ZooKeeperWorld):
    layout = zookeeper_kit.SPRING
    means = ({"instance_status": "OUT_OF_SERVICE"}, {"enabled": False})


class _Registrations:
    """Registers the pods `web-0` … at 10.0.0.10 …, and pulls them out, through Polaris' own API."""

    def __init__(self, polaris: Polaris, service: str) -> None:
        self._polaris, self._place = polaris, {"service": service, "namespace": "default"}

    def register(self, *numbers: int, **more: object) -> None:
        """Register these pods."""
        self._call("POST", "", numbers, **more)

    def change(self, *numbers: int, **fields: object) -> None:
        """Change registrations: `isolate`, `healthy`, `weight`, `metadata`."""
        self._call("PUT", "", numbers, **fields)

    def deregister(self, *numbers: int) -> None:
        """Take these pods' registrations away."""
        self._call("POST", "/delete", numbers)

    def _call(self, method: str, path: str, numbers: tuple[int, ...], **fields: object) -> None:
        instances = [{**self._place, "host": f"10.0.0.{10 + n}", "port": 8080, **fields} for n in numbers]
        self._polaris.call(method, f"/naming/v1/instances{path}", instances)


class ByPolarisWorld(PersistentWorld):
    """A protocol of Polaris. Pods register by its own API."""

    means = ({"isolate": True},)
    lag = 2.0

    @classmethod
    def serve(cls, files: Files, *, safe: bool) -> Polaris:
        return Polaris(tls=files.pair if safe else None, client_auth=safe and cls.can("authorize"))

    @property
    def pods(self) -> _Registrations:
        return _Registrations(self.server, self.service)

    async def register(self, *numbers: int) -> None:
        await asyncio.to_thread(self.pods.register, *numbers)

    async def deregister(self, *numbers: int) -> None:
        await asyncio.to_thread(self.pods.deregister, *numbers)

    async def change(self, number: int, **means: Any) -> None:
        serving = {"isolate": False, "weight": 100, "healthy": True}
        await asyncio.to_thread(self.pods.change, number, **(means or serving))


class PolarisWorld(ByPolarisWorld):
    kind = "Polaris"
    means = ({"isolate": True}, {"weight": 0}, {"healthy": False})
    unknown = "Polaris knows no such service there; check the service's name and its namespace"
    refusals = {"wrong": "check tokenFile"}  # noqa: RUF012
    secret_field = "token_file"

    @property
    def address(self) -> str:
        return str(self.server.http)

    async def authorize(self, wrong: str = "") -> None:
        self.write(WRONG if wrong else self.server.token)


class NacosWorld(ByPolarisWorld):
    kind = "Nacos"
    means = ({"weight": 0}, {"healthy": False})
    hides = ({"isolate": True},)

    @property
    def address(self) -> str:
        return str(self.server.nacos)


class PolarisEurekaWorld(ByPolarisWorld):
    kind = "Eureka"
    unknown = "Eureka knows no such application"

    @property
    def address(self) -> str:
        return str(self.server.eureka)


class SpringEurekaWorld(World):
    kind = "Eureka"
    means = ({"status": "OUT_OF_SERVICE"}, {"status": "DOWN"})
    unknown = "Eureka knows no such application"
    refusals = {"wrong": "HTTP 401"}  # noqa: RUF012
    user = {"username": eureka.USER}  # noqa: RUF012
    secret_field = "password_file"

    @classmethod
    def serve(cls, files: Files, *, safe: bool) -> eureka.EurekaServer:
        return eureka.EurekaServer(cache_ms=0, guarded=safe, tls=files.pair if safe else None)

    def name(self, number: int) -> str:
        """An id that no other service has: Eureka keeps an override by the id alone, and for an hour."""
        return f"{self.service}-{number}"

    async def register(self, *numbers: int) -> None:
        for number in numbers:
            await asyncio.to_thread(self.server.register, self.service, self.name(number), f"10.0.0.{10 + number}")

    async def deregister(self, *numbers: int) -> None:
        for number in numbers:
            await asyncio.to_thread(self.server.deregister, self.service, self.name(number))

    async def change(self, number: int, **means: Any) -> None:
        act = self.server.set_status if means else self.server.clear_status
        await asyncio.to_thread(act, self.service, self.name(number), **means)

    async def wipe(self) -> None:
        self.kill()
        await self.resume()

    async def authorize(self, wrong: str = "") -> None:
        self.write(WRONG if wrong else eureka.PASSWORD)


class HttpWorld(PersistentWorld):
    """The example of a platform in the docs, which always has TLS and a token."""

    kind = "HTTP"
    means = ({"state": "out"}, {"weight": 0})
    unknown = "knows no such service"
    refusals = {"wrong": "HTTP 401: wrong token"}  # noqa: RUF012
    secret_field = "bearer_token_file"

    def __init__(self, server: Any, service: str, stack: ExitStack, files: Files, password: Path | None) -> None:
        super().__init__(server, service, stack, files, password or server.token)

    @classmethod
    def serve(cls, files: Files, *, safe: bool) -> http_kit.Example:
        return http_kit.Example(files.certificate, files.key, Path(tempfile.mkdtemp(prefix="effective-load-example-")))

    async def register(self, *numbers: int) -> None:
        for number in numbers:
            await self.change(number)

    async def change(self, number: int, **means: Any) -> None:
        self.server.say(self.service, {"pod": f"web-{number}", "state": "in", **means})

    async def authorize(self, wrong: str = "") -> None:
        self.write(WRONG if wrong else http_kit.TOKEN)


WORLDS: tuple[type[World], ...] = (
    ConsulWorld,
    DubboInterfaceWorld,
    DubboApplicationWorld,
    SpringZooKeeperWorld,
    PolarisWorld,
    NacosWorld,
    PolarisEurekaWorld,
    SpringEurekaWorld,
    HttpWorld,
)
OPTIONAL = ("deregister", "restart", "authorize")
_NACOS = "Polaris lets everybody read by Nacos' protocol; test_nacos.py has a fake that does not"
LACKS: Mapping[tuple[type[World], str], str] = {
    (NacosWorld, "authorize"): _NACOS,
    (PolarisEurekaWorld, "authorize"): "Polaris lets everybody read by Eureka's protocol",
    (SpringEurekaWorld, "restart"): "its registrations are only in memory: a restart is a wipe",
    (HttpWorld, "deregister"): "a pod that a platform's document leaves out serves; test_http.py holds that",
}
"""What a registry does not have of the optional verbs, and why: the facts about it are not asked of it."""
