"""The samples of one metric: which pods have one that counts, when it was taken, and the capacity it relates to."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from adapter.load.memory import (
    AHEAD_SECONDS,
    LAST_SAMPLE_SECONDS,
    NO_SAMPLES,
    AheadSample,
    LastSample,
    SampleMemory,
    recent,
)
from adapter.load.pods import Container, Pod
from adapter.load.samples import QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Capacity, Metric

YOUNG_SECONDS = 300.0
"""A pod that does not serve may do so soon if it was created, or changed its readiness, less than this ago."""
WARMING_SECONDS = 300.0
"""A pod this young warms up: samples with a window count only if the window began after the pod was Ready."""
DOUBTED_ZERO = f"it fell to exactly 0, which counts {LAST_SAMPLE_SECONDS:.0f} s after its last other sample"
_CLOSE_SECONDS = 0.001
"""A sample this close to a limit is not plain: sums of floating-point times are not exact."""


class PodSample(NamedTuple):
    """One pod's sample of a metric, or the reason why there is none. Values are nano-units, times seconds.

    `usage` is None where no sample counts; `missing` says why. `capacity` is what usage is divided by (None: the metric
    is no utilization, or the pod has no capacity). `last` is the larger of its current and its last remembered sample,
    if they are recent. For the memory: `newest`, its newest sample that counted, and `ahead`, its current sample where
    that is dated ahead.
    """

    pod: Pod
    usage: int | None
    missing: str = ""
    at: float | None = None
    window: float | None = None
    capacity: int | None = None
    last: int = 0
    newest: LastSample | None = None
    ahead: AheadSample | None = None

    @property
    def is_doubted_zero(self) -> bool:
        """Whether the pod is missing because its sample fell to 0, which is not believed yet."""
        return self.missing is DOUBTED_ZERO

    @property
    def knows_until(self) -> float | None:
        """When its sample's window ended at the latest, None where the pod is missing."""
        return None if self.at is None else began_at(self.at, None, self.ahead)

    @property
    def began_at(self) -> float | None:
        """When its sample's window began, None where the pod is missing."""
        return None if self.at is None else began_at(self.at, self.window, self.ahead)


def is_young(pod: Pod, now: float) -> bool:
    """Whether the pod was created, or changed its readiness, less than YOUNG_SECONDS ago."""
    return now - _changed_at(pod) < YOUNG_SECONDS


def young_until(pod: Pod) -> float:
    """Until when the pod is young (seconds)."""
    return _changed_at(pod) + YOUNG_SECONDS


def _changed_at(pod: Pod) -> float:
    changed = pod.ready.since if pod.ready is not None and pod.ready.since is not None else pod.created_at
    return max(pod.created_at, changed)


