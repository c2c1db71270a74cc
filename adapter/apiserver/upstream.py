"""The upstream adapters: they are asked for metrics that are not ours, and for the names that they list.

A request is built anew from what was authorized: segments and selectors, encoded again, and nothing else of the
client's. So neither its headers nor its identity nor further parameters arrive there; the upstream sees the token of
this adapter. Requests are bounded in number and time.

Of its answers, lists pass as they are once they are checked, and errors are rewritten. What the HPA would take for zero
never passes: an item whose value is absent or null. Neither do items of another namespace than the requested one, a
header or `retryAfterSeconds`.
"""

import asyncio
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
from adapter.kube.objects import ApiResourceList, ObjectReference, Status
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


class _MetricList(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: list[_MetricValue] | None = None


_METRIC_LIST, _RESOURCE_LIST, _STATUS = Decoder(_MetricList), Decoder(ApiResourceList), Decoder(Status)

Scopes = Mapping[str, str]
"""The scope of each named query that is served, by its name: `Pods` or `Service`."""


def is_ours(group: str, resource: str, metric: str, queries: Scopes) -> bool:
    """Whether a metric of a resource (External: any text) is this adapter's own."""
    if group != CUSTOM:
        return is_reserved(metric) or metric in queries
    of_query = resource == PODS_RESOURCE and queries.get(metric) == "Pods"
    return is_reserved(metric) or resource == POLICIES_RESOURCE or of_query


class Upstream:
    """The adapter behind this one for a group, if there is any. `seconds`: how often its names are read."""

    def __init__(self, group: str, metrics: Metrics, seconds: float) -> None:
        self.settings: UpstreamSettings | None = None
        self.queries: Scopes = {}
        self.names: dict[str, Mapping[str, bool]] = {}
        """The names that it lists in each version and that are not ours: whether each is namespaced."""
        self._group, self._metrics = group, metrics
        self._clients: list[Client] = []
        """The last one is in use, if there are settings; the others are closed at the next refresh."""
        self._log_once = LogOnce()
        self.refresher = Refresher(
            self.refresh, seconds, "upstream_discovery_failed", lambda: self._show(up=False), group=group
        )

    def apply(self, settings: UpstreamSettings | None, queries: Scopes) -> None:
        """Use these settings from now on. Its names stay while its address does."""
        before, known = self.settings, self.queries
        if (settings, queries) == (before, known):
            return
        self.settings, self.queries = settings, queries
        if settings is None or before is None or (settings.url, queries) != (before.url, known):
            self.names = {}
        if settings is None:
            self._metrics.upstream_up.remove_by_labels({"group": self._group})
        elif settings != before:
            self._clients.append(
                Client(
                    settings.access,
                    timeout=settings.timeout_seconds,
                    max_bytes=settings.max_answer_mib * MIB,
                    at_once=AT_ONCE,
                    limit_name=f"maxAnswerMiB of the upstream for {self._group}",
                )
            )
        self.refresher.wake()

    async def fetch(self, request: RequestInfo) -> bytes:
        """Its list for an authorized request, byte for byte. Raises StatusError, within the settings' time."""
        began, code = time.perf_counter(), int(HTTPStatus.OK)
        selectors = {"labelSelector": request.labels, "metricLabelSelector": request.series}
        try:
            reply = await self._get(request.segments, {name: str(one) for name, one in selectors.items() if one})
            answer = metric_list(reply, request)
        except StatusError as error:
            code = error.code
            raise
        except SourceError as error:
            status = self._status(error)
            code = status.code
            raise status from error
        finally:
            seconds = time.perf_counter() - began
            self._metrics.upstream_requests.labels(self._group, str(int(code))).observe(seconds)
        self._log_once.clear()
        return answer

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.close()

    async def refresh(self) -> None:
        """Read its names; a version without an answer keeps them. Raises SourceError if all are without one."""
        while len(self._clients) > (self.settings is not None):
            await self._clients.pop(0).close()
        faults: list[str] = []
        before = self.settings, self.queries
        versions = SERVED_VERSIONS[self._group] if self.settings is not None else ()
        for version in versions:
            listed = None
            try:
                reply = await self._get(("apis", self._group, version), {})
                listed = listed_names(reply, self._group, version, self.queries)
            except (StatusError, SourceError) as error:
                faults.append(f"{version}: {error}")
            if (self.settings, self.queries) != before:
                return  # another refresh is due
            if listed is not None:
                self.names[version] = listed
        if faults and len(faults) == len(versions):
            raise SourceError(f"the upstream adapter for {self._group} does not answer discovery: {faults[0]}")
        self._show(up=True)

    async def _get(self, segments: tuple[str, ...], query: Mapping[str, str]) -> Reply:
        assert self.settings is not None
        path = "/".join(quote(segment, safe=_SEGMENT_CHARACTERS) for segment in segments)
        asked = f"?{urlencode(query)}" if query else ""
        url = URL(f"{self.settings.url.rstrip('/')}/{path}{asked}", encoded=True)
        return await self._clients[-1].send("GET", url, headers=_VIA)

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

    def _show(self, *, up: bool) -> None:
        if self.settings is not None:  # it may have been removed meanwhile
            self._metrics.upstream_up.labels(self._group).set(up)


class Upstreams:
    """The adapters behind this one, by group; `apply_settings` changes them while running."""

    def __init__(
        self,
        settings: UpstreamsSettings,
        queries: Iterable[NamedQuery],
        metrics: Metrics,
        *,
        seconds: float = REFRESH_SECONDS,
    ) -> None:
        self._by_group = {group: Upstream(group, metrics, seconds) for group in SERVED_VERSIONS}
        self.apply_settings(settings, queries)

    def apply_settings(self, settings: UpstreamsSettings, queries: Iterable[NamedQuery]) -> None:
        """Use other upstreams, or other settings for them, from now on. Queries with variables are not served."""
        scopes = {query.name: query.scope for query in queries if not uses_variables(query.query)}
        self._by_group[CUSTOM].apply(settings.custom, scopes)
        self._by_group[EXTERNAL].apply(settings.external, scopes)

    def of(self, request: RequestInfo) -> Upstream | None:
        """The upstream that answers a metric request; None if the metric is ours, or nobody stands behind us."""
        upstream = self._by_group[request.group]
        is_own = is_ours(request.group, request.resource, request.metric, upstream.queries)
        return None if is_own or upstream.settings is None else upstream

    def listed(self, group: str, version: str) -> Mapping[str, bool]:
        """The names that an upstream adds to discovery: whether each is namespaced."""
        return self._by_group[group].names.get(version, {}) if group in self._by_group else {}

    def warning(self) -> str | None:
        """Which upstream does not answer, and why; None if all do."""
        errors = (each.refresher.error for each in self._by_group.values() if each.settings is not None)
        return "; ".join(error for error in errors if error) or None

    async def run(self) -> None:
        """Refresh the names until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for group, upstream in self._by_group.items():
                    tasks.create_task(upstream.refresher.run(), name=f"upstream {group}")
        finally:
            for upstream in self._by_group.values():
                await upstream.close()


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
    listed: dict[str, bool] = {}
    for one in answer.resources or ():
        found = _NAME.fullmatch(one.name)
        if found is None or bool(found[1]) != (group == CUSTOM) or not found[2].isprintable():
            continue
        if not is_ours(group, found[1] or "", found[2], queries):
            listed[one.name] = one.namespaced
    return {name: listed[name] for name in sorted(listed)[:MOST_NAMES]}


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
        raise WrongAnswer(f"no {kind} of {version}: {_beginning(reply)}", public=f"the answer is no {kind}")
    for item in answer.items or ():
        namespace = item.described_object.namespace if item.described_object is not None else ""
        if namespace and request.namespace not in {"", "*", namespace}:
            message = f"an item of namespace {namespace[:_SHOWN]!r} came, {request.namespace!r} was requested"
            raise WrongAnswer(message, public="the answer has items of another namespace")
    return reply.body


def _refuse_error(reply: Reply) -> None:
    """Raises the error of any answer but 200: StatusError where the upstream explains itself, SourceError otherwise."""
    code, text = reply.status, f"HTTP {reply.status}: {_beginning(reply)}"
    if code == HTTPStatus.OK:
        return
    if code in _OF_OUR_ACCOUNT:
        raise _OF_OUR_ACCOUNT[code](text)
    try:
        status = _STATUS.decode(reply.body)
    except msgspec.MsgspecError:
        status = Status()
    # Codes and reasons are labels of metrics, so the upstream does not choose them.
    if status.kind != "Status" or code not in REASONS:
        kind = SourceFailing if code >= HTTPStatus.INTERNAL_SERVER_ERROR else WrongAnswer
        raise kind(text, public=f"HTTP {code}, and no Kubernetes Status that explains it")
    raise StatusError(code, f"upstream adapter: {status.message[:_LONGEST_MESSAGE] or f'HTTP {code}'}")


def _beginning(reply: Reply) -> str:
    return reply.body[:_SHOWN].decode(errors="replace")
