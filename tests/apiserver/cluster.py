"""A fake API server with the objects that the metrics API reads and writes, and with every kind of failure."""

import asyncio
import base64
import collections
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
SECRET = "/api/v1/namespaces/adapter/secrets/effective-load-tls"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

Object = dict[str, Any]
Fault = int | asyncio.Event


class Cluster:
    """Objects by path, with resource versions and conflicts as on a real API server; reviews by rules of the test.

    `faults` maps a path to what happens there: a status code, or an event that holds the answer back until it is set.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.faults: dict[str, Fault] = {}
        self.asked: collections.Counter[str] = collections.Counter()
        self.bodies: list[tuple[str, Object]] = []
        self.may: Callable[[Object], bool] = lambda _spec: True
        self.answered: Callable[[Object], Object] | None = None
        """Replaces the answer to a review."""
        self.waiting = asyncio.Event()
        self._version = 0
        self._changed = asyncio.Condition()
        self.put(SECRET, {"type": "Opaque", "metadata": {"labels": {"app": "x"}}})  # as the manifests make it

    def put(self, path: str, body: Object) -> None:
        self._version += 1
        metadata = {**body.get("metadata", {}), "resourceVersion": str(self._version), "name": path.rpartition("/")[2]}
        self.objects[path] = {**body, "metadata": metadata}

    def trust(self, authority: str, *, allowed: list[str] | None = None) -> None:
        names = ["front-proxy-client"] if allowed is None else allowed
        data = {
            "requestheader-client-ca-file": authority,
            "requestheader-allowed-names": msgspec.json.encode(names).decode(),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        self.put(CONFIG_MAP, {"kind": "ConfigMap", "data": data})

    def register(self, name: str, *, service: str = "effective-load", **spec: Any) -> None:
        reference = {"namespace": "adapter", "name": service}
        annotations = spec.pop("annotations", {})
        self.put(
            f"{SERVICES}/{name}", {"metadata": {"annotations": annotations}, "spec": {"service": reference, **spec}}
        )

    def bundle(self, name: str) -> str:
        return base64.b64decode(self.objects[f"{SERVICES}/{name}"]["spec"].get("caBundle", "")).decode()

    def secret(self, key: str) -> str:
        return base64.b64decode(self.objects[SECRET]["data"][key]).decode()

    def reviews(self) -> int:
        return self.asked[f"POST {REVIEWS}"]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a request has made the condition true."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(condition)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked[f"{request.method} {request.path}"] += 1
        body = await request.read()
        if body:
            self.bodies.append((request.path, msgspec.json.decode(body)))
        try:
            return await self._answer(request, body)
        finally:
            async with self._changed:
                self._changed.notify_all()

    async def _answer(self, request: web.Request, body: bytes) -> web.Response:
        fault = self.faults.get(request.path)
        if isinstance(fault, asyncio.Event):
            self.waiting.set()
            await fault.wait()
        elif fault is not None:
            return _status(fault, "Fault", "made to fail")
        if request.method == "POST" and request.path == REVIEWS:
            review = msgspec.json.decode(body)
            if self.answered is not None:
                return web.json_response(self.answered(review), status=201)
            allowed = self.may(review["spec"])
            return web.json_response(
                {**review, "status": {"allowed": allowed, "reason": "" if allowed else "no rule"}}, status=201
            )
        return self._object(request, body)

    def _object(self, request: web.Request, body: bytes) -> web.Response:
        path = request.path
        if path not in self.objects:
            return _status(404, "NotFound", f"{path} not found")
        if request.method == "PATCH":
            return self._patch(path, msgspec.json.decode(body), request.content_type)
        return web.json_response(self.objects[path])

    def _patch(self, path: str, patch: Object, content_type: str) -> web.Response:
        assert content_type == "application/merge-patch+json"
        known = self.objects[path]
        asked = patch.pop("metadata", {}).get("resourceVersion")
        if asked is not None and asked != known["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        self.put(path, _merged(known, patch))
        return web.json_response(self.objects[path])


def _merged(known: Object, patch: Mapping[str, Any]) -> Object:
    result = dict(known)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merged(result[key], value)
        else:
            result[key] = value
    return result


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)
