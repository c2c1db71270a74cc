"""Handles one request of the front proxy: identity, target, authorization, answer, in this order."""

import asyncio
import contextlib
import functools
import platform
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus

import msgspec
import structlog
from aiohttp import HttpVersion11, web

from adapter.apiserver.authentication import Authenticator
from adapter.apiserver.authorization import Authorizer
from adapter.apiserver.decision_document import DecisionDocuments, is_decision
from adapter.apiserver.discovery import Discovery
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import CUSTOM, EXTERNAL, RequestInfo, RequestKind, parse_target
from adapter.apiserver.status import StatusError, encode_status, not_allowed, not_found
from adapter.apiserver.upstream import Upstreams, refuse_loop
from adapter.kube.api import JSON
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.telemetry.metrics import Metrics, package_version

LISTS = 8
"""Lists and documents that are made at a time. More of them would take more memory, and be made no sooner."""
STEP_BYTES = 256 * 1024
"""Largest part of an answer that is encrypted at once, in a third of a millisecond."""
_HEADERS = {"Content-Type": JSON, "Server": "effective-load"}
_PRIVATE = {**_HEADERS, "Cache-Control": "no-store"}
"""For what only those may see who may ask for it."""
_CUSTOM_KINDS = frozenset({RequestKind.POLICY, RequestKind.TARGET, RequestKind.PODS})
_LOGGED_CHARACTERS = 256
"""Characters of a target that are logged."""

_log = structlog.get_logger(__name__)


class Handler:
    """Answers requests in JSON. `tls_of` returns the TLS of a connection that is admitted, else None.

    `external`: whether external metrics have values.
    """

    def __init__(
        self,
        tls_of: Callable[[web.BaseRequest], ssl.SSLObject | None],
        authenticator: Authenticator,
        authorizer: Authorizer,
        provider: MetricsProvider,
        discovery: Discovery,
        metrics: Metrics,
        *,
        external: bool,
        upstreams: Upstreams | None = None,
    ) -> None:
        self._tls_of = tls_of
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._provider = provider
        self._discovery = discovery
        self._decisions = DecisionDocuments(provider)
        self.external = external
        self._lists = asyncio.Semaphore(LISTS)
        self._upstreams = upstreams
        self._errors = metrics.errors
        self._duration = functools.cache(metrics.api_requests.labels)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Raises only on cancellation."""
        began = time.perf_counter()
        group, kind = "", RequestKind.OTHER  # without them it is not authenticated
        try:
            identity = self._authenticator.identity(self._tls_of(request), request.raw_headers)
            info = parse_target(request.raw_path)
            # a client may name any group
            group, kind = info.group if info.group in {CUSTOM, EXTERNAL} else "", info.kind
            _refuse_unserved(request)
            await self._authorizer.check(identity, info.attributes)
            if self._upstreams is not None and self._is_metric(info) and self._upstreams.of(info) is not None:
                kind = RequestKind.UPSTREAM
            body = await self._body(request, info)
            answer = await _sent(request, body, _PRIVATE if is_decision(info) else _HEADERS)
        except StatusError as error:
            answer = self._error(error)
        except Exception as error:  # noqa: BLE001 - logged, and answered as a Status
            _log.exception("request_failed", path=request.raw_path[:_LOGGED_CHARACTERS])
            message = f"Internal error occurred: {type(error).__name__}"
            answer = self._error(StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, message))
        if request.method != "GET" or request.version != HttpVersion11:
            answer.force_close()  # the body of a CONNECT would be taken for the next request
        self._duration(group, kind, str(answer.status)).observe(time.perf_counter() - began)
        return answer

    def _is_metric(self, info: RequestInfo) -> bool:
        return info.kind in _CUSTOM_KINDS or (info.kind is RequestKind.EXTERNAL and self.external)

    async def _body(self, request: web.BaseRequest, info: RequestInfo) -> bytes | bytearray:
        """The body of the answer, as JSON. Raises StatusError."""
        if is_decision(info):
            async with self._lists:
                return await self._decisions.answer(info)
        if self._is_metric(info):
            if self._upstreams is not None and (upstream := self._upstreams.of(info)) is not None:
                refuse_loop(request.headers.getall("Via", ()))
                return await upstream.fetch(info)
            # A list of counts waits for the API server, and takes little memory.
            waits = info.is_list and info.metric != DESIRED_REPLICAS
            place: contextlib.AbstractAsyncContextManager[None] = self._lists if waits else contextlib.nullcontext()
            async with place:
                if info.kind is RequestKind.EXTERNAL:
                    return await self._provider.external(info)
                return await self._provider.custom(info)
        document: bytes | None = None
        if info.kind is RequestKind.GROUPS:
            document = self._discovery.groups()
        elif info.kind is RequestKind.GROUP:
            document = self._discovery.group(info.group)
        elif info.kind is RequestKind.RESOURCES:
            document = self._discovery.resources(self._provider.index, info.group, info.version)
        elif info.kind is RequestKind.VERSION:
            document = _version()
        if document is None:  # OpenAPI too: the aggregator skips a server without OpenAPI
            raise not_found(f"the server could not find the requested resource {info.attributes.path}".rstrip())
        return document

    def _error(self, error: StatusError) -> web.Response:
        self._errors.labels(error.reason).inc()
        answer = web.Response(body=encode_status(error), status=int(error.code), headers=_HEADERS)
        if error.code == HTTPStatus.UNAUTHORIZED:
            answer.force_close()  # its certificate may have expired, or its CA been removed, while the connection lives
        return answer


def _refuse_unserved(request: web.BaseRequest) -> None:
    """Raises StatusError for another protocol, for a method that is not served, and where JSON is not accepted."""
    if request.version != HttpVersion11:
        raise StatusError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is spoken here")
    if request.method != "GET":
        raise not_allowed(f"{request.method} is not supported: metrics can only be read")
    accept = request.headers.get("Accept", "")
    types = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if accept and types.isdisjoint({JSON, "application/*", "*/*"}):
        raise StatusError(HTTPStatus.NOT_ACCEPTABLE, "only application/json is served")


async def _sent(request: web.BaseRequest, body: bytes | bytearray, headers: dict[str, str]) -> web.StreamResponse:
    """The answer; a large one is sent in steps, so that others are answered meanwhile. A client may have gone."""
    if len(body) <= STEP_BYTES:
        return web.Response(body=body, headers=headers)
    answer = web.StreamResponse(headers=headers)
    answer.content_length = len(body)
    with contextlib.suppress(ConnectionError):
        await answer.prepare(request)
        for begin in range(0, len(body), STEP_BYTES):
            await answer.write(memoryview(body)[begin : begin + STEP_BYTES])
            await asyncio.sleep(0)
        await answer.write_eof()
    return answer


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
