"""Handles one request of the front proxy: identity, authorization, answer, in this order."""

import functools
import platform
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from email.utils import formatdate
from http import HTTPStatus

import msgspec
import structlog
from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from adapter.apiserver.authentication import Authenticator
from adapter.apiserver.authorization import Authorizer
from adapter.apiserver.decision_document import DecisionDocuments, is_decision
from adapter.apiserver.discovery import Discovery, DiscoveryDocument
from adapter.apiserver.fair_gate import ByteBudget, FairGate
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import (
    ALL_OBJECTS,
    CUSTOM,
    EXTERNAL,
    RequestInfo,
    RequestKind,
    parse_path,
    parse_target,
)
from adapter.apiserver.status import StatusError, bad_request, encode_status, not_allowed, not_found
from adapter.apiserver.upstreams import Upstreams, refuse_loop
from adapter.kube.api import JSON
from adapter.kube.selectors import is_small
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.runtime.concurrency import turn
from adapter.runtime.inbound import STEP_BYTES, STEP_SECONDS, connection_of, kept_bytes, write_whole
from adapter.telemetry.metrics import Metrics, package_version

SERVER = "effective-load"
HEADERS = CIMultiDict({"Content-Type": JSON, "Server": SERVER})
"""The headers of every JSON answer."""

_log = structlog.get_logger(__name__)
_CUSTOM_KINDS = frozenset({RequestKind.POLICY, RequestKind.TARGET, RequestKind.PODS})
_PRIVATE = CIMultiDict({**HEADERS, "Cache-Control": "no-store"})
"""For what only those may see who may ask for it."""
_LABELS = web.RequestKey("labels", tuple[str, RequestKind])
"""The group and kind of a request, labels of its metric."""
_LOGGED_CHARACTERS = 256
"""Characters of a target that are logged."""
_SMALL_BYTES = 64 * 1024
"""An answer up to this size is written at once."""
LISTS, _LISTS_PER_USER, _LISTS_WAITING = 4, 1, 256
"""Lists that are made at a time. More of them would take more memory, and be made no sooner."""
_COUNTS, _COUNTS_PER_USER = 8, 1
"""Lists of counts, which wait for the API server."""
_CONTROLLERS = frozenset({"system:serviceaccount:kube-system", "system:kube-controller-manager"})
"""The HPA's flows: as in API Priority and Fairness, what other users do neither delays nor ends their requests."""
_SPARED = _CONTROLLERS | {"system:kube-aggregator"}
"""Those without whose answers no HPA gets one: the API server's own probe decides whether we are asked at all."""
_CONTROLLERS_LISTS = 8
_DECISIONS, _DECISIONS_PER_USER, _DECISIONS_WAITING = 2, 1, 4
QUEUE_SECONDS = 5.0
HELD_BYTES = 8 << 20
"""Of requests, and as many of large answers until they have left."""
MOVING_SECONDS = 0.5
"""Who takes a step of an answer (640 KiB) in this time reads, and loses it only where three times as much is read."""
REST_SECONDS = STEP_SECONDS
"""After which a client that does not read would have lost its answer in any case."""


