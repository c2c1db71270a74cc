"""A Eureka source that runs, the pods whose service it follows, and a Eureka whose answers a test sets."""

import contextlib
import json
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


def following(*servers: str, service: str = "web", **settings: Any) -> contextlib.AbstractAsyncContextManager[Followed]:
    """Follows a service while the block runs."""
    return Followed(servers, service, **settings)


def register_pods(eureka: EurekaServer, service: str, count: int = 4, **more: Any) -> None:
    """Register the pods of `Followed` with a Eureka."""
    for number in range(count):
        eureka.register(service, f"{service}-{number}", f"10.0.0.{10 + number}", **more)


def instance(number: int, status: str = "UP", **more: Any) -> dict[str, Any]:
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
        **more,
    }


class FakeEureka:
    """Answers from `apps` (instances by name in capitals), or with what `answer` makes; `asked` are the paths."""

    def __init__(self) -> None:
        self.apps: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.answer: Callable[[], web.Response] | None = None
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

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.match_info["path"])
        if self.answer is not None:
            return self.answer()
        name = request.match_info["path"].removeprefix("apps/")
        return application(name, self.apps[name]) if name in self.apps else web.Response(status=404)


def application(name: str, instances: object) -> web.Response:
    """An application, as Eureka writes it."""
    return raw({"application": {"name": name, "instance": instances}})


def raw(document: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(text=json.dumps(document), status=status, content_type="application/json")
