"""The samples of one metric: which pods have one that counts, when it was taken, and the capacity it relates to."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from adapter.load.memory import (
    AHEAD_SECONDS,
    LAST_SAMPLE_SECONDS,
    NO_POD_MEMORY,
    NO_SAMPLES,
    AheadSample,
    LastSample,
    PodMemory,
    SampleMemory,
    recent,
)
from adapter.load.pods import Container, Pod
from adapter.load.samples import Point, QuerySamples, ResourceSamples, Samples, time_text
from adapter.load.spec import Capacity, Metric

YOUNG_SECONDS = 300.0
"""A pod that does not serve may do so soon if it was created, or changed its readiness, less than this ago."""
DOUBTED_ZERO = f"it fell to exactly 0, which counts {LAST_SAMPLE_SECONDS:.0f} s after its last other sample"


class PodSample(NamedTuple):
    """One pod's sample of a metric, or the reason why there is none. Values are nano-units, times seconds.

    `usage` is None where no sample counts; `missing` says why. `bound` is the most that the pod may have used, None
    where that is not known; it differs from `usage` where the sample's window is partial, as `fullness` says.
    `capacity` is what usage is divided by (None: the metric is no utilization, or the pod has no capacity). `limit` is
    the limit that caps the usage, where one does. `last` is the larger of its current and its last remembered sample,
    if they are recent. For the memory: `newest`, its newest sample that counted, and `ahead`, its current sample where
    that is dated ahead. A sample that counts is aged from `at`, and its window is from `began` to `until`.
    """

    pod: Pod
    usage: int | None
    missing: str = ""
    capacity: int | None = None
    limit: int | None = None
    last: int = 0
    newest: LastSample | None = None
    ahead: AheadSample | None = None
    at: float = 0.0
    until: float = 0.0
    began: float = 0.0
    window: float | None = None
    bound: int | None = None
    fullness: str = ""

    @property
    def is_partial(self) -> bool:
        """Whether the pod may have used more than its sample says."""
        return self.usage is not None and self.usage != self.bound


@dataclass(frozen=True, slots=True)
class Readings:
    """One metric of the running pods of a target: those that serve, the doubtful ones by name, and the others."""

    serving: Sequence[PodSample]
    doubtful: Sequence[PodSample]
    others: Sequence[PodSample]

    @property
    def all(self) -> Iterator[PodSample]:
        """The samples of all of them."""
        return chain(self.serving, self.doubtful, self.others)


NO_READINGS = Readings((), (), ())


def is_young(pod: Pod, now: float) -> bool:
    """Whether the pod was created, or changed its readiness, less than YOUNG_SECONDS ago."""
    return now - max(pod.created_at, pod.ready_since) < YOUNG_SECONDS


def in_service_since(pod: Pod, remembered: PodMemory) -> float:
    """When the pod came into service: it started, turned Ready, was last seen back from being out, or registered."""
    ready_since = pod.ready.since if pod.ready is not None else None
    return max(pod.started_at or 0.0, ready_since or 0.0, remembered.back_since or 0.0)


class MetricReader:
    """Reads one metric's samples of a target's pods at one time (`now`, seconds).

    Pods of one template share their containers (`kube.pods.PodDecoder`), so what depends on those only is computed once
    for consecutive pods.
    """

    def __init__(self, metric: Metric, samples: Samples, now: float, *, believes_zero: bool = False) -> None:
        self._metric = metric
        self._now = now
        self._believes_zero = believes_zero
        self._of, self._resource, self._is_whole = metric.of, metric.resource_name, not metric.source.containers
        self._source = source = source_of(metric, samples)
        self._points = source.pods if isinstance(source, QuerySamples) else {}
        self._usages = source.pods if isinstance(source, ResourceSamples) else {}
        self._query_window = source.window or None if isinstance(source, QuerySamples) else None
        self._warms = metric.resource.name == "cpu" if metric.resource is not None else self._query_window is not None
        self._answered_at = answered_at(source, now)
        self._is_throttled = metric.is_throttled
        self._containers: tuple[Container, ...] | None = None
        self._names: list[str] = []
        self._amount: tuple[int | None, str] = None, ""
        self._limit: int | None = None

    def sample(self, pod: Pod, seen: SampleMemory = NO_SAMPLES, remembered: PodMemory = NO_POD_MEMORY) -> PodSample:
        """The pod's sample, or why there is none; and its capacity where the metric is a utilization."""
        now, uid, name = self._now, pod.uid, pod.name
        names, capacity, lack = self.basis(pod)
        before, ahead = recent(seen.last.get(uid), now), seen.ahead.get(uid)
        last = before.value if before is not None else 0
        of_pod = pod.pod_limits.get(self._resource) if self._is_throttled and self._is_whole else None
        limit = of_pod or self._limit
        point = self._points.get(name)
        value, at, window, reason = self._read(name, names, point)
        if value is None:
            # What is known of a sample dated ahead is kept: a frozen one may come back.
            return PodSample(pod, None, reason, capacity, limit, last, before, ahead)
        until = at
        if ahead is not None or at > self._answered_at:
            ahead, at, until = dated(LastSample(at, value), ahead, self._answered_at)
        began = until - (window or 0.0)
        if value > last and now - at <= LAST_SAMPLE_SECONDS:
            last = value
        reason = self._unfit_reason(in_service_since(pod, remembered), value, at, began, before, point) or lack
        if reason:
            return PodSample(pod, None, reason, capacity, limit, last, before, ahead)
        bound = value if point is None else point.bound
        fullness = point.fullness if point is not None and point.is_partial else ""
        newest = LastSample(at, bound) if bound is not None and (before is None or at > before.at) else before
        return PodSample(
            pod, value, "", capacity, limit, last, newest, ahead, at, until, began, window, bound, fullness
        )

    def basis(self, pod: Pod) -> tuple[Sequence[str], int | None, str]:
        """What does not change with samples: the containers that count, the capacity, and why it has no capacity.

        A pod's own limit or request counts, if it has one and the whole pod is measured, else that of its containers.
        """
        if pod.containers is not self._containers:
            chosen = _chosen(self._metric, pod)
            self._containers, self._names = pod.containers, [container.name for container in chosen]
            self._amount = _sum_capacity(self._of, self._resource, chosen)
            self._limit = _sum_capacity(Capacity.LIMIT, self._resource, chosen)[0] if self._is_throttled else None
        if self._of is not None and self._is_whole:
            amounts = pod.pod_limits if self._of is Capacity.LIMIT else pod.pod_requests
            if amounts.get(self._resource):
                return self._names, amounts[self._resource], ""
        return self._names, *self._amount

    def _read(
        self, name: str, containers: Sequence[str], point: Point | None
    ) -> tuple[int | None, float, float | None, str]:
        """Value, time and window of a pod's latest sample, or the reason why there is none."""
        if point is not None:
            return point.value, point.at, self._query_window, ""
        usage, value = self._usages.get(name), 0
        if usage is None:
            return None, 0.0, None, "no sample"
        for container in containers or usage.containers:
            amount = usage.amount(container, self._resource)
            if amount is None:
                return None, 0.0, None, f"container {container} has no {self._resource} sample"
            value += amount
        return value, usage.at, usage.window, ""

    def _unfit_reason(
        self, in_service: float, value: int, at: float, began: float, before: LastSample | None, point: Point | None
    ) -> str:
        """Why a sample does not count, empty where it does.

        `in_service`: since when the pod has been in service. `began`: when the sample's window began. `before`: the
        pod's newest sample that counted. `point`: the sample of a query.
        """
        if self._now - at > self._source.max_age:
            return f"its last sample is from {time_text(at)}"
        if value == 0 and before is not None and before.value > 0 and not self._believes_zero:
            return DOUBTED_ZERO
        if at < in_service:
            return "its last sample is from before it came into service"
        if self._warms and began < in_service:
            return "warming up: the window of its last sample began before it came into service"
        return f"its window {point.fullness}" if point is not None and point.is_hollow else ""


