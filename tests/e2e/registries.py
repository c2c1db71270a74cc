"""Real service registries that the pods of a Deployment are registered in, as an SOA platform would do it.

The tests only register pods and pull them out, so the pods need not run, and no instance expires. The adapter reaches
each server through a proxy, with a secret where the registry knows one.
"""

import contextlib
import json
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from kazoo.exceptions import NoNodeError  # type: ignore[import-untyped]
from kazoo.security import make_acl, make_digest_acl  # type: ignore[import-untyped]

from lab.chaos.proxies import TcpProxy
from lab.harness.pki import Authority
from lab.harness.registries import eureka
from lab.harness.registries.consul import Consul
from lab.harness.registries.eureka import EurekaServer
from lab.harness.registries.polaris import Polaris
from lab.harness.registries.zookeeper import ZooKeeper
from tests.registries.http_kit import TOKEN, Example

PORT = 8080
INTERVAL = 1.0
"""Seconds between polls of the registries that do not push."""
SLOW_SECONDS = 3.0
"""The delay of each answer, beyond the adapter's patience."""
WRONG = "00000000-1111-2222-3333-444444444444"
SEES_ALL = 'service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }'
UNREACHABLE = "cannot be reached|cut off|disconnected|Cannot connect|reset|no connection"
LATE = "timed out|no answer|did not answer"
CREDENTIALS = "ACL not found|HTTP 40[13]|does not accept the adapter's credentials|Polaris answers 40[13]"
GONE = "no pod of this target any more|registry_list_emptied"


EDITS = make_acl("world", "anyone", create=True, delete=True, admin=True)
"""ZooKeeper: everybody may do everything but read."""


class Platform(ABC):
    """A registry with one service. `bound`: the maximum seconds from its own API call to the changed answer.

    A disturbance is a context manager of this class; `causes` has for each what the log and the condition say, as
    patterns. A registry that cannot suffer one has no cause for it.
    """

    type: ClassVar[str]
    bound: ClassVar[float] = INTERVAL + 1.0
    causes: ClassVar[Mapping[str, str]] = {
        "killed": UNREACHABLE,
        "wiped": CREDENTIALS,
        "frozen": LATE,
        "emptied": GONE,
        "forbidden": CREDENTIALS,
        "slow": LATE,
    }
    more: ClassVar[Mapping[str, Any]] = {"intervalSeconds": INTERVAL}
    """Further settings."""
    secret_field: ClassVar[str] = ""
    """The setting that names the file of the secret, if there is one."""
    port: ClassVar[str] = "port"
    """The server's attribute that has the port."""

    def __init__(self, server: Any, port: int, folder: Path) -> None:
        self.server, self.folder, self.secret = server, folder, folder / "secret"
        self.proxy = TcpProxy(port)
        self.service, self.ips = f"shop.{self.name}", dict[str, str]()
        self.grant()

    @staticmethod
    def serve() -> Any:
        """A server of this kind, not started yet."""
        raise NotImplementedError

    @classmethod
    @contextlib.contextmanager
    def run(cls, folder: Path) -> Iterator["Platform"]:
        """A server of this kind, and the platform on it, during the block."""
        with cls.serve() as server:
            yield cls(server, getattr(server, cls.port), folder)

    @property
    def name(self) -> str:
        return self.type.lower()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}"

    @property
    def settings(self) -> dict[str, Any]:
        """The registry's entry in the adapter's settings."""
        fixed = {"name": self.name, "type": self.type, "servers": [self.address], "timeoutSeconds": 2}
        return {**fixed, **self.more, **({self.secret_field: str(self.secret)} if self.secret_field else {})}

    def register(self, pods: Mapping[str, str], *out: str) -> None:
        """Registers pods, by name and address. Those that are out come first: at no time do all of them serve."""
        self.ips.update(pods)
        for pod in sorted(pods, key=lambda pod: pod not in out):
            self.add(pod)
            if pod in out:
                self.pull(pod, out=True)

    @abstractmethod
    def add(self, pod: str) -> None:
        """Registers a pod."""

    @abstractmethod
    def remove(self, pod: str) -> None:
        """Deregisters a pod."""

    @abstractmethod
    def pull(self, pod: str, *, out: bool) -> None:
        """Pulls a pod out, or puts it back, by this registry's explicit means."""

    def grant(self) -> None:
        """The adapter's secret is right from now on."""
        self.secret.write_text(self.right_secret())

    def revoke(self) -> None:
        """The server does not know the adapter's secret from now on."""
        self.secret.write_text(WRONG)

    def right_secret(self) -> str:
        return ""

    # --- disturbances ---

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        """The server dies, and is restarted with its data."""
        self.server.kill()
        yield
        self.server.resume()

    @contextlib.contextmanager
    def wiped(self) -> Iterator[None]:
        """The server is restarted without its data."""
        self.server.kill()
        self.server.wipe()
        self.server.resume()
        yield
        self.grant()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Connections stay, answers do not arrive."""
        self.server.component.signal(signal.SIGSTOP)
        yield
        self.server.component.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def emptied(self) -> Iterator[None]:
        """Every pod is deregistered."""
        for pod in self.ips:
            self.remove(pod)
        yield

    @contextlib.contextmanager
    def forbidden(self) -> Iterator[None]:
        """The adapter's token is removed."""
        self.revoke()
        yield
        self.grant()

    @contextlib.contextmanager
    def slow(self) -> Iterator[None]:
        """Answers arrive late."""
        self.proxy.seconds, self.proxy.delayed = SLOW_SECONDS, 1.0
        yield
        self.proxy.delayed = 0.0

    loses: ClassVar[tuple[str, ...]] = ("wiped", "emptied")
    """After these the pods register again."""


