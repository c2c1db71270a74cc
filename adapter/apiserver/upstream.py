"""The upstream adapters: they are asked for metrics that are not ours, and for the names that they list.

A request is built from what was authorized: segments and selectors, encoded again, and nothing else of the client's.
So neither its headers nor its identity nor further parameters arrive there; the upstream sees the token of this
adapter. Requests are bounded in number and time.

Of its answers, lists pass as they are once they are checked, and errors are rewritten. What the HPA would take for zero
never passes: an item whose value is absent or null. Neither do items of another namespace than the requested one, a
header or `retryAfterSeconds`.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from urllib.parse import quote, urlencode

import msgspec
import structlog
from yarl import URL

from adapter.apiserver.discovery import LIST_KINDS, MOST_NAMES, is_reserved
from adapter.apiserver.refresh import Refresher
from adapter.apiserver.request_info import (
    CUSTOM,
    EXTERNAL,
    PODS_RESOURCE,
    POLICIES_RESOURCE,
    SERVED_VERSIONS,
    RequestInfo,
)
from adapter.apiserver.status import REASONS, StatusError, unavailable
from adapter.kube.objects import ApiResource, ObjectReference
from adapter.runtime.backoff import LogOnce
from adapter.runtime.decoding import Decoder
from adapter.runtime.http import MIB, Client, Reply
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, SourceFailing, WrongAnswer
from adapter.settings import NamedQuery, UpstreamsSettings
from adapter.settings import Upstream as UpstreamSettings
from adapter.telemetry.metrics import Metrics
from adapter.usage.promql import uses_variables

AT_ONCE = 16
"""Requests to one upstream at a time."""
REFRESH_SECONDS = 30.0
"""Between two readings of an upstream's names."""
_SELF = "effective-load"
"""The pseudonym of this program in the header `Via`."""
_VIA = {"Via": f"1.1 {_SELF}"}
_SEGMENT_CHARACTERS = "!$&'()+,;=:@"
"""Characters of a path segment that stay as they are, besides letters, digits and `-._~` (RFC 3986)."""
_NAME = re.compile(r"(?:([a-z0-9][a-z0-9.-]{0,252})/)?([^/]{1,256})")
"""A name that discovery may list: `RESOURCE/METRIC`; of External the metric alone."""
_OF_OUR_ACCOUNT = {401: NotAuthenticated, 403: NotAllowed}
"""Refusals of this adapter's account: they say nothing of the client's rights."""
_LONGEST_MESSAGE = 1024
_SHOWN = 200

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
    resources: list[ApiResource] | None = None
    message: str = ""


_DOCUMENT = Decoder(_Document)

Scopes = Mapping[str, str]
"""The scope of each named query that is served, by its name: `Pods` or `Service`."""


def is_ours(group: str, resource: str, metric: str, queries: Scopes) -> bool:
    """Whether a metric of a resource (External: any text) is this adapter's own."""
    if group != CUSTOM:
        return is_reserved(metric) or metric in queries
    of_query = resource == PODS_RESOURCE and queries.get(metric) == "Pods"
    return is_reserved(metric) or resource == POLICIES_RESOURCE or of_query


