"""The samples of one metric: which pods have one that counts, when its window began, and what usage is divided by."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from math import ceil
from statistics import median_low
from typing import NamedTuple

from adapter.load.memory import FULL_SECONDS, LAST_SAMPLE_SECONDS, LastSample, MetricMemory, Numbers, extended, largest
from adapter.load.pods import Container, Pod
from adapter.load.samples import UNCOUNTED, Point, QuerySamples, ResourceSamples, Samples, time_text
from adapter.load.spec import Capacity, Metric

IGNORED_ZERO = f"it fell to exactly 0, which counts {LAST_SAMPLE_SECONDS:.0f} s after its last other sample"
OTHERS = ""
"""The key of the scrape targets that are none of the target's own pods; the key of a total's own last sample."""
READ = "/"
"""The key of the number of the target's own pods that a total reads."""
GAP_POLLS = 2.2
"""Samples further apart than this many polls have a gap between them: one poll may come late, none is left out."""


class Sizes(NamedTuple):
    """What usage is divided by (nano-units): the larger and the smaller of the capacity wanted and in force.

    Both are 1 for a plain usage. The larger one counts for the lower bound, the smaller one for the upper bound.
    """

    larger: int
    smaller: int


ONE = Sizes(1, 1)
Source = ResourceSamples | QuerySamples
"""The latest answer of a metric's source."""
_NO_QUERY = QuerySamples()
_NOTHING: Mapping[str, int] = {}


