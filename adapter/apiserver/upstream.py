"""One upstream adapter: asks it for metrics that are not ours, and keeps the names that it lists.

A request is built anew from what was authorized: segments and selectors, encoded again, and nothing else of the
client's. So neither its headers nor its identity nor further parameters arrive there; the upstream sees the token of
this adapter. Nothing of this waits for another: requests are bounded in number and time, and stop for seconds once the
upstream does not answer.

Of its answers, lists pass as they are once they are checked, and errors are rewritten. What the HPA would take for zero
never passes: an item whose value is absent or null. Neither do items of another namespace than the requested one, a
header or `retryAfterSeconds`.
"""

import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import msgspec
import structlog
from yarl import URL

from adapter.apiserver.discovery import MOST_NAMES, ListedParent, encode_in_slices
from adapter.apiserver.fair_gate import FairGate
from adapter.apiserver.policy_figures import COMMON_METRICS, EFFECTIVE_PREFIX, RAW_PREFIX
from adapter.apiserver.request_info import CUSTOM, PODS_RESOURCE, POLICIES_RESOURCE, SERVED_VERSIONS, RequestInfo
from adapter.apiserver.status import REASONS, StatusError, unavailable
from adapter.kube.objects import Status
from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.backoff import LONGEST_TRIAL_SECONDS, CircuitBreaker, CircuitOpen, LogOnce
from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder, Uncut, array, pieces
from adapter.runtime.outbound import Client, SegmentedReply
from adapter.runtime.source_errors import (
    NotAllowed,
    NotAuthenticated,
    SourceError,
    SourceFailing,
    SourceUnreachable,
    WrongAnswer,
)
from adapter.settings import NamedQuery
from adapter.settings import Upstream as UpstreamSettings
from adapter.telemetry.metrics import Metrics
from adapter.usage.promql import uses_variables

AT_ONCE = 16
"""Requests to one upstream at a time, and as many of the HPA's: what users ask for keeps none of them waiting."""
PER_NAMESPACE = 8
WAITING = 64
"""Requests of one namespace that may wait for others."""
MOST_CIRCUITS = 1024
"""Namespaces whose failures are remembered."""
KEEP_SECONDS = 900.0
"""How long the names of an upstream that stopped answering stay in discovery."""
SELF = "effective-load"
"""The pseudonym of this program in the header `Via`."""
_SEGMENT_CHARACTERS = "!$&'()+,;=:@"
"""Characters of a path segment that stay as they are, besides letters, digits and `-._~` (RFC 3986)."""
_VIA = {"Via": f"1.1 {SELF}"}

_log = structlog.get_logger(__name__)

_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,252})", re.ASCII)
_LONGEST_METRIC = 256


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


class KeptNames(NamedTuple):
    """The names of one version, and when the upstream last listed them (monotonic)."""

    parents: tuple[ListedParent, ...] = ()
    at: float = -math.inf


class _Resource(msgspec.Struct):
    name: str
    namespaced: bool = True


class _ResourceList(msgspec.Struct, rename="camel"):
    kind: str
    group_version: str
    resources: list[_Resource] | None = None


_RESOURCE_LIST = Decoder(_ResourceList)
_MANY = Decoder(list[_Resource])
_RESOURCES = array("resources")


async def read_listing(
    reply: SegmentedReply, group: str, version: str, own_names: OwnNames
) -> tuple[ListedParent, ...]:
    """The metrics that the upstream lists and that are not ours, sorted. Raises StatusError and SourceError."""
    refuse_error(reply)
    listed: dict[str, bool] = {}
    slices = Slices()
    try:
        for piece in pieces(reply.body, _RESOURCES):
            if piece.is_last:
                answer = _RESOURCE_LIST.decode(piece.text)
                group_version = f"{group}/{version}"
                if (answer.kind, answer.group_version) != ("APIResourceList", group_version):
                    raise WrongAnswer(
                        f"discovery: no APIResourceList of {group_version}",
                        public="its discovery document is not of this group",
                    )
                resources = answer.resources or []
            else:
                resources = _MANY.decode(piece.text)
            listed |= {
                resource.name: resource.namespaced
                for resource in resources
                if _is_listed(resource.name, group, own_names)
            }
            await slices.breathe()
    except (msgspec.MsgspecError, Uncut) as error:
        raise WrongAnswer(f"discovery: {error}", public="its discovery document cannot be read") from error
    names = sorted(listed)[:MOST_NAMES]
    return await encode_in_slices(group, {name: listed[name] for name in names})


def _is_listed(name: str, group: str, own_names: OwnNames) -> bool:
    resource, metric = "", name
    if group == CUSTOM:
        resource, _, metric = name.partition("/")
        if not _RESOURCE.fullmatch(resource):
            return False
    is_name = bool(metric) and metric.isprintable() and "/" not in metric and len(metric) <= _LONGEST_METRIC
    return is_name and not own_names.includes(group, resource, metric)


