"""Real service registries that the pods of a Deployment are registered in, as an SOA platform would do it.

The tests only register pods and pull them out, so the pods need not run, and no instance expires.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from lab.harness.registries.consul import Consul
from lab.harness.registries.eureka import EurekaServer
from lab.harness.registries.polaris import Polaris
from lab.harness.registries.zookeeper import ZooKeeper

PORT = 8080
INTERVAL = 1.0
"""Seconds between polls of the registries that do not push."""


class Platform(Protocol):
    """A registry with a service. `bound`: the maximum seconds from its own API call to the changed answer."""

    bound: float

    @property
    def settings(self) -> dict[str, Any]:
        """The registry's entry in the adapter's settings."""

    def register(self, service: str, pods: Mapping[str, str]) -> None:
        """Registers pods, by name and address."""

    def pull(self, service: str, pod: str, *, out: bool) -> None:
        """Pulls a pod out, or puts it back, by this registry's explicit means."""

    def kill(self) -> None:
        """Kills the server at once."""

    def resume(self, *, wiped: bool) -> None:
        """Starts it again, with its data or without (`wiped`)."""


class OnConsul:
    """Consul: maintenance mode; changes arrive by blocking queries."""

    bound = 1.0

    def __init__(self, server: Consul) -> None:
        self._server = server

    @property
    def settings(self) -> dict[str, Any]:
        return {"name": "consul", "type": "Consul", "servers": [self._server.url]}

    def register(self, service: str, pods: Mapping[str, str]) -> None:
        for name, ip in pods.items():
            self._server.register(service, name, ip, PORT)
        self._server.wait_listed(service, len(pods))

    def pull(self, service: str, pod: str, *, out: bool) -> None:
        self._server.maintenance(pod, on=out)

    def kill(self) -> None:
        self._server.kill()

    def resume(self, *, wiped: bool) -> None:
        if wiped:
            self._server.wipe()
        self._server.resume()


class OnZooKeeper:
    """ZooKeeper: Spring Cloud's layout and instance status; changes arrive by watches."""

    bound = 1.0

    def __init__(self, server: ZooKeeper, client: Any) -> None:
        self._server, self._client = server, client
        self._ips: dict[str, str] = {}

    @property
    def settings(self) -> dict[str, Any]:
        return {"name": "zookeeper", "type": "ZooKeeper", "servers": [self._server.address], "layout": "Curator"}

    def register(self, service: str, pods: Mapping[str, str]) -> None:
        self._ips.update(pods)
        for name in pods:
            self._client.create(_node(service, name), self._content(service, name, "UP"), makepath=True)

    def pull(self, service: str, pod: str, *, out: bool) -> None:
        self._client.set(_node(service, pod), self._content(service, pod, "OUT_OF_SERVICE" if out else "UP"))

    def kill(self) -> None:
        self._server.kill()

    def resume(self, *, wiped: bool) -> None:
        self._server.restart(wipe=wiped)

    def _content(self, service: str, pod: str, status: str) -> bytes:
        instance = {"name": service, "id": pod, "address": self._ips[pod], "port": PORT, "serviceType": "DYNAMIC"}
        return json.dumps({**instance, "payload": {"metadata": {"instance_status": status}}}).encode()


def _node(service: str, pod: str) -> str:
    return f"/services/{service}/{pod}"


class OnPolaris:
    """Polaris: isolation; the adapter polls."""

    bound = INTERVAL + 1.0

    def __init__(self, server: Polaris) -> None:
        self._server = server
        self._ips: dict[str, str] = {}

    @property
    def settings(self) -> dict[str, Any]:
        address, timing = [self._server.http], {"intervalSeconds": INTERVAL}
        return {"name": "polaris", "type": "Polaris", "servers": address, **timing}

    def register(self, service: str, pods: Mapping[str, str]) -> None:
        self._ips.update(pods)
        self._call("POST", "", [{**self._of(service, name), "port": PORT} for name in pods])

    def pull(self, service: str, pod: str, *, out: bool) -> None:
        self._call("PUT", "/isolate/host", [{**self._of(service, pod), "isolate": out}])

    def kill(self) -> None:
        self._server.kill()

    def resume(self, *, wiped: bool) -> None:
        self._server.restart(wipe=wiped)

    def _call(self, method: str, path: str, instances: list[dict[str, Any]]) -> None:
        self._server.call(method, f"/naming/v1/instances{path}", instances)

    def _of(self, service: str, pod: str) -> dict[str, Any]:
        return {"service": service, "namespace": "default", "host": self._ips[pod]}


class OnNacos(OnPolaris):
    """Polaris as a Nacos server: weight 0. It detects its own changes once a second."""

    bound = INTERVAL + 2.0

    @property
    def settings(self) -> dict[str, Any]:
        return {"name": "nacos", "type": "Nacos", "servers": [self._server.nacos], "intervalSeconds": INTERVAL}

    def pull(self, service: str, pod: str, *, out: bool) -> None:
        self._call("PUT", "", [{**self._of(service, pod), "port": PORT, "weight": 0 if out else 100}])


class OnEureka:
    """Eureka: the status override OUT_OF_SERVICE; the adapter polls a server without a response cache."""

    bound = INTERVAL + 1.0

    def __init__(self, server: EurekaServer) -> None:
        self._server = server

    @property
    def settings(self) -> dict[str, Any]:
        address, timing = [self._server.url], {"intervalSeconds": INTERVAL}
        return {"name": "eureka", "type": "Eureka", "servers": address, **timing}

    def register(self, service: str, pods: Mapping[str, str]) -> None:
        for name, ip in pods.items():
            self._server.register(service, name, ip, lease=3600)

    def pull(self, service: str, pod: str, *, out: bool) -> None:
        if out:
            self._server.set_status(service, pod, "OUT_OF_SERVICE")
        else:
            self._server.clear_status(service, pod)

    def kill(self) -> None:
        self._server.kill()

    def resume(self, *, wiped: bool) -> None:
        self._server.resume()


@contextlib.contextmanager
def platform(name: str) -> Iterator[Platform]:
    """Starts a server of this kind for the body."""
    match name:
        case "consul":
            with Consul() as consul:
                yield OnConsul(consul)
        case "zookeeper":
            with ZooKeeper() as zookeeper, zookeeper.session() as client:
                yield OnZooKeeper(zookeeper, client)
        case "polaris":
            with Polaris() as polaris:
                yield OnPolaris(polaris)
        case "nacos":
            with Polaris() as polaris:
                yield OnNacos(polaris)
        case "eureka":
            with EurekaServer(cache_ms=0) as eureka:
                yield OnEureka(eureka)
        case _:
            raise ValueError(name)