class Handler:
    """Answers requests in JSON. `external`: whether external metrics have values."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        provider: MetricsProvider,
        discovery: Discovery,
        decisions: DecisionDocuments,
        metrics: Metrics,
        *,
        external: bool,
        upstreams: Upstreams | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self.provider = provider
        self._discovery = discovery
        self._decisions = decisions
        self.external = external
        self._lists = FairGate(LISTS, _LISTS_PER_USER, _LISTS_WAITING, work="lists")
        self._counts = FairGate(_COUNTS, _COUNTS_PER_USER, _LISTS_WAITING, work="lists")
        self._controllers_lists = FairGate(_CONTROLLERS_LISTS, _CONTROLLERS_LISTS, _LISTS_WAITING, work="lists")
        self._documents = FairGate(_DECISIONS, _DECISIONS_PER_USER, _DECISIONS_WAITING, work="decisions")
        self._held = ByteBudget(HELD_BYTES, _SPARED)
        self._leaving = ByteBudget(HELD_BYTES, _SPARED, patience=MOVING_SECONDS, aborted=self._rest)
        self._upstreams = upstreams
        self._errors = metrics.errors
        self._duration = functools.cache(metrics.api_requests.labels)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Raises only on cancellation."""
        start = time.perf_counter()
        try:
            answer: web.StreamResponse = await self._answer(request)
        except StatusError as error:
            answer = self._error(error)
        except Exception as error:  # noqa: BLE001 - logged, and answered as a Status
            _log.exception("request_failed", path=request.raw_path[:_LOGGED_CHARACTERS])
            answer = self._error(_internal_error(type(error).__name__))
        group, kind = request.get(_LABELS, ("", RequestKind.OTHER))  # without them it is not authenticated
        self._duration(group, kind, str(answer.status)).observe(time.perf_counter() - start)
        return answer

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        identity = self._authenticator.identity(request.get_extra_info("peer"), request.raw_headers)
        info = parse_path(request.raw_path)
        group = info.group if info.group in {CUSTOM, EXTERNAL} else ""  # a client may name any group
        request[_LABELS] = group, info.kind
        if request.method != "GET":
            raise not_allowed(f"{request.method} is not supported: metrics can only be read")
        flow = identity.flow
        with self._held.hold(flow, kept_bytes(request), connection_of(request).abort):
            await self._authorizer.check(identity, info.attributes)
            if is_small(request.raw_path):
                info = parse_target(request.raw_path)
            else:
                async with self._lists_of(flow).slot(flow, QUEUE_SECONDS):
                    await turn()
                    info = parse_target(request.raw_path)  # 4 ms for the longest selectors
            if info.error is not None:
                raise StatusError(info.error.code, info.error.message)
            accept = request.headers.get("Accept", "")
            types = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
            if accept and types.isdisjoint({JSON, "application/*", "*/*"}):
                raise StatusError(HTTPStatus.NOT_ACCEPTABLE, "only application/json is served")
            if is_decision(info):
                async with self._documents.slot(flow, QUEUE_SECONDS):
                    document = await self._decisions.answer(info)
                return await self._whole(request, flow, document, _PRIVATE)
            if info.kind in _CUSTOM_KINDS or (info.kind is RequestKind.EXTERNAL and self.external):
                return await self._metrics(request, flow, info)
            return await self._document(request, flow, info)

    async def _metrics(self, request: web.BaseRequest, flow: str, info: RequestInfo) -> web.StreamResponse:
        if self._upstreams is not None and (upstream := self._upstreams.of(info)) is not None:
            request[_LABELS] = info.group, RequestKind.UPSTREAM
            refuse_loop(request.headers.getall("Via", ()))
            body = await upstream.fetch(info, is_hpa=flow in _CONTROLLERS)
        else:
            make = self.provider.external if info.kind is RequestKind.EXTERNAL else self.provider.custom
            of_one = info.policy is not None if info.kind is RequestKind.EXTERNAL else info.kind is not RequestKind.PODS
            place: AbstractAsyncContextManager[None] = nullcontext()
            if not of_one or info.name == ALL_OBJECTS or info.metric in self.provider.index.snapshot.queries:
                # Large lists of one user do not occupy the processor and the memory.
                is_users_count = info.metric == DESIRED_REPLICAS and flow not in _CONTROLLERS
                place = (self._counts if is_users_count else self._lists_of(flow)).slot(flow, QUEUE_SECONDS)
            async with place:
                body = await make(info)
        if len(body) > _SMALL_BYTES:
            return await self._whole(request, flow, body, HEADERS)
        if request.version == HttpVersion11 and request.keep_alive:
            return _WholeAnswer(body)
        return web.Response(body=body, headers=HEADERS)  # it announces the end of the connection

    def _lists_of(self, flow: str) -> FairGate:
        return self._controllers_lists if flow in _CONTROLLERS else self._lists

    def _rest(self, flow: str) -> None:
        """Who did not read an answer, and lost it, would otherwise have the next one made at once, and again."""
        for gate in (self._lists, self._counts, self._documents):
            gate.rest(flow, REST_SECONDS)

    async def _document(self, request: web.BaseRequest, flow: str, info: RequestInfo) -> web.StreamResponse:
        document: DiscoveryDocument | None = None
        if info.kind is RequestKind.GROUPS:
            document = self._discovery.groups(self.provider.index, request.headers.get("Accept", ""))
        elif info.kind is RequestKind.GROUP:
            document = self._discovery.group(info.group)
        elif info.kind is RequestKind.RESOURCES:
            document = self._discovery.resources(self.provider.index, info.group, info.version)
        elif info.kind is RequestKind.VERSION:
            document = DiscoveryDocument(_version())
        if document is None:  # OpenAPI too: the aggregator skips a server without OpenAPI
            raise not_found(f"the server could not find the requested resource {info.attributes.path}".rstrip())
        headers = CIMultiDict({"Content-Type": document.content_type, "Vary": "Accept", "Server": SERVER})
        if_none_match = request.headers.get("If-None-Match", "")
        if document.etag:
            headers["ETag"] = document.etag
            if document.etag in (tag.strip().removeprefix("W/") for tag in if_none_match.split(",")):
                return web.Response(status=304, headers=headers)
        return await self._whole(request, flow, document.body, headers)

    async def _whole(
        self, request: web.BaseRequest, flow: str, body: bytes | bytearray, headers: CIMultiDict[str]
    ) -> web.StreamResponse:
        """The answer, after it has left; its bytes count in the budget until then."""
        response = web.StreamResponse(headers=headers)
        size = len(body) + min(len(body), STEP_BYTES)  # with the step that is being written
        with self._leaving.hold(flow, size, connection_of(request).abort) as hold:
            await write_whole(request, response, body, lambda: self._leaving.moved(hold))
        return response

    def _error(self, error: StatusError) -> web.Response:
        self._errors.labels(error.reason).inc()
        answer = web.Response(body=encode_status(error), status=int(error.code), headers=HEADERS)
        if error.code == HTTPStatus.UNAUTHORIZED:
            answer.force_close()  # its certificate may have expired while the connection lives
        return answer


