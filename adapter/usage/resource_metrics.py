"""Usage from metrics.k8s.io: polls PodMetrics of each namespace that needs them, and keeps the last samples."""

import asyncio
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from adapter.kube.api import POD_METRICS
from adapter.kube.session import Session
from adapter.load.quantity import NANO, QuantityError, parse_nano
from adapter.load.samples import ResourceSamples, Usage
from adapter.runtime.decoding import Decoder, shared
from adapter.runtime.http import MIB
from adapter.runtime.source_errors import WrongAnswer
from adapter.settings import ResourceMetricsSettings
from adapter.telemetry.metrics import Metrics
from adapter.usage.polling import AheadDates, Poller

SOURCE = "metrics.k8s.io"
CONCURRENT_REQUESTS = 8
"""Requests in progress at a time."""

LARGE_BYTES = 256 * 1024
"""Answers larger than this are read in a thread: 5,000 pods take 20 ms."""
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|us|µs|ns|s)")
_LONGEST_DURATION = 64  # the regular expression takes quadratic time for a long text that is no duration
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}

_SUFFIXES = {"n": ("n", 1), "i": ("Ki", 1024 * NANO), "m": ("m", NANO // 1000)}
"""The common suffixes, by their last letter: metrics-server writes no others."""
_SAFE_DIGITS = 12  # far below the limit of a quantity


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
_LIST = Decoder(_List)

Resource = tuple[str, str]
"""A container and the name of a resource."""


class PodUsage(msgspec.Struct, frozen=True, gc=False):
    """The usage of one pod over the `window` seconds before `at`: an amount (nano-units) for each of its resources.

    An amount is None where the text was not a quantity. Pods of one template share `resources`, and 50,000 pods with a
    container each take 12 MiB; with a dict each they would take 40.
    """

    at: float
    window: float
    resources: tuple[Resource, ...]
    amounts: tuple[int | None, ...]

    @property
    def containers(self) -> dict[str, dict[str, int]]:
        """All amounts: container → resource → nano-units."""
        found: dict[str, dict[str, int]] = {}
        for (container, resource), amount in zip(self.resources, self.amounts, strict=True):
            of_container = found.setdefault(container, {})
            if amount is not None:
                of_container[resource] = amount
        return found

    def amount(self, container: str, resource: str) -> int | None:
        """What a container uses of a resource (nano-units); None where there is no such sample."""
        wanted = container, resource
        return self.amounts[self.resources.index(wanted)] if wanted in self.resources else None


def decode_usage(body: bytes) -> tuple[str, Usage]:
    """Decode one PodMetrics object: the pod's name and its usage. Raises msgspec.MsgspecError for another body."""
    item = _ONE.decode(body)
    return item.metadata.name, _usage(item)


def decode_usages(body: bytes) -> dict[str, PodUsage]:
    """Decode a PodMetricsList: usage by pod; of two pods of one name the later one counts. Raises WrongAnswer."""
    try:
        return {shared(item.metadata.name): _usage(item) for item in _LIST.decode(body).items or ()}
    except msgspec.MsgspecError as error:
        public = "the answer is not a PodMetricsList"
        raise WrongAnswer(f"{public}: {error}", public=public) from error


def _usage(item: _PodMetrics) -> PodUsage:
    containers = item.containers or ()
    resources = tuple([(container.name, resource) for container in containers for resource in container.usage])
    amounts = tuple([_nano(quantity) for container in containers for quantity in container.usage.values()])
    return PodUsage(_seconds(item.timestamp), parse_go_duration(item.window), _shared_resources(resources), amounts)


@functools.lru_cache(4096)
def _shared_resources(resources: tuple[Resource, ...]) -> tuple[Resource, ...]:
    return resources


def _nano(quantity: str | float) -> int | None:
    """A quantity in nano-units; None where it cannot be read: that sample is missing for that resource alone."""
    text = str(quantity)
    suffix, factor = _SUFFIXES.get(text[-1:], ("", 0))
    digits = text.removesuffix(suffix)
    if factor and digits.isdecimal() and digits.isascii() and len(digits) <= _SAFE_DIGITS:
        return int(digits) * factor
    try:
        return parse_nano(text)
    except QuantityError:
        return None


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
class _NamespaceUsage:
    """The last samples of a namespace."""

    pods: Mapping[str, PodUsage]
    fetched_at: float = field(compare=False)


class ResourceMetrics:
    """Polls PodMetrics of the namespaces that policies need.

    `namespaces` is called twice a second. `on_change` is called with a namespace when its samples, or the cause of its
    failure, changed.
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
        self._duration = metrics.source_duration.labels(SOURCE)
        self._slots = asyncio.Semaphore(CONCURRENT_REQUESTS)
        self._poller = Poller[str, _NamespaceUsage](
            namespaces, self._fetch, on_change,
            source=lambda _: SOURCE, interval=lambda _: self.settings.interval_seconds, metrics=metrics,
        )  # fmt: skip
        self.refresh, self.run = self._poller.refresh, self._poller.run

    def samples(self, namespace: str) -> ResourceSamples:
        """The samples of a namespace. While polls fail, `error` has the cause and the age of the last samples."""
        state = self._poller.state(namespace)
        return ResourceSamples(
            pods=state.result.pods if state.result is not None else {},
            max_age=self.settings.max_age_seconds,
            interval=self.settings.interval_seconds,
            error=state.error,
            fetched_at=state.fetched_at,
        )

    async def _fetch(self, namespace: str, _last: object, ahead: AheadDates) -> _NamespaceUsage:
        async with self._slots:
            with self._duration.time():
                body = await self._session.get(
                    POD_METRICS.collection(namespace),
                    timeout=self.settings.timeout_seconds,
                    largest=self.settings.max_answer_mib * MIB,
                    limit_name="resourceMetrics.maxAnswerMiB",
                    aggregated=True,
                )
            pods = await asyncio.to_thread(decode_usages, body) if len(body) > LARGE_BYTES else decode_usages(body)
        now = self._session.now()
        ahead.begin(now)
        dated = {
            name: usage if usage.at <= now else msgspec.structs.replace(usage, at=ahead.clamped(name, usage.at))
            for name, usage in pods.items()
        }
        return _NamespaceUsage(dated, now)
