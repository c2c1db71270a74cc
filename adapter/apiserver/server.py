"""The aggregated API server: one handler for all requests, and what keeps TLS and the front proxy up to date.

A request is authenticated, parsed, authorized and answered, in this order. Nothing of a request is read before its
user is known, and what is authorized is what is answered.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

import structlog
from aiohttp import HttpVersion11, web

from adapter.apiserver import decision_document, discovery
from adapter.apiserver.authentication import Authenticator
from adapter.apiserver.authorization import Authorizer
from adapter.apiserver.certificates import CertificateManager
from adapter.apiserver.door import Door
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.refresh import Refresher
from adapter.apiserver.request_info import RequestInfo, RequestKind, parse_target
from adapter.apiserver.status import StatusError, encode_status, not_allowed, not_found
from adapter.apiserver.upstream import Upstream, is_ours
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings
from adapter.telemetry.health import Check
from adapter.telemetry.metrics import Metrics

LINE_BYTES = 64 * 1024
"""Limit for one header, and for the request line: a selector of a few thousand values."""
MOST_HEADERS = 2048
"""A user's identity may have hundreds of groups."""
IDLE_SECONDS = 90.0
"""As long as the API server keeps an idle connection."""
_TLS_SECONDS = 60.0  # between two looks at certificate and CA; each change of them is used at once
_METRICS = frozenset(RequestKind) - {RequestKind.DECISION, RequestKind.OTHER}
_HEADERS = {"Content-Type": "application/json", "Server": "effective-load"}
_PRIVATE = {**_HEADERS, "Cache-Control": "no-store"}
"""For what only those may see who may ask for it."""

_log = structlog.get_logger(__name__)


