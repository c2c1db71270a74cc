"""The samples of one metric: which pods have one that counts, when its window began, and what usage is divided by."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil
from statistics import median_low
from typing import NamedTuple

from adapter.load.memory import GAP_POLLS, LAST_SAMPLE_SECONDS, NEW_METRIC, LastSample, MetricMemory, Numbers
from adapter.load.pods import Container, Pod
from adapter.load.samples import UNCOUNTED, Point, QuerySamples, ResourceSamples, Samples, time_text
from adapter.load.spec import Capacity, Metric

IGNORED_ZERO = f"it fell to exactly 0, which counts {LAST_SAMPLE_SECONDS:.0f} s after its last other sample"


class Sizes(NamedTuple):
    """What usage is divided by (nano-units): the larger and the smaller of the capacity wanted and in force.

    Both are 1 for a plain usage. The larger one counts for the lower bound, the smaller one for the upper bound.
    """

    larger: int
    smaller: int


ONE = Sizes(1, 1)
Source = ResourceSamples | QuerySamples
"""The latest answer of a metric's source."""


class PodSample(NamedTuple):
    """One pod's sample of a metric, or the reason why none counts. Values are nano-units, times seconds.

    `usage` is None where no sample counts; `missing` says why. `bound` is the most that the pod may have used; None
    where that is not known: then it is missing for the upper bound. `sizes` is None where the pod has no capacity.
    `limit` caps the usage itself. `last`: the largest of its recent bounds that is known. The sample (or the last that
    counted; 0: none) was taken at `at` over a window of `window` seconds. The pod has been in service since `since`.
    """

    pod: Pod
    usage: int | None
    missing: str
    bound: int | None
    sizes: Sizes | None
    limit: int
    last: int
    at: float
    window: float
    since: float


