"""A metrics.k8s.io for the benchmark: constant usage with new samples every 15 s, like metrics-server.

`python -m lab.benchmarks.usage PORT CERTIFICATE KEY POLICIES PODS NAMESPACES`
"""

import asyncio
import datetime as dt
import ssl
import sys
from collections import defaultdict

from aiohttp import web

from lab.benchmarks import scene

_SCRAPE_SECONDS = 15


class Usage:
    """Answers lists of a namespace's pods; builds a new body when the next scrape is due."""

    def __init__(self, services: list[scene.Service]) -> None:
        self._services: dict[str, list[scene.Service]] = defaultdict(list)
        for service in services:
            self._services[service.namespace].append(service)
        self._bodies: dict[str, tuple[dt.datetime, bytes]] = {}

    async def resources(self, _request: web.Request) -> web.Response:
        pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
        head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1"}
        return web.json_response({**head, "resources": [pods]})

    async def pods(self, request: web.Request) -> web.Response:
        return web.Response(body=self.body(request.match_info["namespace"]), content_type="application/json")

    def body(self, namespace: str) -> bytes:
        now = dt.datetime.now(dt.UTC)
        at = dt.datetime.fromtimestamp(now.timestamp() // _SCRAPE_SECONDS * _SCRAPE_SECONDS, dt.UTC)
        cached = self._bodies.get(namespace)
        if cached is None or cached[0] != at:
            cached = self._bodies[namespace] = (at, scene.pod_metrics(self._services[namespace], at))
        return cached[1]

    async def warm(self) -> None:
        """Builds the next bodies one by one in advance, so that no request waits for them."""
        while True:
            for namespace in self._services:
                self.body(namespace)
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)


async def serve(port: int, certificate: str, key: str, services: list[scene.Service]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    usage = Usage(services)
    app = web.Application()
    app.router.add_get("/apis/metrics.k8s.io/v1beta1", usage.resources)
    app.router.add_get("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods", usage.pods)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    await usage.warm()


if __name__ == "__main__":
    _port, _certificate, _key, *_counts = sys.argv[1:]
    _policies, _pods, _namespaces = map(int, _counts)
    asyncio.run(serve(int(_port), _certificate, _key, scene.services(_policies, _pods, _namespaces)))
