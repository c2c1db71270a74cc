"""The times of the samples that a query reads: each value has the time of the samples that it was computed from.

Prometheus dates a value by its evaluation. `promql` has the queries for the times of a selector's samples:

1. `sample_times_query` of the series that live. It says the whole truth in nearly every poll, and is the cheapest.
2. A selector with a range reads samples of series that have ended, too. Where it read a pod without a live series,
   `ended_times_query` asks for that pod's last sample; where there are many such, `sample_times_query` asks for all.
"""

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

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


class SampleTimes:
    """The times of the samples that an expression reads.

    A value has the time of the oldest of its selectors' newest samples. Every selector must have one, or any of them if
    the expression has alternatives (`or`). A value without selectors (`vector(1)`) has the time of its evaluation.
    """

    def __init__(self, inputs: QueryInputs, table: SeriesTable, evaluated_at: float) -> None:
        self._inputs = inputs
        self._table = table
        self.evaluated_at = evaluated_at
        self._times: list[dict[int, float]] = [{} for _ in inputs.selectors]
        """Of each selector: the times by the numbers of places."""
        self._newest: list[dict[str, float]] | None = None
        """Of each selector: the newest time by namespace, and under the empty name of all."""

    def __len__(self) -> int:
        return sum(map(len, self._times))

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
            await ask(sample_times_query(selectors, labels, None))
            missing = await self.missing(sets, slices)
            if missing:
                await ask(ended_times_query(selectors, labels, max_age, missing))
            if missing is not None:
                return True
        await ask(sample_times_query(selectors, labels, max_age))
        return False

    def add(self, samples: Sequence[Sample]) -> None:
        """Add samples of an answer to a query for times. Raises WrongAnswer for any other samples."""
        self._newest = None
        texts = [bytes(sample.metric) for sample in samples]
        try:
            times = [float(sample.value[1]) for sample in samples if sample.value]
        except ValueError as error:
            raise WrongAnswer(f"the sample times are not what was asked for: {error}") from error
        if not all(map(math.isfinite, times)):  # NaN would stay fresh for ever: it is older than nothing
            raise WrongAnswer("the sample times are not what was asked for: one is no finite number")
        rows, count = self._table.time_rows, len(self._times)
        for text, at in zip(texts, times, strict=True):
            if text not in rows:
                try:
                    labels = _LABELS.decode(text)
                    selector = range(count).index(int(labels[INPUT_LABEL])) if count > 1 else 0
                except (LookupError, ValueError, msgspec.MsgspecError) as error:
                    shown = text[:_SHOWN].decode(errors="replace")
                    raise WrongAnswer(f"the sample times are not what was asked for: {shown}") from error
                rows[self._table.shared(text)] = self._table.place_of(labels) * count + selector
            place, selector = divmod(rows[text], count)
            self._times[selector][place] = at

    async def missing(self, sets: Sequence[LabelSet], slices: Slices) -> Mapping[int, set[str]] | None:
        """The pods with values whose live series are unknown, by the numbers of selectors that may read ended ones.

        None: there are too many to name, or values of no pod among them.
        """
        missing: dict[int, set[str]] = {}
        for number, selector in enumerate(self._inputs.selectors):
            if not reads_ended(selector):
                continue
            lacking: list[LabelSet] = []
            for start in range(0, len(sets), _STEP):
                lacking += [each for each in sets[start : start + _STEP] if each.place not in self._times[number]]
                await slices.breathe()
            if not lacking:
                continue
            if any(not each.pod for each in lacking):
                await self._sort(slices)
            dated = self._newest[number] if self._newest is not None else {}
            pods = {each.pod for each in lacking if each.pod or each.namespace not in dated}
            if len(pods) > MAX_ENDED_PODS or not all(map(is_pod_name, pods)) or (pods and not self._reads_pods(number)):
                return None
            if pods:
                missing[number] = pods
        return missing

    def _reads_pods(self, number: int) -> bool:
        """Whether the selector's series have a pod label."""
        return any(self._table.places[place][1] for place in self._times[number])

    async def _sort(self, slices: Slices) -> None:
        """Find the newest times by namespace; only values of no pod need them, and selectors that read no pods."""
        if self._newest is not None:
            return
        newest: list[dict[str, float]] = [{} for _ in self._times]
        for of_selector, times in zip(newest, self._times, strict=True):
            for place, at in times.items():
                for namespace in {"", self._table.places[place][0]}:
                    of_selector[namespace] = max(at, of_selector.get(namespace, at))
                await slices.breathe()
        self._newest = newest

    async def column(self, sets: Sequence[LabelSet], slices: Slices) -> list[float | None]:
        """The time of each value; None if no live series went into it."""
        if not self._times:
            return [self.evaluated_at] * len(sets)
        by_pod = [self._reads_pods(number) for number in range(len(self._times))]
        column: list[float | None] = []
        for start in range(0, len(sets), _STEP):
            step = sets[start : start + _STEP]
            if not all(by_pod) or not all(each.pod for each in step):
                await self._sort(slices)
            column += [self._at(labels, by_pod) for labels in step]
            await slices.breathe()
        return column

    def _at(self, labels: LabelSet, by_pod: Sequence[bool]) -> float | None:
        """The oldest time of the selectors; of one whose series have a pod label only the pod's own series counts."""
        times = []
        for number, by_place in enumerate(self._times):
            if labels.pod and by_pod[number]:
                at = by_place.get(labels.place)
                if at is None:
                    at = by_place.get(self._table.known_place("", labels.pod))
            else:
                newest = self._newest[number] if self._newest is not None else {}
                is_namespaced = labels.namespace and len(newest) > 1
                at = newest.get(labels.namespace if is_namespaced else "")
            if at is not None:
                times.append(at)
            elif not self._inputs.alternatives:
                return None
        return min(times, default=None)

    async def pods(self, seconds: float, slices: Slices) -> dict[str, frozenset[str]]:
        """The pods with a sample of the last so many seconds, by namespace.

        Of several selectors that read the same pods, each must have one.
        """
        of_selectors: list[defaultdict[str, set[str]]] = [defaultdict(set) for _ in self._times]
        for of_selector, times in zip(of_selectors, self._times, strict=True):
            for place, at in times.items():
                namespace, pod = self._table.places[place]
                if pod and at >= self.evaluated_at - seconds:
                    of_selector[namespace].add(pod)
                await slices.breathe()
        found: dict[str, set[str]] = {}
        for of_selector in of_selectors:
            for namespace, pods in of_selector.items():
                before = found.get(namespace, pods)
                found[namespace] = before & pods or before | pods
        return {namespace: frozenset(pods) for namespace, pods in found.items()}