class MetricReader:
    """Reads one metric's samples of a target's pods at one time (`now`, seconds).

    Pods of one template share their containers (`kube.pods.PodDecoder`), so what depends on those only is computed once
    for consecutive pods.
    """

    def __init__(
        self,
        metric: Metric,
        source: Source | None = None,
        now: float = 0.0,
        memory: MetricMemory = NEW_METRIC,
        *,
        accepts_zero: bool = False,
        started_at: float | None = None,
    ) -> None:
        self._metric, self._now, self._accepts_zero = metric, now, accepts_zero
        self._of, self._resource = metric.relative_to, metric.resource_name
        self._is_cpu = metric.resource is not None and metric.resource.name == "cpu"
        self._is_whole = not metric.source.containers
        self._memory, self._started_at = memory, started_at
        self._source = source = source if source is not None else ResourceSamples()
        self._query = source if isinstance(source, QuerySamples) else None
        self._points: Mapping[str, Point] = self._query.pods if self._query is not None else {}
        self._usages = source.pods if isinstance(source, ResourceSamples) else {}
        self._window = self._query.window if self._query is not None else 0.0
        # CPU is measured over a window as well, that of its sample; memory at one moment.
        self._warms = self._is_cpu or bool(self._window)
        self._full = 0
        self.lost: Mapping[str, int] = {}
        """By UID how many scrape targets fewer a pod has than in the last hour."""
        self._containers: tuple[Container, ...] | None = None
        self._names: list[str] = []
        self._basis: tuple[Sizes | None, str, int] = ONE, "", 0

    def count_windows(self, pods: Iterable[Pod], in_service: Mapping[str, float]) -> tuple[tuple[float, int], ...]:
        """Learn how many samples a full window of these pods holds; returns the medians to remember.

        `in_service`: since when pods have been in service, by UID.
        """
        counts = []
        for pod in pods if self._window else ():
            point = self._points.get(pod.name)
            if point is not None and point.count is not None and point.count > 0:
                counts += [point.count] * (in_service[pod.uid] <= point.at - self._window)
        medians = self._memory.with_median(median_low(counts) if counts else None, self._now)
        self._full = max((median for _, median in medians), default=0)
        return medians

    def count_targets(self, pods: Iterable[Pod]) -> Mapping[str, Numbers]:
        """Learn which pods lack a scrape target that they had in the last hour; returns the numbers to remember."""
        counted = self._query.targets if self._query is not None else {}
        if not counted and not self._memory.targets:
            return {}
        named = {pod.uid: counted.get(pod.name, 1) for pod in pods if pod.name in self._points}
        targets = self._memory.with_targets(named, self._now)
        self.lost = {uid: lost for uid, number in named.items() if (lost := lost_targets(targets, uid, number))}
        return targets

    def sample(self, pod: Pod, since: float = 0.0) -> PodSample:
        """The pod's sample, or why none counts. `since`: since when the pod has been in service."""
        now = self._now
        sizes, lack, limit = self.basis(pod)
        remembered = self._memory.last.get(pod.uid)
        last = remembered.bound if remembered is not None and now - remembered.at <= LAST_SAMPLE_SECONDS else 0
        point = self._points.get(pod.name)
        if point is not None:
            value, at, window, reason = point.value, point.at, self._window, ""
        else:
            value, at, window, reason = self._measured(pod.name)
        if not reason and now - at > self._source.max_age:
            reason = f"its last sample is from {time_text(at)}"
        elif not reason and value == 0 and last and not self._accepts_zero:
            reason = IGNORED_ZERO
        elif not reason and at < since:
            reason = "its last sample is from before it came into service"
        elif not reason and self._warms and at - window < since:
            reason = "warming up: the window of its last sample began before it came into service"
        elif not reason and point is not None and point.count in {0, 1}:
            reason = "its window holds fewer than two samples, which give no rate"
        if reason or lack:
            at = 0.0 if remembered is None else remembered.at
            return PodSample(pod, None, reason or lack, None, sizes, limit, last, at, window, since)
        bound = value if point is None else self._bound(point, remembered) if pod.uid not in self.lost else None
        last = max(last, value if bound is None else bound)
        return PodSample(pod, value, "", bound, sizes, limit, last, at, window, since)

    def _measured(self, name: str) -> tuple[int, float, float, str]:
        """Value, time, window of a pod's resource usage, and why there is none."""
        usage, value, resource = self._usages.get(name), 0, self._resource
        if usage is None:
            answered = self._query.unusable.get(name) if self._query is not None else None
            reason = f"the query answers {answered} for it, which does not count" if answered else "no sample"
            return 0, 0.0, 0.0, reason
        for container in self._names or usage.containers:
            amount = usage.amount(container, resource)
            if amount is None:
                return 0, 0.0, 0.0, f"container {container} has no {resource} sample"
            value += amount
        return value, usage.at, usage.window, ""

    def _bound(self, point: Point, remembered: LastSample | None) -> int | None:
        """The most that a pod may have used, which a window with a gap hides; None where nobody can tell."""
        if point.count != UNCOUNTED:
            return bound_of(point, self._full)
        assert self._query is not None
        latest = sample_after(remembered, point, self._query)
        return uncounted_bound(latest, self._query, self._now, self._started_at)

    def lasts(self, samples: Iterable[PodSample], serving: int) -> dict[str, LastSample]:
        """The newest samples that counted, by UID; of all but the first `serving` ones, the largest recent ones.

        Samples are not all of the same time: theirs may show that they are idle before those of others show their load.
        """
        lasts = {}
        for index, sample in enumerate(samples):
            uid, bound = sample.pod.uid, sample.bound
            remembered = self._memory.last.get(uid)
            if remembered is None and bound is not None:
                lasts[uid] = LastSample(sample.at, bound)
            elif remembered is not None:
                is_newer = sample.usage is not None and sample.at >= remembered.at
                if is_newer and (index < serving or sample.last == bound):
                    latest = remembered.bound if bound is None else bound
                    lasts[uid] = remembered.followed_by(sample.at, latest, self._source.interval)
                else:
                    lasts[uid] = remembered
        return lasts

    def basis(self, pod: Pod) -> tuple[Sizes | None, str, int]:
        """What does not change with samples: what usage is divided by, why it cannot be, and the limit that caps it.

        A pod's own limit or request counts, if it has one and the whole pod is measured, else that of its containers.
        """
        if pod.containers is not self._containers:
            chosen = _chosen(self._metric, pod)
            self._containers, self._names = pod.containers, [container.name for container in chosen]
            limits = _sizes(Capacity.LIMIT, self._metric, chosen)[0] if self._is_cpu else None
            self._basis = *_sizes(self._of, self._metric, chosen), limits.larger if limits is not None else 0
        if not (self._is_whole and (pod.pod_limits or pod.pod_requests)):
            return self._basis
        sizes, lack, limit = self._basis
        amounts = pod.pod_requests, pod.pod_limits, pod.pod_requests_in_force, pod.pod_limits_in_force
        whole = Container(pod.name, *amounts)
        if self._of is not None and (own := _sizes(self._of, self._metric, [whole])[0]):
            sizes, lack = own, ""
        if self._is_cpu and (own := _sizes(Capacity.LIMIT, self._metric, [whole])[0]):
            limit = own.larger
        return sizes, lack, limit


