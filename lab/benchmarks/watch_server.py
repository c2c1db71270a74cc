"""A faithful watch server: lists in pages, watches with resource versions and bookmarks, discovery, `/scale`, usage.

    python -m lab.benchmarks.watch_server FOLDER POLICIES PODS NAMESPACES

It serves the scene (`benchmarks.scene`) as a large cluster's API server would, for adapters that a real API server on
this machine could not hold. Objects are written when they are asked for, so that 200,000 pods need little memory here.
FOLDER has `server.pem`, and gets `address` once it serves.
"""

import asyncio
import json
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from lab.benchmarks import scene
from lab.benchmarks.usage import Usage

BOOKMARK_SECONDS = 30.0


class Collection:
    """One resource: its keys in etcd's order, and the writer of an object; no object changes."""

    def __init__(self, kind: str, keys: Iterable[str], write: Callable[[str], bytes]) -> None:
        self.kind, self.write = kind, write
        self.keys = sorted(keys)
        self.version, self.oldest = 1000, 0
        self.watchers: set[asyncio.Queue[bytes]] = set()

    def page(self, limit: int, token: str) -> bytes:
        first, version = map(int, token.split(":")) if token else (0, self.version)
        last = min(len(self.keys), first + limit) if limit else len(self.keys)
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if last < len(self.keys):
            meta |= {"continue": f"{last}:{version}", "remainingItemCount": len(self.keys) - last}
        items = b",".join(map(self.write, self.keys[first:last]))
        head = json.dumps(meta).encode()
        return b'{"kind":"%sList","apiVersion":"v1","metadata":%s,"items":[%s]}\n' % (self.kind.encode(), head, items)

    def bookmark(self) -> bytes:
        meta = {"kind": self.kind, "metadata": {"resourceVersion": str(self.version)}}
        return json.dumps({"type": "BOOKMARK", "object": meta}).encode() + b"\n"

    def expire(self) -> None:
        """Forgets the past, and ends the watches: they must list anew."""
        self.version += 1
        self.oldest = self.version
        for watcher in self.watchers:
            watcher.put_nowait(_EXPIRED)


_EXPIRED = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    b'"message":"too old resource version","reason":"Expired","code":410}}\n'
)


class PodWriter:
    """Writes pods of a service from one template: its pods differ in few texts."""

    def __init__(self, services: list[scene.Service]) -> None:
        self._of = {
            f"{service.namespace}/{name}": (service, index, name)
            for service in services
            for index, name in enumerate(service.pod_names)
        }
        self._templates: dict[str, bytes] = {}

    @property
    def keys(self) -> Iterable[str]:
        return self._of

    def write(self, key: str) -> bytes:
        service, index, name = self._of[key]
        text = self._templates.get(service.name)
        if text is None:
            text = self._templates[service.name] = self._template(service)
        for place, value in _texts(service, index, name).items():
            text = text.replace(place, value)
        return text

    @staticmethod
    def _template(service: scene.Service) -> bytes:
        text = _written(scene.pod(service, 0))
        for place, value in _texts(service, 0, service.pod_names[0]).items():
            text = text.replace(value, place)
        return text


def _texts(service: scene.Service, index: int, name: str) -> dict[bytes, bytes]:
    """What differs among the pods of a service, by its place in the template."""
    return {
        b"@name@": name.encode(),
        b"@uid@": scene.uid("pod", service.namespace, name).encode(),
        b'"@address@"': f'"{scene.address(service, index)}"'.encode(),
        b'"@node@"': f'"node-{index:03}"'.encode(),
        b'"@host@"': f'"10.0.0.{index}"'.encode(),
    }