def answered_at(source: ResourceSamples | QuerySamples, now: float) -> float:
    """When the samples were fetched; now where that is unknown or in the future."""
    return now if source.fetched_at is None else min(source.fetched_at, now)


def dated(sample: LastSample, before: AheadSample | None, answered: float) -> tuple[AheadSample | None, float, float]:
    """The sample with its first observation if it was dated after the answer that brought it, and two times.

    From the first its age counts: its own date, or its first observation where it is dated too far ahead. A frozen
    source repeats such a sample; by its own date it would stay fresh. At the second its window ended: at its first
    observation at the latest. `before`: what was remembered of it. `answered`: when the answer came.
    """
    ahead = before
    if before is None or (before.at, before.value) != sample:
        ahead = AheadSample(sample.at, sample.value, answered) if sample.at > answered else None
    if ahead is None:
        return None, sample.at, sample.at
    at = sample.at if sample.at <= ahead.first_seen + AHEAD_SECONDS else ahead.first_seen
    return ahead, at, min(at, ahead.first_seen)


def query_samples(metric: Metric, samples: Samples) -> QuerySamples:
    """The answer of the metric's query; an empty one with an error where there is none yet."""
    return samples.queries.get(metric.name) or QuerySamples(error="it has not been answered yet")


def absent_container_sentence(metric: Metric, pods: Iterable[Pod]) -> str:
    """A sentence about a container that the metric names and no pod has; empty where there is none."""
    present = {container.name for pod in pods for container in pod.containers}
    absent = [name for name in metric.source.containers if name not in present]
    return f"no pod has a container {absent[0]}; they have {', '.join(sorted(present))}" if absent and present else ""