class UpstreamAdapter:
    """The adapter behind this one for a group. `clock` is monotonic."""

    def __init__(
        self,
        group: str,
        settings: UpstreamSettings,
        own_names: OwnNames,
        metrics: Metrics,
        *,
        names: Mapping[str, KeptNames] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`names`: those of an earlier connection to the same server, by version."""
        self.settings = settings
        self.names = dict(names or {})
        self.own = own_names
        self.group = group
        self._clock = clock
        self._client = Client(
            settings.access,
            timeout=settings.timeout_seconds,
            source=f"upstream/{group}",
            at_once=2 * AT_ONCE + 1,  # one more for discovery
            limit=Limit(settings.max_answer_mib * MIB, f"maxAnswerMiB of the upstream for {group}"),
        )
        work = "requests to the upstream adapter"
        self._gates = {is_hpa: FairGate(AT_ONCE, PER_NAMESPACE, WAITING, work=work) for is_hpa in (False, True)}
        self._circuit = CircuitBreaker(clock)
        self._circuits: OrderedDict[str, CircuitBreaker] = OrderedDict()
        """By namespace: a tenant whose own metrics hang stops nobody else's; three such namespaces stop all."""
        self._log_once = LogOnce()
        self._metrics = metrics
        self._problem: str | None = None

    # -- metrics

    async def fetch(self, request: RequestInfo, *, is_hpa: bool = False) -> bytes:
        """The upstream's list for an authorized request. Raises StatusError, within the settings' time."""
        began, seconds, namespace = self._clock(), self.settings.timeout_seconds, request.namespace
        code: int | None = None
        circuit = self._circuits.pop(namespace, None) or CircuitBreaker(self._clock)
        self._circuits[namespace] = circuit
        if len(self._circuits) > MOST_CIRCUITS:
            self._circuits.popitem(last=False)
        # A namespace that had no answer lately may be the only one: others, whose HPAs ask every 15 s, try before it.
        after = LONGEST_TRIAL_SECONDS if circuit.is_open else 0.0
        try:
            self._circuit.check(after)
            circuit.check()
            # Half of the time at most, so that a timeout is the upstream's and not the queue's.
            async with self._gates[is_hpa].slot(f"namespace {namespace}", seconds / 2):
                with circuit.request(), self._circuit.request(namespace, after=after):
                    selectors = {"labelSelector": request.labels, "metricLabelSelector": request.series}
                    url = self._address(
                        request.segments, {name: str(selector) for name, selector in selectors.items() if selector}
                    )
                    left = began + seconds - self._clock()
                    async with self._client.answer("GET", url, deadline=left, headers=_VIA) as reply:
                        answer = await metric_list(reply, request)
            code = HTTPStatus.OK
        except SourceError as error:
            status = self._status(error)
            code = status.code
            raise status from error
        except StatusError as error:
            code = error.code
            raise
        finally:
            if code is not None:
                duration = self._metrics.upstream_requests.labels(self.group, str(int(code)))
                duration.observe(self._clock() - began)
        self._log_once.clear("request")
        return answer

    def _address(self, segments: tuple[str, ...], query: Mapping[str, str]) -> URL:
        path = "/".join(quote(segment, safe=_SEGMENT_CHARACTERS) for segment in segments)
        asked = f"?{urlencode(query)}" if query else ""
        return URL(f"{self.settings.url.rstrip('/')}/{path}{asked}", encoded=True)

    def _status(self, error: SourceError) -> StatusError:
        """The error for the client, without addresses; it is counted, and logged when it is a new one."""
        timed_out = isinstance(error.__cause__, TimeoutError)
        reason = "timeout" if timed_out else "not_asked" if isinstance(error, CircuitOpen) else error.reason
        self._metrics.upstream_errors.labels(self.group, reason).inc()
        late = f"gave no answer within {self.settings.timeout_seconds:g} s"
        cause = late if timed_out else str(error)
        if not isinstance(error, CircuitOpen) and self._log_once.is_new(cause, "request"):
            _log.warning("upstream request failed", group=self.group, error=cause)
        whose = f"the upstream adapter for {self.group}"
        if timed_out:
            return StatusError(HTTPStatus.GATEWAY_TIMEOUT, f"{whose} {late}")
        if isinstance(error, CircuitOpen):
            return unavailable(f"{whose} did not answer lately ({error.public}), and is tried again within seconds")
        return unavailable(f"{whose}: {error.public}")

    # -- names

    def listed(self, version: str) -> tuple[ListedParent, ...]:
        """The names that it lists in a version and that are not ours; none once it has been silent for 15 minutes."""
        names = self.names.get(version, KeptNames())
        return names.parents if self._clock() - names.at <= KEEP_SECONDS else ()

    def problem(self) -> str | None:
        """Why it does not answer; None if it does, or was not asked yet."""
        if self._problem is None and (
            self._circuit.is_open or any(circuit.is_open for circuit in self._circuits.values())
        ):
            return f"the upstream adapter for {self.group} answers discovery, but no requests for metrics"
        return self._problem

    async def refresh(self) -> bool:
        """Asks anew which metrics it has; returns whether any version was answered. The others keep their names."""
        listed: dict[str, KeptNames] = {}
        problem = ""
        for version in SERVED_VERSIONS[self.group]:
            try:
                url = self._address(("apis", self.group, version), {})
                async with self._client.answer("GET", url, headers=_VIA) as reply:
                    parents = await read_listing(reply, self.group, version, self.own)
                listed[version] = KeptNames(parents, self._clock())
            except StatusError as error:
                problem = problem or f"{version}: {error.message}"
            except SourceError as error:
                problem = problem or f"{version}: {error}"
                if isinstance(error, SourceUnreachable):
                    break  # the next version would wait as long
        if not listed:
            self._problem = f"the upstream adapter for {self.group} does not answer discovery: {problem}"
            if self._log_once.is_new(problem, "discovery"):
                _log.warning("upstream discovery failed", group=self.group, error=problem)
            return False
        if self._problem is not None:  # it is back
            for circuit in (self._circuit, *self._circuits.values()):
                circuit.allow_trial()
        self.names |= listed
        self._problem = None
        if self._log_once.clear("discovery"):
            _log.info("upstream discovery succeeded", group=self.group)
        return True

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


_LONGEST_MESSAGE = 1024
_SHOWN = 200
_READ = 64 * 1024  # bytes of an error's body that are read
_PASSING = REASONS.keys() - {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.REQUEST_URI_TOO_LONG,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
}
"""The codes that pass: they and their reasons are labels of metrics, so the upstream does not choose them."""


class _Described(msgspec.Struct):
    namespace: str | None = None


class _MetricValue(msgspec.Struct, rename="camel"):
    described_object: _Described
    value: str | int | float


class _ExternalMetricValue(msgspec.Struct):
    value: str | int | float


class _List(msgspec.Struct, rename="camel"):
    items: msgspec.Raw = msgspec.Raw(b"null")
    kind: str = ""
    api_version: str = ""


_METRIC_LIST = Decoder(_List)
_CUSTOM_ITEMS: Decoder[list[_MetricValue] | None] = Decoder(list[_MetricValue] | None)
_EXTERNAL_ITEMS: Decoder[list[_ExternalMetricValue] | None] = Decoder(list[_ExternalMetricValue] | None)
_STATUS = Decoder(Status)
_ITEMS = array("items")


async def metric_list(reply: SegmentedReply, request: RequestInfo) -> bytes:
    """The list that answers the request, byte for byte.

    Raises StatusError for an error that the upstream answers, SourceError for what is no answer to this request.
    """
    refuse_error(reply)
    content = reply.body.whole()
    kind = "MetricValueList" if request.group == CUSTOM else "ExternalMetricValueList"
    version = f"{request.group}/{request.version}"
    slices = Slices()
    try:
        for piece in pieces(reply.body, _ITEMS):
            text: Any = piece.text
            if piece.is_last:
                answer = _METRIC_LIST.decode(text)
                if (answer.kind, answer.api_version) != (kind, version):
                    received = f"{answer.kind[:_SHOWN]!r} of {answer.api_version[:_SHOWN]!r}"
                    message = f"{received} came instead of {kind} of {version}"
                    raise WrongAnswer(message, public=f"the answer is no {kind}")
                text = answer.items
            if request.group == CUSTOM:
                for item in _CUSTOM_ITEMS.decode(text) or ():
                    namespace = item.described_object.namespace
                    if namespace and request.namespace not in {"", "*", namespace}:
                        message = (
                            f"an item of namespace {namespace[:_SHOWN]!r} came, {request.namespace!r} was requested"
                        )
                        raise WrongAnswer(message, public="the answer has items of another namespace")
            else:
                _EXTERNAL_ITEMS.decode(text)
            await slices.breathe()
    except (msgspec.MsgspecError, Uncut) as error:
        raise WrongAnswer(f"{error}: {_beginning(content)}", public="the answer is no list of metrics") from error
    return content


def refuse_error(reply: SegmentedReply) -> None:
    """Raises the error of any answer but 200: StatusError where the upstream explains itself, SourceError otherwise."""
    code = reply.status
    if code == HTTPStatus.OK:
        return
    text = reply.body.start(_READ)
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
