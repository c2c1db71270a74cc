"""One request, from its line and headers to its answer: who asks, whether they may, and what is said."""

import functools
import platform
import time
from collections.abc import Callable
from http import HTTPStatus

import msgspec
import structlog
from aiohttp import web
from multidict import CIMultiDict
from prometheus_client import Histogram

from adapter.apiserver import status
from adapter.apiserver.answers import Answers
from adapter.apiserver.authn import Authenticator
from adapter.apiserver.authz import Authorizer
from adapter.apiserver.connections import Connection
from adapter.apiserver.discovery import JSON, Discovery, Document
from adapter.apiserver.health import Health
from adapter.apiserver.identity import Identity
from adapter.apiserver.platforms import Platforms
from adapter.apiserver.routes import CUSTOM, EXTERNAL, Kind, Route, route
from adapter.apiserver.status import StatusError, TooEarlyError
from adapter.apiserver.trust import NOBODY, Peer
from adapter.telemetry.metrics import Metrics, package_version

_log = structlog.get_logger(__name__)
_GROUPS = frozenset({CUSTOM, EXTERNAL})
_METRICS = frozenset({Kind.POLICY, Kind.TARGET, Kind.PODS})
_SERVER = "effective-load"
_HEADERS = CIMultiDict({"Content-Type": JSON, "Server": _SERVER})


class Handler:
    """Answers requests; every path ends in JSON but health. `clock` measures how long answers take."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        answers: Answers,
        discovery: Discovery,
        health: Health,
        platforms: Platforms,
        metrics: Metrics,
        *,
        external: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._answers = answers
        self._discovery = discovery
        self._health = health
        self._platforms = platforms
        self._external = external
        self._clock = clock
        self._errors = metrics.errors
        self._durations = metrics.api_requests
        self._children: dict[tuple[str, Kind, int], Histogram] = {}

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Raises nothing but cancellation."""
        start = self._clock()
        asked = route(request.raw_path)
        try:
            answer = await self._answer(request, asked)
        except StatusError as error:
            answer = self._error(error)
        except Exception as error:  # noqa: BLE001 - logged, and answered as a Status like all else
            _log.exception("request_failed", path=request.raw_path)
            answer = self._error(status.internal(type(error).__name__))
        self._observe(asked, answer.status, self._clock() - start)
        return answer

    async def _answer(self, request: web.BaseRequest, asked: Route) -> web.Response:
        if asked.kind is Kind.HEALTH:
            return self._report(asked)
        headers = request.headers
        identity = self._authenticator.knows(request.raw_headers, _peer(request))
        if identity is None:
            identity = await self._authenticator.by_token(headers.get("Authorization", ""), request.remote or "")
        if asked.kind is Kind.REGISTRY:
            return await self._hear(request, asked, identity)
        if request.method != "GET":
            raise status.not_allowed(f"{request.method} is not supported: metrics can only be read")
        await self._authorizer.check(identity, asked.attributes)
        if asked.fault is not None:
            raise StatusError(asked.fault.code, asked.fault.reason, asked.fault.message)
        if not _is_acceptable(headers.get("Accept", "")):
            raise status.not_acceptable()
        if asked.kind in _METRICS:
            return _json(await self._answers.custom(asked))
        if asked.kind is Kind.EXTERNAL and self._external:
            return _json(await self._answers.external(asked))
        return self._document(request, asked)

    async def _hear(self, request: web.BaseRequest, asked: Route, identity: Identity) -> web.Response:
        if request.method != "PUT":
            raise status.not_allowed(f"{request.method} is not supported: tell which pods serve by PUT")
        await self._authorizer.check(identity, asked.attributes)
        if asked.fault is not None:
            raise StatusError(asked.fault.code, asked.fault.reason, asked.fault.message)
        await self._platforms.hear(asked, request.content)
        return web.Response(status=HTTPStatus.NO_CONTENT, headers={"Server": _SERVER})

    def _document(self, request: web.BaseRequest, asked: Route) -> web.Response:
        found: Document | None = None
        if asked.kind is Kind.GROUPS:
            found = self._discovery.groups(self._answers.directory, request.headers.get("Accept", ""))
        elif asked.kind is Kind.GROUP:
            found = self._discovery.group(asked.group)
        elif asked.kind is Kind.RESOURCES:
            found = self._discovery.resources(self._answers.directory, asked.group, asked.version)
        elif asked.kind is Kind.VERSION:
            found = Document(_version())
        if found is None:  # OpenAPI too: the aggregator passes over a server that has none
            raise status.not_found(f"the server could not find the requested resource {asked.attributes.path}".rstrip())
        return _discovered(found, request.headers.get("If-None-Match", ""))

    def _report(self, asked: Route) -> web.Response:
        report = self._health.report(asked.segments, verbose=asked.verbose)
        if report is None:
            raise status.not_found(f"there is no health check {'/'.join(asked.segments)}")
        headers = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff", "Server": _SERVER}
        return web.Response(body=report.text.encode(), status=200 if report.healthy else 500, headers=headers)

    def _error(self, error: StatusError) -> web.Response:
        self._errors.labels(error.reason).inc()
        answer = web.Response(body=status.body(error), status=int(error.code), headers=_HEADERS)
        if error.code == HTTPStatus.UNAUTHORIZED or isinstance(error, TooEarlyError):
            # The handshake may have come before we knew whom to ask for a certificate; the next one does better.
            answer.force_close()
        return answer

    def _observe(self, asked: Route, code: int, seconds: float) -> None:
        key = (asked.group, asked.kind, code)
        child = self._children.get(key)
        if child is None:
            group = asked.group if asked.group in _GROUPS else ""  # a path's own word would be a label without bounds
            child = self._durations.labels(group, asked.kind, str(code))
            if group == asked.group:
                self._children[key] = child
        child.observe(seconds)


def _peer(request: web.BaseRequest) -> Peer:
    connection = request.protocol
    return connection.peer if isinstance(connection, Connection) else NOBODY


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, headers=_HEADERS)


def _discovered(document: Document, known: str) -> web.Response:
    headers = {"Content-Type": document.content_type, "Vary": "Accept", "Server": _SERVER}
    if document.etag:
        headers["ETag"] = document.etag
        if document.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return web.Response(status=304, headers=headers)
    return web.Response(body=document.body, headers=headers)


@functools.lru_cache(256)
def _is_acceptable(accept: str) -> bool:
    """Whether JSON is among what the client takes; it says so for every request, and mostly for all types."""
    types = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return not accept or not types.isdisjoint({JSON, "application/*", "*/*"})


@functools.cache
def _version() -> bytes:
    release = package_version()
    major, _, rest = release.partition(".")
    return msgspec.json.encode(
        {
            "major": major,
            "minor": rest.partition(".")[0],
            "gitVersion": f"v{release}",
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "",
            "goVersion": "",
            "compiler": platform.python_implementation(),
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
    )
