"""From the samples of a query to what policies need: by namespace and pod, or one number for a service. Pure.

Each value carries the time of what went into it, not the moment of evaluation (see `promql`).
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from adapter.load.quantity import QuantityError, parse_number
from adapter.load.samples import Point, QuerySamples
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import WrongAnswer
from adapter.usage.promql import INPUT_LABEL, Inputs
from adapter.usage.query_catalog import Question
from adapter.usage.series import Series, SeriesList
from adapter.usage.wire import Sample

RELEASE_SECONDS = 5.0
"""How long an answer may still be in use after a newer one came."""
_MANY = 1000
_STEP = 500
_SHOWN = 200
_MOST_SHAPES = 4  # of selectors, that an answer is made ready for
_SAFE_DIGITS = 12  # far from what a quantity cannot hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A query's answer by namespace (empty: series without that label).

    `counts` is the number of series before their values were judged; `faults` says for a namespace (empty: for all) why
    there is nothing to take from the answer; `fingerprint` differs where values or times do.
    """

    by_pod: bool
    fetched_at: float
    series: Mapping[str, SeriesList] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, Point]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    fingerprint: int = 0

    def same(self, other: "Answer | None") -> bool:
        """Whether both say the same, at the same sample times."""
        return other is not None and self.fingerprint == other.fingerprint and self.faults == other.faults

    def of(self, namespace: str, max_age: float) -> QuerySamples:
        """What it says of a service in this namespace. Samples of other namespaces are never taken."""
        fault = self.faults.get(namespace) or self.faults.get("")
        if not fault and not self.by_pod:
            fault = self._ambiguous(namespace)
        if fault:
            return QuerySamples(max_age=max_age, error=fault, fetched_at=self.fetched_at)
        if self.by_pod:
            return QuerySamples(pods=self.pods.get(namespace, {}), max_age=max_age, fetched_at=self.fetched_at)
        found = next(iter((*self.series.get(namespace, ()), *self.series.get("", ()))), None)
        total = Point(found.at, found.value) if found else None
        return QuerySamples(total=total, max_age=max_age, fetched_at=self.fetched_at)

    def large(self) -> list[list[Series]]:
        """Its series, for `release`; none where they are few."""
        return [list(series) for series in self.series.values() if len(series) > _MANY]

    def _ambiguous(self, namespace: str) -> str:
        count = self.counts.get(namespace, 0) + self.counts.get("", 0)
        return f"answers {count} series where one number is wanted; put sum(…) around it" if count > 1 else ""


async def release(answer: list[list[Series]]) -> None:
    """Free the series of a large answer in slices, once a newer one has taken its place.

    To free as many objects at once holds the loop, so they are kept until whoever uses the answer has the newer.
    """
    await asyncio.sleep(RELEASE_SECONDS)
    slices = Slices()
    for series in answer:
        while series:
            del series[-_STEP:]
            await slices.breathe()


class _Times:
    """The newest sample's time of one selector's series."""

    def __init__(self) -> None:
        self._of_pod: dict[str, dict[str, float]] = {}
        """By namespace, then by pod."""
        self._of_namespace: dict[str, float] = {}
        self._newest: float | None = None

    def add(self, namespace: str, pod: str, at: float) -> None:
        if pod:
            self._of_pod.setdefault(namespace, {})[pod] = at
        if namespace:
            self._of_namespace[namespace] = max(at, self._of_namespace.get(namespace, at))
        self._newest = at if self._newest is None else max(at, self._newest)

    def at(self, namespace: str, pod: str) -> float | None:
        """By the labels that the series have: those that tell pods apart date a pod by its own series only."""
        if pod and self._of_pod:
            own = self._of_pod.get(namespace, _NO_TIMES).get(pod)
            return own if own is not None else self._of_pod.get("", _NO_TIMES).get(pod)
        if namespace and self._of_namespace:
            return self._of_namespace.get(namespace)
        return self._newest

    async def clear(self, slices: Slices) -> None:
        """Forget all, in slices: to free as many objects at once would hold the loop."""
        for of_pod in self._of_pod.values():
            while of_pod:
                of_pod.popitem()
                await slices.breathe()


_NO_TIMES: Mapping[str, float] = {}


class Dates:
    """When the inputs of an expression were sampled.

    All selectors must have a sample, or one of them where the expression has alternatives (`or`); the oldest of them
    dates the value. An expression that reads nothing (`vector(1)`) is as old as its evaluation.
    """

    def __init__(self, inputs: Inputs, question: Question, evaluated_at: float) -> None:
        self._question = question
        self._alternatives = inputs.alternatives
        self._evaluated_at = evaluated_at
        self._times = [_Times() for _ in inputs.selectors]

    def add(self, sample: Sample) -> None:
        """Take in a sample of the answer to `promql.dating`. Raises WrongAnswer for anything else."""
        labels = sample.labels
        place = (labels.get(self._question.namespace_label, ""), labels.get(self._question.pod_label, ""))
        try:
            self._times[int(labels[INPUT_LABEL])].add(*place, float(sample.value))
        except (LookupError, ValueError) as error:
            shown = str(dict(labels))[:_SHOWN]
            raise WrongAnswer(f"the sample times are not what was asked for: {shown}") from error

    def at(self, namespace: str, pod: str) -> float | None:
        """The time of the value with these labels (empty: it lacks the label); None where it has no live input."""
        if not self._times:
            return self._evaluated_at
        times = [times.at(namespace, pod) for times in self._times]
        known = [at for at in times if at is not None]
        if not known or (len(known) < len(times) and not self._alternatives):
            return None
        return min(known)

    async def clear(self, slices: Slices) -> None:
        """Forget all, in slices."""
        for times in self._times:
            await times.clear(slices)


