"""The samples of one metric: which pods have one that counts, when its window began, and what usage is divided by."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median_low
from typing import NamedTuple

from adapter.load.memory import LAST_SAMPLE_SECONDS, MEDIANS_SECONDS, MetricMemory, PodMemory
from adapter.load.pods import Container, Pod
from adapter.load.samples import UNCOUNTED, Point, QuerySamples, ResourceSamples, Samples, time_text
from adapter.load.spec import Capacity, Metric

IGNORED_ZERO = f"it fell to exactly 0, which counts {LAST_SAMPLE_SECONDS:.0f} s after its last other sample"
_GAP_POLLS = 2.2
"""Samples further apart than this many polls have a gap between them: one poll may come late, none is left out."""


class Sizes(NamedTuple):
    """What usage is divided by (nano-units): the larger and the smaller of the capacity wanted and in force.

    Both are 1 for a plain usage. The larger one counts for the lower bound, the smaller one for the upper bound.
    """

    larger: int
    smaller: int


ONE = Sizes(1, 1)


class PodSample(NamedTuple):
    """One pod's sample of a metric, or the reason why none counts. Values are nano-units, times seconds.

    `usage` is None where no sample counts; `missing` says why. `bound` is the most that the pod may have used; None
    where that is not known: then it is missing for the upper bound. `sizes` is None where the pod has no capacity.
    `limit` caps the usage itself. `last`: the largest of its recent bounds that is known. The sample was taken at `at`
    over a window of `window` seconds.
    """

    pod: Pod
    usage: int | None
    missing: str = ""
    bound: int | None = None
    sizes: Sizes | None = ONE
    limit: int = 0
    last: int = 0
    at: float = 0.0
    window: float = 0.0
    is_partial: bool = False

    @property
    def began(self) -> float:
        """When the window of the sample began."""
        return self.at - self.window


class MetricReader:
    """Reads one metric's samples of a target's pods at one time (`now`, seconds).

    Pods of one template share their containers (`kube.pods.PodDecoder`), so what depends on those only is computed once
    for consecutive pods.
    """

    def __init__(
        self,
        metric: Metric,
        samples: Samples,
        now: float,
        memory: MetricMemory | None = None,
        *,
        accepts_zero: bool = False,
        started_at: float | None = None,
    ) -> None:
        self._metric, self._now, self._accepts_zero = metric, now, accepts_zero
        self._of, self._is_throttled, self._resource = metric.relative_to, metric.is_throttled, metric.resource_name
        self._is_whole = not metric.source.containers
        self._memory = memory or MetricMemory()
        self._started_at = started_at
        self._source = source = source_of(metric, samples)
        self._points: Mapping[str, Point] = source.pods if isinstance(source, QuerySamples) else {}
        self._unusable: Mapping[str, str] = source.unusable if isinstance(source, QuerySamples) else {}
        self._usages = source.pods if isinstance(source, ResourceSamples) else {}
        self._window = source.window if isinstance(source, QuerySamples) else None
        # CPU is measured over a window as well, that of its sample; memory at one moment.
        self._warms = metric.resource.name == "cpu" if metric.resource is not None else bool(self._window)
        self.full = 0
        """How many samples a full window holds; 0 where that is not known."""
        self.median: int | None = None
        """The median of the samples in the current windows of the pods in service; None where none can be counted."""
        self._containers: tuple[Container, ...] | None = None
        self._names: list[str] = []
        self._basis: tuple[Sizes | None, str, int] = ONE, "", 0

    def count_windows(self, in_service: Mapping[str, float]) -> None:
        """Learn how many samples a full window holds: the largest median of an hour, and the current one.

        `in_service`: since when pods have been in service, by name.
        """
        counts = [
            point.count
            for name, point in self._points.items()
            if point.count is not None
            and point.count > 0
            and name in in_service
            and in_service[name] <= point.at - (self._window or 0.0)
        ]
        self.median = median_low(counts) if counts else None
        recent = [median for at, median in self._memory.medians if self._now - at <= MEDIANS_SECONDS]
        self.full = max([*recent, self.median or 0])

    def sample(self, pod: Pod, in_service: float = 0.0) -> PodSample:
        """The pod's sample, or why none counts. `in_service`: since when the pod has been in service."""
        now, name = self._now, pod.name
        sizes, lack, limit = self.basis(pod)
        remembered = self._memory.last.get(pod.uid)
        if remembered is not None and now - remembered.at > LAST_SAMPLE_SECONDS:
            remembered = None
        last = remembered.bound if remembered is not None else 0
        point = self._points.get(name)
        if point is not None:
            value, at, window, reason = point.value, point.at, self._window or 0.0, ""
        else:
            value, at, window, reason = self._measured(name)
        if not reason and now - at > self._source.max_age:
            reason = f"its last sample is from {time_text(at)}"
        if not reason and value == 0 and last and not self._accepts_zero:
            reason = IGNORED_ZERO
        if not reason and at < in_service:
            reason = "its last sample is from before it came into service"
        if not reason and self._warms and at - window < in_service:
            reason = "warming up: the window of its last sample began before it came into service"
        if not reason and point is not None and point.count in {0, 1}:
            reason = "its window holds fewer than two samples, which give no rate"
        if reason or lack:
            return PodSample(pod, None, reason or lack, None, sizes, limit, last)
        bound = value if point is None else self._bound(pod, point, remembered.at if remembered else None)
        return PodSample(
            pod, value, "", bound, sizes, limit, max(last, bound or value), at, window, is_partial=bound != value
        )

    def _measured(self, name: str) -> tuple[int, float, float, str]:
        """Value, time, window of a pod's resource usage, and why there is none."""
        usage, value, resource = self._usages.get(name), 0, self._resource
        if usage is None:
            answered = self._unusable.get(name)
            return (
                0,
                0.0,
                0.0,
                f"the query answers {answered} for it, which does not count" if answered else "no sample",
            )
        for container in self._names or usage.containers:
            amount = usage.amount(container, resource)
            if amount is None:
                return 0, 0.0, 0.0, f"container {container} has no {resource} sample"
            value += amount
        return value, usage.at, usage.window, ""

    def _bound(self, pod: Pod, point: Point, last_at: float | None) -> int | None:
        """The most that a pod may have used, which a window with a gap hides; None where nobody can tell.

        A rate divides by the whole window, however few samples it holds. With c of `full` samples, c - 1 of the
        distances between them are measured at least, so the load is value · full/(c - 1) at most.
        """
        if point.count is None:
            return point.value
        if point.count == UNCOUNTED:
            unsure = [at for at in (self._started_at, self._gap_at(pod, point.at, last_at)) if at is not None]
            return None if any(self._now - at <= (self._window or 0.0) for at in unsure) else point.value
        return point.value if point.count >= self.full else -(-point.value * self.full // (point.count - 1))

    def _gap_at(self, pod: Pod, at: float, last_at: float | None) -> float | None:
        """When samples of the pod came again after a gap, by their dates."""
        is_gap = last_at is not None and at - last_at > _GAP_POLLS * self._source.interval
        return at if is_gap else self._memory.gap_at.get(pod.uid)

    def gaps(self, samples: Iterable[PodSample]) -> dict[str, float]:
        """The gaps to remember of pods whose windows cannot be counted, by UID."""
        gaps = {}
        for sample in samples:
            point, before = self._points.get(sample.pod.name), self._memory.last.get(sample.pod.uid)
            if point is not None and point.count == UNCOUNTED:
                at = self._gap_at(sample.pod, point.at, before.at if before is not None else None)
                if at is not None and self._now - at <= (self._window or 0.0):
                    gaps[sample.pod.uid] = at
        return gaps

    def basis(self, pod: Pod) -> tuple[Sizes | None, str, int]:
        """What does not change with samples: what usage is divided by, why it cannot be, and the limit that caps it.

        A pod's own limit or request counts, if it has one and the whole pod is measured, else that of its containers.
        """
        if pod.containers is not self._containers:
            chosen = _chosen(self._metric, pod)
            self._containers, self._names = pod.containers, [container.name for container in chosen]
            limits = _sizes(Capacity.LIMIT, self._metric, chosen)[0] if self._is_throttled else None
            self._basis = *_sizes(self._of, self._metric, chosen), limits.larger if limits is not None else 0
        sizes, lack, limit = self._basis
        if self._is_whole and (pod.pod_limits or pod.pod_requests):
            own: Sizes | None
            if self._of is not None and (own := _own_sizes(self._of, self._metric, pod)):
                sizes, lack = own, ""
            if self._is_throttled and (own := _own_sizes(Capacity.LIMIT, self._metric, pod)):
                limit = own.larger
        return sizes, lack, limit


def counted_total(source: QuerySamples, in_service: Mapping[str, float]) -> tuple[Point, int | None]:
    """A service total with the fewest samples in a window of the target's pods, and the median of those in service.

    Where the query reads none of these pods, such as that of an ingress, the fewest of all that it reads counts.
    `in_service`: since when pods have been in service, by name.
    """
    point = source.total
    assert point is not None
    held = {name: source.counts[name] for name in in_service if name in source.counts}
    if not held:
        return point, point.count if point.count is not None and point.count > 0 else None
    whole = [count for name, count in held.items() if in_service[name] <= point.at - source.window]
    return replace(point, count=min(held.values())), median_low(whole) if whole else None


def in_service_since(pod: Pod, remembered: PodMemory) -> float:
    """When the pod came into service: it started, turned Ready, was last seen back from being out, or registered."""
    ready_since = pod.ready.since if pod.ready is not None else None
    return max(pod.started_at or 0.0, ready_since or 0.0, remembered.back_since or 0.0)


def query_samples(metric: Metric, samples: Samples) -> QuerySamples:
    """The answer of the metric's query; an empty one with an error where there is none yet."""
    return samples.queries.get(metric.name) or QuerySamples(error="it has not been answered yet")


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


def absent_container_sentence(metric: Metric, pods: Iterable[Pod]) -> str:
    """A sentence about a container that the metric names and no pod has; empty where there is none."""
    present = {container.name for pod in pods for container in pod.containers}
    absent = [name for name in metric.source.containers if name not in present]
    return f"no pod has a container {absent[0]}; they have {', '.join(sorted(present))}" if absent and present else ""


def no_capacity_sentence(metric: Metric, pods: Iterable[Pod]) -> str:
    """A sentence naming the container without the limit or request that a utilization needs."""
    lacks = (_sizes(metric.relative_to, metric, _chosen(metric, pod))[1] for pod in pods)
    return f"{next(filter(None, lacks), 'no pod has a capacity')}; set one or drop `relativeTo` from the metric"


def _chosen(metric: Metric, pod: Pod) -> list[Container]:
    """The containers that the metric covers: the named ones, else the running ones."""
    if names := metric.source.containers:
        by_name = {container.name: container for container in pod.containers}
        return [by_name.get(name, Container(name)) for name in names]
    return [container for container in pod.containers if container.running is not False]


def _sizes(of: Capacity | None, metric: Metric, chosen: Sequence[Container]) -> tuple[Sizes | None, str]:
    """The sum of the containers' limits or requests, wanted and in force; or why there is none."""
    if of is None:
        return ONE, ""
    resource, wanted, in_force = metric.resource_name, 0, 0
    for container in chosen:
        spec, status = (
            (container.limits, container.limits_in_force)
            if of is Capacity.LIMIT
            else (container.requests, container.requests_in_force)
        )
        amount = spec.get(resource)
        actual = (status or {}).get(resource) or amount
        amount = amount or actual
        if not amount or not actual:
            return None, f"container {container.name} has no {resource} {of.value.lower()}"
        wanted += amount
        in_force += actual
    if not wanted:
        return None, f"no container has a {resource} {of.value.lower()}"
    return Sizes(max(wanted, in_force), min(wanted, in_force)), ""


def _own_sizes(of: Capacity, metric: Metric, pod: Pod) -> Sizes | None:
    """The pod's own limit or request, wanted and in force; None without one."""
    spec, status = (
        (pod.pod_limits, pod.pod_limits_in_force)
        if of is Capacity.LIMIT
        else (pod.pod_requests, pod.pod_requests_in_force)
    )
    wanted = spec.get(metric.resource_name)
    actual = wanted if status is None else status.get(metric.resource_name) or wanted
    return Sizes(max(wanted, actual), min(wanted, actual)) if wanted and actual else None
