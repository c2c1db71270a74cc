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
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self
from urllib.parse import quote, urlencode

import msgspec
import structlog
from yarl import URL

from adapter.apiserver.discovery import LIST_KINDS, MOST_NAMES
from adapter.apiserver.policy_figures import COMMON_METRICS, EFFECTIVE_PREFIX, RAW_PREFIX
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
from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.backoff import LogOnce
from adapter.runtime.concurrency import wait_for_event
from adapter.runtime.decoding import Decoder
from adapter.runtime.outbound import Client, Reply
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, SourceFailing, WrongAnswer
from adapter.settings import NamedQuery, UpstreamsSettings
from adapter.settings import Upstream as UpstreamSettings
from adapter.telemetry.metrics import Metrics
from adapter.usage.promql import uses_variables

AT_ONCE = 16
"""Requests to one upstream at a time."""
REFRESH_SECONDS, RETRY_SECONDS = 30.0, 5.0
"""Between two readings of an upstream's names, after an answer and after a failure."""
RETIRE_SECONDS = 31.0
"""A replaced upstream is closed after once to twice this time: longer than any of its requests takes."""
_SELF = "effective-load"
"""The pseudonym of this program in the header `Via`."""
_VIA = {"Via": f"1.1 {_SELF}"}
_SEGMENT_CHARACTERS = "!$&'()+,;=:@"
"""Characters of a path segment that stay as they are, besides letters, digits and `-._~` (RFC 3986)."""
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,252})", re.ASCII)
_LONGEST_METRIC = 256
_LONGEST_MESSAGE = 1024
_SHOWN = 200
_PASSING = REASONS.keys() - {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.REQUEST_URI_TOO_LONG,
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
}
"""The codes that pass: they and their reasons are labels of metrics, so the upstream does not choose them."""

_log = structlog.get_logger(__name__)


class _Described(msgspec.Struct):
    namespace: str | None = None


class _MetricValue(msgspec.Struct, rename="camel"):
    described_object: _Described
    value: str | int | float


class _ExternalMetricValue(msgspec.Struct):
    value: str | int | float