class MetricReader:
    """Reads one metric's samples of a target's pods at one time (`now`, seconds).

    Pods of one template share their containers (`kube.pods.PodDecoder`), so what depends on those only is computed once
    for consecutive pods. A sample is plain, and counts without further checks, if it was taken from `plain_from` to
    `plain_until` of a pod created by `warm_until`.
    """

    def __init__(self, metric: Metric, samples: Samples, now: float, *, believes_zero: bool = False) -> None:
        self._metric = metric
        self.now = now
        self._believes_zero = believes_zero
        self._of, self._share_of, self._is_whole = _share(metric)
        self._source = source_of(metric, samples)
        self.is_query = metric.resource is None
        self.resource = metric.resource.name if metric.resource is not None else ""
        self.query_window = self._source.window or None if isinstance(self._source, QuerySamples) else None
        self._warms = self.query_window is not None or self.resource == "cpu"
        self.plain_until = _answered_at(self._source, now)
        self.plain_from = now - min(self._source.max_age, LAST_SAMPLE_SECONDS) + _CLOSE_SECONDS
        self.warm_until = now - WARMING_SECONDS - _CLOSE_SECONDS if self._warms else now
        self.usages = samples.resources.pods
        self.points = query_samples(metric, samples).pods if self.is_query else {}
        self._containers: tuple[Container, ...] | None = None
        self._names: list[str] = []
        self._amount: tuple[int | None, str] = None, ""

    def sample(self, pod: Pod, seen: SampleMemory = NO_SAMPLES) -> PodSample:
        """The pod's sample, or why there is none; and its capacity where the metric is a utilization."""
        names, capacity, lack = self.basis(pod)
        sample, reason, window = self._sample(pod, names)
        before = recent(seen.last.get(pod.uid), self.now)
        known = seen.ahead.get(pod.uid)
        # Kept without a sample: a frozen one may come back.
        ahead = known if sample is None else None
        if sample is not None and (sample.at > self.plain_until or known is not None):
            ahead = dated_ahead(sample, known, self._source, self.now)
            sample = sample._replace(at=aging_from(sample, ahead))
        latest = recent(sample, self.now)
        last = max(latest.value if latest else 0, before.value if before else 0)
        if sample is not None and not reason:
            reason = self._unfit_reason(pod, sample, window, before) or lack
        if sample is None or reason:
            return PodSample(pod, None, missing=reason, capacity=capacity, last=last, newest=before, ahead=ahead)
        newest = sample if before is None or sample.at > before.at else before
        return PodSample(pod, sample.value, "", sample.at, window, capacity, last, newest, ahead)

    def basis(self, pod: Pod) -> tuple[Sequence[str], int | None, str]:
        """What does not change with samples: the containers that count, the capacity, and why it has no capacity."""
        if pod.containers is not self._containers:
            self._select_containers(pod)
        capacity, lack = self._capacity(pod)
        return self._names, capacity, lack

    def _select_containers(self, pod: Pod) -> None:
        self._containers = pod.containers
        chosen = _chosen(self._metric, pod)
        self._names = [container.name for container in chosen]
        self._amount = _sum_capacity(self._of, self._share_of, chosen)

    def _sample(self, pod: Pod, names: Sequence[str]) -> tuple[LastSample | None, str, float | None]:
        """The pod's latest sample and its window, or the reason why there is none."""
        if self.is_query:
            point = self.points.get(pod.name)
            return (LastSample(point.at, point.value), "", self.query_window) if point else (None, "no sample", None)
        usage = self.usages.get(pod.name)
        if usage is None:
            return None, "no sample", None
        value = 0
        for name in names or usage.containers:
            amounts = usage.containers.get(name)
            amount = amounts.get(self.resource) if amounts is not None else None
            if amount is None:
                return None, f"container {name} has no {self.resource} sample", None
            value += amount
        return LastSample(usage.at, value), "", usage.window

    def _unfit_reason(self, pod: Pod, sample: LastSample, window: float | None, before: LastSample | None) -> str:
        """Why a sample does not count, empty where it does. `before`: the pod's newest sample that counted."""
        age = self.now - sample.at
        if age > self._source.max_age:
            return f"its last sample is {age:.0f} s old"
        if sample.value == 0 and before is not None and before.value > 0 and not self._believes_zero:
            return DOUBTED_ZERO
        return self._too_early_reason(pod, sample, window)

    def _too_early_reason(self, pod: Pod, sample: LastSample, window: float | None) -> str:
        """Why a sample covers a time before the pod served, empty where it does not."""
        if pod.started_at is not None and sample.at < pod.started_at:
            return "its last sample is from before its start"
        since = pod.ready.since if pod.ready is not None else None
        if since is None:
            return ""
        if sample.at < since:
            return "its last sample is from before its readiness changed"
        if self._warms and self.now - pod.created_at < WARMING_SECONDS and sample.at < since + (window or 0.0):
            return "warming up"
        return ""

    def _capacity(self, pod: Pod) -> tuple[int | None, str]:
        """The pod-level limit or request if there is one and the whole pod is measured, else that of its containers."""
        if self._of is not None and self._is_whole:
            amount = (pod.pod_limits if self._of is Capacity.LIMIT else pod.pod_requests).get(self._share_of)
            if amount:
                return amount, ""
        return self._amount