class Server:
    """Everything that the adapter asks an API server for."""

    def __init__(self, policies: int, pods: int, namespaces: int, front_proxy: str) -> None:
        self.services = scene.services(policies, pods, namespaces)
        self.usage = Usage(self.services)
        self.front_proxy = front_proxy
        self.writer = PodWriter(self.services)
        named = {f"{one.namespace}/{one.name}": one for one in self.services}

        def collection(kind: str, make: Callable[[scene.Service], scene.Object]) -> Collection:
            return Collection(kind, named, lambda key: _written(make(named[key])))

        self.collections = {
            "/api/v1/pods": Collection("Pod", self.writer.keys, self.writer.write),
            "/apis/apps/v1/deployments": collection("Deployment", scene.deployment),
            "/apis/autoscaling/v2/horizontalpodautoscalers": collection("HorizontalPodAutoscaler", scene.hpa),
            "/apis/discovery.k8s.io/v1/endpointslices": collection("EndpointSlice", scene.endpoint_slice),
            "/apis/effective-load.io/v1alpha1/watermarkpolicies": collection("WatermarkPolicy", _stored_policy),
        }
        self.named = named

    # --- what the adapter asks for ---

    async def list(self, request: web.Request) -> web.StreamResponse:
        collection = self.collections[request.path]
        if "watch" in request.query:
            return await self._watch(request, collection)
        # As the watch cache does: a list at version 0 is whole, and a page only where no version is asked for.
        limit = 0 if request.query.get("resourceVersion") == "0" else int(request.query.get("limit", "0"))
        body = collection.page(limit, request.query.get("continue", ""))
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, collection: Collection) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        place = int(request.query.get("resourceVersion", "0"))
        await response.prepare(request)
        if place < collection.oldest:
            await response.write(_EXPIRED)
            return response
        collection.watchers.add(queue)
        ends = time.monotonic() + float(request.query.get("timeoutSeconds", "1800"))
        with suppress(ConnectionError):
            try:
                await self._send(response, collection, queue, ends)
            finally:
                collection.watchers.discard(queue)
        return response

    @staticmethod
    async def _send(
        response: web.StreamResponse, collection: Collection, queue: "asyncio.Queue[bytes]", ends: float
    ) -> None:
        while (left := ends - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(left, BOOKMARK_SECONDS)):
                    line = await queue.get()
            except TimeoutError:
                line = collection.bookmark()
            await response.write(line)
            if line is _EXPIRED:
                return

    async def scale(self, request: web.Request) -> web.StreamResponse:
        service = self.named["{namespace}/{name}".format(**request.match_info)]
        scale = {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": service.name, "namespace": service.namespace},
            "spec": {"replicas": service.replicas},
            "status": {"replicas": service.replicas, "selector": f"app.kubernetes.io/name={service.name}"},
        }
        return web.json_response(scale)

    async def review(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({**await request.json(), "status": {"allowed": True}}, status=201)

    async def discovery(self, request: web.Request) -> web.StreamResponse:
        group_version = request.path.removeprefix("/apis/").removeprefix("/api/")
        names = [
            {"name": path.rpartition("/")[2], "singularName": "", "namespaced": True, "kind": one.kind, "verbs": []}
            for path, one in self.collections.items()
            if path.startswith(f"{request.path}/")
        ]
        if group_version == "apps/v1":
            names.append({**names[0], "name": "deployments/scale", "kind": "Scale"})
        return web.json_response({"kind": "APIResourceList", "groupVersion": group_version, "resources": names})

    async def configuration(self, _request: web.Request) -> web.StreamResponse:
        data = {
            "requestheader-client-ca-file": self.front_proxy,
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        return web.json_response({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}, "data": data})

    async def expire(self, _request: web.Request) -> web.StreamResponse:
        """The benchmark ends the watches of pods, so that they are listed anew."""
        self.collections["/api/v1/pods"].expire()
        return web.Response()


def _stored_policy(service: scene.Service) -> scene.Object:
    policy = scene.policy(service)
    identity = {
        "uid": scene.uid("policy", service.namespace, service.name),
        "creationTimestamp": "2026-01-05T08:00:00Z",
    }
    return {**policy, "metadata": {**policy["metadata"], **identity, "generation": 1}}


def _written(item: scene.Object) -> bytes:
    item["metadata"]["resourceVersion"] = "1"
    return json.dumps(item, separators=(",", ":")).encode()


def _app(server: Server) -> web.Application:
    app = web.Application(client_max_size=1 << 26)
    for path in server.collections:
        app.router.add_get(path, server.list)
    for group_version in {path.rpartition("/")[0] for path in server.collections}:
        app.router.add_get(group_version, server.discovery)
    app.router.add_get("/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale", server.scale)
    app.router.add_get("/apis/metrics.k8s.io/v1beta1", server.usage.resources)
    app.router.add_get("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods", server.usage.pods)
    app.router.add_get(
        "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", server.configuration
    )
    app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", server.review)
    app.router.add_post("/control/expire", server.expire)
    return app


async def _serve(folder: Path, server: Server) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    runner = web.AppRunner(_app(server), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    partial = folder / "address.part"
    partial.write_text(f"https://127.0.0.1:{runner.addresses[0][1]}")
    partial.rename(folder / "address")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    warming = asyncio.create_task(server.usage.warm())
    await stop.wait()
    warming.cancel()
    await runner.cleanup()


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    _policies, _pods, _namespaces = map(int, sys.argv[2:])
    asyncio.run(_serve(_folder, Server(_policies, _pods, _namespaces, (_folder / "front-proxy.pem").read_text())))