class _CustomList(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: list[_MetricValue] | None = None


class _ExternalList(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: list[_ExternalMetricValue] | None = None


class _Resource(msgspec.Struct):
    name: str
    namespaced: bool = True


class _ResourceList(msgspec.Struct, rename="camel"):
    kind: str
    group_version: str
    resources: list[_Resource] | None = None


_CUSTOM_LIST = Decoder(_CustomList)
_EXTERNAL_LIST = Decoder(_ExternalList)
_RESOURCE_LIST = Decoder(_ResourceList)
_STATUS = Decoder(Status)


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The reserved names on every resource, and the named queries where they are served: on pods, as External."""

    on_pods: frozenset[str] = frozenset()
    external: frozenset[str] = frozenset()

    @classmethod
    def of(cls, queries: Iterable[NamedQuery]) -> Self:
        """The names of the settings' queries that are served: those without variables."""
        scopes = {query.name: query.scope for query in queries if not uses_variables(query.query)}
        return cls(frozenset(name for name, scope in scopes.items() if scope == "Pods"), frozenset(scopes))

    def includes(self, group: str, resource: str, metric: str) -> bool:
        """Whether a metric of a resource (External: any text) is ours."""
        if metric in COMMON_METRICS or metric.startswith((EFFECTIVE_PREFIX, RAW_PREFIX)):
            return True
        if group != CUSTOM:
            return metric in self.external
        return resource == POLICIES_RESOURCE or (resource == PODS_RESOURCE and metric in self.on_pods)


class UpstreamAdapter:
    """The adapter behind this one for a group."""

    def __init__(
        self,
        group: str,
        settings: UpstreamSettings,
        own_names: OwnNames,
        metrics: Metrics,
        *,
        names: Mapping[str, Mapping[str, bool]] | None = None,
    ) -> None:
        """`names`: those of an earlier connection to the same server, by version."""
        self.group = group
        self.settings = settings
        self.own = own_names
        self.names: dict[str, Mapping[str, bool]] = dict(names or {})
        """The names that it lists in each version and that are not ours: whether each is namespaced."""
        self.problem: str | None = None
        """Why it did not answer which metrics it has; None if it did, or was not asked yet."""
        self._client = Client(
            settings.access,
            timeout=settings.timeout_seconds,
            source=f"upstream/{group}",
            at_once=AT_ONCE + 1,  # one more for discovery
            limit=Limit(settings.max_answer_mib * MIB, f"maxAnswerMiB of the upstream for {group}"),
        )
        self._places = asyncio.Semaphore(AT_ONCE)
        self._log_once = LogOnce()
        self._metrics = metrics

    async def fetch(self, request: RequestInfo) -> bytes:
        """The upstream's list for an authorized request. Raises StatusError, within the settings' time."""
        began = time.perf_counter()
        code: int | None = None  # of a request that is cancelled
        selectors = {"labelSelector": request.labels, "metricLabelSelector": request.series}
        url = self._address(request.segments, {name: str(selector) for name, selector in selectors.items() if selector})
        try:
            async with asyncio.timeout(self.settings.timeout_seconds), self._places:
                reply = await self._client.send("GET", url, headers=_VIA)
            answer = metric_list(reply, request)
            code = HTTPStatus.OK
        except (SourceError, TimeoutError) as error:
            status = self._status(error)
            code = status.code
            raise status from error
        except StatusError as error:
            code = error.code
            raise
        finally:
            if code is not None:
                duration = self._metrics.upstream_requests.labels(self.group, str(int(code)))
                duration.observe(time.perf_counter() - began)
        self._log_once.clear("request")
        return answer

    def _address(self, segments: tuple[str, ...], query: Mapping[str, str]) -> URL:
        path = "/".join(quote(segment, safe=_SEGMENT_CHARACTERS) for segment in segments)
        asked = f"?{urlencode(query)}" if query else ""
        return URL(f"{self.settings.url.rstrip('/')}/{path}{asked}", encoded=True)

    def _status(self, error: SourceError | TimeoutError) -> StatusError:
        """The error for the client, without addresses; it is counted, and logged when it is a new one."""
        whose = f"the upstream adapter for {self.group}"
        if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
            reason, cause = "timeout", f"gave no answer within {self.settings.timeout_seconds:g} s"
            status = StatusError(HTTPStatus.GATEWAY_TIMEOUT, f"{whose} {cause}")
        else:
            reason, cause = error.reason, str(error)
            status = unavailable(f"{whose}: {error.public}")
        self._metrics.upstream_errors.labels(self.group, reason).inc()
        if self._log_once.is_new(cause, "request"):
            _log.warning("upstream_request_failed", group=self.group, error=cause)
        return status

    async def refresh(self) -> bool:
        """Asks which metrics it has; returns whether any version was answered. The others keep their names."""
        faults: list[str] = []
        for version in SERVED_VERSIONS[self.group]:
            try:
                reply = await self._client.send("GET", self._address(("apis", self.group, version), {}), headers=_VIA)
                self.names[version] = listed_names(reply, self.group, version, self.own)
            except (StatusError, SourceError) as error:
                faults.append(f"{version}: {error}")
        if len(faults) < len(SERVED_VERSIONS[self.group]):
            self.problem = None
            if self._log_once.clear("discovery"):
                _log.info("upstream_discovery_succeeded", group=self.group)
            return True
        self.problem = f"the upstream adapter for {self.group} does not answer discovery: {faults[0]}"
        if self._log_once.is_new(faults[0], "discovery"):
            _log.warning("upstream_discovery_failed", group=self.group, error=faults[0])
        return False

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class Upstreams:
    """The adapters behind this one, by group; `apply_settings` changes them while running."""

    def __init__(self, settings: UpstreamsSettings, queries: Iterable[NamedQuery], metrics: Metrics) -> None:
        self._metrics = metrics
        self.by_group: dict[str, UpstreamAdapter] = {}
        self._retired: list[UpstreamAdapter] = []
        self._closing: list[UpstreamAdapter] = []
        self._changed = {group: asyncio.Event() for group in SERVED_VERSIONS}
        self.apply_settings(settings, queries)

    def apply_settings(self, settings: UpstreamsSettings, queries: Iterable[NamedQuery]) -> None:
        """Replaces the upstreams whose settings changed; requests under way end with the old ones."""
        own_names = OwnNames.of(queries)
        for group, wanted in ((CUSTOM, settings.custom), (EXTERNAL, settings.external)):
            current = self.by_group.get(group)
            names = None
            if current is not None:
                if (wanted, own_names) == (current.settings, current.own):
                    continue
                self._retired.append(self.by_group.pop(group))
                if wanted is not None and (wanted.url, own_names) == (current.settings.url, current.own):
                    names = current.names
            if wanted is not None:
                self.by_group[group] = UpstreamAdapter(group, wanted, own_names, self._metrics, names=names)
            elif current is not None:
                self._metrics.upstream_up.remove_by_labels({"group": group})
            else:
                continue
            self._changed[group].set()

    def of(self, request: RequestInfo) -> UpstreamAdapter | None:
        """The upstream that answers a metric request; None if the metric is ours, or nobody stands behind us."""
        upstream = self.by_group.get(request.group)
        if upstream is None or upstream.own.includes(request.group, request.resource, request.metric):
            return None
        return upstream

    def listed(self, group: str, version: str) -> Mapping[str, bool]:
        """The names that an upstream adds to discovery: whether each is namespaced."""
        upstream = self.by_group.get(group)
        return upstream.names.get(version, {}) if upstream is not None else {}

    def warning(self) -> str | None:
        """Which upstream does not answer, and why; None if all do."""
        return "; ".join(upstream.problem for upstream in self.by_group.values() if upstream.problem) or None

    async def run(self) -> None:
        """Refresh the names until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for group in SERVED_VERSIONS:
                    tasks.create_task(self._follow(group), name=f"upstream {group}")
                tasks.create_task(self._close_retired(), name="retired upstreams")
        finally:
            for upstream in (*self.by_group.values(), *self._retired, *self._closing):
                await upstream.close()

    async def _follow(self, group: str) -> None:
        changed = self._changed[group]
        while True:
            changed.clear()
            seconds = None
            if (upstream := self.by_group.get(group)) is not None:
                try:
                    answered = await upstream.refresh()
                except Exception:  # noqa: BLE001 - logged; our own metrics do not depend on it, and its names stay
                    _log.exception("upstream_refresh_failed", group=group)
                    answered = False
                if self.by_group.get(group) is upstream:  # else its settings changed meanwhile
                    self._metrics.upstream_up.labels(group).set(answered)
                seconds = REFRESH_SECONDS if answered else RETRY_SECONDS
            await wait_for_event(changed, seconds)

    async def _close_retired(self) -> None:
        while True:
            await asyncio.sleep(RETIRE_SECONDS)
            for upstream in self._closing:
                await upstream.close()
            self._closing, self._retired = self._retired, []


def refuse_loop(via: Sequence[str]) -> None:
    """Raises StatusError 508 for a request that passed through this program before."""
    if any(part.strip().endswith(f" {_SELF}") for line in via for part in line.split(",")):
        raise StatusError(508, "the upstream adapter of this adapter is this adapter; check upstreams")


def listed_names(reply: Reply, group: str, version: str, own_names: OwnNames) -> Mapping[str, bool]:
    """The metrics that the upstream lists and that are not ours, sorted. Raises StatusError and SourceError."""
    _refuse_error(reply)
    try:
        answer = _RESOURCE_LIST.decode(reply.body)
    except msgspec.MsgspecError as error:
        raise WrongAnswer(f"discovery: {error}", public="its discovery document cannot be read") from error
    if (answer.kind, answer.group_version) != ("APIResourceList", f"{group}/{version}"):
        raise WrongAnswer(
            f"discovery: no APIResourceList of {group}/{version}",
            public="its discovery document is not of this group",
        )
    listed = {one.name: one.namespaced for one in answer.resources or [] if _is_listed(one.name, group, own_names)}
    return {name: listed[name] for name in sorted(listed)[:MOST_NAMES]}


def _is_listed(name: str, group: str, own_names: OwnNames) -> bool:
    resource, metric = "", name
    if group == CUSTOM:
        resource, _, metric = name.partition("/")
        if not _RESOURCE.fullmatch(resource):
            return False
    is_name = bool(metric) and metric.isprintable() and "/" not in metric and len(metric) <= _LONGEST_METRIC
    return is_name and not own_names.includes(group, resource, metric)


def metric_list(reply: Reply, request: RequestInfo) -> bytes:
    """The list that answers the request, byte for byte.

    Raises StatusError for an error that the upstream answers, SourceError for what is no answer to this request.
    """
    _refuse_error(reply)
    kind, version = LIST_KINDS[request.group], f"{request.group}/{request.version}"
    answer: _CustomList | _ExternalList
    try:
        answer = (_CUSTOM_LIST if request.group == CUSTOM else _EXTERNAL_LIST).decode(reply.body)
    except msgspec.MsgspecError as error:
        text = f"{error}: {_beginning(reply.body)}"
        raise WrongAnswer(text, public="the answer is no list of metrics") from error
    if (answer.kind, answer.api_version) != (kind, version):
        received = f"{answer.kind[:_SHOWN]!r} of {answer.api_version[:_SHOWN]!r}"
        raise WrongAnswer(f"{received} came instead of {kind} of {version}", public=f"the answer is no {kind}")
    if isinstance(answer, _CustomList) and request.namespace not in {"", "*"}:
        for item in answer.items or ():
            namespace = item.described_object.namespace
            if namespace and namespace != request.namespace:
                message = f"an item of namespace {namespace[:_SHOWN]!r} came, {request.namespace!r} was requested"
                raise WrongAnswer(message, public="the answer has items of another namespace")
    return reply.body


def _refuse_error(reply: Reply) -> None:
    """Raises the error of any answer but 200: StatusError where the upstream explains itself, SourceError otherwise."""
    code = reply.status
    if code == HTTPStatus.OK:
        return
    text = reply.body
    if code == HTTPStatus.UNAUTHORIZED:
        raise NotAuthenticated(f"HTTP {code}: {_beginning(text)}")
    if code == HTTPStatus.FORBIDDEN:
        public = "the adapter's account lacks the right to this metric there"
        raise NotAllowed(f"HTTP {code}: {_beginning(text)}", public=public)
    if code < HTTPStatus.BAD_REQUEST:
        is_redirect = code >= HTTPStatus.MULTIPLE_CHOICES
        cause = "redirects are not followed" if is_redirect else "only answers of status 200 are read"
        raise WrongAnswer(f"HTTP {code}: {_beginning(text)}", public=f"HTTP {code}: {cause}")
    try:
        status = _STATUS.decode(text)
    except msgspec.MsgspecError:
        status = Status()
    if status.kind != "Status":
        kind = SourceFailing if code >= HTTPStatus.INTERNAL_SERVER_ERROR else WrongAnswer
        raise kind(f"HTTP {code}: {_beginning(text)}", public=f"HTTP {code}, and no Kubernetes Status that explains it")
    if code not in _PASSING:
        code = HTTPStatus.INTERNAL_SERVER_ERROR if code >= HTTPStatus.INTERNAL_SERVER_ERROR else HTTPStatus.BAD_REQUEST
    message = f"upstream adapter: {status.message[:_LONGEST_MESSAGE] or f'HTTP {reply.status}'}"
    raise StatusError(code, message)


def _beginning(text: bytes) -> str:
    return text[:_SHOWN].decode(errors="replace")