class OnConsul(Platform):
    """Consul: maintenance mode; changes arrive by blocking queries."""

    type, bound = "Consul", 1.0
    more: ClassVar = {"waitSeconds": 2}
    secret_field = "tokenFile"
    serve = staticmethod(lambda: Consul(deny=True))

    def grant(self) -> None:
        self._accessor, secret = self.server.token(SEES_ALL)
        self.secret.write_text(secret)

    def revoke(self) -> None:
        self.server.call("DELETE", f"/v1/acl/token/{self._accessor}")

    def register(self, pods: Mapping[str, str], *out: str) -> None:
        super().register(pods, *out)
        self.server.wait_listed(self.service, len(pods))

    def add(self, pod: str) -> None:
        self.server.register(self.service, pod, self.ips[pod], PORT)

    def remove(self, pod: str) -> None:
        self.server.deregister(pod)

    def pull(self, pod: str, *, out: bool) -> None:
        self.server.maintenance(pod, on=out)


class OnZooKeeper(Platform):
    """ZooKeeper: Spring Cloud's layout and instance status; changes arrive by watches."""

    type, bound = "ZooKeeper", 1.0
    more: ClassVar = {"layout": "Curator", "username": "reader", "sessionSeconds": 6}
    causes: ClassVar = {
        "killed": UNREACHABLE,
        "wiped": "no node",
        "frozen": f"{LATE}|{UNREACHABLE}",  # it reconnects meanwhile
        "emptied": GONE,
        "forbidden": "does not let",
        "slow": f"{LATE}|{UNREACHABLE}",
    }

    secret_field = "passwordFile"
    serve = ZooKeeper

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    @property
    def _folder(self) -> str:
        return f"/services/{self.service}"

    def right_secret(self) -> str:
        return "right"

    def grant(self) -> None:
        super().grant()
        acl = [EDITS, make_digest_acl("reader", "right", read=True)]
        try:
            self._do(lambda client: client.set_acls(self._folder, acl))
        except NoNodeError:
            self._do(lambda client: client.create(self._folder, b"", acl, makepath=True))

    def revoke(self) -> None:
        self._do(lambda client: client.set_acls(self._folder, [EDITS]))
        self.proxy.silence()  # no change wakes a client that may not read it: a new connection does
        self.proxy.reset()

    def _do(self, action: Callable[[Any], object]) -> None:
        """In a session of its own: a session does not outlive the loss of the server's data."""
        with self.server.session() as client:
            action(client)

    def add(self, pod: str) -> None:
        self._do(lambda client: client.create(f"{self._folder}/{pod}", self._content(pod, "UP")))

    def remove(self, pod: str) -> None:
        self._do(lambda client: client.delete(f"{self._folder}/{pod}"))

    def pull(self, pod: str, *, out: bool) -> None:
        content = self._content(pod, "OUT_OF_SERVICE" if out else "UP")
        self._do(lambda client: client.set(f"{self._folder}/{pod}", content))

    def _content(self, pod: str, status: str) -> bytes:
        fixed = {"name": self.service, "id": pod, "address": self.ips[pod], "port": PORT, "serviceType": "DYNAMIC"}
        return json.dumps({**fixed, "payload": {"metadata": {"instance_status": status}}}).encode()


