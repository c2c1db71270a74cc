"""Groups the samples of a query by namespace and pod, or takes the one number of a service. Pure.

Each value has the time of the samples that it was computed from, not the time of its evaluation (see `promql`).
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from adapter.load.quantity import QuantityError, parse_number
from adapter.load.samples import Point, QuerySamples
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import WrongAnswer
from adapter.usage.prometheus_api import Sample
from adapter.usage.promql import INPUT_LABEL, QueryInputs
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.series import Series, SeriesList

RELEASE_SECONDS = 5.0
"""How long a result may still be in use after a newer one replaced it."""
_MANY = 1000
_STEP = 500
_SHOWN = 200
_MAX_SHAPES = 4  # of selectors, that a new result is indexed for
_SAFE_DIGITS = 12  # far below the limit of a quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The result of a query by namespace (empty: series without that label).

    `counts` is the number of series, unusable values included; `faults` says why the result is unusable for a namespace
    (empty: for all); `fingerprint` differs if values or times do.
    """

    by_pod: bool
    fetched_at: float
    series: Mapping[str, SeriesList] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, Point]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    fingerprint: int = 0

    def same(self, other: "QueryResult | None") -> bool:
        """Whether both have the same values, times and faults."""
        return other is not None and self.fingerprint == other.fingerprint and self.faults == other.faults

    def of(self, namespace: str, max_age: float) -> QuerySamples:
        """The samples for a service in this namespace, never those of another namespace."""
        fault = self.faults.get(namespace) or self.faults.get("")
        if not fault and not self.by_pod:
            fault = self._ambiguous(namespace)
        if fault:
            return QuerySamples(max_age=max_age, error=fault, fetched_at=self.fetched_at)
        if self.by_pod:
            return QuerySamples(pods=self.pods.get(namespace, {}), max_age=max_age, fetched_at=self.fetched_at)
        series = next(iter((*self.series.get(namespace, ()), *self.series.get("", ()))), None)
        total = Point(series.at, series.value) if series else None
        return QuerySamples(total=total, max_age=max_age, fetched_at=self.fetched_at)

    def large(self) -> list[list[Series]]:
        """The series for `release`; empty if they are few."""
        return [list(series) for series in self.series.values() if len(series) > _MANY]

    def _ambiguous(self, namespace: str) -> str:
        count = self.counts.get(namespace, 0) + self.counts.get("", 0)
        return f"answers {count} series where one number is wanted; put sum(…) around it" if count > 1 else ""


async def release(result: list[list[Series]]) -> None:
    """Free the series of a large result in slices, some time after a newer one replaced it.

    Freeing that many objects at once blocks the loop; the delay lets all users change to the newer result first.
    """
    await asyncio.sleep(RELEASE_SECONDS)
    slices = Slices()
    for series in result:
        while series:
            del series[-_STEP:]
            await slices.breathe()


class _SelectorTimes:
    """The newest sample's time of one selector's series."""

    def __init__(self) -> None:
        self._of_pod: dict[str, dict[str, float]] = {}
        """By namespace and pod."""
        self._of_namespace: dict[str, float] = {}
        self._newest: float | None = None

    def add(self, namespace: str, pod: str, at: float) -> None:
        if pod:
            self._of_pod.setdefault(namespace, {})[pod] = at
        if namespace:
            self._of_namespace[namespace] = max(at, self._of_namespace.get(namespace, at))
        self._newest = at if self._newest is None else max(at, self._newest)

    def at(self, namespace: str, pod: str) -> float | None:
        """The time for these labels; if the selector's series have a pod label, only the pod's own series counts."""
        if pod and self._of_pod:
            own = self._of_pod.get(namespace, _NO_TIMES).get(pod)
            return own if own is not None else self._of_pod.get("", _NO_TIMES).get(pod)
        if namespace and self._of_namespace:
            return self._of_namespace.get(namespace)
        return self._newest

    async def clear(self, slices: Slices) -> None:
        """Drop all times in slices: freeing them at once would block the loop."""
        for of_pod in self._of_pod.values():
            while of_pod:
                of_pod.popitem()
                await slices.breathe()


_NO_TIMES: Mapping[str, float] = {}


class SampleTimes:
    """The times of the samples that an expression reads.

    A value has the time of the oldest of its selectors' newest samples. Every selector must have one, or any of them if
    the expression has alternatives (`or`). A value without selectors (`vector(1)`) has the time of its evaluation.
    """

    def __init__(self, inputs: QueryInputs, query: InstantQuery, evaluated_at: float) -> None:
        self._query = query
        self._alternatives = inputs.alternatives
        self._evaluated_at = evaluated_at
        self._times = [_SelectorTimes() for _ in inputs.selectors]

    def add(self, sample: Sample) -> None:
        """Add a sample of the result of `promql.sample_times_query`. Raises WrongAnswer for any other sample."""
        labels = sample.labels
        namespace, pod = labels.get(self._query.namespace_label, ""), labels.get(self._query.pod_label, "")
        try:
            self._times[int(labels[INPUT_LABEL])].add(namespace, pod, float(sample.value))
        except (LookupError, ValueError) as error:
            shown = str(dict(labels))[:_SHOWN]
            raise WrongAnswer(f"the sample times are not what was asked for: {shown}") from error

    def at(self, namespace: str, pod: str) -> float | None:
        """The time of the value with these labels (empty: it lacks the label); None if no live series went into it."""
        if not self._times:
            return self._evaluated_at
        times = [times.at(namespace, pod) for times in self._times]
        known = [at for at in times if at is not None]
        if not known or (len(known) < len(times) and not self._alternatives):
            return None
        return min(known)

    async def clear(self, slices: Slices) -> None:
        """Drop all times in slices."""
        for times in self._times:
            await times.clear(slices)


