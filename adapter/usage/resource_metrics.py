"""Usage from metrics.k8s.io: polls PodMetrics of each namespace that needs them, and keeps the last samples."""

import asyncio
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
import structlog

from adapter.kube.api import POD_METRICS
from adapter.kube.errors import ApiStatusError, KubeError, TimedOut
from adapter.kube.session import Session
from adapter.load.quantity import NANO, QuantityError, parse_nano
from adapter.load.samples import PodUsage, ResourceSamples
from adapter.runtime.answer_budget import MIB, Body, Limit
from adapter.runtime.decoding import Decoder
from adapter.runtime.json_pieces import Uncut, array, pieces
from adapter.runtime.log_once import LogOnce
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import WrongAnswer
from adapter.settings import ResourceMetricsSettings
from adapter.telemetry.metrics import Metrics
from adapter.usage.polling import interval_shares, retry_delay, with_age

SOURCE = "metrics.k8s.io"
CONCURRENT_REQUESTS = 8
"""Requests in progress at a time."""

_CHECK_SECONDS = 0.5
_STEP = 32
"""Pods converted between two checks of the time slice."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|us|µs|ns|s)")
_LONGEST_DURATION = 64  # the regular expression takes quadratic time for a long text that is no duration
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}

_CPU_AND_MEMORY = {"cpu", "memory"}
_COMMON_SUFFIXES = {"n": 1, "Ki": 1024 * NANO, "m": NANO // 1000}
_SAFE_DIGITS = 12  # far below the limit of a quantity

_log = structlog.get_logger(__name__)


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str


class _Container(msgspec.Struct, frozen=True, gc=False):
    name: str
    usage: dict[str, str | int | float]


class _PodMetrics(msgspec.Struct, frozen=True):
    metadata: _Meta
    timestamp: datetime
    window: str = ""
    containers: list[_Container] | None = None


class _List(msgspec.Struct, frozen=True):
    items: list[_PodMetrics] | None = None


_ONE = Decoder(_PodMetrics)
_MANY = Decoder(list[_PodMetrics])
_WHOLE = Decoder(_List)
_ITEMS = array("items")


def decode_usage(body: bytes) -> tuple[str, PodUsage]:
    """Decode one PodMetrics object: the pod's name and its usage. Raises msgspec.MsgspecError for another body."""
    item = _ONE.decode(body)
    return item.metadata.name, _usage(item)


async def decode_usages(body: Body) -> dict[str, PodUsage]:
    """Decode a PodMetricsList by pod name in slices of about 2 ms, and consume the body. Raises WrongAnswer."""
    slices = Slices()
    pods: dict[str, PodUsage] = {}
    try:
        for piece in pieces(body, _ITEMS):
            items = (_WHOLE.decode(piece.text).items or []) if piece.is_last else _MANY.decode(piece.text)
            pods |= await _usages(items, slices)
            await slices.breathe()
    except (msgspec.MsgspecError, UnicodeDecodeError, Uncut) as error:
        raise WrongAnswer(
            f"the answer is no PodMetricsList: {error}", public="the answer is no PodMetricsList"
        ) from error
    return pods


async def _usages(items: list[_PodMetrics], slices: Slices) -> dict[str, PodUsage]:
    pods: dict[str, PodUsage] = {}
    for index, item in enumerate(items):
        pods[item.metadata.name] = _usage(item)
        if index % _STEP == 0:
            await slices.breathe()
    return pods


def _usage(item: _PodMetrics) -> PodUsage:
    if item.timestamp.tzinfo is None:
        raise msgspec.ValidationError(f"timestamp of {item.metadata.name} lacks its offset")
    containers = {sys.intern(container.name): _amounts(container.usage) for container in item.containers or ()}
    return PodUsage(at=item.timestamp.timestamp(), window=parse_go_duration(item.window), containers=containers)


class CpuAndMemory(Mapping[str, int]):
    """The usage of nearly every container, in a quarter of a dict's memory: there is one for each container."""

    __slots__ = ("_cpu", "_memory")

    def __init__(self, cpu: int, memory: int) -> None:
        self._cpu = cpu
        self._memory = memory

    def __getitem__(self, resource: str) -> int:
        if resource == "cpu":
            return self._cpu
        if resource == "memory":
            return self._memory
        raise KeyError(resource)

    def __iter__(self) -> Iterator[str]:
        return iter(("cpu", "memory"))

    def __len__(self) -> int:
        return 2

    def __repr__(self) -> str:
        return repr(dict(self))