class OnPolaris(Platform):
    """Polaris: isolation; the adapter polls."""

    type, secret_field = "Polaris", "tokenFile"
    causes: ClassVar = {**Platform.causes, "wiped": f"no such service|{CREDENTIALS}"}
    serve = staticmethod(lambda: Polaris(client_auth=True))

    def right_secret(self) -> str:
        return str(self.server.token)

    def add(self, pod: str) -> None:
        self._call("POST", "", pod)

    def remove(self, pod: str) -> None:
        self._call("POST", "/delete", pod)

    def pull(self, pod: str, *, out: bool) -> None:
        self._call("PUT", "", pod, isolate=out)

    def _call(self, method: str, path: str, pod: str, **fields: Any) -> None:
        place = {"service": self.service, "namespace": "default", "host": self.ips[pod], "port": PORT}
        self.server.call(method, f"/naming/v1/instances{path}", [{**place, **fields}])


class OnNacos(OnPolaris):
    """Polaris as a Nacos server: weight 0. It detects its own changes once a second, and lets everybody read."""

    type, bound, secret_field, port = "Nacos", INTERVAL + 2.0, "", "nacos_port"
    serve = Polaris
    # A wiped server is logged as an emptied one, which is told once in ten seconds: they are not one after the other.
    causes: ClassVar = {
        "wiped": GONE,
        **{one: Platform.causes[one] for one in ("killed", "frozen", "slow", "emptied")},
    }

    @property
    def address(self) -> str:
        return f"{super().address}/nacos"

    def pull(self, pod: str, *, out: bool) -> None:
        self._call("PUT", "", pod, weight=0 if out else 100)


class OnEureka(Platform):
    """Eureka: the status override OUT_OF_SERVICE; the adapter polls a server without a response cache.

    Its registrations are only in memory: a restart is a wipe.
    """

    type, bound = "Eureka", 4.0
    more: ClassVar = {"intervalSeconds": 3, "username": eureka.USER}  # each request costs it a bcrypt
    causes: ClassVar = {
        "wiped": "no such application",
        "frozen": LATE,
        "emptied": "no such application",
        "forbidden": CREDENTIALS,
        "slow": LATE,
    }

    secret_field = "passwordFile"
    serve = staticmethod(lambda: EurekaServer(cache_ms=0, guarded=True))

    @property
    def address(self) -> str:
        return f"{super().address}/eureka"

    def right_secret(self) -> str:
        return eureka.PASSWORD

    @contextlib.contextmanager
    def wiped(self) -> Iterator[None]:
        self.server.kill()
        self.server.resume()
        yield

    def add(self, pod: str) -> None:
        self.server.register(self.service, pod, self.ips[pod], lease=3600)

    def remove(self, pod: str) -> None:
        self.server.deregister(self.service, pod)

    def pull(self, pod: str, *, out: bool) -> None:
        if out:
            self.server.set_status(self.service, pod, "OUT_OF_SERVICE")
        else:
            self.server.clear_status(self.service, pod)


class OnHttp(Platform):
    """A platform of one's own: the example in the docs, with TLS and a token. What it does not list serves."""

    type, secret_field = "HTTP", "bearerTokenFile"
    causes: ClassVar = {
        "killed": UNREACHABLE,
        "wiped": "knows no such service",
        "frozen": LATE,
        "forbidden": CREDENTIALS,
        "slow": LATE,
    }

    @classmethod
    @contextlib.contextmanager
    def run(cls, folder: Path) -> Iterator[Platform]:
        authority = Authority(folder, "platform")
        pair = authority.issue("platform", hosts=["127.0.0.1"])
        with Example(pair.cert_file, pair.key_file, Path(tempfile.mkdtemp(dir=folder))) as server:
            made = cls(server, server.port, folder)
            made.more = {**cls.more, "tls": {"caFile": str(authority.file)}}
            yield made

    @property
    def settings(self) -> dict[str, Any]:
        settings = super().settings
        del settings["servers"]
        return {**settings, "url": f"https://127.0.0.1:{self.proxy.port}/instances"}

    def right_secret(self) -> str:
        return TOKEN

    def add(self, pod: str) -> None:
        self.pull(pod, out=False)

    def remove(self, pod: str) -> None:
        raise NotImplementedError

    def pull(self, pod: str, *, out: bool) -> None:
        self.server.say(self.service, {"pod": pod, "ip": self.ips[pod], "state": "out" if out else "in"})


KINDS: tuple[type[Platform], ...] = (OnConsul, OnZooKeeper, OnPolaris, OnNacos, OnEureka, OnHttp)
DISTURBANCES = ("killed", "wiped", "frozen", "emptied", "forbidden", "slow")
LACKS: Mapping[tuple[type[Platform], str], str] = {
    (OnNacos, "forbidden"): "Polaris lets everybody read by Nacos' protocol; test_nacos.py has a fake that does not",
    (OnEureka, "killed"): "its registrations are only in memory: a restart is a wipe",
    (OnHttp, "emptied"): "a pod that a platform's document leaves out serves, by its own word",
}
"""What a registry cannot suffer, and why."""
