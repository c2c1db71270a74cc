"""Handles one request: authentication, authorization, answer, in this order.

Before authentication the handler only checks whether the target is a health endpoint; it parses nothing else.
"""

import contextlib
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
from adapter.apiserver.decision_document import DecisionDocuments, is_decision
from adapter.apiserver.discovery import Discovery, DiscoveryDocument
from adapter.apiserver.health import REASONS_PATH, Health, Probe
from adapter.apiserver.json_answer import HEADERS, SERVER, json_answer
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
from adapter.apiserver.upstream.upstreams import Upstreams, refuse_loop
from adapter.kube.api import JSON
from adapter.runtime.slices import turn
from adapter.telemetry.metrics import Metrics, package_version

_log = structlog.get_logger(__name__)
_GROUP_LABELS = frozenset({CUSTOM, EXTERNAL})
_CUSTOM_KINDS = frozenset({RequestKind.POLICY, RequestKind.TARGET, RequestKind.PODS})
_PRIVATE = CIMultiDict({**HEADERS, "Cache-Control": "no-store"})
"""For what only those may see who may ask for it."""
_PLAIN = CIMultiDict(
    {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff", "Server": SERVER}
)
_REASONS = Attributes(path=REASONS_PATH)
_PROBE_METHODS = frozenset({"GET", "HEAD"})
_LOGGED_CHARACTERS = 256
"""Characters of a target that are logged."""
_MAX_CACHED_ACCEPT = 256
_PIECE_BYTES = 256 * 1024


class Handler:
    """Answers requests in JSON, health in plain text. `clock` measures the durations."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        provider: MetricsProvider,
        discovery: Discovery,
        health: Health,
        roster_push: RosterPush,
        decisions: DecisionDocuments,
        metrics: Metrics,
        *,
        external: bool,
        upstreams: Upstreams | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._provider = provider
        self._discovery = discovery
        self._health = health
        self._roster_push = roster_push
        self._decisions = decisions
        self._external = external
        self._upstreams = upstreams
        self._clock = clock
        self._errors = metrics.errors
        self._durations = metrics.api_requests
        self._duration_children: dict[tuple[str, RequestKind, int], Histogram] = {}

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Raises only on cancellation."""
        start = self._clock()
        labels = _RequestLabels()
        try:
            answer: web.StreamResponse = await self._answer(request, labels)
        except StatusError as error:
            answer = self._error(error)
        except Exception as error:  # noqa: BLE001 - logged, and answered as a Status
            _log.exception("request_failed", path=request.raw_path[:_LOGGED_CHARACTERS])
            answer = self._error(status.internal(type(error).__name__))
        self._observe(labels, answer.status, self._clock() - start)
        return answer

    async def _answer(self, request: web.BaseRequest, labels: "_RequestLabels") -> web.StreamResponse:
        target = request.raw_path
        is_probe = request.method in _PROBE_METHODS and not target.startswith("/apis/")
        probe = self._health.probe(target) if is_probe else None
        if probe is not None:
            labels.kind = RequestKind.HEALTH
            return await self._health_response(request, probe)
        identity = await self._authenticate(request)
        info = parse_path(target)
        labels.group, labels.kind = info.group, info.kind
        self._check_method(request.method, info.kind)
        await self._authorizer.check(identity, info.attributes)
        info = parse_target(target)
        if info.error is not None:
            raise StatusError(info.error.code, info.error.reason, info.error.message)
        if info.kind is RequestKind.REGISTRY:
            await self._roster_push.receive(info, request.content)
            return web.Response(status=HTTPStatus.NO_CONTENT, headers={"Server": SERVER})
        self._check_accept(request)
        if is_decision(info):
            return await _private_json(request, await self._decisions.answer(info, identity.flow))
        return await self._respond(request, info, labels)

    async def _authenticate(self, request: web.BaseRequest) -> Identity:
        """The sender's identity. Raises StatusError 401, or 503 if it cannot be determined."""
        headers, raw, peer = request.headers, request.raw_headers, _peer(request)
        identity = self._authenticator.by_certificate(headers, raw, peer)
        return identity or await self._authenticator.by_token(headers, raw, peer, request.remote or "")

    def _check_method(self, method: str, kind: RequestKind) -> None:
        if kind is RequestKind.REGISTRY:
            if method != "PUT":
                raise status.not_allowed(f"{method} is not supported: rosters are pushed by PUT")
        elif method != "GET":
            raise status.not_allowed(f"{method} is not supported: metrics can only be read")

    def _check_accept(self, request: web.BaseRequest) -> None:
        if not _is_acceptable(request.headers.get("Accept", "")):
            raise status.not_acceptable()

    async def _respond(
        self, request: web.BaseRequest, info: RequestInfo, labels: "_RequestLabels"
    ) -> web.StreamResponse:
        is_metric = info.kind in _CUSTOM_KINDS or (info.kind is RequestKind.EXTERNAL and self._external)
        upstream = self._upstreams.of(info) if is_metric and self._upstreams is not None else None
        if upstream is not None:
            labels.kind = RequestKind.UPSTREAM
            refuse_loop(request.headers.getall("Via", ()))
            return json_answer(request, await upstream.fetch(info))
        if info.kind in _CUSTOM_KINDS:
            return json_answer(request, await self._provider.custom(info))
        if info.kind is RequestKind.EXTERNAL and self._external:
            return json_answer(request, await self._provider.external(info))
        return self._document(request, info)

    def _document(self, request: web.BaseRequest, info: RequestInfo) -> web.Response:
        document: DiscoveryDocument | None = None
        if info.kind is RequestKind.GROUPS:
            document = self._discovery.groups(self._provider.index, request.headers.get("Accept", ""))
        elif info.kind is RequestKind.GROUP:
            document = self._discovery.group(info.group)
        elif info.kind is RequestKind.RESOURCES:
            document = self._discovery.resources(self._provider.index, info.group, info.version)
        elif info.kind is RequestKind.VERSION:
            document = DiscoveryDocument(_version())
        if info.kind is RequestKind.HEALTH:
            raise status.not_found(f"there is no health check {'/'.join(info.segments)}")
        if document is None:  # OpenAPI too: the aggregator skips a server without OpenAPI
            raise status.not_found(f"the server could not find the requested resource {info.attributes.path}".rstrip())
        return _document_response(document, request.headers.get("If-None-Match", ""))

    async def _health_response(self, request: web.BaseRequest, probe: Probe) -> web.Response:
        report = self._health.report(probe.segments, verbose=probe.verbose)
        text = report.public
        if report.text != text and await self._may_read_reasons(request):
            text = report.text
        return web.Response(body=text.encode(), status=200 if report.healthy else 500, headers=_PLAIN)

    async def _may_read_reasons(self, request: web.BaseRequest) -> bool:
        """Whether the sender may read reasons. A kubelet sends no credentials, so its probe waits for no review."""
        if not _peer(request).chain and "Authorization" not in request.headers:
            return False
        try:
            await self._authorizer.check(await self._authenticate(request), _REASONS)
        except StatusError:
            return False
        return True

    def _error(self, error: StatusError) -> web.Response:
        self._errors.labels(error.reason).inc()
        is_stranger = error.code == HTTPStatus.UNAUTHORIZED
        body = status.UNAUTHORIZED if is_stranger else status.encode_status(error)
        answer = web.Response(body=body, status=int(error.code), headers=HEADERS)
        if is_stranger or isinstance(error, FrontProxyUnknownError):
            # This handshake may have come before the client CAs were known; the next one requests a certificate.
            answer.force_close()
        return answer

    def _observe(self, info: "_RequestLabels", code: int, seconds: float) -> None:
        key = (info.group, info.kind, code)
        child = self._duration_children.get(key)
        if child is None:
            group = info.group if info.group in _GROUP_LABELS else ""  # bounds the label: a client may name any group
            child = self._durations.labels(group, info.kind, str(code))
            if group == info.group:
                self._duration_children[key] = child
        child.observe(seconds)


@dataclass(slots=True)
class _RequestLabels:
    """Labels of the request metric; empty for unauthenticated requests."""

    group: str = ""
    kind: RequestKind = RequestKind.OTHER


def _peer(request: web.BaseRequest) -> Peer:
    connection = request.protocol
    return connection.peer if isinstance(connection, PeerConnection) else NO_CERTIFICATE


async def _private_json(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    """The answer in pieces: encrypting a large one at once would hold up the loop."""
    response = web.StreamResponse(headers=_PRIVATE)
    response.content_length = len(body)
    with contextlib.suppress(ConnectionError):  # the client has gone
        await response.prepare(request)
        for begin in range(0, len(body), _PIECE_BYTES):
            await response.write(body[begin : begin + _PIECE_BYTES])
            await turn()
        await response.write_eof()
    return response


def _document_response(document: DiscoveryDocument, if_none_match: str) -> web.Response:
    headers = {"Content-Type": document.content_type, "Vary": "Accept", "Server": SERVER}
    if document.etag:
        headers["ETag"] = document.etag
        if document.etag in (tag.strip().removeprefix("W/") for tag in if_none_match.split(",")):
            return web.Response(status=304, headers=headers)
    return web.Response(body=document.body, headers=headers)


def _is_acceptable(accept: str) -> bool:
    """Whether the client accepts JSON; the few Accept headers of real clients are cached."""
    return _accepts_json_cached(accept) if len(accept) <= _MAX_CACHED_ACCEPT else _accepts_json(accept)


@functools.lru_cache(256)
def _accepts_json_cached(accept: str) -> bool:
    return _accepts_json(accept)


def _accepts_json(accept: str) -> bool:
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