def sample_after(before: LastSample | None, point: Point, source: QuerySamples) -> LastSample:
    """A value as the newest sample after the last one."""
    first = LastSample(point.at, point.value)
    return first if before is None else before.followed_by(point.at, point.value, source.interval)


def uncounted_bound(latest: LastSample, source: QuerySamples, now: float, started_at: float | None) -> int | None:
    """The most that a value may be where nobody can count the samples in its windows; None where nobody can tell.

    A gap lasts while answers have no newer sample, and the longest window reads it for its own length after that; a
    process knows of none before its start. What has not come yet may be the begin of one: the shortest window lacks
    as much of the load.
    """
    silent = max(0.0, (now if source.fetched_at is None else source.fetched_at) - source.behind - latest.at)
    length = source.shortest or source.window
    is_gapless = now - max(latest.gap_at, started_at or 0.0) > source.window
    if silent > GAP_POLLS * source.interval or silent >= length or not is_gapless:
        return None
    return ceil(latest.bound * Fraction(length) / Fraction(length - silent))


def lost_targets(remembered: Mapping[str, Numbers], key: str, number: int) -> int:
    """How many scrape targets fewer than in the last hour there are of this key."""
    return remembered[key][0][1] - number if key in remembered else 0


def bound_of(point: Point, full: int) -> int:
    """The most that a value may be whose window holds fewer samples than the `full` one.

    A rate divides by the whole window, however few samples it holds. With c of `full` samples, c - 1 of the distances
    between them are measured at least, so the load is value · full/(c - 1) at most.
    """
    if point.count is None or point.count >= full:
        return point.value
    return -(-point.value * full // (point.count - 1))


def counted_total(source: QuerySamples, in_service: Mapping[str, float]) -> tuple[Point | None, int | None]:
    """A service total with the fewest samples in a window of the target's pods, and the median of those in service.

    Where the query reads none of these pods, such as that of an ingress, the fewest of all that it reads counts.
    `in_service`: since when pods have been in service, by name.
    """
    point = source.total
    if point is None:
        return None, None
    held = {name: source.counts[name] for name in in_service if name in source.counts}
    if not held:
        return point, point.count if point.count is not None and point.count > 0 else None
    whole = [count for name, count in held.items() if in_service[name] <= point.at - source.window]
    return replace(point, count=min(held.values())), median_low(whole) if whole else None


def source_of(metric: Metric, samples: Samples) -> Source:
    """The latest answer of the metric's source; an empty one with an error where there is none yet."""
    if metric.resource is not None:
        return samples.resources
    return samples.queries.get(metric.name) or QuerySamples(error="it has not been answered yet")


def is_service_total(metric: Metric, source: Source) -> bool:
    """Whether the metric is one number for the service; True also for a query that has never told."""
    if metric.resource is not None or not isinstance(source, QuerySamples):
        return False
    return not (source.pods if source.total is not None or source.by_pod is None else source.by_pod)


def source_name(metric: Metric) -> str:
    """The name of a metric's source in sentences."""
    return "metrics.k8s.io" if metric.resource else f"query {(metric.query and metric.query.name) or metric.name}"


def source_error(metric: Metric, source: Source) -> str:
    """Why a metric has no fresh sample: the source's own error, or the time of its last answer."""
    name = source_name(metric)
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


def _sizes(of: Capacity | None, metric: Metric, parts: Iterable[Container]) -> tuple[Sizes | None, str]:
    """The sum of the limits or requests of containers, wanted and in force; or why there is none."""
    if of is None:
        return ONE, ""
    resource, wanted, in_force = metric.resource_name, 0, 0
    for part in parts:
        asked, given = part.limits, part.limits_in_force
        if of is Capacity.REQUEST:
            asked, given = part.requests, part.requests_in_force
        actual = (given or {}).get(resource) or asked.get(resource)
        if not actual:
            return None, f"container {part.name} has no {resource} {of.value.lower()}"
        wanted += asked.get(resource) or actual
        in_force += actual
    if not wanted:
        return None, f"no container has a {resource} {of.value.lower()}"
    return Sizes(max(wanted, in_force), min(wanted, in_force)), ""
