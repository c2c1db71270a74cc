"""The upstream adapters: they are asked for metrics that are not ours, and for the names that they list.

A request is built anew from what was authorized: segments and selectors, encoded again, and nothing else of the
client's. So neither its headers nor its identity nor further parameters arrive there; the upstream sees the token of
this adapter. Requests are bounded in number and time.

Of its answers, lists pass as they are once they are checked, and errors are rewritten. What the HPA would take for zero
never passes: an item whose value is absent or null. Neither do items of another namespace than the requested one, a
header or `retryAfterSeconds`.
"""

import asyncio
import functools
import itertools
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
from adapter.kube.objects import Status
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
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,252})", re.ASCII)
_LONGEST_METRIC = 256
_LONGEST_MESSAGE = 1024
_SHOWN = 200

_log = structlog.get_logger(__name__)


class _Described(msgspec.Struct):
    namespace: str | None = None


class _MetricValue(msgspec.Struct, rename="camel"):
    value: str | int | float
    described_object: _Described | None = None  # External series have none


class _MetricList(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: list[_MetricValue] | None = None


class _Resource(msgspec.Struct):
    name: str
    namespaced: bool = True


class _ResourceList(msgspec.Struct, rename="camel"):
    kind: str
    group_version: str
    resources: list[_Resource] | None = None


_METRIC_LIST, _RESOURCE_LIST, _STATUS = Decoder(_MetricList), Decoder(_ResourceList), Decoder(Status)


Scopes = Mapping[str, str]
"""The scope of each named query that is served, by its name: `Pods` or `Service`."""


def scopes_of(queries: Iterable[NamedQuery]) -> Scopes:
    """The settings' queries that are served: those without variables."""
    return {query.name: query.scope for query in queries if not uses_variables(query.query)}


def is_ours(group: str, resource: str, metric: str, queries: Scopes) -> bool:
    """Whether a metric of a resource (External: any text) is this adapter's own."""
    if group != CUSTOM:
        return is_reserved(metric) or metric in queries
    of_query = resource == PODS_RESOURCE and queries.get(metric) == "Pods"
    return is_reserved(metric) or resource == POLICIES_RESOURCE or of_query


class UpstreamAdapter:
    """The adapter behind this one for a group."""

    def __init__(self, group: str, settings: UpstreamSettings, queries: Scopes, metrics: Metrics) -> None:
        self.settings = settings
        self.queries = queries
        self.names: dict[str, Mapping[str, bool]] = {}
        """The names that it lists in each version and that are not ours: whether each is namespaced."""
        self._group = group
        self._client = Client(
            settings.access,
            timeout=settings.timeout_seconds,
            max_bytes=settings.max_answer_mib * MIB,
            at_once=AT_ONCE,
            limit_name=f"maxAnswerMiB of the upstream for {group}",
        )
        self.close = self._client.close
        self._log_once = LogOnce()
        self._metrics = metrics

    async def fetch(self, request: RequestInfo) -> bytes:
        """The upstream's list for an authorized request. Raises StatusError, within the settings' time."""
        began = time.perf_counter()
        selectors = {"labelSelector": request.labels, "metricLabelSelector": request.series}
        try:
            reply = await self._get(request.segments, {name: str(one) for name, one in selectors.items() if one})
            answer = metric_list(reply, request)
        except StatusError as error:
            self._observe(error.code, began)
            raise
        except SourceError as error:
            status = self._status(error)
            self._observe(status.code, began)
            raise status from error
        self._observe(HTTPStatus.OK, began)
        self._log_once.clear()
        return answer

    async def refresh(self) -> None:
        """Ask which metrics it has; a version without an answer keeps its names. Raises SourceError if all are."""
        faults: list[str] = []
        for version in SERVED_VERSIONS[self._group]:
            try:
                reply = await self._get(("apis", self._group, version), {})
                self.names[version] = listed_names(reply, self._group, version, self.queries)
            except (StatusError, SourceError) as error:
                faults.append(f"{version}: {error}")
        if len(faults) == len(SERVED_VERSIONS[self._group]):
            raise SourceError(f"the upstream adapter for {self._group} does not answer discovery: {faults[0]}")

    async def _get(self, segments: tuple[str, ...], query: Mapping[str, str]) -> Reply:
        path = "/".join(quote(segment, safe=_SEGMENT_CHARACTERS) for segment in segments)
        asked = f"?{urlencode(query)}" if query else ""
        url = URL(f"{self.settings.url.rstrip('/')}/{path}{asked}", encoded=True)
        return await self._client.send("GET", url, headers=_VIA)

    def _observe(self, code: int, began: float) -> None:
        duration = self._metrics.upstream_requests.labels(self._group, str(int(code)))
        duration.observe(time.perf_counter() - began)

    def _status(self, error: SourceError) -> StatusError:
        """The error for the client, without addresses; it is counted, and logged when it is a new one."""
        reason, whose = error.reason, f"the upstream adapter for {self._group}"
        status = unavailable(f"{whose}: {error.public}")
        if isinstance(error.__cause__, TimeoutError):
            message = f"{whose} gave no answer within {self.settings.timeout_seconds:g} s"
            reason, status = "timeout", StatusError(HTTPStatus.GATEWAY_TIMEOUT, message)
        self._metrics.upstream_errors.labels(self._group, reason).inc()
        if self._log_once.is_new(str(error)):
            _log.warning("upstream_request_failed", group=self._group, error=str(error))
        return status


class Upstreams:
    """The adapters behind this one, by group; `apply_settings` changes them while running.

    `seconds`: how often their names are read.
    """

    def __init__(
        self,
        settings: UpstreamsSettings,
        queries: Iterable[NamedQuery],
        metrics: Metrics,
        *,
        seconds: float = REFRESH_SECONDS,
    ) -> None:
        self._metrics = metrics
        self._by_group: dict[str, UpstreamAdapter] = {}
        self._replaced: dict[str, list[UpstreamAdapter]] = {group: [] for group in SERVED_VERSIONS}
        self._refreshers = {
            group: Refresher(
                functools.partial(self._refresh, group),
                seconds,
                "upstream_discovery_failed",
                functools.partial(self._show, group, up=False),
                group=group,
            )
            for group in SERVED_VERSIONS
        }
        self.apply_settings(settings, queries)

    def apply_settings(self, settings: UpstreamsSettings, queries: Iterable[NamedQuery]) -> None:
        """Replace the upstreams whose settings changed; the connections of the old ones are closed."""
        scopes = scopes_of(queries)
        for group, wanted in ((CUSTOM, settings.custom), (EXTERNAL, settings.external)):
            current = self._by_group.pop(group, None)
            if current is not None and (wanted, scopes) == (current.settings, current.queries):
                self._by_group[group] = current
                continue
            if wanted is not None:
                self._by_group[group] = upstream = UpstreamAdapter(group, wanted, scopes, self._metrics)
                if current is not None and (wanted.url, scopes) == (current.settings.url, current.queries):
                    upstream.names = current.names
            else:
                self._metrics.upstream_up.remove_by_labels({"group": group})
            self._replaced[group] += [current] if current is not None else []
            self._refreshers[group].wake()

    def of(self, request: RequestInfo) -> UpstreamAdapter | None:
        """The upstream that answers a metric request; None if the metric is ours, or nobody stands behind us."""
        upstream = self._by_group.get(request.group)
        if upstream is None or is_ours(request.group, request.resource, request.metric, upstream.queries):
            return None
        return upstream

    def listed(self, group: str, version: str) -> Mapping[str, bool]:
        """The names that an upstream adds to discovery: whether each is namespaced."""
        upstream = self._by_group.get(group)
        return upstream.names.get(version, {}) if upstream is not None else {}

    def warning(self) -> str | None:
        """Which upstream does not answer, and why; None if all do."""
        errors = (refresher.error for group, refresher in self._refreshers.items() if group in self._by_group)
        return "; ".join(error for error in errors if error) or None

    async def run(self) -> None:
        """Refresh the names until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for group, refresher in self._refreshers.items():
                    tasks.create_task(refresher.run(), name=f"upstream {group}")
        finally:
            for upstream in (*self._by_group.values(), *itertools.chain(*self._replaced.values())):
                await upstream.close()

    async def _refresh(self, group: str) -> None:
        while self._replaced[group]:  # only its own: another group's may be in use by that group's refresh
            await self._replaced[group].pop().close()
        if group in self._by_group:
            await self._by_group[group].refresh()
            self._show(group, up=True)

    def _show(self, group: str, *, up: bool) -> None:
        if group in self._by_group:  # it may have been removed meanwhile
            self._metrics.upstream_up.labels(group).set(up)


def refuse_loop(via: Sequence[str]) -> None:
    """Raises StatusError 508 for a request that passed through this program before."""
    if any(part.strip().endswith(f" {_SELF}") for line in via for part in line.split(",")):
        raise StatusError(508, "the upstream adapter of this adapter is this adapter; check upstreams")


def listed_names(reply: Reply, group: str, version: str, queries: Scopes) -> Mapping[str, bool]:
    """The metrics that the upstream lists and that are not ours, sorted. Raises StatusError and SourceError."""
    _refuse_error(reply)
    try:
        answer = _RESOURCE_LIST.decode(reply.body)
    except msgspec.MsgspecError as error:
        raise WrongAnswer(f"its discovery document cannot be read: {error}") from error
    if (answer.kind, answer.group_version) != ("APIResourceList", f"{group}/{version}"):
        raise WrongAnswer(f"its discovery document is no APIResourceList of {group}/{version}")
    listed = {one.name: one.namespaced for one in answer.resources or [] if _is_listed(one.name, group, queries)}
    return {name: listed[name] for name in sorted(listed)[:MOST_NAMES]}


def _is_listed(name: str, group: str, queries: Scopes) -> bool:
    resource, metric = "", name
    if group == CUSTOM:
        resource, _, metric = name.partition("/")
        if not _RESOURCE.fullmatch(resource):
            return False
    is_name = bool(metric) and metric.isprintable() and "/" not in metric and len(metric) <= _LONGEST_METRIC
    return is_name and not is_ours(group, resource, metric, queries)


def metric_list(reply: Reply, request: RequestInfo) -> bytes:
    """The list that answers the request, byte for byte.

    Raises StatusError for an error that the upstream answers, SourceError for what is no answer to this request.
    """
    _refuse_error(reply)
    kind, version = LIST_KINDS[request.group], f"{request.group}/{request.version}"
    try:
        answer = _METRIC_LIST.decode(reply.body)
    except msgspec.MsgspecError as error:
        raise WrongAnswer(f"{error}: {_beginning(reply)}", public="the answer is no list of metrics") from error
    if (answer.kind, answer.api_version) != (kind, version):
        received = f"{answer.kind[:_SHOWN]!r} of {answer.api_version[:_SHOWN]!r}"
        raise WrongAnswer(f"{received} came instead of {kind} of {version}", public=f"the answer is no {kind}")
    for item in answer.items or ():
        namespace = item.described_object.namespace if item.described_object is not None else None
        if namespace and request.namespace not in {"", "*", namespace}:
            message = f"an item of namespace {namespace[:_SHOWN]!r} came, {request.namespace!r} was requested"
            raise WrongAnswer(message, public="the answer has items of another namespace")
    return reply.body


def _refuse_error(reply: Reply) -> None:
    """Raises the error of any answer but 200: StatusError where the upstream explains itself, SourceError otherwise."""
    code, text = reply.status, f"HTTP {reply.status}: {_beginning(reply)}"
    if code == HTTPStatus.OK:
        return
    if code == HTTPStatus.UNAUTHORIZED:
        raise NotAuthenticated(text)
    if code == HTTPStatus.FORBIDDEN:
        raise NotAllowed(text, public="the adapter's account lacks the right to this metric there")
    try:
        status = _STATUS.decode(reply.body)
    except msgspec.MsgspecError:
        status = Status()
    is_failing = code >= HTTPStatus.INTERNAL_SERVER_ERROR
    if code < HTTPStatus.BAD_REQUEST or status.kind != "Status":
        kind = SourceFailing if is_failing else WrongAnswer
        raise kind(text, public=f"HTTP {code}, and no Kubernetes Status that explains it")
    message = f"upstream adapter: {status.message[:_LONGEST_MESSAGE] or f'HTTP {code}'}"
    if code not in REASONS:  # codes and reasons are labels of metrics, so the upstream does not choose them
        code = HTTPStatus.INTERNAL_SERVER_ERROR if is_failing else HTTPStatus.BAD_REQUEST
    raise StatusError(code, message)


def _beginning(reply: Reply) -> str:
    return reply.body[:_SHOWN].decode(errors="replace")
