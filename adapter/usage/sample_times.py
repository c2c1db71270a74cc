"""The times of the samples that a query reads: each value has the time of the samples that it was computed from.

Prometheus dates a value by its evaluation. `promql` has the queries for the times of a selector's samples:

1. `live_times_query`, of the series that live. It says the whole truth in nearly every poll, and is the cheapest.
2. A selector with a range reads samples of series that have ended, too. Where it read a pod without a live series,
   `ended_times_query` asks for that pod's last sample; where there are many such, `sample_times_query` asks for all.
"""

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from adapter.runtime.concurrency import Slices
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import WrongAnswer
from adapter.usage.prometheus_api import Sample
from adapter.usage.promql import (
    INPUT_LABEL,
    QueryInputs,
    ended_times_query,
    is_pod_name,
    live_times_query,
    reads_ended,
    sample_times_query,
)
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.series import LabelSet, SeriesTable

MAX_ENDED_PODS = 500
"""More pods than that are not asked for by name."""
_STEP = 500
_SHOWN = 200
_LABELS = Decoder(dict[str, str])


class _NamespaceTimes:
    """The newest time of one selector's series, by namespace and of all."""

    def __init__(self) -> None:
        self.by_namespace: dict[str, float] = {}
        self.newest: float | None = None

    def add(self, namespace: str, at: float) -> None:
        if namespace:
            self.by_namespace[namespace] = max(at, self.by_namespace.get(namespace, at))
        self.newest = at if self.newest is None else max(at, self.newest)

    def at(self, namespace: str) -> float | None:
        if namespace and self.by_namespace:
            return self.by_namespace.get(namespace)
        return self.newest

    def has(self, namespace: str) -> bool:
        return namespace in self.by_namespace if namespace else self.newest is not None


