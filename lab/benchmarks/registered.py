"""Three registries with the pods of the scene: real servers, their settings, and pods that leave and return."""

import itertools
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Protocol

from lab.benchmarks import scene
from lab.harness.processes import Scenery
from lab.harness.registries.consul import Consul
from lab.harness.registries.eureka import EurekaServer
from lab.harness.registries.zookeeper import ZooKeeper

Registration = tuple[str, str]
"""Service and address."""
_LEASE_SECONDS = 7200


class Registry(Protocol):
    """A registry that pods register with."""

    settings: dict[str, Any]

    def join(self, registrations: Sequence[Registration]) -> None: ...
    def leave(self, registrations: Sequence[Registration]) -> None: ...


class ConsulWithPods:
    def __init__(self, stack: ExitStack) -> None:
        self._server = stack.enter_context(Consul(limits={"http_max_conns_per_client": 2000}))  # by default 200
        self._server.call("PUT", "/v1/catalog/register", {"Node": "outside", "Address": "127.0.0.2"})
        self.settings = {"type": "Consul", "servers": [self._server.url]}

    def join(self, registrations: Sequence[Registration]) -> None:
        self._transact("set", registrations)

    def leave(self, registrations: Sequence[Registration]) -> None:
        self._transact("delete", registrations)

    def _transact(self, verb: str, registrations: Sequence[Registration]) -> None:
        for first in range(0, len(registrations), 64):
            operations = [
                {"Service": {"Verb": verb, "Node": "outside", "Service": _consul_service(*one)}}
                for one in registrations[first : first + 64]
            ]
            self._server.call("PUT", "/v1/txn", operations)


def _consul_service(name: str, ip: str) -> dict[str, Any]:
    return {"ID": f"{name}-{ip}", "Service": name, "Address": ip, "Port": 8080}


class ZooKeeperWithPods:
    def __init__(self, stack: ExitStack) -> None:
        server = stack.enter_context(ZooKeeper())
        self._client = stack.enter_context(server.session())
        self._known: set[str] = set()
        self.settings = {"type": "ZooKeeper", "servers": [server.address], "layout": "Curator"}

    def join(self, registrations: Sequence[Registration]) -> None:
        for name in {name for name, _ in registrations} - self._known:
            self._client.ensure_path(f"/services/{name}")
            self._known.add(name)
        for one in [
            self._client.create_async(f"/services/{name}/{ip}", _curator(name, ip), ephemeral=True)
            for name, ip in registrations
        ]:
            one.get(timeout=60)

    def leave(self, registrations: Sequence[Registration]) -> None:
        for one in [self._client.delete_async(f"/services/{name}/{ip}") for name, ip in registrations]:
            one.get(timeout=60)


def _curator(name: str, ip: str) -> bytes:
    instance = {"name": name, "id": ip, "address": ip, "port": 8080, "serviceType": "DYNAMIC"}
    return json.dumps({**instance, "payload": {"metadata": {"instance_status": "UP"}}}).encode()


class EurekaWithPods:
    def __init__(self, stack: ExitStack) -> None:
        # A delta answer has all changes of this time: by default of 180 s, the whole fill of the benchmark.
        retention = {"eureka.server.retention-time-in-m-s-in-delta-queue": "30000"}
        self._server = stack.enter_context(EurekaServer(settings=retention))
        self.settings = {"type": "Eureka", "servers": [self._server.url]}

    def join(self, registrations: Sequence[Registration]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda one: self._server.register(one[0], _id(one), one[1], lease=_LEASE_SECONDS), registrations
                )
            )

    def leave(self, registrations: Sequence[Registration]) -> None:
        for one in registrations:
            self._server.deregister(one[0], _id(one))


def _id(one: Registration) -> str:
    return f"{one[0]}-{one[1]}"


class Registries(Scenery):
    """Every policy but one in four names one of the three, in turn."""

    def __init__(self, services: Sequence[scene.Service]) -> None:
        self._services = services

    def _start(self, stack: ExitStack) -> None:
        kinds = {
            "eureka": EurekaWithPods(stack),
            "consul": ConsulWithPods(stack),
            "zookeeper": ZooKeeperWithPods(stack),
        }
        self._kinds: dict[str, Registry] = dict(kinds)
        names = itertools.cycle((*kinds, ""))
        self._named = dict(zip((one.name for one in self._services), names, strict=False))
        for name, kind in self._kinds.items():
            services = [service for service in self._services if self._named[service.name] == name]
            kind.join([(one.name, scene.address(one, index)) for one in services for index in range(one.replicas)])

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The settings' section."""
        return [{**kind.settings, "name": name} for name, kind in self._kinds.items()]

    def policy(self, service: scene.Service) -> scene.Object:
        """The policy of a service, with its registry."""
        policy = scene.policy(service)
        if named := self._named[service.name]:
            policy["spec"]["registry"] = {"name": named, "service": service.name}
        return policy

    def replace(self, pods: Mapping[str, tuple[scene.Service, int]], *, join: bool) -> None:
        """Pods leave their registries, or join them again."""
        for name, kind in self._kinds.items():
            chosen = [
                (service.name, scene.address(service, index))
                for service, index in pods.values()
                if self._named[service.name] == name
            ]
            (kind.join if join else kind.leave)(chosen)