def _amounts(usage: Mapping[str, str | int | float]) -> Mapping[str, int]:
    """Nano-units by resource without unreadable ones, so that the pod's sample is missing for these alone."""
    try:
        if usage.keys() == _CPU_AND_MEMORY:
            return CpuAndMemory(_nano(usage["cpu"]), _nano(usage["memory"]))
    except QuantityError:
        pass
    amounts = {}
    for resource, text in usage.items():
        with suppress(QuantityError):
            amounts[resource] = _nano(text)
    return amounts


def _nano(quantity: str | float) -> int:
    """`parse_nano`, with a fast path for the quantities of metrics-server: `250m`, `12345678n`, `120336Ki`."""
    text = str(quantity)
    number = text.rstrip("nmKi")
    factor = _COMMON_SUFFIXES.get(text[len(number) :])
    if factor and number.isdecimal() and number.isascii() and len(number) <= _SAFE_DIGITS:
        return int(number) * factor
    return parse_nano(text)


@functools.lru_cache(256)
def parse_go_duration(duration: str) -> float:
    """Seconds of a duration as Go writes it (`15s`, `1m0.5s`); 0 for another text."""
    parts = _DURATION.findall(duration[:_LONGEST_DURATION])
    if "".join(number + unit for number, unit in parts) != duration:
        return 0.0
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


@dataclass(frozen=True, slots=True)
class _NamespaceState:
    pods: Mapping[str, PodUsage]
    fetched_at: float | None = None
    cause: str = ""


_NOTHING = _NamespaceState({})


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
            error=self._failure(state),
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
                    self._update_pollers(set(self._namespaces()), group)
                    self._changed.clear()
                    # Not wait_for: before Python 3.12 it swallows a cancellation that coincides with the event.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_CHECK_SECONDS):
                            await self._changed.wait()
        finally:
            self._pollers.clear()

    def _update_pollers(self, wanted: set[str], group: asyncio.TaskGroup) -> None:
        for namespace in wanted - self._pollers.keys():
            self._pollers[namespace] = group.create_task(self._poll(namespace), name=f"usage of {namespace}")
        for namespace in self._pollers.keys() - wanted:
            self._pollers.pop(namespace).cancel()
            self._states.pop(namespace, None)
            self._log_once.clear(namespace)

    async def _poll(self, namespace: str) -> None:
        """Poll a namespace at its interval, measured from the start of a poll that failed."""
        loop = asyncio.get_running_loop()
        for share in interval_shares():
            async with self._slots:
                began = loop.time()
                state = await self._fetch(namespace)
            self._keep(namespace, state)
            interval = self.settings.interval_seconds
            await asyncio.sleep(
                retry_delay(interval * min(share, 1.0), loop.time() - began) if state.cause else interval * share
            )

    async def _fetch(self, namespace: str) -> _NamespaceState:
        last = self._states.get(namespace, _NOTHING)
        path = POD_METRICS.collection(namespace)
        limit = Limit(self.settings.max_answer_mib * MIB, "resourceMetrics.maxAnswerMiB")
        try:
            async with AsyncExitStack() as stack:
                with self._metrics.source_duration.labels(SOURCE).time():
                    body = await stack.enter_async_context(
                        self._session.reading(path, source=SOURCE, limit=limit, timeout=self.settings.timeout_seconds)
                    )
                pods = await decode_usages(body)
        except (KubeError, WrongAnswer) as error:
            self._report_failure(namespace, error)
            return replace(last, cause=error.public)
        self._log_once.clear(namespace)
        now = self._session.now()
        self._metrics.source_up.labels(SOURCE).set(1)
        self._metrics.source_success.labels(SOURCE).set(now)
        return _NamespaceState(pods, now)

    def _report_failure(self, namespace: str, error: KubeError | WrongAnswer) -> None:
        self._metrics.source_up.labels(SOURCE).set(0)
        self._metrics.source_errors.labels(SOURCE, _reason(error)).inc()
        if self._log_once.is_new(str(error), namespace):
            _log.warning("usage fetch failed", source=SOURCE, namespace=namespace, error=str(error))

    def _keep(self, namespace: str, state: _NamespaceState) -> None:
        last = self._states.get(namespace)
        self._states[namespace] = state
        if last is None or last.cause != state.cause or _times(last) != _times(state):
            self._on_change(namespace)

    def _failure(self, state: _NamespaceState) -> str | None:
        return with_age(state.cause, state.fetched_at, self._session.now()) if state.cause else None


def _times(state: _NamespaceState) -> dict[str, float]:
    return {name: usage.at for name, usage in state.pods.items()}


def _reason(error: Exception) -> str:
    match error:
        case TimedOut():
            return "timeout"
        case ApiStatusError():
            return f"http_{error.code}"
        case WrongAnswer():
            return error.reason
        case _:
            return "unreachable"
