"""One request, from its line and headers to its answer: who asks, whether they may, and what is said, in this order.

Until it is known who asks, nothing of a request is looked at but whether its target is one of the few of health.
"""

import functools
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import msgspec
import structlog
from aiohttp import web
from multidict import CIMultiDict
from prometheus_client import Histogram

from adapter.apiserver import status
from adapter.apiserver.authentication.authenticator import Authenticator
from adapter.apiserver.authentication.identity import Identity
from adapter.apiserver.authentication.requestheader import NO_CERTIFICATE, Peer
from adapter.apiserver.authorization.authorizer import Authorizer
from adapter.apiserver.discovery import JSON, Discovery, DiscoveryDocument
from adapter.apiserver.health import REASONS_PATH, Health, Probe
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import (
    CUSTOM,
    EXTERNAL,
    Attributes,
    RequestInfo,
    RequestKind,
    parse_path,
    parse_target,
)
from adapter.apiserver.roster_push import RosterPush
from adapter.apiserver.serving.connections import PeerConnection
from adapter.apiserver.status import FrontProxyUnknownError, StatusError
from adapter.telemetry.metrics import Metrics, package_version

_log = structlog.get_logger(__name__)
_GROUPS = frozenset({CUSTOM, EXTERNAL})
_METRICS = frozenset({RequestKind.POLICY, RequestKind.TARGET, RequestKind.PODS})
_SERVER = "effective-load"
_HEADERS = CIMultiDict({"Content-Type": JSON, "Server": _SERVER})
_PLAIN = CIMultiDict(
    {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff", "Server": _SERVER}
)
_REASONS = Attributes(path=REASONS_PATH)
_PROBED = frozenset({"GET", "HEAD"})
_SHOWN = 256
"""Characters of a target in the log."""
_LONGEST_ACCEPT = 256


class Handler:
    """Answers requests; every path ends in JSON but health. `clock` measures how long answers take."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        answers: MetricsProvider,
        discovery: Discovery,
        health: Health,
        platforms: RosterPush,
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
        self._children: dict[tuple[str, RequestKind, int], Histogram] = {}

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Raises nothing but cancellation."""
        start = self._clock()
        measured = _Measured()
        try:
            answer = await self._answer(request, measured)
        except StatusError as error:
            answer = self._error(error)
        except Exception as error:  # noqa: BLE001 - logged, and answered as a Status like all else
            _log.exception("request_failed", path=request.raw_path[:_SHOWN])
            answer = self._error(status.internal(type(error).__name__))
        self._observe(measured, answer.status, self._clock() - start)
        return answer

    async def _answer(self, request: web.BaseRequest, measured: "_Measured") -> web.Response:
        target = request.raw_path
        probe = self._health.probe(target) if request.method in _PROBED else None
        if probe is not None:
            measured.kind = RequestKind.HEALTH
            return await self._report(request, probe)
        identity = await self._authenticated(request)
        asked = parse_path(target)
        measured.group, measured.kind = asked.group, asked.kind
        self._refuse_method(request.method, asked.kind)
        await self._authorizer.check(identity, asked.attributes)
        asked = parse_target(target)
        if asked.fault is not None:
            raise StatusError(asked.fault.code, asked.fault.reason, asked.fault.message)
        if asked.kind is RequestKind.REGISTRY:
            await self._platforms.hear(asked, request.content)
            return web.Response(status=HTTPStatus.NO_CONTENT, headers={"Server": _SERVER})
        return await self._read(request, asked)

    async def _authenticated(self, request: web.BaseRequest) -> Identity:
        """Who asks. Raises StatusError 401, and 503 where nobody can say."""
        headers, raw, peer = request.headers, request.raw_headers, _peer(request)
        identity = self._authenticator.knows(headers, raw, peer)
        return identity or await self._authenticator.by_token(headers, raw, peer, request.remote or "")

    def _refuse_method(self, method: str, kind: RequestKind) -> None:
        if kind is RequestKind.REGISTRY:
            if method != "PUT":
                raise status.not_allowed(f"{method} is not supported: tell which pods serve by PUT")
        elif method != "GET":
            raise status.not_allowed(f"{method} is not supported: metrics can only be read")

    async def _read(self, request: web.BaseRequest, asked: RequestInfo) -> web.Response:
        if not _is_acceptable(request.headers.get("Accept", "")):
            raise status.not_acceptable()
        if asked.kind in _METRICS:
            return _json(await self._answers.custom(asked))
        if asked.kind is RequestKind.EXTERNAL and self._external:
            return _json(await self._answers.external(asked))
        return self._document(request, asked)

    def _document(self, request: web.BaseRequest, asked: RequestInfo) -> web.Response:
        found: DiscoveryDocument | None = None
        if asked.kind is RequestKind.GROUPS:
            found = self._discovery.groups(self._answers.directory, request.headers.get("Accept", ""))
        elif asked.kind is RequestKind.GROUP:
            found = self._discovery.group(asked.group)
        elif asked.kind is RequestKind.RESOURCES:
            found = self._discovery.resources(self._answers.directory, asked.group, asked.version)
        elif asked.kind is RequestKind.VERSION:
            found = DiscoveryDocument(_version())
        if asked.kind is RequestKind.HEALTH:
            raise status.not_found(f"there is no health check {'/'.join(asked.segments)}")
        if found is None:  # OpenAPI too: the aggregator passes over a server that has none
            raise status.not_found(f"the server could not find the requested resource {asked.attributes.path}".rstrip())
        return _discovered(found, request.headers.get("If-None-Match", ""))

    async def _report(self, request: web.BaseRequest, probe: Probe) -> web.Response:
        report = self._health.report(probe.segments, verbose=probe.verbose)
        text = report.public
        if report.text != text and await self._may_know(request):
            text = report.text
        return web.Response(body=text.encode(), status=200 if report.healthy else 500, headers=_PLAIN)

    async def _may_know(self, request: web.BaseRequest) -> bool:
        """Whether who asks for health may read reasons. A kubelet shows no credentials, and waits for nobody."""
        if not _peer(request).chain and "Authorization" not in request.headers:
            return False
        try:
            await self._authorizer.check(await self._authenticated(request), _REASONS)
        except StatusError:
            return False
        return True

    def _error(self, error: StatusError) -> web.Response:
        self._errors.labels(error.reason).inc()
        is_stranger = error.code == HTTPStatus.UNAUTHORIZED
        body = status.UNAUTHORIZED if is_stranger else status.encode(error)
        answer = web.Response(body=body, status=int(error.code), headers=_HEADERS)
        if is_stranger or isinstance(error, FrontProxyUnknownError):
            # The handshake may have come before we knew whom to ask for a certificate; the next one does better.
            answer.force_close()
        return answer

    def _observe(self, asked: "_Measured", code: int, seconds: float) -> None:
        key = (asked.group, asked.kind, code)
        child = self._children.get(key)
        if child is None:
            group = asked.group if asked.group in _GROUPS else ""  # a path's own word would be a label without bounds
            child = self._durations.labels(group, asked.kind, str(code))
            if group == asked.group:
                self._children[key] = child
        child.observe(seconds)


@dataclass(slots=True)
class _Measured:
    """What is known of a request when it is answered; nothing of a stranger's."""

    group: str = ""
    kind: RequestKind = RequestKind.OTHER


def _peer(request: web.BaseRequest) -> Peer:
    connection = request.protocol
    return connection.peer if isinstance(connection, PeerConnection) else NO_CERTIFICATE


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, headers=_HEADERS)


def _discovered(document: DiscoveryDocument, known: str) -> web.Response:
    headers = {"Content-Type": document.content_type, "Vary": "Accept", "Server": _SERVER}
    if document.etag:
        headers["ETag"] = document.etag
        if document.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return web.Response(status=304, headers=headers)
    return web.Response(body=document.body, headers=headers)


def _is_acceptable(accept: str) -> bool:
    """Whether JSON is among what the client takes; it says so for every request, and mostly for all types."""
    return _takes_json_kept(accept) if len(accept) <= _LONGEST_ACCEPT else _takes_json(accept)


@functools.lru_cache(256)
def _takes_json_kept(accept: str) -> bool:
    return _takes_json(accept)


def _takes_json(accept: str) -> bool:
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
