"""A Nacos whose contents a test writes, for what no server here can be made to do: versions, rights, faults.

`version` 2 or 3 decides which calls there are. What the views show is what Nacos shows: clients see no disabled
instance, and with few healthy ones all as healthy; administrators see all as it is.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import math
import ssl
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.registries.nacos.push import decode_payload, encode_payload
from adapter.registries.nacos.source import NacosSource
from adapter.registries.source import ServiceKey
from adapter.settings.registries import NacosRegistry
from lab.harness.processes import free_ports
from tests.registries.kit import FollowedService
from tests.waiting import eventually

SECRET_KEY = "sk"
SHOP = ServiceKey("nacos", "shop")
CART = ServiceKey("nacos", "cart")
_UNREGISTERED = 301


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


GRPC_OFFSET = 1000
"""As in Nacos: the servers of a list have the same."""


class FakeNacos:
    """`services`: hosts by namespace and `group@@service`; services that are not there are unknown.

    `users`: passwords; empty: no login is needed. `readers`: users with the right `r`, which the lists for
    administrators take. `threshold`: protect threshold of all services. `compatible`: whether a Nacos 3 still has the
    clients' call of Nacos 1. `asked`: the paths that arrived. Errors are as Nacos 3.1 and 2.5.1 word them, each with
    the time at which it was made.
    """

    def __init__(self, version: int = 3, *, tls: ssl.SSLContext | None = None, grpc_tls: Any = None) -> None:
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
        self.hold: asyncio.Event | None = None
        """Lists wait for it."""
        self.calls: list[str] = []
        """Types of gRPC requests that arrived."""
        self.hold_registration: asyncio.Event | None = None
        """Connections that are set up are not known before it."""
        self.beats_answered = True
        self.push_disabled_for: set[str] = set()
        self._subscribers: dict[str, tuple[asyncio.Queue[bytes | None], set[tuple[str, str]]]] = {}
        self._acknowledged: dict[str, asyncio.Event] = {}
        self._news = asyncio.Event()
        self._tls, self._grpc_tls = tls, grpc_tls
        self._grpc: Any = None
        [self.port] = free_ports(1, offset=GRPC_OFFSET)
        self.grpc_port = self.port + GRPC_OFFSET
        self._http = self._application()

    async def __aenter__(self) -> Self:
        await self._http.start_server(ssl=self._tls)
        await self.start_grpc()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_grpc()
        await self._http.close()

    async def start_grpc(self) -> None:
        self._grpc = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handlers = {
            "Request": {"request": grpc.unary_unary_rpc_method_handler(self._request)},
            "BiRequestStream": {"requestBiStream": grpc.stream_stream_rpc_method_handler(self._stream)},
        }
        for service, methods in handlers.items():
            self._grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        address = f"localhost:{self.grpc_port}"
        if self._grpc_tls is None:
            self._grpc.add_insecure_port(address)
        else:
            self._grpc.add_secure_port(address, self._grpc_tls)
        await self._grpc.start()

    async def stop_grpc(self) -> None:
        self.drop()
        await self._grpc.stop(None)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}/nacos"

    def settings(self, **more: Any) -> NacosRegistry:
        """Settings of an adapter that polls 50 times a second where it has to."""
        base = {
            "name": "nacos",
            "type": "Nacos",
            "servers": (self.url,),
            "grpc_port_offset": self.grpc_port - self.port,
            "interval_seconds": 0.02,
            "timeout_seconds": 5,
        }
        return NacosRegistry(**{**base, **more})

    # --- contents ---

    def put(self, *hosts: dict[str, Any], service: str = "shop", namespace: str = "public") -> None:
        """Let a service have these instances, and tell who subscribed to it."""
        key = (namespace, f"DEFAULT_GROUP@@{service}")
        self.services[key] = list(hosts)
        self.push(*key)

    def push(self, namespace: str, grouped: str) -> None:
        name = grouped.partition("@@")[2]
        told: dict[str, Any] = {"requestId": grouped, "serviceInfo": {**self._info(namespace, grouped), "name": name}}
        for queue, services in self._subscribers.values():
            if (namespace, grouped) in services:
                queue.put_nowait(_message("NotifySubscriberRequest", told))

    async def until(self, holds: Any) -> None:
        """Return once it holds; looked at after each request."""
        async with asyncio.timeout(60):
            while not holds():
                self._news.clear()
                await self._news.wait()

    @property
    def subscriptions(self) -> set[tuple[str, str]]:
        return set().union(*(services for _, services in self._subscribers.values()))

    # --- faults of connections ---

    def drop(self) -> None:
        """End all streams."""
        for queue, _ in self._subscribers.values():
            queue.put_nowait(None)
        self._subscribers.clear()

    def forget(self) -> None:
        """Not know the connections any more, and leave them open."""
        self._subscribers.clear()

    def ask_to_reconnect(self) -> None:
        self.send_raw(_message("ConnectResetRequest", {"requestId": "reset"}))

    def send(self, kind: str, request_id: str) -> asyncio.Event:
        """Send a request to all; the event is set when it is acknowledged."""
        self._acknowledged[request_id] = asyncio.Event()
        self.send_raw(_message(kind, {"requestId": request_id}))
        return self._acknowledged[request_id]

    def send_raw(self, message: bytes) -> None:
        for queue, _ in self._subscribers.values():
            queue.put_nowait(message)

    # --- HTTP ---

    def _application(self) -> TestServer:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        return TestServer(application, host="localhost", port=self.port, scheme="https" if self._tls else "http")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/nacos")
        self.asked.append(path)
        self._news.set()
        if path.endswith("/login"):
            return await self._login(request, path)
        if path not in self._views() - self.hidden:
            return _error(request.path, self.moved, "Not Found", "No message available")
        fault = self.faults.get(request.query.get("serviceName", "").rpartition("@@")[2], 0)
        if self.hold is not None and not fault:
            await self.hold.wait()
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

    # --- gRPC ---

    async def _request(self, message: bytes, context: Any) -> bytes:
        kind, body = decode_payload(message)
        self.calls.append(kind)
        self._news.set()
        if kind == "ServerCheckRequest":
            return _message("ServerCheckResponse", {"resultCode": 200, "connectionId": context.peer()})
        if context.peer() not in self._subscribers:
            return _failure(_UNREGISTERED, "Connection is unregistered.")
        if kind == "HealthCheckRequest":
            if not self.beats_answered:
                await asyncio.Event().wait()
            return _message("HealthCheckResponse", {"resultCode": 200})
        return self._subscribe(json.loads(body), context.peer(), _headers(message))

    def _subscribe(self, request: dict[str, Any], peer: str, headers: Mapping[str, str]) -> bytes:
        refusal = self._refusal(headers.get("accessToken", ""), headers)
        if refusal or request["serviceName"] in self.push_disabled_for:
            return _failure(403, refusal or "not for you")
        grouped = f"{request['groupName']}@@{request['serviceName']}"
        _, services = self._subscribers[peer]
        service = (request["namespace"], grouped)
        services.add(service) if request["subscribe"] else services.discard(service)
        info = {**self._info(*service), "name": request["serviceName"]}
        return _message("SubscribeServiceResponse", {"resultCode": 200, "serviceInfo": info})

    async def _stream(self, messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        peer = context.peer()  # not in the end: the call may be freed by then, and asking it is a segmentation fault
        reading = asyncio.ensure_future(self._read(messages, peer, queue))
        try:
            while (message := await queue.get()) is not None:
                yield message
        finally:
            reading.cancel()
            self._subscribers.pop(peer, None)

    async def _read(self, messages: AsyncIterator[bytes], peer: str, queue: asyncio.Queue[bytes | None]) -> None:
        async for message in messages:
            kind, body = decode_payload(message)
            self.calls.append(kind)
            if kind == "ConnectionSetupRequest":
                if self.hold_registration is not None:
                    await self.hold_registration.wait()
                self._subscribers[peer] = (queue, set())
                queue.put_nowait(_message("SetupAckRequest", {"requestId": "setup", "abilityTable": {}}))
            elif (event := self._acknowledged.get(json.loads(body)["requestId"])) is not None:
                event.set()
            self._news.set()


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


def _message(kind: str, body: Mapping[str, Any]) -> bytes:
    return encode_payload(kind, json.dumps(body).encode(), {})


def _failure(code: int, message: str) -> bytes:
    return _message("ErrorResponse", {"resultCode": 500, "errorCode": code, "success": False, "message": message})


def _headers(message: bytes) -> dict[str, str]:
    """The headers of an envelope, read the slow way: by what a client must have written for each name."""
    found = {}
    for name in ("accessToken", "ak", "data", "signature"):
        with contextlib.suppress(ValueError):
            at = message.index(bytes([len(name)]) + name.encode() + b"\x12")
            size = message[at + len(name) + 2]
            found[name] = message[at + len(name) + 3 : at + len(name) + 3 + size].decode()
    return found


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

    def age(self, key: ServiceKey) -> float:
        """Seconds since the last list was read or confirmed."""
        listed = self.cache.instances(key)
        return self.clock() - listed.at if listed is not None else math.inf

    async def until_pods(self, *names: str, key: ServiceKey = SHOP) -> None:
        """Waits until exactly these pods are listed, without an error."""
        await self.until(lambda: self.pod_names(key) == list(names) and not self.error_of(key))


def following(settings: NacosRegistry, *keys: ServiceKey) -> Followed:
    """Follows services (default: `shop`) while the block runs."""
    return Followed(settings, *keys)


def polling(nacos: FakeNacos, **more: Any) -> NacosRegistry:
    """Settings without push."""
    return nacos.settings(push=False, **more)


async def subscribed(nacos: FakeNacos, followed: Followed, *services: str) -> None:
    """Returns once these services (default: shop) are pushed, and listed since."""
    places = {("public", f"DEFAULT_GROUP@@{service}") for service in services or ("shop",)}
    await nacos.until(lambda: nacos.subscriptions == places)
    await eventually(lambda: len(followed.source.pushed) == len(places))
