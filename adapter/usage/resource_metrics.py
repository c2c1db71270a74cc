"""Usage from metrics.k8s.io: polls PodMetrics of each namespace that needs them, and keeps the last samples."""

import asyncio
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

import msgspec
import structlog

from adapter.kube.api import POD_METRICS
from adapter.kube.errors import ApiStatusError, KubeError, TimedOut
from adapter.kube.session import Session
from adapter.load.quantity import NANO, QuantityError, parse_nano
from adapter.load.samples import ResourceSamples, Usage
from adapter.runtime.answer_budget import MIB, Body
from adapter.runtime.backoff import LogOnce
from adapter.runtime.concurrency import Slices, wait_for_event
from adapter.runtime.decoding import Decoder, Uncut, array, pieces, shared
from adapter.runtime.source_errors import WrongAnswer
from adapter.settings import ResourceMetricsSettings
from adapter.telemetry.metrics import Metrics
from adapter.usage.ahead_dates import AheadDates
from adapter.usage.polling import interval_shares, retry_delay, with_last_answer
from adapter.usage.usage_columns import NO_USAGE, UsageColumns, UsageColumnsBuilder

SOURCE = "metrics.k8s.io"
CONCURRENT_REQUESTS = 8
"""Requests in progress at a time."""

CHECK_SECONDS = 0.5
_STEP = 128
"""Pods converted between two checks of the time slice."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|us|µs|ns|s)")
_LONGEST_DURATION = 64  # the regular expression takes quadratic time for a long text that is no duration
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}

_SUFFIXES = {"n": ("n", 1), "i": ("Ki", 1024 * NANO), "m": ("m", NANO // 1000)}
"""The common suffixes, by their last letter."""
_SAFE_DIGITS = 12  # far below the limit of a quantity

_log = structlog.get_logger(__name__)


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str


class _Container(msgspec.Struct, frozen=True, gc=False):
    name: str
    usage: dict[str, str | int | float]


class _PodMetrics(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta
    timestamp: str
    window: str = ""
    containers: list[_Container] | None = None


class _List(msgspec.Struct, frozen=True):
    items: list[_PodMetrics] | None = None


_ONE = Decoder(_PodMetrics)
_MANY = Decoder(list[_PodMetrics])
_WHOLE = Decoder(_List)
_ITEMS = array("items")


def decode_usage(body: bytes) -> tuple[str, Usage]:
    """Decode one PodMetrics object: the pod's name and its usage. Raises msgspec.MsgspecError for another body."""
    item = _ONE.decode(body)
    builder = UsageColumnsBuilder()
    _add(builder, [item])
    return item.metadata.name, builder.columns()[item.metadata.name]


async def decode_usages(body: Body, last: UsageColumns = NO_USAGE) -> UsageColumns:
    """Decode a PodMetricsList in slices of about 2 ms, and consume the body. Raises WrongAnswer.

    `last` is the answer before this one, whose names are taken over where the pods are the same.
    """
    slices = Slices()
    builder = UsageColumnsBuilder(last)
    try:
        for piece in pieces(body, _ITEMS):
            items = (_WHOLE.decode(piece.text).items or []) if piece.is_last else _MANY.decode(piece.text)
            for first in range(0, len(items), _STEP):
                _add(builder, items[first : first + _STEP])
                await slices.breathe()
        # A thread costs more than the columns of a small namespace.
        return builder.columns() if len(builder) <= _STEP else await asyncio.to_thread(builder.columns)
    except (msgspec.MsgspecError, Uncut) as error:
        raise WrongAnswer(
            f"the answer is no PodMetricsList: {error}", public="the answer is no PodMetricsList"
        ) from error


def _add(builder: UsageColumnsBuilder, items: Iterable[_PodMetrics]) -> None:
    """Add pods, their amounts by container: texts of one kind are read together."""
    usages: dict[str, dict[int, Mapping[str, str | int | float]]] = {}
    for item in items:
        containers = item.containers or ()
        shape = tuple([shared(of_container.name) for of_container in containers])
        row = builder.add(item.metadata.name, _seconds(item.timestamp), parse_go_duration(item.window), shape)
        for of_container in containers:
            by_row = usages.get(of_container.name)
            if by_row is None:
                by_row = usages[shared(of_container.name)] = {}
            by_row[row] = of_container.usage
    for container, by_row in usages.items():
        for resource in dict.fromkeys(chain.from_iterable(by_row.values())):
            builder.fill(container, resource, by_row, _nanos([usage.get(resource) for usage in by_row.values()]))


def _nanos(quantities: list[str | int | float | None]) -> list[int | None]:
    """The quantities in nano-units; None where absent or unreadable: that sample is missing for that resource alone.

    Those of metrics-server have one suffix but for zeros, and are read together.
    """
    texts = [text for text in quantities if isinstance(text, str) and text]
    suffixes = {text[-1] for text in texts if text != "0"}
    if len(texts) == len(quantities) and len(suffixes) <= 1:
        suffix, factor = _SUFFIXES.get(suffixes.pop() if suffixes else "n", ("", 0))
        digits = [text.removesuffix(suffix) for text in texts]
        together = "".join(digits)
        is_plain = all(digits) and together.isdecimal() and together.isascii()
        if factor and is_plain and len(max(digits, key=len)) <= _SAFE_DIGITS:
            return [int(number) * factor for number in digits]
    amounts: list[int | None] = []
    for quantity in quantities:
        try:
            amounts.append(None if quantity is None else parse_nano(str(quantity)))
        except QuantityError:
            amounts.append(None)
    return amounts