class Upstream:
    """The adapter behind this one for a group. `queries` are this adapter's own."""

    def __init__(self, group: str, settings: UpstreamSettings, queries: Scopes, metrics: Metrics) -> None:
        self.settings, self.queries = settings, queries
        self.names: Mapping[str, bool] = {}
        """The names that it lists and that are not ours: whether each is namespaced."""
        self._group, self._metrics = group, metrics
        self._client = Client(
            settings.access,
            timeout=settings.timeout_seconds,
            max_bytes=settings.max_answer_mib * MIB,
            at_once=AT_ONCE,
            limit_name=f"maxAnswerMiB of the upstream for {group}",
        )
        self._log_once = LogOnce()
        self.close = self._client.close

    async def fetch(self, request: RequestInfo) -> bytes:
        """Its list for an authorized request, byte for byte. Raises StatusError, within the settings' time."""
        began, code = time.perf_counter(), int(HTTPStatus.OK)
        selectors = {"labelSelector": request.labels, "metricLabelSelector": request.series}
        try:
            reply = await self._get(request.segments, {name: str(one) for name, one in selectors.items() if one})
            _check_list(reply, request)
        except StatusError as error:
            code = int(error.code)
            raise
        except SourceError as error:
            status = self._status(error)
            code = int(status.code)
            raise status from error
        finally:
            self._metrics.upstream_requests.labels(self._group, str(code)).observe(time.perf_counter() - began)
        self._log_once.clear()
        return reply.body

    async def read_names(self) -> str | None:
        """Read its names, of the first version that it answers; returns the fault if it answers none."""
        fault: Exception | None = None
        for version in SERVED_VERSIONS[self._group]:
            try:
                reply = await self._get(("apis", self._group, version), {})
                found = _document(reply, "APIResourceList", f"{self._group}/{version}")
            except (StatusError, SourceError) as error:
                fault = fault or error
                continue
            listed = {one.name: one.namespaced for one in found.resources or () if self._is_listed(one.name)}
            self.names = {name: listed[name] for name in sorted(listed)[:MOST_NAMES]}
            return None
        return f"the upstream adapter for {self._group} does not answer discovery: {fault}"

    def _is_listed(self, name: str) -> bool:
        found = _NAME.fullmatch(name)
        if found is None or bool(found[1]) != (self._group == CUSTOM) or not found[2].isprintable():
            return False
        return not is_ours(self._group, found[1] or "", found[2], self.queries)

    async def _get(self, segments: tuple[str, ...], query: Mapping[str, str]) -> Reply:
        path = "/".join(quote(segment, safe=_SEGMENT_CHARACTERS) for segment in segments)
        asked = f"?{urlencode(query)}" if query else ""
        url = URL(f"{self.settings.url.rstrip('/')}/{path}{asked}", encoded=True)
        return await self._client.send("GET", url, headers=_VIA)

    def _status(self, error: SourceError) -> StatusError:
        """The error for the client, without addresses; it is counted, and logged when it is a new one."""
        whose, reason = f"the upstream adapter for {self._group}", error.reason
        status = unavailable(f"{whose}: {error.public}")
        if isinstance(error.__cause__, TimeoutError):
            reason, status = "timeout", StatusError(HTTPStatus.GATEWAY_TIMEOUT, f"{whose} gave {error}")
        self._metrics.upstream_errors.labels(self._group, reason).inc()
        if self._log_once.is_new(str(error)):
            _log.warning("upstream_request_failed", group=self._group, error=str(error))
        return status


class Upstreams:
    """The adapters behind this one, by group. `seconds`: how often their names are read."""

    def __init__(
        self,
        settings: UpstreamsSettings,
        queries: Iterable[NamedQuery],
        metrics: Metrics,
        *,
        seconds: float = REFRESH_SECONDS,
    ) -> None:
        self._metrics = metrics
        self._by_group: dict[str, Upstream] = {}
        self._replaced: list[Upstream] = []
        self._refresher = Refresher(self._read_names, seconds, "upstream_discovery_failed", lambda: None)
        self.apply_settings(settings, queries)

    def apply_settings(self, settings: UpstreamsSettings, queries: Iterable[NamedQuery]) -> None:
        """Use other upstreams, or other settings for them, from now on. Queries with variables are not served."""
        scopes = {query.name: query.scope for query in queries if not uses_variables(query.query)}
        for group, given in ((CUSTOM, settings.custom), (EXTERNAL, settings.external)):
            before = self._by_group.get(group)
            if before is not None and (before.settings, before.queries) != (given, scopes):
                self._replaced.append(self._by_group.pop(group))
                self._metrics.upstream_up.remove_by_labels({"group": group})
            if given is not None and group not in self._by_group:
                self._by_group[group] = Upstream(group, given, scopes, self._metrics)
        self._refresher.wake()

    def of(self, request: RequestInfo) -> Upstream | None:
        """The upstream that answers a metric request; None if the metric is ours, or nobody stands behind us."""
        upstream = self._by_group.get(request.group)
        is_behind = upstream and not is_ours(request.group, request.resource, request.metric, upstream.queries)
        return upstream if is_behind else None

    def listed(self, group: str) -> Mapping[str, bool]:
        """The names that an upstream adds to discovery: whether each is namespaced."""
        return self._by_group[group].names if group in self._by_group else {}

    def warning(self) -> str | None:
        """Which upstream does not answer, and why; None if all do."""
        return self._refresher.error if self._by_group else None

    async def run(self) -> None:
        """Refresh the names until cancelled."""
        try:
            await self._refresher.run()
        finally:
            for upstream in (*self._replaced, *self._by_group.values()):
                await upstream.close()

    async def _read_names(self) -> None:
        while self._replaced:
            await self._replaced.pop().close()
        faults = []
        for group, upstream in list(self._by_group.items()):
            fault = await upstream.read_names()
            if self._by_group.get(group) is upstream:  # it may have been replaced meanwhile
                self._metrics.upstream_up.labels(group).set(fault is None)
                faults += [fault] if fault else []
        if faults:
            raise SourceError("; ".join(faults))


def refuse_loop(via: Sequence[str]) -> None:
    """Raises StatusError 508 for a request that passed through this program before."""
    if any(part.strip().endswith(f" {_SELF}") for line in via for part in line.split(",")):
        raise StatusError(508, "the upstream adapter of this adapter is this adapter; check upstreams")


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
