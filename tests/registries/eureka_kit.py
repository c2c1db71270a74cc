"""A Eureka source that runs, the pods whose service it follows, and a Eureka that says what a test tells it."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.settings.registries import EurekaRegistry
from lab.harness.registries.eureka import EurekaServer
from tests.registries.kit import FollowedService

REGISTRY = "eureka"


class Followed(FollowedService):
    """A service of Eureka. `settings` are those of the registry."""

    def __init__(self, servers: Iterable[str], service: str, **settings: Any) -> None:
        named = {"name": REGISTRY, "type": "Eureka", "servers": tuple(servers)}
        super().__init__(
            EurekaRegistry(**{**named, "interval_seconds": 0.1, "timeout_seconds": 5, **settings}), service
        )

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each instance by its id, in the last valid answer."""
        listed = self.cache.instances(self.key)
        return {one.metadata["instanceId"]: one.status for one in listed.instances} if listed is not None else {}

    async def aged_by_answers(self, seconds: int) -> set[str]:
        """Lets this time pass while the server answers every 10 s; returns the pods that were pulled out meanwhile."""
        out: set[str] = set()
        for _ in range(seconds // 10):
            self.clock.jump(10)
            await self.until_confirmed()
            out.update(self.pods.out())
        return out


def following(*servers: str, service: str = "web", **settings: Any) -> contextlib.AbstractAsyncContextManager[Followed]:
    """Follows a service while the block runs."""
    return Followed(servers, service, **settings)


def register_pods(eureka: EurekaServer, service: str, count: int = 4, **more: Any) -> None:
    """Register the pods of `Followed` with a Eureka."""
    for number in range(count):
        eureka.register(service, f"{service}-{number}", f"10.0.0.{10 + number}", **more)


def instance(number: int, status: str = "UP", *, action: str = "ADDED", **more: Any) -> dict[str, Any]:
    """An instance of pod `web-<number>`, as Eureka writes it."""
    return {
        "instanceId": f"web-{number}",
        "hostName": f"web-{number}",
        "app": "WEB",
        "ipAddr": f"10.0.0.{10 + number}",
        "status": status,
        "overriddenStatus": "UNKNOWN",
        "port": {"$": 8080, "@enabled": "true"},
        "securePort": {"$": 8443, "@enabled": "false"},
        "leaseInfo": {"renewalIntervalInSecs": 30, "durationInSecs": 90},
        "metadata": {},
        "actionType": action,
        **more,
    }


def hash_of(apps: dict[str, list[dict[str, Any]]]) -> str:
    """Eureka's hash of these applications."""
    counts = Counter(one["status"] for of_one in apps.values() for one in of_one)
    return "".join(f"{status}_{count}_" for status, count in sorted(counts.items()))


class FakeEureka:
    """Answers from `apps` (instances by application) and `changes` (the same, in deltas); both with the hash of `apps`.

    `asked` are the paths that came. `handlers` take the place of an answer, by path; `hash` that of the hash.
    """

    def __init__(self) -> None:
        self.apps: dict[str, list[dict[str, Any]]] = {}
        self.changes: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.handlers: dict[str, Callable[[], web.Response]] = {}
        self.hash: str | None = None
        application = web.Application()
        application.router.add_get("/eureka/{path:.*}", self._answer)
        self.server = TestServer(application)

    async def __aenter__(self) -> Self:
        await self.server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()

    @property
    def url(self) -> str:
        return str(self.server.make_url("/eureka"))

    @property
    def lists(self) -> int:
        """How often the whole list was asked for."""
        return self.asked.count("apps/")

    @property
    def deltas(self) -> int:
        """How often the delta was asked for."""
        return self.asked.count("apps/delta")

    def answer(self, apps: dict[str, list[dict[str, Any]]]) -> web.Response:
        """These applications, as Eureka would write them."""
        rows = [{"name": name, "instance": instances} for name, instances in apps.items()]
        code = hash_of(self.apps) if self.hash is None else self.hash
        return raw({"applications": {"versions__delta": "1", "apps__hashcode": code, "application": rows}})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        self.asked.append(path)
        if path in self.handlers:
            return self.handlers[path]()
        return self.answer(self.changes if path == "apps/delta" else self.apps)


def raw(document: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(text=json.dumps(document), status=status, content_type="application/json")