@functools.lru_cache(1024)  # samples of many pods have the same time
def _seconds(timestamp: str) -> float:
    try:
        at = msgspec.convert(timestamp, datetime)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{error} - at `$.timestamp`") from error
    if at.tzinfo is None:
        raise msgspec.ValidationError(f"timestamp {timestamp} lacks its offset")
    return at.timestamp()


@functools.lru_cache(256)
def parse_go_duration(duration: str) -> float:
    """Seconds of a duration as Go writes it (`15s`, `1m0.5s`); 0 for another text."""
    parts = _DURATION.findall(duration[:_LONGEST_DURATION])
    if "".join(number + unit for number, unit in parts) != duration:
        return 0.0
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


@dataclass(frozen=True, slots=True)
class _NamespaceState:
    pods: UsageColumns
    fetched_at: float | None = None
    cause: str = ""


_NOTHING = _NamespaceState(NO_USAGE)


class ResourceMetrics:
    """Polls PodMetrics of the namespaces that policies need, each at times of its own so that they make no burst.

    `namespaces` is called twice a second; a new namespace is fetched at once. `on_change` is called with a namespace
    when its samples, or the cause of its failure, changed.
    """

    def __init__(
        self,
        session: Session,
        namespaces: Callable[[], Iterable[str]],
        settings: ResourceMetricsSettings,
        on_change: Callable[[str], None],
        metrics: Metrics,
    ) -> None:
        self.settings = settings
        self._session = session
        self._namespaces = namespaces
        self._on_change = on_change
        self._metrics = metrics
        self._states: dict[str, _NamespaceState] = {}
        self._ahead: dict[str, AheadDates] = {}
        self._log_once = LogOnce()
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_REQUESTS)
        self._changed = asyncio.Event()

    def samples(self, namespace: str) -> ResourceSamples:
        """The samples of a namespace. While polls fail, `error` has the cause and the age of the last samples."""
        state = self._states.get(namespace, _NOTHING)
        return ResourceSamples(
            pods=state.pods,
            max_age=self.settings.max_age_seconds,
            interval=self.settings.interval_seconds,
            error=with_last_answer(state.cause, state.fetched_at) if state.cause else None,
            fetched_at=state.fetched_at,
        )

    def refresh(self) -> None:
        """Check for new namespaces now."""
        self._changed.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    wanted = set(self._namespaces())
                    for namespace in wanted - self._pollers.keys():
                        self._pollers[namespace] = group.create_task(
                            self._poll(namespace), name=f"usage of {namespace}"
                        )
                    for namespace in self._pollers.keys() - wanted:
                        self._pollers.pop(namespace).cancel()
                        self._states.pop(namespace, None)
                        self._ahead.pop(namespace, None)
                        self._log_once.clear(namespace)
                    self._changed.clear()
                    await wait_for_event(self._changed, CHECK_SECONDS)
        finally:
            self._pollers.clear()

    async def _poll(self, namespace: str) -> None:
        """Poll a namespace at its interval, measured from the start of a poll that failed."""
        loop = asyncio.get_running_loop()
        for share in interval_shares():
            async with self._slots:
                began = loop.time()
                state = await self._fetch(namespace)
            last = self._states.get(namespace)
            self._states[namespace] = state
            if last is None or last.cause != state.cause or not last.pods.has_same_times(state.pods):
                self._on_change(namespace)
            interval = self.settings.interval_seconds
            await asyncio.sleep(
                retry_delay(interval * min(share, 1.0), loop.time() - began) if state.cause else interval * share
            )

    async def _fetch(self, namespace: str) -> _NamespaceState:
        last = self._states.get(namespace, _NOTHING)
        path = POD_METRICS.collection(namespace)
        try:
            with self._metrics.source_duration.labels(SOURCE).time():
                body = await self._session.get(
                    path,
                    timeout=self.settings.timeout_seconds,
                    largest=self.settings.max_answer_mib * MIB,
                    limit_name="resourceMetrics.maxAnswerMiB",
                    aggregated=True,
                )
            pods = await decode_usages(Body(body), last.pods)
        except (KubeError, WrongAnswer) as error:
            self._metrics.source_up.labels(SOURCE).set(0)
            match error:
                case TimedOut():
                    reason = "timeout"
                case ApiStatusError():
                    reason = f"http_{error.code}"
                case WrongAnswer():
                    reason = error.reason
                case _:
                    reason = "unreachable"
            self._metrics.source_errors.labels(SOURCE, reason).inc()
            if self._log_once.is_new(str(error), namespace):
                _log.warning("usage_fetch_failed", source=SOURCE, namespace=namespace, error=str(error))
            return replace(last, cause=error.public)
        self._log_once.clear(namespace)
        now = self._session.now()
        self._metrics.source_up.labels(SOURCE).set(1)
        self._metrics.source_success.labels(SOURCE).set(now)
        pods.ats = self._ahead.setdefault(namespace, AheadDates()).clamped(pods.rows, pods.ats, now)
        return _NamespaceState(pods, now)