class ApiServer:
    """Serves metrics to the front proxy; `upstreams`, by group, answer those that are not the provider's.

    `ready` and `warnings` are checks for `/readyz`. The front proxy's configuration is read each `config_seconds`, the
    certificate each `certificate_seconds` (None: its usual time); requests in flight have `grace_seconds` at shutdown.
    """

    def __init__(
        self,
        provider: MetricsProvider,
        session: Session,
        metrics: Metrics,
        settings: ServerSettings,
        upstreams: Mapping[str, Upstream],
        *,
        config_seconds: float = 5.0,
        certificate_seconds: float | None = None,
        grace_seconds: float = 5.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._errors, self._duration = metrics.errors, functools.cache(metrics.api_requests.labels)
        self._tls = Refresher(self._use_tls, _TLS_SECONDS, "tls_context_failed", self._errors.labels("certificate").inc)
        self.certificates = CertificateManager(session, settings, metrics, self._tls.wake, seconds=certificate_seconds)
        self._authenticator = Authenticator(session, metrics, self._tls.wake, wall, seconds=config_seconds)
        self.door = Door(settings.address, settings.port, self._authenticator.is_front_proxy)
        self._authorizer = Authorizer(session, metrics, monotonic)
        self._provider, self._upstreams, self._external = provider, upstreams, settings.external_metrics
        self._grace_seconds = grace_seconds
        self.ready: dict[str, Check] = {
            "caches": provider.unsynced,
            "certificate": self.certificates.check,
            "authentication": self._authenticator.check,
            "tls": self._tls_check,
        }
        self.warnings: dict[str, Check] = {
            "authorization": lambda: self._authorizer.missing_right,
            "upstreams": lambda: "; ".join(one.fault for one in upstreams.values() if one.fault) or None,
        }

    def apply_settings(self, settings: ServerSettings) -> None:
        """Serve external metrics or not, and publish the CA in the APIServices, as these say; the rest stays."""
        self._external = settings.external_metrics
        self.certificates.api_services = settings.api_services
        self.certificates.wake()

    async def run(self) -> None:
        """Serve until cancelled; then stop accepting and give requests in flight their time."""
        http = web.Server(
            self._handle,
            handler_cancellation=True,
            auto_decompress=False,  # no body is read
            access_log=None,
            max_headers=MOST_HEADERS,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            keepalive_timeout=IDLE_SECONDS,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.door.run(http), name="door")
                tasks.create_task(self.certificates.run(), name="certificate")
                tasks.create_task(self._authenticator.run(), name="front proxy")
                tasks.create_task(self._tls.run(), name="tls")
                for group, upstream in self._upstreams.items():
                    tasks.create_task(upstream.run(), name=f"upstream of {group}")
        finally:
            http.pre_shutdown()
            await http.shutdown(self._grace_seconds)
            await self.door.end_connections()

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        """Answer a request. Raises only on cancellation."""
        began = time.perf_counter()
        group, kind = "", RequestKind.OTHER  # without them it is not authenticated
        try:
            identity = self._authenticator.identity(self.door.certificate_of(request), request.raw_headers)
            info = parse_target(request.raw_path)
            group, kind = info.group, info.kind
            _refuse_unserved(request)
            await self._authorizer.check(identity, info.attributes)
            upstream = self._upstreams.get(info.group) if self._is_metric(info) else None
            if upstream and not is_ours(info, self._provider.synced_snapshot(info.namespace).queries):
                kind = RequestKind.UPSTREAM
                body = await upstream.fetch(info, request.headers.getall("Via", ()))
            else:
                body = await self._body(info)
            answer = web.Response(body=body, headers=_PRIVATE if kind is RequestKind.DECISION else _HEADERS)
        except StatusError as error:
            answer = self._error(error)
        except Exception as error:  # noqa: BLE001 - logged, and answered as a Status
            _log.exception("request_failed", path=request.raw_path[:256])
            message = f"Internal error occurred: {type(error).__name__}"
            answer = self._error(StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, message))
        if request.method != "GET" or request.version != HttpVersion11 or request.body_exists:
            # The body of a CONNECT would be taken for the next request, and aiohttp adds a trailer to its headers.
            answer.force_close()
        self._duration(group, kind, str(answer.status)).observe(time.perf_counter() - began)
        return answer

    def _is_metric(self, info: RequestInfo) -> bool:
        return info.kind in _METRICS and (self._external or info.kind is not RequestKind.EXTERNAL)

    async def _body(self, info: RequestInfo) -> bytes:
        """The body of our own answer, as JSON. Raises StatusError."""
        if info.kind is RequestKind.DECISION:
            return await decision_document.answer(self._provider, info)
        if self._is_metric(info):
            return await self._provider.answer(info)
        document = discovery.document(info, self._provider.snapshot)
        if document is None:  # OpenAPI too: the aggregator skips a server without OpenAPI
            raise not_found(f"the server could not find the requested resource {info.attributes.path}".rstrip())
        return document

    def _error(self, error: StatusError) -> web.Response:
        self._errors.labels(error.reason).inc()
        answer = web.Response(body=encode_status(error), status=int(error.code), headers=_HEADERS)
        if error.code == HTTPStatus.UNAUTHORIZED:
            answer.force_close()  # its certificate may have expired, or its CA been removed, while the connection lives
        return answer

    async def _use_tls(self) -> None:
        """Replace the TLS context if the certificate or the front proxy's CA has changed. Raises CertificateError."""
        pair, authority = self.certificates.current, self._authenticator.config.authority
        if pair is not None and (pair, authority) != self.door.in_use:
            await self.door.use(pair, authority)

    def _tls_check(self) -> str | None:
        """Why new connections do not yet get the current certificate and CA; None when they do."""
        if self.door.in_use == (self.certificates.current, self._authenticator.config.authority):
            return None
        return "the serving certificate and the front proxy's CA are not in use yet"


def _refuse_unserved(request: web.BaseRequest) -> None:
    """Raises StatusError for another protocol, and for a method that is not served."""
    if request.version != HttpVersion11:
        raise StatusError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is spoken here")
    if request.method != "GET":
        raise not_allowed(f"{request.method} is not supported: metrics can only be read")
