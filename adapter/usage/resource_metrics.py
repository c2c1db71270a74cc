"""Usage from metrics.k8s.io: each namespace with policies is asked in turn, its last samples are kept as they were."""

import asyncio
import functools
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import msgspec
import structlog

from adapter.kube.api import POD_METRICS
from adapter.kube.errors import ApiStatusError, KubeError, TimedOut
from adapter.load.quantity import NANO, QuantityError, parse_nano
from adapter.load.samples import PodUsage, ResourceSamples
from adapter.runtime.answer_budget import MIB, Body, Limit
from adapter.runtime.decoding import Decoder
from adapter.runtime.json_pieces import Uncut, array, pieces
from adapter.runtime.log_once import LogOnce
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import WrongAnswer
from adapter.telemetry.metrics import Metrics
from adapter.usage.circuit_breaker import pause

SOURCE = "metrics.k8s.io"
AT_ONCE = 8
"""Requests under way at a time."""

_LOOK_SECONDS = 0.5
_JITTER = 0.1
_STEP = 32
"""Pods turned into samples between two looks at the clock."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|us|µs|ns|s)")
_LONGEST_DURATION = 64  # a long one that is none would be looked through once for each of its digits
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}

_BOTH = {"cpu", "memory"}
_USUAL = {"n": 1, "Ki": 1024 * NANO, "m": NANO // 1000}
_SAFE_DIGITS = 12  # far from what a quantity cannot hold

_log = structlog.get_logger(__name__)


class Asks(Protocol):
    """What is needed of a session with the API server."""

    def now(self) -> float:
        """Epoch seconds by the API server's clock."""

    def reading(self, path: str, *, source: str, limit: Limit, timeout: float) -> AbstractAsyncContextManager[Body]:
        """The body of a GET; raises KubeError."""


class Options(Protocol):
    """How often is asked, how old a sample may be, how long a request may take (seconds), how large an answer may be
    (MiB); the settings have these.
    """

    @property
    def interval_seconds(self) -> float: ...
    @property
    def max_age_seconds(self) -> float: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def max_answer_mib(self) -> int: ...


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
    """One PodMetrics object: the pod's name and its usage. Raises msgspec.MsgspecError for anything else."""
    found = _ONE.decode(body)
    return found.metadata.name, _usage(found)


async def decode_usages(body: Body) -> dict[str, PodUsage]:
    """A PodMetricsList by pod name, decoded in slices of about 2 ms; the body is used up. Raises WrongAnswer."""
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
    return PodUsage(at=item.timestamp.timestamp(), window=seconds(item.window), containers=containers)


class CpuAndMemory(Mapping[str, int]):
    """What nearly every container has, in a quarter of a dict's memory: there is one for each container there is."""

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
    """Nano-units by resource; what cannot be read is left out, so that the pod counts as missing for it alone."""
    try:
        if usage.keys() == _BOTH:
            return CpuAndMemory(_nano(usage["cpu"]), _nano(usage["memory"]))
    except QuantityError:
        pass
    amounts = {}
    for resource, text in usage.items():
        with suppress(QuantityError):
            amounts[resource] = _nano(text)
    return amounts


def _nano(found: str | float) -> int:
    """As `parse_nano`, with a short way for what metrics-server writes: `250m`, `12345678n`, `120336Ki`."""
    text = str(found)
    number = text.rstrip("nmKi")
    factor = _USUAL.get(text[len(number) :])
    if factor and number.isdecimal() and number.isascii() and len(number) <= _SAFE_DIGITS:
        return int(number) * factor
    return parse_nano(text)


@functools.lru_cache(256)
def seconds(duration: str) -> float:
    """Seconds of a duration as Go writes it (`15s`, `1m0.5s`); 0 for anything else."""
    parts = _DURATION.findall(duration[:_LONGEST_DURATION])
    if "".join(number + unit for number, unit in parts) != duration:
        return 0.0
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


@dataclass(frozen=True, slots=True)
class _Known:
    pods: Mapping[str, PodUsage]
    fetched_at: float | None = None
    cause: str = ""


_NOTHING = _Known({})