class SampleTimes:
    """The times of the samples that an expression reads.

    A value has the time of the oldest of its selectors' newest samples. Every selector must have one, or any of them if
    the expression has alternatives (`or`). A value without selectors (`vector(1)`) has the time of its evaluation.
    """

    def __init__(self, inputs: QueryInputs, table: SeriesTable, evaluated_at: float) -> None:
        self._inputs = inputs
        self._table = table
        self.evaluated_at = evaluated_at
        self._count = len(inputs.selectors)
        self._times: dict[int, float] = {}
        """By row: the number of the place, times the number of selectors, plus that of the selector."""
        self._has_pods: dict[int, bool] = {}
        self._namespaces: list[_NamespaceTimes] | None = None

    def __len__(self) -> int:
        return len(self._times)

    async def fetch(
        self,
        ask: Callable[[str], Awaitable[None]],
        query: InstantQuery,
        sets: Sequence[LabelSet],
        slices: Slices,
        *,
        all_at_once: bool,
    ) -> bool:
        """Ask for the times of these series' samples: of the live ones first, then of the others.

        `ask` sends a query and passes its answer to `add`. False if all had to be asked for; then the next polls cost
        less with `all_at_once`.
        """
        selectors, labels, max_age = self._inputs.selectors, query.labels, query.max_age
        if not all_at_once:
            await ask(live_times_query(selectors, labels))
            missing = await self.missing(sets, slices)
            if missing:
                await ask(ended_times_query(selectors, labels, max_age, missing))
            if missing is not None:
                return True
        await ask(sample_times_query(selectors, labels, max_age))
        return False

    def add(self, samples: Sequence[Sample]) -> None:
        """Add samples of an answer to a query for times. Raises WrongAnswer for any other samples."""
        self._has_pods.clear()
        self._namespaces = None
        rows = list(map(self._table.time_rows.get, texts := [bytes(sample.metric) for sample in samples]))
        for index, row in enumerate(rows) if None in rows else ():
            if row is None:
                rows[index] = self._new_row(texts[index])
        try:
            times = [float(sample.value[1]) for sample in samples if sample.value]
        except ValueError as error:
            raise WrongAnswer(f"the sample times are not what was asked for: {error}") from error
        if not all(map(math.isfinite, times)):  # NaN would stay fresh for ever: it is older than nothing
            raise WrongAnswer("the sample times are not what was asked for: one is no finite number")
        self._times.update(zip(rows, times, strict=True))  # type: ignore[arg-type]  # None is no row any more

    def _new_row(self, text: bytes) -> int:
        try:
            labels = _LABELS.decode(text)
            selector = int(labels[INPUT_LABEL]) if self._count > 1 else 0
        except (LookupError, ValueError, msgspec.MsgspecError) as error:
            raise _not_asked_for(text) from error
        if not 0 <= selector < self._count:
            raise _not_asked_for(text)
        row = self._table.place_of(labels) * self._count + selector
        self._table.time_rows[self._table.shared(text)] = row
        return row

    async def missing(self, sets: Sequence[LabelSet], slices: Slices) -> Mapping[int, set[str]] | None:
        """The pods with values whose live series are unknown, by the numbers of selectors that may read ended ones.

        None: there are too many to name, or values of no pod among them.
        """
        missing: dict[int, set[str]] = {}
        for number, selector in enumerate(self._inputs.selectors):
            if not reads_ended(selector):
                continue
            lacking = await self._lacking(number, sets, slices)
            if not lacking:
                continue
            if any(not each.pod for each in lacking):
                await self._sort(slices)
            pods = {each.pod for each in lacking if each.pod or not self._dates_namespace(number, each.namespace)}
            if len(pods) > MAX_ENDED_PODS or not all(map(is_pod_name, pods)) or (pods and not self._reads_pods(number)):
                return None
            if pods:
                missing[number] = pods
        return missing

    async def _lacking(self, number: int, sets: Sequence[LabelSet], slices: Slices) -> list[LabelSet]:
        times, selectors, lacking = self._times, self._count, []
        for start in range(0, len(sets), _STEP):
            step = sets[start : start + _STEP]
            lacking += [each for each in step if each.place * selectors + number not in times]
            await slices.breathe()
        return lacking

    def _dates_namespace(self, number: int, namespace: str) -> bool:
        return self._namespaces is not None and self._namespaces[number].has(namespace)

    def _reads_pods(self, number: int) -> bool:
        """Whether the selector's series have a pod label."""
        has_pods = self._has_pods.get(number)
        if has_pods is None:
            places, selectors = self._table.places, self._count
            rows = (row for row in self._times if row % selectors == number)
            has_pods = self._has_pods[number] = any(places[row // selectors][1] for row in rows)
        return has_pods

    async def _sort(self, slices: Slices) -> None:
        """Find the newest times by namespace; only values of no pod need them, and selectors that read no pods."""
        if self._namespaces is not None:
            return
        namespaces = [_NamespaceTimes() for _ in range(self._count)]
        for row, at in self._times.items():
            namespaces[row % self._count].add(self._table.places[row // self._count][0], at)
            await slices.breathe()
        self._namespaces = namespaces

    async def column(self, sets: Sequence[LabelSet], slices: Slices) -> list[float | None]:
        """The time of each value; None if no live series went into it."""
        if not self._count:
            return [self.evaluated_at] * len(sets)
        column: list[float | None] = []
        for start in range(0, len(sets), _STEP):
            step = sets[start : start + _STEP]
            times = self._own(step)
            if None in times or not all(each.pod for each in step):
                if not all(each.pod for each in step) or not all(map(self._reads_pods, range(self._count))):
                    await self._sort(slices)
                times = [self._at(each.namespace, each.pod) for each in step]
            column += times
            await slices.breathe()
        return column

    async def pods(self, seconds: float, slices: Slices) -> dict[str, frozenset[str]]:
        """The pods with a sample of the last so many seconds, by namespace.

        Of several selectors that read the same pods, each must have one.
        """
        of_selectors: list[defaultdict[str, set[str]]] = [defaultdict(set) for _ in range(self._count)]
        for row, at in self._times.items():
            namespace, pod = self._table.places[row // self._count]
            if pod and at >= self.evaluated_at - seconds:
                of_selectors[row % self._count][namespace].add(pod)
            await slices.breathe()
        found: dict[str, set[str]] = {}
        for of_selector in of_selectors:
            for namespace, pods in of_selector.items():
                before = found.get(namespace, pods)
                found[namespace] = before & pods or before | pods
        return {namespace: frozenset(pods) for namespace, pods in found.items()}

    def _own(self, sets: Sequence[LabelSet]) -> list[float | None]:
        """The oldest time of each value's own place; None if a selector has none for it."""
        get, selectors = self._times.get, self._count
        if selectors == 1:
            return [get(each.place) for each in sets]
        columns = [[get(each.place * selectors + number) for each in sets] for number in range(selectors)]
        return [_oldest(times) for times in zip(*columns, strict=True)]

    def _at(self, namespace: str, pod: str) -> float | None:
        times = [self._of_selector(number, namespace, pod) for number in range(self._count)]
        return _oldest(at for at in times if at is not None or not self._inputs.alternatives)

    def _of_selector(self, number: int, namespace: str, pod: str) -> float | None:
        """If the selector's series have a pod label, only the pod's own series counts."""
        if pod and self._reads_pods(number):
            own = self._of_place(number, namespace, pod)
            return own if own is not None else self._of_place(number, "", pod)
        return None if self._namespaces is None else self._namespaces[number].at(namespace)

    def _of_place(self, number: int, namespace: str, pod: str) -> float | None:
        place = self._table.known_place(namespace, pod)
        return None if place is None else self._times.get(place * self._count + number)


def _not_asked_for(labels: bytes) -> WrongAnswer:
    return WrongAnswer(f"the sample times are not what was asked for: {labels[:_SHOWN].decode(errors='replace')}")


def _oldest(times: Iterable[float | None]) -> float | None:
    """The smallest; None if one is None, or there is none."""
    oldest: float | None = None
    for at in times:
        if at is None:
            return None
        oldest = at if oldest is None or at < oldest else oldest
    return oldest
