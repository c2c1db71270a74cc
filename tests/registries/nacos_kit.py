"""A Nacos whose contents a test writes, for what no server here can be made to do: versions, rights, faults.

`version` 2 or 3 decides which calls there are. What the views show is what Nacos shows: clients see no disabled
instance, and with few healthy ones all as healthy; administrators see all as it is.
"""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.registries.nacos import NacosSource
from adapter.registries.source import ServiceKey
from adapter.settings.registries import NacosRegistry
from tests.registries.kit import FollowedService

SECRET_KEY = "sk"
SHOP = ServiceKey("nacos", "shop")
CART = ServiceKey("nacos", "cart")


def host(number: int, **more: Any) -> dict[str, Any]:
    """An instance as the fake keeps it; the pods of tests have such addresses."""
    return {
        "ip": f"10.0.0.{10 + number}",
        "port": 8080,
        "weight": 1.0,
        "healthy": True,
        "enabled": True,
        "ephemeral": True,
        "clusterName": "DEFAULT",
        "metadata": {"pod": f"web-{number}"},
        **more,
    }


class FakeNacos:
    """`services`: hosts by namespace and `group@@service`; services that are not there are unknown.

    `users`: passwords; empty: no login is needed. `readers`: users with the right `r`, which the lists for
    administrators take. `threshold`: protect threshold of all services. `compatible`: whether a Nacos 3 still has the
    clients' call of Nacos 1. `asked`: the paths that arrived. Errors are as Nacos 3.1 and 2.5.1 word them, each with
    the time at which it was made.
    """

    def __init__(self, version: int = 3) -> None:
        self.version, self.compatible = version, True
        self.services: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.default_cluster = "DEFAULT"
        """The cluster whose instances the administrators' list shows if none is named; empty: all."""
        self.largest_page = 100_000
        self.moved = 404
        """The status of calls that this server does not have."""
        self.hidden: set[str] = set()
        """Paths that this server does not have."""
        self.threshold = 0.0
        self.users: dict[str, str] = {}
        self.readers: set[str] = set()
        self.signed = False
        self.tokens: dict[str, str] = {}
        self.logins: list[str] = []
        self.login_fault: int | str = 0
        self.faults: dict[str, int | str] = {}
        """What happens to the lists of a service: a status, `cut` or `hang`."""
        self.asked: list[str] = []
        self._news = asyncio.Event()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._http = TestServer(application, host="localhost")

    async def __aenter__(self) -> Self:
        await self._http.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    @property
    def url(self) -> str:
        return str(self._http.make_url("/nacos"))

    def settings(self, **more: Any) -> NacosRegistry:
        """Settings of an adapter that polls 50 times a second."""
        base = {
            "name": "nacos",
            "type": "Nacos",
            "servers": (self.url,),
            "interval_seconds": 0.02,
            "timeout_seconds": 5,
        }
        return NacosRegistry(**{**base, **more})

    # --- contents ---

    def put(self, *hosts: dict[str, Any], service: str = "shop", namespace: str = "public") -> None:
        """Let a service have these instances."""
        self.services[namespace, f"DEFAULT_GROUP@@{service}"] = list(hosts)

    async def until(self, holds: Any) -> None:
        """Return once it holds; looked at after each request."""
        async with asyncio.timeout(60):
            while not holds():
                self._news.clear()
                await self._news.wait()

    # --- HTTP ---

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/nacos")
        self.asked.append(path)
        self._news.set()
        if path.endswith("/login"):
            return await self._login(request, path)
        if path not in self._views() - self.hidden:
            return _error(request.path, self.moved, "Not Found", "No message available")
        fault = self.faults.get(request.query.get("serviceName", "").rpartition("@@")[2], 0)
        if fault:
            return await _fail(request, fault)
        query = request.query
        refusal = self._refusal(request.headers.get("accessToken", ""), query, admin="admin" in path)
        if refusal:
            return _error(request.path, 403, "Forbidden", refusal)
        return self._list(path, query)

    def _views(self) -> set[str]:
        if self.version == 2:
            return {"/v1/ns/instance/list", "/v2/ns/catalog/instances"}
        old = {"/v1/ns/instance/list"} if self.compatible else set()
        return old | {"/v3/client/ns/instance/list", "/v3/admin/ns/instance/list", "/v3/admin/ns/service"}

    def _list(self, path: str, query: Mapping[str, str]) -> web.Response:
        name = query["serviceName"]
        grouped = name if "@@" in name else f"{query['groupName']}@@{name}"
        service = (query["namespaceId"], grouped)
        if path == "/v1/ns/instance/list":
            return web.json_response({**self._info(*service), "name": grouped})
        if path == "/v3/client/ns/instance/list":
            return web.json_response({"code": 0, "message": "success", "data": self._info(*service)["hosts"]})
        if path == "/v3/admin/ns/instance/list":
            return self._administrators_list(service, query.get("clusterName", self.default_cluster))
        if path == "/v3/admin/ns/service":
            return self._detail(service)
        found = self.services.get(service, [])
        size = min(int(query["pageSize"]), self.largest_page)
        page = {"instances": found[:size], "count": len(found)} if found else {"count": 0}
        return web.json_response({"code": 0, "message": "success", "data": page})

    def _administrators_list(self, service: tuple[str, str], cluster: str) -> web.Response:
        """One cluster, or all; a cluster without instances is none."""
        if service not in self.services:
            return _lacking(f"service {service[1]} is not found!")
        found = [one for one in self.services[service] if cluster in {"", one["clusterName"]}]
        if not found and cluster:
            return _lacking(f"cluster {cluster} is not found!")
        return web.json_response({"code": 0, "message": "success", "data": found})

    def _detail(self, service: tuple[str, str]) -> web.Response:
        clusters = {one["clusterName"]: {"hosts": None} for one in self.services.get(service, [])}
        data = {"serviceName": service[1].partition("@@")[2], "clusterMap": clusters}
        return web.json_response({"code": 0, "message": "success", "data": data})

    def _info(self, namespace: str, grouped: str) -> dict[str, Any]:
        enabled = [one for one in self.services.get((namespace, grouped), []) if one["enabled"]]
        healthy = sum(one["healthy"] for one in enabled)
        reached = bool(enabled) and self.threshold > 0 and healthy / len(enabled) <= self.threshold
        hosts = [{**one, "healthy": True} for one in enabled] if reached else enabled
        return {"groupName": grouped.partition("@@")[0], "hosts": hosts, "reachProtectionThreshold": reached}

    # --- who asks ---

    async def _login(self, request: web.Request, path: str) -> web.Response:
        if path != ("/v3/auth/user/login" if self.version == 3 else "/v1/auth/login"):
            return web.Response(status=404)
        form = await request.post()
        user = str(form["username"])
        self.logins.append(user)
        if self.login_fault:
            return await _fail(request, self.login_fault)
        if user not in self.users or (self.version == 2 and self.users[user] != form["password"]):
            return _error(request.path, 403, "Forbidden", "user not found!")
        if self.users[user] != form["password"]:
            return _error(request.path, 500, "Internal Server Error", "No message available")
        token = f"token-{len(self.logins)}"
        self.tokens[token] = user
        return web.json_response({"accessToken": token, "tokenTtl": 18000, "username": user})

    def _refusal(self, token: str, fields: Mapping[str, str], *, admin: bool = False) -> str:
        if self.signed:
            data = fields.get("data", "")
            good = hmac.new(SECRET_KEY.encode(), data.encode(), hashlib.sha1).digest()
            signature = base64.b64encode(good).decode()
            return "" if (fields.get("ak"), fields.get("signature")) == ("ak", signature) else "wrong signature"
        if not self.users:
            return ""
        if token not in self.tokens:
            return "token invalid!"
        return "authorization failed!" if admin and self.tokens[token] not in self.readers else ""