class ResourceMetrics:
    """Polls PodMetrics of the namespaces that are needed, each in a rhythm of its own so that many make no burst.

    `namespaces` is asked twice a second for what is needed now; a new one is fetched at once. `on_change` is called
    with a namespace when its samples, or the cause of its failure, are not what they were.
    """

    def __init__(
        self,
        session: Asks,
        namespaces: Callable[[], Iterable[str]],
        options: Options,
        on_change: Callable[[str], None],
        metrics: Metrics,
    ) -> None:
        self.options = options
        self._session = session
        self._namespaces = namespaces
        self._on_change = on_change
        self._metrics = metrics
        self._known: dict[str, _Known] = {}
        self._log_once = LogOnce()
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._look = asyncio.Event()

    def samples(self, namespace: str) -> ResourceSamples:
        """What is known of a namespace. While fetches fail, `error` has the cause and the age of the last answer."""
        known = self._known.get(namespace, _NOTHING)
        return ResourceSamples(
            pods=known.pods,
            max_age=self.options.max_age_seconds,
            error=self._sentence(known),
            fetched_at=known.fetched_at,
        )

    def refresh(self) -> None:
        """Look for new namespaces now."""
        self._look.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._tend(set(self._namespaces()), group)
                    self._look.clear()
                    # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the event.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_SECONDS):
                            await self._look.wait()
        finally:
            self._pollers.clear()

    def _tend(self, wanted: set[str], group: asyncio.TaskGroup) -> None:
        for namespace in wanted - self._pollers.keys():
            self._pollers[namespace] = group.create_task(self._poll(namespace), name=f"usage of {namespace}")
        for namespace in self._pollers.keys() - wanted:
            self._pollers.pop(namespace).cancel()
            self._known.pop(namespace, None)
            self._log_once.clear(namespace)

    async def _poll(self, namespace: str) -> None:
        """Fetch at once, then after a random part of the interval, then in the rhythm that this gave.

        After a failure no more than the interval passes from the one attempt to the next.
        """
        share = random.random()  # noqa: S311  spreads load, guards nothing
        loop = asyncio.get_running_loop()
        while True:
            async with self._turn:
                began = loop.time()
                known = await self._fetched(namespace)
            self._keep(namespace, known)
            interval = self.options.interval_seconds
            await asyncio.sleep(
                pause(interval * min(share, 1.0), loop.time() - began) if known.cause else interval * share
            )
            share = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  as above

    async def _fetched(self, namespace: str) -> _Known:
        last = self._known.get(namespace, _NOTHING)
        path = POD_METRICS.collection(namespace)
        limit = Limit(self.options.max_answer_mib * MIB, "resourceMetrics.maxAnswerMiB")
        try:
            async with AsyncExitStack() as reading:
                with self._metrics.source_duration.labels(SOURCE).time():
                    body = await reading.enter_async_context(
                        self._session.reading(path, source=SOURCE, limit=limit, timeout=self.options.timeout_seconds)
                    )
                pods = await decode_usages(body)
        except (KubeError, WrongAnswer) as error:
            self._failed(namespace, error)
            return replace(last, cause=error.public)
        self._log_once.clear(namespace)
        now = self._session.now()
        self._metrics.source_up.labels(SOURCE).set(1)
        self._metrics.source_success.labels(SOURCE).set(now)
        return _Known(pods, now)

    def _failed(self, namespace: str, error: KubeError | WrongAnswer) -> None:
        self._metrics.source_up.labels(SOURCE).set(0)
        self._metrics.source_errors.labels(SOURCE, _reason(error)).inc()
        if self._log_once.is_new(str(error), namespace):
            _log.warning("usage cannot be fetched", source=SOURCE, namespace=namespace, error=str(error))

    def _keep(self, namespace: str, known: _Known) -> None:
        last = self._known.get(namespace)
        self._known[namespace] = known
        if last is None or last.cause != known.cause or _times(last) != _times(known):
            self._on_change(namespace)

    def _sentence(self, known: _Known) -> str | None:
        if not known.cause:
            return None
        if known.fetched_at is None:
            return f"{known.cause} (no answer so far)"
        return f"{known.cause} (last answer {max(0.0, self._session.now() - known.fetched_at):.0f} s ago)"


def _times(known: _Known) -> dict[str, float]:
    return {name: usage.at for name, usage in known.pods.items()}


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
