"""The upstream adapters: they are asked for metrics that are not ours.

A request is built from what was authorized: segments and selectors, encoded again, and nothing else of the client's.
So neither its headers nor its identity nor further parameters arrive there; the upstream sees the token of this
adapter. Requests are bounded in number and time.

Names of ours never go there: a metric of ours that fails is an error, and never another adapter's number.

Of its answers, lists pass as they are once they are checked, and errors are rewritten. What the HPA would take for zero
never passes: an item whose value is absent or null. Neither do items of another namespace than the requested one, a
header or `retryAfterSeconds`.
"""

import time
from collections.abc import Collection, Mapping
from http import HTTPStatus
from urllib.parse import quote, urlencode

import msgspec
import structlog
from yarl import URL

from adapter.apiserver.discovery import LIST_KINDS, is_reserved
from adapter.apiserver.refresh import Refresher
from adapter.apiserver.request_info import CUSTOM, EXTERNAL, RequestInfo, RequestKind
from adapter.apiserver.status import REASONS, StatusError, unavailable
from adapter.kube.objects import ObjectReference
from adapter.runtime.backoff import LogOnce
from adapter.runtime.decoding import Decoder
from adapter.runtime.http import MIB, Client, Reply
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, SourceFailing, WrongAnswer
from adapter.settings import Upstream as UpstreamSettings
from adapter.settings import UpstreamsSettings
from adapter.telemetry.metrics import Metrics
from adapter.usage.query_results import NamedQueryResult

AT_ONCE = 16
"""Requests to one upstream at a time."""
PROBE_SECONDS = 30.0
"""Between two probes of an upstream, by which its trouble is known before an HPA asks."""
_SELF = "effective-load"
"""The pseudonym of this program in the header `Via`."""
_VIA = {"Via": f"1.1 {_SELF}"}
_SEGMENT_CHARACTERS = "!$&'()+,;=:@"
"""Characters of a path segment that stay as they are, besides letters, digits and `-._~` (RFC 3986)."""
_OF_OUR_ACCOUNT = {401: NotAuthenticated, 403: NotAllowed}
"""Refusals of this adapter's account: they say nothing of the client's rights."""
_LONGEST_MESSAGE, _SHOWN = 1024, 200

_log = structlog.get_logger(__name__)


class _MetricValue(msgspec.Struct, rename="camel"):
    value: str | int | float
    described_object: ObjectReference | None = None  # External series have none


class _Document(msgspec.Struct, rename="camel"):
    """A list of metrics, a discovery document or a Status."""

    kind: str = ""
    api_version: str = ""
    group_version: str = ""  # of a discovery document
    items: list[_MetricValue] | None = None
    message: str = ""


_DOCUMENT = Decoder(_Document)


def is_ours(request: RequestInfo, queries: Mapping[str, NamedQueryResult]) -> bool:
    """Whether the metric of a request is this adapter's own; `queries`: those that it serves itself, by name."""
    if is_reserved(request.metric) or request.kind is RequestKind.POLICY:
        return True
    query = queries.get(request.metric)
    return query is not None and (request.group == EXTERNAL or (request.kind is RequestKind.PODS and query.by_pod))


