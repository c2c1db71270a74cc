"""The times and the numbers of the samples that a query reads, from the answer to `promql.question`. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from statistics import median_low
from typing import Generic, TypeVar

from adapter.load.samples import UNCOUNTED
from adapter.usage.promql import QueryInputs, Selector, is_pod_name

MAX_ENDED_PODS = 500
"""More pods than that are not asked for by name."""

Place = tuple[str, str]
"""A namespace and a pod; empty: series without that label."""

N = TypeVar("N", bound=float)


class _ByPlace(Generic[N]):
    """What one selector reads of each place. Of several places the `extreme` counts."""

    def __init__(self, selector: Selector, values: Mapping[Place, N], extreme: Callable[[Iterable[N]], N]) -> None:
        self._by_own_namespace, self._by_own_pod = map(bool, selector.sources)
        self._values = values
        self._extreme = extreme

    @cached_property
    def reads_pods(self) -> bool:
        """Whether its series have a pod label."""
        return any(pod for _, pod in self._values)

    @cached_property
    def _by_namespace(self) -> Mapping[str, N]:
        """The extreme by namespace, and under the empty name of all."""
        found: defaultdict[str, list[N]] = defaultdict(list)
        for (namespace, _), value in self._values.items():
            for name in {"", namespace}:
                found[name].append(value)
        return {namespace: self._extreme(values) for namespace, values in found.items()}

    def of(self, place: Place) -> N | None:
        """What went into a value; where the series have a pod label, only the pod's own ones go into that of a pod."""
        namespace, pod = place
        if pod and self._by_own_pod and self.reads_pods:
            return self._values.get(place, self._values.get(("", pod)))
        is_by_namespace = self._by_own_namespace and len(self._by_namespace) > 1
        return self._by_namespace.get(namespace if is_by_namespace else "")


class SampleTimes:
    """The times of the samples that an expression reads.

    A value has the time of the oldest of its selectors' newest samples. Every selector must have one, or any of them if
    the expression has alternatives (`or`). A selector whose series lose their pod on the way (`max(factor)`) has its
    newest sample's time. A value without selectors (`vector(1)`) has the time of its evaluation.
    """

    def __init__(
        self,
        inputs: QueryInputs,
        times: Sequence[Mapping[Place, float]],
        evaluated_at: float,
    ) -> None:
        """`times` are those of the newest samples (epoch seconds) of each selector."""
        self._inputs = inputs
        self._times = times
        pairs = zip(inputs.selectors, times, strict=True)
        self._newest = [_ByPlace(selector, of_selector, max) for selector, of_selector in pairs]
        self._evaluated_at = evaluated_at

    def ended(self, places: Iterable[Place]) -> dict[int, set[str]]:
        """The pods whose series have ended, by the numbers of the selectors that may read such.

        An empty set: there are too many to name, or values of no pod among them, so all are to be asked for.
        """
        ended: dict[int, set[str]] = {}
        for number, (selector, newest) in enumerate(zip(self._inputs.selectors, self._newest, strict=True)):
            if selector.reads_ended and (pods := {place[1] for place in places if newest.of(place) is None}):
                are_few = len(pods) <= MAX_ENDED_PODS and newest.reads_pods
                ended[number] = pods if are_few and all(map(is_pod_name, pods)) else set()
        return ended

    def at(self, place: Place) -> float | None:
        """The time of a value; None if no series with a sample went into it."""
        if not self._times:
            return self._evaluated_at
        own = [at for newest in self._newest if (at := newest.of(place)) is not None]
        if len(own) == len(self._times) or self._inputs.alternatives:
            return min(own, default=None)
        return None

    def pods(self, seconds: float) -> dict[str, frozenset[str]]:
        """The pods with a sample of the last so many seconds, by namespace.

        Of several selectors that read the same pods, each must have one.
        """
        found: dict[str, set[str]] = {}
        for times in self._times:
            read: defaultdict[str, set[str]] = defaultdict(set)
            for (namespace, pod), at in times.items():
                if pod and at >= self._evaluated_at - seconds:
                    read[namespace].add(pod)
            for namespace, pods in read.items():
                before = found.get(namespace, pods)
                found[namespace] = before & pods or before | pods
        return {namespace: frozenset(pods) for namespace, pods in found.items()}


class SampleCounts:
    """How many samples the windows of an expression hold.

    `is_known` is False where they were not counted, and where windows of different scrape intervals would hide each
    other's gaps.
    """

    def __init__(self, inputs: QueryInputs, counts: Sequence[Mapping[Place, int]], *, is_known: bool) -> None:
        """`counts` are those of each window."""
        self._inputs = inputs
        self._is_known = is_known and not inputs.uncounted
        self._counts = counts
        self._fewest = [_ByPlace(window, of, min) for window, of in zip(inputs.windows, counts, strict=True)]

    @property
    def agree(self) -> bool:
        """Whether the windows of most pods hold equally many, so that the fewest says which has a gap."""
        medians = [median_low(counts.values()) for counts in self._counts if counts]
        return max(medians, default=0) - min(medians, default=0) <= 1

    def of(self, place: Place) -> int | None:
        """The fewest samples in a window that a value was computed from.

        None where it has no window, UNCOUNTED where it is not known.
        """
        if not self._is_known:
            return UNCOUNTED if self._counts or self._inputs.uncounted else None
        found = [count for fewest in self._fewest if (count := fewest.of(place)) is not None]
        if len(found) < len(self._counts) and not self._inputs.alternatives:
            return UNCOUNTED
        return min(found, default=None)

    def by_pod(self) -> dict[str, dict[str, int]]:
        """The fewest samples by namespace and pod, for a value of no pod."""
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for counts in self._counts if self._is_known else ():
            for (namespace, pod), count in counts.items():
                if pod:
                    found[namespace][pod] = min(count, found[namespace].get(pod, count))
        return dict(found)