class PodSample(NamedTuple):
    """One pod's sample of a metric, or the reason why none counts. Values are nano-units, times seconds.

    `usage` is None where no sample counts; `missing` says why. `bound` is the most that the pod may have used; None
    where that is not known: then it is missing for the upper bound. `sizes` is None where the pod has no capacity.
    `limit` caps the usage itself. `last`: the largest of its recent bounds that is known. The sample (or the last that
    counted; 0: none) was taken at `at` over a window of `window` seconds. The pod has been in service since `since`.
    `remembered` is for the memory.
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
    remembered: LastSample | None = None


class Total(NamedTuple):
    """A number for the whole service (nano-units) at a time: its value, and the most that it may be (None: not known).

    `lost`: how many scrape targets fewer than in the last hour it is of. `reads_all`: no pod's load is left out of it.
    """

    value: int | None = None
    bound: int | None = None
    at: float = 0.0
    lost: int = 0
    reads_all: bool = True


class MetricReader:
    """Reads one metric's samples of a target's pods at one time (`now`, seconds).

    Pods of one template share their containers (`kube.pods.PodDecoder`), so what depends on those only is computed once
    for consecutive pods. `lost`: by UID how many scrape targets fewer a pod has than in the last hour. `medians`: how
    many samples windows held in that time.
    """

    def __init__(
        self,
        metric: Metric, source: Source | None = None, now: float = 0.0, memory: MetricMemory | None = None,
        *, accepts_zero: bool = False, started_at: float | None = None,
    ) -> None:  # fmt: skip
        self._metric, self._now, self._accepts_zero = metric, now, accepts_zero
        self._memory, self._started_at = memory or MetricMemory(), started_at or 0.0
        self._source = source = ResourceSamples() if source is None else source
        self._query = source if isinstance(source, QuerySamples) else _NO_QUERY
        self._points, self._window = self._query.pods, self._query.window
        self._usages = source.pods if isinstance(source, ResourceSamples) else {}
        # CPU is measured over a window as well, that of its sample; memory at one moment.
        self._warms = metric.is_cpu or bool(self._window)
        self.medians, self._full = self._memory.medians, 0
        self.lost: Mapping[str, int] = {}
        self._containers: tuple[Container, ...] | None = None
        self._names: list[str] = []
        self._basis: tuple[Sizes | None, str, int] = ONE, "", 0

    def learn(self, pods: Sequence[Pod], idle: Sequence[Pod], in_service: Mapping[str, float]) -> MetricMemory:
        """Learn how many samples a full window of the pods holds, and which pods, or idle ones, lack scrape targets.

        `in_service`: since when pods have been in service, by UID.
        """
        counts, targets = [], self._memory.targets
        for pod in pods if self._window else ():
            point = self._points.get(pod.name)
            if point is not None and point.count is not None and point.count > 0:
                counts += [point.count] * (in_service[pod.uid] <= point.at - self._window)
        self._fill(median_low(counts) if counts else None)
        if targets or self._query.targets:
            known = [pod for pod in chain(pods, idle) if pod.name in self._points]
            named = {pod.uid: self._query.targets.get(pod.name, 1) for pod in known}
            targets = self._with_targets(named)
            self.lost = {uid: lost for uid, number in named.items() if (lost := largest(targets.get(uid)) - number) > 0}
        return MetricMemory(medians=self.medians, targets=targets)

    def _fill(self, median: int | None) -> None:
        self.medians = extended(self.medians, median, self._now)
        self._full = largest(self.medians)

    def _with_targets(self, numbers: Mapping[str, int]) -> Mapping[str, Numbers]:
        """The numbers of scrape targets with the current ones. Of a pod with one target its sample says it all."""
        before = self._memory.targets
        after = {key: extended(before.get(key, ()), numbers.get(key, 0), self._now) for key in {*numbers, *before}}
        return {key: each for key, each in after.items() if largest(each) > (key not in {OTHERS, READ})}

    def sample(self, pod: Pod, since: float = 0.0, *, serves: bool = True) -> PodSample:
        """The pod's sample, or why none counts. `since`: since when the pod has been in service.

        Of a pod that serves, the newest sample is remembered; of others the largest recent one. Samples are not all of
        the same time: theirs may show that they are idle before those of others show their load.
        """
        sizes, lack, limit = self.basis(pod)
        before = self._memory.last.get(pod.uid)
        last = before.bound if before is not None and self._now - before.at <= LAST_SAMPLE_SECONDS else 0
        point = self._points.get(pod.name)
        if point is not None:
            value, at, window, reason = point.value, point.at, self._window, ""
        else:
            value, at, window, reason = self._measured(pod.name)
        if not reason and self._now - at > self._source.max_age:
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
            at = 0.0 if before is None else before.at
            return PodSample(pod, None, reason or lack, None, sizes, limit, last, at, window, since, before)
        gap_at = self._gap_at(before, at)
        bound = value if point is None else None if pod.uid in self.lost else self._bound(point, gap_at)
        last, after = max(last, value if bound is None else bound), before
        if before is None or (at >= before.at and (serves or last == bound)):
            kept = bound if bound is not None else 0 if before is None else before.bound
            after = LastSample(at, kept, gap_at)
        return PodSample(pod, value, "", bound, sizes, limit, last, at, window, since, after)

    def _measured(self, name: str) -> tuple[int, float, float, str]:
        """Value, time, window of a pod's resource usage, and why there is none."""
        usage, value, resource = self._usages.get(name), 0, self._metric.resource
        if usage is None:
            answered = self._query.unusable.get(name)
            reason = f"the query answers {answered} for it, which does not count" if answered else "no sample"
            return 0, 0.0, 0.0, reason
        for container in self._names or usage.containers:
            amount = usage.containers.get(container, _NOTHING).get(resource)
            if amount is None:
                return 0, 0.0, 0.0, f"container {container} has no {resource} sample"
            value += amount
        return value, usage.at, usage.window, ""

    def _gap_at(self, before: LastSample | None, at: float) -> float:
        """When samples came again after the last gap, which this one may end by its date."""
        if before is None:
            return 0.0
        return at if at - before.at > GAP_POLLS * self._source.interval else before.gap_at

    def _bound(self, point: Point, gap_at: float) -> int | None:
        """The most that a value may be, which a window with a gap hides; None where nobody can tell.

        A rate divides by the whole window, however few samples it holds. With c of `full` samples, c - 1 of the
        distances between them are measured at least, so the load is value · full/(c - 1) at most. Where nobody can
        count them, a gap lasts while answers have no newer sample, and the longest window reads it for its own length
        after that; a process knows of none before its start. What has not come yet may be the begin of one: the
        shortest window lacks as much of the load.
        """
        count, value, source = point.count, point.value, self._query
        if count is None or (count > 1 and count >= self._full):
            return value
        if count != UNCOUNTED:
            return -(-value * self._full // (count - 1)) if count > 1 else None
        answered = self._now if source.fetched_at is None else source.fetched_at
        silent, length = max(0.0, answered - source.behind - point.at), source.shortest or source.window
        is_gapless = self._now - max(gap_at, self._started_at) > source.window
        if silent > GAP_POLLS * source.interval or silent >= length or not is_gapless:
            return None
        return ceil(value * Fraction(length) / Fraction(length - silent))

    def total(
        self, pods: Iterable[Pod], all_in: Sequence[Pod], out: Iterable[Pod], in_service: Mapping[str, float]
    ) -> tuple[Total | None, MetricMemory]:
        """The number for the whole service, if there is one, and the memory. `pods`: all that the target has.

        Where the query reads none of the pods, such as that of an ingress, the fewest samples in any window count. A
        total that reads one of several pods, as ever in the last hour, speaks for all, as the leader of a group does.
        """
        source, before, now, key = self._query, self._memory, self._now, OTHERS
        point, counts, targets = source.total, source.counts, source.targets
        # Series outlive their pods.
        own = {name: at for name, at in before.own.items() if now - at <= FULL_SECONDS and name in targets}
        for pod in pods if targets else ():
            own |= {name: now for name in _names_of(pod) if name in targets}
        numbers = {pod.uid: targets[pod.name] for pod in all_in if pod.name in targets}
        numbers[OTHERS] = sum(number for name, number in targets.items() if name not in own)
        numbers[READ] = read = sum(not targets.keys().isdisjoint(_names_of(pod)) for pod in all_in)
        after = self._with_targets(numbers)
        lost = {key: max(0, largest(after.get(key)) - number) for key, number in numbers.items()}
        most = read + lost.pop(READ)
        reads_all = read >= len(all_in) or not (most > 1 or read < most or (read == 1 and len(all_in) == 2))
        memory = MetricMemory(medians=before.medians, targets=after, own=own)
        if point is None:
            return None, memory
        held = {pod.uid: counts[pod.name] for pod in chain(all_in, out) if pod.name in counts}
        whole = [count for uid, count in held.items() if in_service[uid] <= point.at - source.window]
        median = median_low(whole) if whole else None
        if held:
            point = replace(point, count=min(held.values()))
        elif point.count is not None and point.count > 0:
            median = point.count
        self._fill(median)
        memory, gap_at = replace(memory, medians=self.medians), self._gap_at(before.last.get(key), point.at)
        if point.count == UNCOUNTED:
            memory = replace(memory, last={key: LastSample(point.at, point.value, gap_at)})
        bound = self._bound(point, gap_at)
        return Total(point.value, bound, point.at, sum(lost.values()), reads_all), memory

    def basis(self, pod: Pod) -> tuple[Sizes | None, str, int]:
        """What does not change with samples: what usage is divided by, why it cannot be, and the limit that caps it.

        A pod's own limit or request counts, if it has one and the whole pod is measured, else that of its containers.
        """
        metric = self._metric
        if pod.containers is not self._containers:
            chosen = _chosen(metric, pod)
            self._containers, self._names = pod.containers, [container.name for container in chosen]
            limits = _sizes(Capacity.LIMIT, metric, chosen)[0] if metric.is_cpu else None
            self._basis = *_sizes(metric.relative_to, metric, chosen), limits.larger if limits is not None else 0
        if metric.containers or not (pod.pod_limits or pod.pod_requests):
            return self._basis
        sizes, lack, limit = self._basis
        amounts = pod.pod_requests, pod.pod_limits, pod.pod_requests_in_force, pod.pod_limits_in_force
        whole = Container(pod.name, *amounts)
        if metric.relative_to is not None and (own := _sizes(metric.relative_to, metric, [whole])[0]):
            sizes, lack = own, ""
        if metric.is_cpu and (own := _sizes(Capacity.LIMIT, metric, [whole])[0]):
            limit = own.larger
        return sizes, lack, limit


def _names_of(pod: Pod) -> Iterable[str]:
    """The name of a pod, and the addresses that are its alone: how scrape targets name it."""
    return (pod.name,) if pod.host_network else (pod.name, *pod.ips)


def source_of(metric: Metric, samples: Samples) -> Source:
    """The latest answer of the metric's source; an empty one with an error where there is none yet."""
    if metric.query is None:
        return samples.resources
    return samples.queries.get(metric.name) or QuerySamples(error="it has not been answered yet")


def source_name(metric: Metric) -> str:
    """The name of a metric's source in sentences."""
    return f"query {metric.query.name or metric.name}" if metric.query else "metrics.k8s.io"


def source_error(metric: Metric, source: Source) -> str:
    """Why a metric has no fresh sample: the source's own error, or the time of its last answer."""
    name = source_name(metric)
    if source.error:
        return f"{name}: {source.error}"
    if source.fetched_at is None:
        return f"{name} has not answered yet"
    return f"{name} has no fresh sample (last answer at {time_text(source.fetched_at)})"


def samples_error(metric: Metric, source: Source, samples: Sequence[PodSample]) -> str:
    """Why none of the samples counts: a container or capacity that is not there, or what these pods have in common."""
    pods, names = [sample.pod for sample in samples], metric.containers
    present = {container.name for pod in pods for container in pod.containers}
    if present and (absent := [name for name in names if name not in present]):
        return f"no pod has a container {absent[0]}; they have {', '.join(sorted(present))}"
    if metric.relative_to is not None and not any(sample.sizes for sample in samples):
        lacks = (_sizes(metric.relative_to, metric, _chosen(metric, pod))[1] for pod in pods)
        lack = next(filter(None, lacks), "no pod has a capacity")
        return f"{lack}; set one, name those that have one in `containers`, or drop `relativeTo`"
    reasons = {sample.missing for sample in samples} - {"", "no sample"}
    if not source.error and source.pods and reasons:
        return f"{source_name(metric)} has no fresh sample of a serving pod: {min(reasons)}"
    return source_error(metric, source)


def _chosen(metric: Metric, pod: Pod) -> list[Container]:
    """The containers that the metric covers: the named ones, else the running ones."""
    if names := metric.containers:
        by_name = {container.name: container for container in pod.containers}
        return [by_name.get(name, Container(name)) for name in names]
    return [container for container in pod.containers if container.running is not False]


def _sizes(of: Capacity | None, metric: Metric, parts: Iterable[Container]) -> tuple[Sizes | None, str]:
    """The sum of the limits or requests of containers, wanted and in force; or why there is none."""
    if of is None:
        return ONE, ""
    resource, wanted, in_force = metric.resource, 0, 0
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