class Upstream:
    """The adapter behind this one for a group."""

    def __init__(self, group: str, settings: UpstreamSettings, metrics: Metrics, *, seconds: float) -> None:
        self._group, self._metrics, self._log_once = group, metrics, LogOnce()
        self._url, self._up = settings.url.rstrip("/"), metrics.upstream_up.labels(group)
        self._client = Client(
            settings.access,
            timeout=settings.timeout_seconds,
            max_bytes=settings.max_answer_mib * MIB,
            at_once=AT_ONCE,
            limit_name=f"maxAnswerMiB of the upstream for {group}",
        )
        self._probes = Refresher(self._probe, seconds, "upstream_discovery_failed", lambda: self._up.set(0))

    @property
    def fault(self) -> str | None:
        """Why the last probe failed; None if it did not."""
        error = self._probes.error
        return f"the upstream adapter for {self._group} does not answer discovery: {error}" if error else None

    async def run(self) -> None:
        """Probe it until cancelled."""
        try:
            await self._probes.run()
        finally:
            await self._client.close()

    async def fetch(self, request: RequestInfo, via: Collection[str]) -> bytes:
        """Its list for an authorized request, byte for byte. Raises StatusError, within the settings' time.

        `via`: the request's headers of that name. A request that passed through this program before is a loop.
        """
        if any(part.strip().endswith(f" {_SELF}") for line in via for part in line.split(",")):
            raise StatusError(508, "the upstream adapter of this adapter is this adapter; check upstreams")
        began, code = time.perf_counter(), int(HTTPStatus.OK)
        selectors = {"labelSelector": request.labels, "metricLabelSelector": request.series}
        try:
            reply = await self._get(request.segments, {name: str(one) for name, one in selectors.items() if one})
            _check_list(reply, request)
        except StatusError as error:
            code = int(error.code)
            raise
        except SourceError as error:
            status = self._failed(error)
            code = int(status.code)
            raise status from error
        finally:
            self._metrics.upstream_requests.labels(self._group, str(code)).observe(time.perf_counter() - began)
        self._log_once.clear()
        return reply.body

    async def _probe(self) -> None:
        """Read its list of v1beta1, which every adapter serves. Raises StatusError and SourceError."""
        _document(await self._get(("apis", self._group, "v1beta1"), {}), "APIResourceList", f"{self._group}/v1beta1")
        self._up.set(1)

    async def _get(self, segments: tuple[str, ...], query: Mapping[str, str]) -> Reply:
        path = "/".join(quote(segment, safe=_SEGMENT_CHARACTERS) for segment in segments)
        asked = f"?{urlencode(query)}" if query else ""
        return await self._client.send("GET", URL(f"{self._url}/{path}{asked}", encoded=True), headers=_VIA)

    def _failed(self, error: SourceError) -> StatusError:
        """The error for the client, without addresses; it is counted, and logged when it is a new one."""
        whose, reason = f"the upstream adapter for {self._group}", error.reason
        status = unavailable(f"{whose}: {error.public}")
        if isinstance(error.__cause__, TimeoutError):
            reason, status = "timeout", StatusError(HTTPStatus.GATEWAY_TIMEOUT, f"{whose} gave {error}")
        self._metrics.upstream_errors.labels(self._group, reason).inc()
        if self._log_once.is_new(str(error)):
            _log.warning("upstream_request_failed", group=self._group, error=str(error))
        return status


def upstreams(settings: UpstreamsSettings, metrics: Metrics, *, seconds: float = PROBE_SECONDS) -> dict[str, Upstream]:
    """The adapters behind this one, by group, each probed every `seconds`. Made where an event loop runs."""
    given = {CUSTOM: settings.custom, EXTERNAL: settings.external}
    return {group: Upstream(group, one, metrics, seconds=seconds) for group, one in given.items() if one is not None}


def _check_list(reply: Reply, request: RequestInfo) -> None:
    """Raises StatusError for an error that the upstream answers, SourceError for what is no answer to this request."""
    found = _document(reply, LIST_KINDS[request.group], f"{request.group}/{request.version}")
    for item in found.items or ():
        namespace = item.described_object.namespace if item.described_object is not None else ""
        if namespace and request.namespace not in {"", "*", namespace}:
            message = f"an item of namespace {namespace[:_SHOWN]!r} came, {request.namespace!r} was requested"
            raise WrongAnswer(message, public="the answer has items of another namespace")


def _document(reply: Reply, kind: str, version: str) -> _Document:
    """The answer of this kind and version. Raises StatusError where the upstream explains an error, or SourceError."""
    text = f"HTTP {reply.status}: {reply.body[:_SHOWN].decode(errors='replace')}"
    if reply.status in _OF_OUR_ACCOUNT:
        raise _OF_OUR_ACCOUNT[reply.status](text)
    try:
        found = _DOCUMENT.decode(reply.body)
    except msgspec.MsgspecError as error:
        found, text = _Document(), f"{error}: {text}"
    if reply.status == HTTPStatus.OK:
        if (found.kind, found.group_version or found.api_version) == (kind, version):
            return found
        raise WrongAnswer(f"no {kind} of {version}: {text}", public=f"the answer is not a readable {kind}")
    # Codes and reasons are labels of metrics, so the upstream does not choose them.
    if found.kind == "Status" and reply.status in REASONS:
        message = found.message[:_LONGEST_MESSAGE] or f"HTTP {reply.status}"
        raise StatusError(reply.status, f"upstream adapter: {message}")
    failure = SourceFailing if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR else WrongAnswer
    raise failure(text, public=f"HTTP {reply.status}, and no Kubernetes Status that explains it")
