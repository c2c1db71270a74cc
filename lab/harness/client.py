"""A small synchronous Kubernetes client for tests: plain objects, keep-alive connections, no models."""

import contextlib
import functools
import http.client
import json
import select
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass(frozen=True)
class Response:
    """An HTTP response of any status; an error status raises nothing."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


def fetch(
    port: int,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    body: bytes | None = None,
    timeout: float = 10,
    tls: ssl.SSLContext | None = None,
) -> Response:
    """The answer to a request to a port of this machine, with `tls` over HTTPS."""
    kind = functools.partial(http.client.HTTPSConnection, context=tls) if tls else http.client.HTTPConnection
    with contextlib.closing(kind("127.0.0.1", port, timeout=timeout)) as connection:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return Response(answer.status, dict(answer.headers), answer.read())


class ApiError(Exception):
    """The API server refused a request: status, reason and message of its Status object."""

    def __init__(self, response: Response, what: str) -> None:
        self.response, self.status = response, response.status
        try:
            status = response.json()
        except ValueError:
            status = {}
        status = status if isinstance(status, dict) else {}
        self.reason: str = status.get("reason", "")
        self.message: str = status.get("message", "") or response.text[:500]
        super().__init__(f"{what}: {self.status} {self.reason}: {self.message}")


class Client:
    """Talks to one API server as one user; safe to use from several threads."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, headers: Mapping[str, str] | None = None) -> None:
        self.host, self.port, self.context = host, port, context
        self.headers = dict(headers or {})
        self._idle: list[http.client.HTTPSConnection] = []
        self._lock = threading.Lock()
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    # -- transport

    def raw(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes | None = None,
        timeout: float = 30,
    ) -> Response:
        """Sends one request exactly as given."""
        sent = {"Accept": "application/json", **self.headers, **(headers or {})}
        while connection := self._kept():
            try:
                return self._exchange(connection, method, path, body, sent, timeout)
            except (http.client.BadStatusLine, ConnectionError, ssl.SSLError):
                if method != "GET":  # the server may have executed it before the connection broke
                    raise
        fresh = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=timeout)
        return self._exchange(fresh, method, path, body, sent, timeout)

    def _kept(self) -> http.client.HTTPSConnection | None:
        """An idle keep-alive connection that the server has not closed; a closed one is readable."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None or (connection.sock and not select.select([connection.sock], [], [], 0)[0]):
                return connection
            connection.close()

    def _exchange(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> Response:
        try:
            connection.timeout = timeout
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            response = Response(answer.status, dict(answer.getheaders()), answer.read())
        except BaseException:
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        return response

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if payload is not None else {}
        response = self.raw(path, headers, method=method, body=payload)
        for _ in range(30):  # retry like every Kubernetes client: storage of a new definition takes a moment
            if response.status != 429:
                break
            time.sleep(0.2)
            response = self.raw(path, headers, method=method, body=payload)
        if response.status >= 400:
            raise ApiError(response, f"{method} {path}")
        return response.json() if response.body else {}

    # -- verbs, by path

    def get(self, path: str) -> Object:
        return self._send("GET", path)

    def find(self, path: str) -> Object | None:
        """The object, or None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[Object]:
        query = {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        answer = self.get(f"{path}?{urllib.parse.urlencode(query)}" if query else path)
        return answer.get("items") or []

    def post(self, path: str, body: Object) -> Object:
        return self._send("POST", path, body)

    def put(self, path: str, body: Object) -> Object:
        return self._send("PUT", path, body)

    def patch(self, path: str, body: Any, kind: str = "merge") -> Object:
        """`kind`: merge, strategic or json."""
        return self._send("PATCH", path, body, PATCH_TYPES[kind])

    def patch_status(self, path: str, body: Any, kind: str = "merge") -> Object:
        """Patches the status subresource; `body` is the status itself or {"status": ...}."""
        whole = body if kind == "json" or "status" in body else {"status": body}
        return self.patch(f"{path}/status", whole, kind)

    def delete(self, target: str | Object, *, grace: int | None = None, wait: float = 0) -> None:
        """Deletes by path or object; absence is no error. Waits up to `wait` seconds until the object is gone."""
        path = target if isinstance(target, str) else self.path(target)
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        try:
            self._send("DELETE", path + query)
        except ApiError as error:
            if error.status != 404:
                raise
        if wait:
            self.wait_gone(path, timeout=wait)

    # -- verbs, by object

    def create(self, item: Object) -> Object:
        return self.post(self.collection(item), item)

    def apply(self, item: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply as field manager "tests", by force."""
        query = "?fieldManager=tests&force=true" + ("&dryRun=All" if dry_run else "")
        return self._send("PATCH", self.path(item) + query, item, PATCH_TYPES["apply"])

    def path(self, item: Object) -> str:
        """The path of an object, from the API server's discovery."""
        return f"{self.collection(item)}/{item['metadata']['name']}"

    def collection(self, item: Object) -> str:
        version, metadata = item["apiVersion"], item["metadata"]
        plural, namespaced = self.plural(version, item["kind"])
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return (
            f"{base}/namespaces/{metadata.get('namespace', 'default')}/{plural}" if namespaced else f"{base}/{plural}"
        )

    def plural(self, version: str, kind: str, patience: float = 10) -> tuple[str, bool]:
        """Plural and scope of a kind; retries, since a new definition is not served at once."""
        deadline = time.monotonic() + patience
        while (version, kind) not in self._plurals:
            resources = self.find(f"/apis/{version}" if "/" in version else f"/api/{version}") or {}
            for resource in resources.get("resources", []):
                if "/" not in resource["name"]:
                    self._plurals[version, resource["kind"]] = (resource["name"], resource["namespaced"])
            if (version, kind) not in self._plurals:
                if time.monotonic() > deadline:
                    raise LookupError(f"the API server serves no {kind} in {version}")
                time.sleep(0.1)
        return self._plurals[version, kind]

    # -- waiting

    def wait_for(
        self,
        path: str,
        predicate: Callable[[Object], object] = bool,
        timeout: float = 30,
        what: str = "",
    ) -> Object:
        """Polls until the object exists and the predicate holds; the error shows the last object."""
        began = time.monotonic()
        while True:
            item = self.find(path)
            if item is not None and predicate(item):
                return item
            passed = time.monotonic() - began
            if passed > timeout:
                raise TimeoutError(f"{what or path} not as expected within {timeout:g} s; last seen:\n{brief(item)}")
            time.sleep(pause_after(passed))

    def wait_gone(self, path: str, timeout: float = 30) -> None:
        began = time.monotonic()
        while self.find(path) is not None:
            passed = time.monotonic() - began
            if passed > timeout:
                raise TimeoutError(f"{path} still exists after {timeout:g} s")
            time.sleep(pause_after(passed))


def pause_after(passed: float) -> float:
    """Seconds until the next look at what has not come in `passed` seconds: each look costs several processes work."""
    return min(0.08 + passed / 30, 0.3)


def brief(item: Object | None, limit: int = 3000) -> str:
    """An object as YAML without managed fields and the like, for messages."""
    if item is None:
        return "(not there)"
    shown = {key: value for key, value in item.items() if key != "metadata"}
    metadata = item.get("metadata", {})
    shown["metadata"] = {key: value for key, value in metadata.items() if key != "managedFields"}
    return str(yaml.safe_dump(shown, sort_keys=False))[:limit]


def condition_true(item: Object, kind: str) -> bool:
    """Whether an object has this condition with status True; a new object may have no conditions."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return any(entry["type"] == kind and entry["status"] == "True" for entry in conditions)


def query(parameters: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """A query string, percent-encoded as Go encodes it."""
    return urllib.parse.urlencode(dict(parameters))


def tls_context(authority: Path | None, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """A client's TLS context; without an authority it does not verify the server's certificate."""
    context = ssl.create_default_context(cafile=str(authority) if authority else None)
    context.check_hostname = authority is not None
    context.verify_mode = ssl.CERT_REQUIRED if authority else ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