async def build_result(
    query: InstantQuery,
    samples: list[Sample],
    times: SampleTimes,
    fetched_at: float,
    slices: Slices,
    *,
    last: QueryResult | None = None,
) -> QueryResult:
    """Group samples by namespace and pod, and consume the list. NaN, infinite, negative and undated values are dropped.

    Requests are likely to use the selectors that they used on the `last` result, so the new one is indexed for them.
    """
    builder = _ResultBuilder(query, times, any(sample.labels.get(query.pod_label) for sample in samples))
    samples.reverse()
    while samples:
        builder.add(samples.pop())
        await slices.breathe()
    result = await builder.build(fetched_at, slices)
    for namespace, series in result.series.items():
        if last is not None and (earlier := last.series.get(namespace)) is not None:
            await series.prepare(earlier.shapes[-_MAX_SHAPES:], slices)
    return result


class _ResultBuilder:
    def __init__(self, query: InstantQuery, times: SampleTimes, has_pods: bool) -> None:
        self._query = query
        self._times = times
        # Inline PromQL does not declare its scope; the labels of its result show it.
        self._by_pod = query.by_pod if query.by_pod is not None else has_pods
        self._series: dict[str, SeriesList] = {}
        self._seen: dict[str, set[str]] = {}
        self._counts: dict[str, int] = {}
        self._faults: dict[str, str] = {}
        self._undated = 0
        self._fingerprint = 0

    def add(self, sample: Sample) -> None:
        namespace = sample.labels.get(self._query.namespace_label, "")
        pod = sample.labels.get(self._query.pod_label, "") if self._by_pod else ""
        self._counts[namespace] = self._counts.get(namespace, 0) + 1
        if pod and namespace:
            self._check_unique(namespace, pod)
        at = self._times.at(namespace, pod)
        if at is None:
            self._undated += 1
            return
        with suppress(QuantityError):
            self._add_series(namespace, pod, Series(sample.labels, sample_nano(sample.value), at))

    def _check_unique(self, namespace: str, pod: str) -> None:
        seen = self._seen.setdefault(namespace, set())
        if pod in seen:
            self._faults[namespace] = f"answers several series of pod {pod}; write it as {self._by()}"
        seen.add(pod)

    def _add_series(self, namespace: str, pod: str, series: Series) -> None:
        in_namespace = self._series.get(namespace)
        if in_namespace is None:
            pod_label = self._query.pod_label if self._by_pod else ""
            in_namespace = self._series[namespace] = SeriesList(pod_label)
        in_namespace.add(series)
        self._fingerprint += hash((namespace, pod, series.value, series.at))  # a sum: their order does not matter

    async def build(self, fetched_at: float, slices: Slices) -> QueryResult:
        if self._by_pod:
            await self._find_missing_labels(slices)
        self._find_undated()
        for seen in self._seen.values():
            while seen:
                seen.pop()
                await slices.breathe()
        pods = {namespace: series.points for namespace, series in self._series.items() if namespace}
        return QueryResult(
            by_pod=self._by_pod,
            fetched_at=fetched_at,
            series=self._series,
            pods=pods if self._by_pod else {},
            counts=self._counts,
            faults=self._faults,
            fingerprint=self._fingerprint,
        )

    async def _find_missing_labels(self, slices: Slices) -> None:
        """Some series belong to no pod (cAdvisor's root cgroup); if none has the labels, the query is wrong."""
        query = self._query
        if self._counts and self._counts.keys() == {""}:
            self._faults[""] = f"its series lack the label {query.namespace_label!r}; write it as {self._by()}"
        lacking = f"its series lack the label {query.pod_label!r}; write it as {self._by()}"
        for namespace in self._counts:
            if namespace and namespace not in self._seen:
                self._faults[namespace] = lacking
            await slices.breathe()

    def _find_undated(self) -> None:
        if self._undated and self._undated == sum(self._counts.values()) and "" not in self._faults:
            of = f" of the same {self._query.namespace_label} and {self._query.pod_label}" if self._by_pod else ""
            self._faults[""] = f"no series that it reads has a sample{of} in the last {self._query.max_age:g} s"

    def _by(self) -> str:
        return f"sum by ({self._query.namespace_label}, {self._query.pod_label}) (…)"


def sample_nano(text: str) -> int:
    """`parse_number`, with a fast path for plain digits."""
    whole, _, fraction = text.partition(".")
    if not (whole.isdecimal() and text.isascii() and len(whole) <= _SAFE_DIGITS and (fraction or "0").isdecimal()):
        return parse_number(text)
    return int(whole + fraction[:9].ljust(9, "0")) + (fraction[9:].strip("0") != "")
