"""Usage from metrics.k8s.io: polls PodMetrics of each namespace that needs them, and keeps the last samples."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated

import msgspec

from adapter.kube.api import POD_METRICS
from adapter.kube.session import Session
from adapter.load.quantity import QuantityError, parse_nano
from adapter.load.samples import PodUsage, ResourceSamples
from adapter.runtime.decoding import Decoder, remembered, shared
from adapter.runtime.http import AT_ONCE, MIB
from adapter.runtime.source_errors import WrongAnswer
from adapter.settings import ResourceMetricsSettings
from adapter.telemetry.metrics import Metrics
from adapter.usage.polling import AheadDates, Poller

SOURCE = "metrics.k8s.io"
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|us|µs|ns|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str


class _Container(msgspec.Struct, frozen=True, gc=False):
    name: str
    usage: dict[str, str | int | float]


class _PodMetrics(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)]
    window: str = ""
    containers: list[_Container] | None = None


class _List(msgspec.Struct, frozen=True):
    items: list[_PodMetrics] | None = None


_ONE = Decoder(_PodMetrics)
_LIST = Decoder(_List)


def decode_usage(body: bytes) -> tuple[str, PodUsage]:
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
    amounts = {  # of 50,000 pods with a container each they take 27 MiB
        shared(container.name): {
            shared(resource): nano for resource, text in container.usage.items() if (nano := _nano(text)) is not None
        }
        for container in item.containers or ()
    }
    return PodUsage(item.timestamp.timestamp(), parse_go_duration(item.window), amounts)


def _nano(quantity: str | float) -> int | None:
    """A quantity in nano-units; None where it cannot be read: that sample is missing for that resource alone."""
    try:
        return parse_nano(str(quantity))
    except QuantityError:
        return None


@remembered  # in whole milliseconds, the windows of 50,000 pods are some hundreds
def parse_go_duration(duration: str) -> float:
    """Seconds of a duration as Go writes it (`15s`, `1m0.5s`); 0 for another text."""
    parts = _DURATION.findall(duration[:64])  # quadratic for a long text that is no duration
    if "".join(number + unit for number, unit in parts) != duration:
        return 0.0
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


class ResourceMetrics:
    """Polls PodMetrics of the namespaces that policies need.

    `namespaces` is called twice a second, `on_change` with a namespace whose samples, or cause of failure, changed.
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
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._poller = Poller[str, Mapping[str, PodUsage]](
            namespaces, self._fetch, on_change,
            source=lambda _: SOURCE, interval=lambda _: self.settings.interval_seconds, metrics=metrics,
        )  # fmt: skip
        self.refresh, self.run = self._poller.refresh, self._poller.run

    def samples(self, namespace: str) -> ResourceSamples:
        """The samples of a namespace. While polls fail, `error` has the cause and the age of the last samples."""
        state = self._poller.state(namespace)
        return ResourceSamples(
            pods=state.result or {},
            max_age=self.settings.max_age_seconds,
            interval=self.settings.interval_seconds,
            error=state.error,
            fetched_at=state.fetched_at,
        )

    async def _fetch(self, namespace: str, _last: object, ahead: AheadDates) -> Mapping[str, PodUsage]:
        async with self._slots:
            with self._duration.time():
                body = await self._session.get(
                    POD_METRICS.collection(namespace),
                    timeout=self.settings.timeout_seconds,
                    largest=self.settings.max_answer_mib * MIB,
                    limit_name="resourceMetrics.maxAnswerMiB",
                )
            pods = await asyncio.to_thread(decode_usages, body)  # 5,000 pods take 30 ms
        ahead.begin(self._session.now())
        for name, usage in pods.items():
            if usage.at > ahead.answered:
                usage.at = ahead.clamped(name, usage.at)
        return pods