async def answer(
    question: Question,
    found: list[Sample],
    dates: Dates,
    fetched_at: float,
    slices: Slices,
    *,
    before: Answer | None = None,
) -> Answer:
    """Sort samples by namespace and pod; they are used up. NaN, infinite, negative and undated values are no samples.

    What was selected of the answer `before` is likely to be selected of this one, too: it is made ready for that.
    """
    filing = _Filing(question, dates, any(sample.labels.get(question.pod_label) for sample in found))
    found.reverse()
    while found:
        filing.add(found.pop())
        await slices.breathe()
    made = await filing.answer(fetched_at, slices)
    for namespace, series in made.series.items():
        if before is not None and (earlier := before.series.get(namespace)) is not None:
            await series.prepare(earlier.shapes[-_MOST_SHAPES:], slices)
    return made


class _Filing:
    def __init__(self, question: Question, dates: Dates, names_pods: bool) -> None:
        self._question = question
        self._dates = dates
        # Inline PromQL does not say what it answers: its labels do.
        self._by_pod = question.by_pod if question.by_pod is not None else names_pods
        self._series: dict[str, SeriesList] = {}
        self._seen: dict[str, set[str]] = {}
        self._counts: dict[str, int] = {}
        self._faults: dict[str, str] = {}
        self._undated = 0
        self._fingerprint = 0

    def add(self, sample: Sample) -> None:
        namespace = sample.labels.get(self._question.namespace_label, "")
        pod = sample.labels.get(self._question.pod_label, "") if self._by_pod else ""
        self._counts[namespace] = self._counts.get(namespace, 0) + 1
        if pod and namespace:
            self._once(namespace, pod)
        at = self._dates.at(namespace, pod)
        if at is None:
            self._undated += 1
            return
        with suppress(QuantityError):
            self._file(namespace, pod, Series(sample.labels, _nano(sample.value), at))

    def _once(self, namespace: str, pod: str) -> None:
        seen = self._seen.setdefault(namespace, set())
        if pod in seen:
            self._faults[namespace] = f"answers several series of pod {pod}; write it as {self._by()}"
        seen.add(pod)

    def _file(self, namespace: str, pod: str, series: Series) -> None:
        of_namespace = self._series.get(namespace)
        if of_namespace is None:
            pod_label = self._question.pod_label if self._by_pod else ""
            of_namespace = self._series[namespace] = SeriesList(pod_label)
        of_namespace.add(series)
        self._fingerprint += hash((namespace, pod, series.value, series.at))  # a sum: their order says nothing

    async def answer(self, fetched_at: float, slices: Slices) -> Answer:
        if self._by_pod:
            await self._find_lacking_labels(slices)
        self._find_undated()
        for seen in self._seen.values():
            while seen:
                seen.pop()
                await slices.breathe()
        pods = {namespace: series.points for namespace, series in self._series.items() if namespace}
        return Answer(
            by_pod=self._by_pod,
            fetched_at=fetched_at,
            series=self._series,
            pods=pods if self._by_pod else {},
            counts=self._counts,
            faults=self._faults,
            fingerprint=self._fingerprint,
        )

    async def _find_lacking_labels(self, slices: Slices) -> None:
        """Some series without the labels belong to no pod (cAdvisor's root cgroup); all of them are a mistake."""
        question = self._question
        if self._counts and self._counts.keys() == {""}:
            self._faults[""] = f"its series lack the label {question.namespace_label!r}; write it as {self._by()}"
        lacking = f"its series lack the label {question.pod_label!r}; write it as {self._by()}"
        for namespace in self._counts:
            if namespace and namespace not in self._seen:
                self._faults[namespace] = lacking
            await slices.breathe()

    def _find_undated(self) -> None:
        if self._undated and self._undated == sum(self._counts.values()) and "" not in self._faults:
            of = f" of the same {self._question.namespace_label} and {self._question.pod_label}" if self._by_pod else ""
            self._faults[""] = f"no series that it reads has a sample{of} in the last {self._question.max_age:g} s"

    def _by(self) -> str:
        return f"sum by ({self._question.namespace_label}, {self._question.pod_label}) (…)"


def _nano(text: str) -> int:
    """As `parse_number`, with a short way for plain digits."""
    whole, _, fraction = text.partition(".")
    if not (whole.isdecimal() and text.isascii() and len(whole) <= _SAFE_DIGITS and (fraction or "0").isdecimal()):
        return parse_number(text)
    return int(whole + fraction[:9].ljust(9, "0")) + (fraction[9:].strip("0") != "")
