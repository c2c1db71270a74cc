"""An API server of several collections, each of which can be broken alone: refused, muted, or taken away."""

import asyncio
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.kube.credentials import ClusterAccess
from tests.kube.fake import Watch
from tests.usage.fakes import raw

Object = dict[str, Any]

BEAT_SECONDS = 0.5
USER = "system:serviceaccount:effective-load:effective-load"
_PATH = re.compile(
    r"(?P<prefix>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>scale|status))?"
)
PREFIXES = {
    "pods": "/api/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
    "watermarkpolicies": "/apis/effective-load.io/v1alpha1",
    "deployments": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "widgets": "/apis/example.com/v1",
}
KINDS = {"deployments": "Deployment", "statefulsets": "StatefulSet", "widgets": "Widget"}


def refusal(code: int, reason: str, message: str) -> web.Response:
    """A Status, as the API server words it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return raw({**body, "reason": reason, "message": message}, code)


class Cluster:
    """Lists, watches, scales, discovery and metrics.k8s.io. A watch that works has a bookmark each `BEAT_SECONDS`.

    What is broken is named by its plural, or by plural and namespace (`pods in shop`).
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {plural: {} for plural in PREFIXES}
        self.usage: dict[str, dict[str, str]] = defaultdict(dict)
        """CPU by namespace and pod."""
        self.muted: set[str] = set()
        """Watches that stay open and say nothing; lists, and new watches, that get no answer."""
        self.refused: set[str] = set()
        """What the account may neither list nor watch."""
        self.gone: set[str] = set()
        """Kinds that are not served."""
        self.withdrawn: set[str] = set()
        """Kinds that discovery still tells of."""
        self.down: set[str] = set()
        """Namespaces for which metrics.k8s.io answers 503."""
        self.selector_path = ".status.selector"
        """Where widgets keep their selector, by their definition."""
        self.asked: list[str] = []
        """Method and path of all requests."""
        self._watches: list[tuple[str, str, Watch]] = []
        self._versions = itertools.count(100)
        self._mended = asyncio.Event()
        self._server: TestServer | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._server = TestServer(app)
        await self._server.start_server()
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beating.cancel()
        self.mend()
        for *_where, watch in self._watches:
            watch.end()
        assert self._server is not None
        await self._server.close()

    async def load(self) -> ClusterAccess:
        assert self._server is not None
        return ClusterAccess(server=str(self._server.make_url("/")).rstrip("/"))

    # -- objects

    def put(self, plural: str, item: Object) -> None:
        """Make or change an object."""
        meta = item["metadata"]
        meta["resourceVersion"] = str(next(self._versions))
        key = f"{meta['namespace']}/{meta['name']}"
        kind = "MODIFIED" if key in self.objects[plural] else "ADDED"
        self.objects[plural][key] = item
        self._tell(plural, kind, item)

    def remove(self, plural: str, key: str) -> None:
        """Delete an object (`namespace/name`)."""
        item = self.objects[plural].pop(key)
        item["metadata"]["resourceVersion"] = str(next(self._versions))
        self._tell(plural, "DELETED", item)

    # -- breaking

    def break_watches(self, how: set[str], what: str) -> None:
        """Mute, refuse or take away; what is refused or gone has its watches ended at once."""
        how.add(what)
        if how is not self.muted:
            for plural, namespace, watch in self._watches:
                if self._is(how, plural, namespace):
                    watch.end()

    def mend(self) -> None:
        """Everything works again."""
        for how in (self.muted, self.refused, self.gone, self.down):
            how.clear()
        self._mended.set()
        self._mended = asyncio.Event()

    @staticmethod
    def _is(how: set[str], plural: str, namespace: str) -> bool:
        return plural in how or f"{plural} in {namespace}" in how

    async def _beat(self) -> None:
        while True:
            bookmark = {"metadata": {"resourceVersion": str(next(self._versions))}}
            for plural, namespace, watch in self._watches:
                if not self._is(self.muted, plural, namespace):
                    watch.send("BOOKMARK", bookmark)
            await asyncio.sleep(BEAT_SECONDS)

    def _tell(self, plural: str, kind: str, item: Object) -> None:
        for watched, namespace, watch in self._watches:
            if watched == plural and namespace in {"", item["metadata"]["namespace"]}:
                watch.send(kind, item)

    # -- answers

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        if request.path.startswith("/apis/metrics.k8s.io"):
            return self._usage(request.path.split("/")[5])
        if request.path.startswith("/apis/apiextensions.k8s.io"):
            return self._definition() if "definitions" not in self.refused else refusal(403, "Forbidden", "may not get")
        found = _PATH.fullmatch(request.path)
        if found is None:
            return self._discovery(request.path)
        plural, namespace = found["plural"], found["namespace"] or ""
        if plural not in PREFIXES or plural in self.gone | self.withdrawn:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        if found["name"]:
            return await self._object(request, plural, f"{namespace}/{found['name']}", found["sub"] or "")
        while self._is(self.muted, plural, namespace):
            await self._mended.wait()
        if self._is(self.refused, plural, namespace):
            return refusal(403, "Forbidden", self._forbidden(plural, namespace, request))
        if "watch" in request.query:
            return await self._watch(request, plural, namespace)
        items = [
            one for key, one in self.objects[plural].items() if key.startswith(f"{namespace}/" if namespace else "")
        ]
        return raw({"metadata": {"resourceVersion": str(next(self._versions))}, "items": items})

    @staticmethod
    def _forbidden(plural: str, namespace: str, request: web.Request) -> str:
        verb = "watch" if "watch" in request.query else "list"
        group = PREFIXES[plural].split("/")[2] if plural != "pods" else ""
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        return f'{plural} is forbidden: User "{USER}" cannot {verb} resource "{plural}" in API group "{group}" {where}'

    async def _watch(self, request: web.Request, plural: str, namespace: str) -> web.StreamResponse:
        watch = Watch(dict(request.query))
        entry = (plural, namespace, watch)
        self._watches.append(entry)
        try:
            return await watch.serve(request)
        finally:
            self._watches.remove(entry)

    async def _object(self, request: web.Request, plural: str, key: str, sub: str) -> web.Response:
        item = self.objects[plural].get(key)
        if item is None:
            return refusal(404, "NotFound", f'{plural} "{key}" not found')
        if sub == "scale":
            name = item["metadata"]["name"]
            counts = {"spec": {"replicas": item["spec"]["replicas"]}, "status": {"selector": f"app={name}"}}
            counts["status"]["replicas"] = item["spec"]["replicas"]
            return raw({"metadata": item["metadata"], **counts})
        if request.method == "PATCH":
            for operation in json.loads(await request.read()) if sub == "status" else ():
                if operation["op"] == "add":
                    item = {**item, "status": operation["value"]}
            self.put(plural, item)
        return raw(item)

    def _discovery(self, path: str) -> web.Response:
        if path == "/apis":
            prefixes = {prefix for plural, prefix in PREFIXES.items() if plural not in self.gone}
            listed = [{"groupVersion": prefix.removeprefix("/apis/")} for prefix in sorted(prefixes - {"/api/v1"})]
            return raw({"groups": [{"versions": [one]} for one in listed]})
        served = [plural for plural, prefix in PREFIXES.items() if prefix == path and plural not in self.gone]
        if not served:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        return raw({"resources": [one for plural in served for one in self._resources(plural)]})

    @staticmethod
    def _resources(plural: str) -> Iterator[Object]:
        yield {"name": plural, "kind": KINDS.get(plural, plural), "namespaced": True}
        yield {"name": f"{plural}/scale", "kind": "Scale", "namespaced": True}

    def _definition(self) -> web.Response:
        scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        scale["labelSelectorPath"] = self.selector_path
        return raw({"spec": {"versions": [{"name": "v1", "subresources": {"scale": scale}}]}})

    def _usage(self, namespace: str) -> web.Response:
        if namespace in self.down:
            return refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        at = _now()
        items = [
            {
                "metadata": {"name": pod},
                "timestamp": at,
                "window": "10s",
                "containers": [{"name": "app", "usage": {"cpu": cpu, "memory": "1Mi"}}],
            }
            for pod, cpu in self.usage[namespace].items()
        ]
        return raw({"items": items})


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