def _answered_at(source: ResourceSamples | QuerySamples, now: float) -> float:
    """When the samples were fetched; now where that is unknown or in the future."""
    return now if source.fetched_at is None else min(source.fetched_at, now)


def dated_ahead(
    sample: LastSample, known: AheadSample | None, source: ResourceSamples | QuerySamples, now: float
) -> AheadSample | None:
    """The sample with the time of its first observation if it was dated after the answer that brought it; else None."""
    if known is not None and (known.at, known.value) == sample:
        return known
    answered_at = _answered_at(source, now)
    return AheadSample(sample.at, sample.value, answered_at) if sample.at > answered_at else None


def aging_from(sample: LastSample, ahead: AheadSample | None) -> float:
    """The time that a sample's age counts from: its own, or its first observation where it is dated too far ahead.

    A frozen source repeats such a sample; by its own date it would stay fresh.
    """
    if ahead is None or sample.at <= ahead.first_seen + AHEAD_SECONDS:
        return sample.at
    return ahead.first_seen


def began_at(at: float, window: float | None, ahead: AheadSample | None) -> float:
    """When a sample's window began. The window of one dated ahead ended at its first observation at the latest."""
    return (at if ahead is None else min(at, ahead.first_seen)) - (window or 0.0)


def query_samples(metric: Metric, samples: Samples) -> QuerySamples:
    """The answer of the metric's query; an empty one with an error where there is none yet."""
    return samples.queries.get(metric.name) or QuerySamples(error="it has not been answered yet")


def no_capacity_sentence(metric: Metric, pods: Iterable[Pod]) -> str:
    """A sentence naming the container without the limit or request that a utilization needs."""
    of, resource, _ = _share(metric)
    word = of.value.lower() if of else "capacity"
    for pod in pods:
        for container in _chosen(metric, pod):
            if not _amounts(container, of).get(resource):
                return f"container {container.name} has no {resource} {word}; set one or drop `of` from the metric"
    return f"no container has a {resource} {word}; set one or drop `of` from the metric"


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


def source_error(metric: Metric, samples: Samples, now: float) -> str:
    """Why a metric has no fresh sample: the source's own error, or the age of its last answer."""
    source, name = source_of(metric, samples), source_name(metric)
    if source.error:
        return f"{name}: {source.error}"
    if source.fetched_at is None:
        return f"{name} has not answered yet"
    return f"{name} has no fresh sample (last answer {max(0.0, now - source.fetched_at):.0f} s ago)"


def _chosen(metric: Metric, pod: Pod) -> list[Container]:
    """The containers that the metric covers: the named ones, else the running ones."""
    source = metric.resource or metric.query
    names = source.containers if source else ()
    if names:
        known = {container.name: container for container in pod.containers}
        return [known.get(name, Container(name)) for name in names]
    return [container for container in pod.containers if container.running is not False]


def _share(metric: Metric) -> tuple[Capacity | None, str, bool]:
    """What usage is divided by: limit or request, of which resource, and whether the whole pod counts."""
    if metric.resource is not None:
        return metric.resource.of, metric.resource.name, not metric.resource.containers
    if metric.query is not None:
        return metric.query.of, metric.query.resource, not metric.query.containers
    return None, "", True


def _sum_capacity(of: Capacity | None, resource: str, chosen: Iterable[Container]) -> tuple[int | None, str]:
    """The sum of the containers' limits or requests, or why there is none."""
    if of is None:
        return None, ""
    total = 0
    for container in chosen:
        amount = _amounts(container, of).get(resource)
        if not amount:
            return None, f"container {container.name} has no {resource} {of.value.lower()}"
        total += amount
    return (total, "") if total else (None, f"no container with a {resource} {of.value.lower()}")


def _amounts(container: Container, of: Capacity | None) -> Mapping[str, int]:
    return container.limits if of is Capacity.LIMIT else container.requests