def no_capacity_sentence(metric: Metric, pods: Iterable[Pod]) -> str:
    """A sentence naming the container without the limit or request that a utilization needs."""
    lacks = (_sum_capacity(metric.of, metric.resource_name, _chosen(metric, pod))[1] for pod in pods)
    return f"{next(filter(None, lacks), 'no pod has a capacity')}; set one or drop `of` from the metric"


def source_of(metric: Metric, samples: Samples) -> ResourceSamples | QuerySamples:
    """The latest answer of the metric's source."""
    return samples.resources if metric.resource else query_samples(metric, samples)


def is_service_total(metric: Metric, samples: Samples) -> bool:
    """Whether the metric is one number for the service; True also for a query that has never told."""
    if metric.resource is not None:
        return False
    source = query_samples(metric, samples)
    if source.total is None and source.by_pod is not None:
        return not source.by_pod
    return not source.pods


def source_name(metric: Metric) -> str:
    """The name of a metric's source in sentences."""
    return "metrics.k8s.io" if metric.resource else f"query {metric.query.name if metric.query else metric.name}"


def source_error(metric: Metric, samples: Samples) -> str:
    """Why a metric has no fresh sample: the source's own error, or the time of its last answer."""
    source, name = source_of(metric, samples), source_name(metric)
    if source.error:
        return f"{name}: {source.error}"
    if source.fetched_at is None:
        return f"{name} has not answered yet"
    return f"{name} has no fresh sample (last answer at {time_text(source.fetched_at)})"


def _chosen(metric: Metric, pod: Pod) -> list[Container]:
    """The containers that the metric covers: the named ones, else the running ones."""
    if names := metric.source.containers:
        by_name = {container.name: container for container in pod.containers}
        return [by_name.get(name, Container(name)) for name in names]
    return [container for container in pod.containers if container.running is not False]


def _sum_capacity(of: Capacity | None, resource: str, chosen: Iterable[Container]) -> tuple[int | None, str]:
    """The sum of the containers' limits or requests, or why there is none."""
    if of is None:
        return None, ""
    total = 0
    for container in chosen:
        amount = (container.limits if of is Capacity.LIMIT else container.requests).get(resource)
        if not amount:
            return None, f"container {container.name} has no {resource} {of.value.lower()}"
        total += amount
    return (total, "") if total else (None, f"no container has a {resource} {of.value.lower()}")