async def _fail(request: web.Request, fault: int | str) -> web.Response:
    if fault == "hang":
        await asyncio.Event().wait()
    if fault == "cut" and request.transport is not None:
        request.transport.close()
    return _error(request.path, fault if isinstance(fault, int) else 500, "As it is", "as the test says")


def _lacking(what: str) -> web.Response:
    return web.json_response({"code": 30000, "message": "server error", "data": what}, status=404)


def _error(path: str, status: int, error: str, message: str) -> web.Response:
    """An error as Nacos words it."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return web.json_response(
        {"timestamp": now, "status": status, "error": error, "message": message, "path": path}, status=status
    )


class Followed(FollowedService):
    """The service `shop` of Nacos, or others instead. Its instances carry their pod's name in the metadata `pod`.

    The age of tokens follows the test's clock.
    """

    source: NacosSource

    def __init__(self, settings: NacosRegistry, *keys: ServiceKey) -> None:
        super().__init__(settings, SHOP.service, source=NacosSource(settings, lambda: self.clock()))  # noqa: PLW0108  there is no clock yet
        self._keys = keys or (SHOP,)

    async def __aenter__(self) -> Self:
        self.follow(self._keys)
        return self

    def pod_names(self, key: ServiceKey = SHOP) -> list[str]:
        """The names of the pods in the last valid answer."""
        listed = self.cache.instances(key)
        valid = listed is not None and listed.valid
        return [one.metadata["pod"] for one in listed.instances] if listed and valid else ["no valid answer"]

    async def until_pods(self, *names: str, key: ServiceKey = SHOP) -> None:
        """Waits until exactly these pods are listed, without an error."""
        await self.until(lambda: self.pod_names(key) == list(names) and not self.error_of(key))


def following(settings: NacosRegistry, *keys: ServiceKey) -> Followed:
    """Follows services (default: `shop`) while the block runs."""
    return Followed(settings, *keys)