def unreadable(code: int, message: str) -> web.Response:
    """A Status for a request that cannot be read."""
    if code in {HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED}:
        error = StatusError(code, message)
    else:
        error = bad_request(message) if code < HTTPStatus.INTERNAL_SERVER_ERROR else _internal_error(message)
    return web.Response(body=encode_status(error), status=int(error.code), headers=HEADERS)


def _internal_error(message: str) -> StatusError:
    return StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, f"Internal error occurred: {message}")


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


class _WholeAnswer(web.StreamResponse):
    """An answer with status 200 on a connection that stays open; nothing of it can be changed."""

    status = 200
    keep_alive = True

    def __init__(self, body: bytes) -> None:
        second = int(time.time())
        if second != _Head.second:
            date = formatdate(second, usegmt=True)
            lines = f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nServer: {SERVER}\r\nDate: {date}\r\n"
            _Head.second, _Head.lines = second, lines.encode()
        # Without aiohttp's own initialisation, which makes a dictionary of headers to be changed.
        self._whole = b"%bContent-Length: %d\r\n\r\n%b" % (_Head.lines, len(body), body)
        self._is_sent = False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write everything. Raises ConnectionError if the client has gone."""
        if not self._is_sent:
            self._is_sent = True
            await request.writer.write(self._whole)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Everything has been written."""
        assert not data


class _Head:
    """The lines before the length, kept for as long as their date holds."""

    second = 0
    lines = b""
