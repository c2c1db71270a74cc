"""Turns the answer to a query's question into samples by namespace and pod, or the one number of a service. Pure.

Each value has the time of the samples that it was computed from, not the time of its evaluation, and the number of
samples in its windows.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Generic, TypeVar

import msgspec

from adapter.load.quantity import QuantityError
from adapter.load.samples import ELSEWHERE, UNCOUNTED, Point, QuerySamples
from adapter.runtime.decoding import Decoder, shared
from adapter.runtime.source_errors import WrongAnswer
from adapter.usage.polling import AheadDates
from adapter.usage.prometheus_api import Sample
from adapter.usage.promql import INPUT_LABEL, Selector
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.series import Series, SeriesList, sample_nano

_SHOWN = 200
_MARK = INPUT_LABEL.encode()
_INPUT = re.compile(r"(time|count)([0-9]+)")
_LABELS = Decoder(dict[str, str])


Place = tuple[str, str]
"""A namespace and a pod; empty: series without that label."""

N = TypeVar("N", bound=float)


class _ByPlace(Generic[N]):
    """What one selector reads of each place. Of several places the `extreme` counts."""

    def __init__(self, selector: Selector, values: Mapping[Place, N], extreme: Callable[[Iterable[N]], N]) -> None:
        self._by_own_namespace, by_own_pod = map(bool, selector.sources)
        self._by_own_pod = by_own_pod and any(pod for _, pod in values)
        self._values = values
        by_namespace: defaultdict[str, list[N]] = defaultdict(list)
        for (namespace, _), value in values.items():
            for name in {"", namespace}:
                by_namespace[name].append(value)
        self._by_namespace = {namespace: extreme(found) for namespace, found in by_namespace.items()}

    def of(self, place: Place) -> N | None:
        """What went into a value; where the series have a pod label, only the pod's own ones go into that of a pod."""
        namespace, pod = place
        if pod and self._by_own_pod:
            return self._values.get(place, self._values.get(("", pod)))
        is_by_namespace = self._by_own_namespace and len(self._by_namespace) > 1
        return self._by_namespace.get(namespace if is_by_namespace else "")


class Answer:
    """The parts of an answer: `values` with their labels as JSON, and what it says of their inputs' samples.

    A value has the time of the oldest of its selectors' newest samples. Every selector must have one, or any of them if
    the expression has alternatives (`or`). A selector whose series lose their pod on the way (`max(factor)`) has its
    newest sample's time. A value without selectors (`vector(1)`) has the time of its evaluation, `evaluated_at`; that
    is `now` where there is nothing. Raises WrongAnswer for series that were not asked for.
    """

    def __init__(self, query: InstantQuery, samples: Sequence[Sample], now: float) -> None:
        self.query, self.inputs = query, query.inputs
        self.values: list[tuple[bytes, Place, str]] = []
        self._times: list[dict[Place, float]] = [{} for _ in self.inputs.selectors]
        self._targets: list[Counter[Place]] = [Counter() for _ in self.inputs.selectors]
        self._counts: list[dict[Place, int]] = [{} for _ in self.inputs.windows]
        self.evaluated_at = samples[0].value[0] if samples and samples[0].value else now
        self.add(samples)
        pairs = zip(self.inputs.windows, self._counts, strict=True)
        self._fewest = [_ByPlace(window, counts, min) for window, counts in pairs]

    def add(self, samples: Sequence[Sample], *, are_live: bool = True) -> None:
        """Add the samples of an answer; `are_live`: their targets are scraped."""
        namespace_label, pod_label = self.query.labels
        for sample in samples:
            assert sample.value is not None
            text, value = bytes(sample.metric), sample.value[1]
            try:
                labels = _LABELS.decode(text)
                place = shared(labels.get(namespace_label, "")), shared(labels.get(pod_label, ""))
                if _MARK not in text or (mark := labels.get(INPUT_LABEL)) is None:
                    self.values.append((text, place, value))
                    continue
                kind, number = _INPUT.fullmatch(mark).groups()  # type: ignore[union-attr]
                if kind == "time":
                    times = self._times[int(number)]
                    times[place] = max(at := _finite(value), times.get(place, 0.0))
                    is_read = are_live and at >= self.evaluated_at - (self.query.window or self.query.max_age)
                    self._targets[int(number)][place[0], place[1] or _host(labels)] += is_read
                else:
                    self._counts[int(number)][place] = int(value)
            except (ValueError, AttributeError, IndexError, msgspec.MsgspecError) as error:
                shown = text[:_SHOWN].decode(errors="replace")
                raise WrongAnswer(f"the times and numbers of samples are not what was asked for: {shown}") from error
        pairs = zip(self.inputs.selectors, self._times, strict=True)
        self._newest = [_ByPlace(selector, times, max) for selector, times in pairs]

    def ended(self) -> list[int]:
        """The numbers of the selectors that read series that have ended: their times are still to be asked for."""
        places = {place for _, place, _ in self.values}
        pairs = enumerate(zip(self.inputs.selectors, self._newest, strict=True))
        return [n for n, (each, newest) in pairs if each.reads_ended and None in map(newest.of, places)]

    def at(self, place: Place) -> float | None:
        """The time of a value; None if no series with a sample went into it."""
        if not self._times:
            return self.evaluated_at
        own = [at for newest in self._newest if (at := newest.of(place)) is not None]
        is_whole = len(own) == len(self._times) or self.inputs.alternatives
        return min(own, default=None) if is_whole else None

    def count(self, place: Place) -> int | None:
        """The fewest samples in a window of a value; None where it has no window, UNCOUNTED where that is not known."""
        if self.inputs.uncounted:
            return UNCOUNTED
        found = [count for fewest in self._fewest if (count := fewest.of(place)) is not None]
        is_known = len(found) == len(self._counts) or self.inputs.alternatives
        return min(found, default=None) if is_known else UNCOUNTED

    @property
    def windows_agree(self) -> bool:
        """Whether the windows of most pods hold equally many, so that the fewest says which has a gap."""
        medians = [median_low(counts.values()) for counts in self._counts if counts]
        return max(medians, default=0) - min(medians, default=0) <= 1

    @property
    def most(self) -> int:
        """How many samples the fullest window holds."""
        return max((count for counts in self._counts for count in counts.values()), default=0)

    def counts(self) -> dict[str, dict[str, int]]:
        """The fewest samples by namespace and pod, for a value of no pod."""
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for counts in self._counts:
            for (namespace, pod), count in counts.items():
                if pod:
                    found[namespace][pod] = min(count, found[namespace].get(pod, count))
        return found

    def targets(self, *, by_pod: bool) -> dict[str, dict[str, int]]:
        """How many scrape targets have a sample in the query's window, by namespace, and by pod or host.

        By pod it has only the pods with several.
        """
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for of_selector in self._targets:
            for (namespace, name), number in of_selector.items():
                if number and not by_pod:
                    found[namespace][name] = found[namespace].get(name, 0) + number
                elif number > 1:
                    found[namespace][name] = max(number, found[namespace].get(name, 0))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The result of a query by namespace (empty: series without that label).

    `counted` is the number of series, unusable values included; `unusable` says what the value of a pod (empty: of
    none) is instead; `faults` says why the result is unusable for a namespace (empty: for all). Of numbers for a
    service, `held` says how many samples the windows of each pod hold. `targets`: how many scrape targets were read.
    `ahead`: how many seconds the dates of samples were ahead of this answer, at most. `agreed`: the windows of several
    selectors have held equally many samples, so that the fewest says which has a gap.
    """

    by_pod: bool
    fetched_at: float = field(compare=False)
    series: Mapping[str, SeriesList] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, Point]] = field(default_factory=dict, compare=False)  # of `series`
    counted: Mapping[str, int] = field(default_factory=dict)
    unusable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    targets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ahead: float = field(default=0.0, compare=False)
    agreed: bool = False

    def of(self, namespace: str, max_age: float) -> QuerySamples:
        """The samples for a service in this namespace, never those of another namespace."""
        series = [*self.series.get(namespace, ()), *self.series.get("", ())]
        unusable = {**self.unusable.get("", {}), **self.unusable.get(namespace, {})}
        fault = self.faults.get(namespace) or self.faults.get("")
        if not fault and not self.by_pod:
            count = sum(self.counted.get(name, 0) for name in {namespace, ""})
            fault = f"answers {count} series where one number is wanted; put sum(…) around it" if count > 1 else ""
        pods = self.pods.get(namespace, {}) if self.by_pod else {}
        if not fault and unusable and not (pods or (series and not self.by_pod)):
            what = " and ".join(sorted(set(unusable.values())))
            fault = f"answers {what}{' for every pod' * self.by_pod}, which does not count"
        if fault:
            return QuerySamples(max_age=max_age, error=fault, fetched_at=self.fetched_at)
        if self.by_pod:
            targets = self.targets.get(namespace, {})
            return QuerySamples(
                pods=pods, unusable=unusable, targets=targets, max_age=max_age, fetched_at=self.fetched_at
            )
        return QuerySamples(
            total=series[0].point if series else None,
            counts={**self.held.get("", {}), **self.held.get(namespace, {})},
            targets=self._targets_of(namespace),
            max_age=max_age,
            fetched_at=self.fetched_at,
            ahead=self.ahead,
        )

    def _targets_of(self, namespace: str) -> dict[str, int]:
        """The scrape targets of a total. One without a namespace is of all of them: together, under one name."""
        own = {**self.targets.get("", {}), **self.targets.get(namespace, {})}
        if namespace not in self.series:
            elsewhere = [sum(found.values()) for name, found in self.targets.items() if name not in {"", namespace}]
            own |= {ELSEWHERE: sum(elsewhere)} if elsewhere else {}
        return own


def build_result(
    answer: Answer, fetched_at: float, ahead: AheadDates | None = None, *, agreed: bool = False
) -> QueryResult:
    """Group samples by namespace and pod. NaN, infinite, negative and undated values are dropped, and named.

    `agreed`: an earlier answer's windows held equally many samples.
    """
    query, ahead, agreed = answer.query, ahead or AheadDates(), agreed or answer.windows_agree
    ahead.begin(fetched_at)
    # Inline PromQL does not declare its scope; the labels of its result show it.
    by_pod = query.by_pod if query.by_pod is not None else any(pod for _, (_, pod), _ in answer.values)
    series: defaultdict[str, list[Series]] = defaultdict(list)
    pods: defaultdict[str, dict[str, Point]] = defaultdict(dict)
    unusable: defaultdict[str, dict[str, str]] = defaultdict(dict)
    numbers = Counter(place for _, place, _ in answer.values)
    for text, place, value in answer.values:
        namespace, pod = place
        if by_pod and all(place) and numbers[place] > 1:
            unusable[namespace][pod] = f"several series ({_advice(query)})"
        try:
            nano = sample_nano(value)
        except QuantityError:
            unusable[namespace][pod] = _described(value)
            continue
        at = answer.at(place)
        if at is not None:
            count = answer.count(place) if agreed else UNCOUNTED
            point = Point(ahead.clamped(text, at), nano, count)
            series[namespace].append(Series(text, pod, point))
            if by_pod and all(place) and numbers[place] == 1:
                pods[namespace].setdefault(pod, point)
    return QueryResult(
        by_pod=by_pod,
        fetched_at=fetched_at,
        series={namespace: SeriesList(found) for namespace, found in series.items()},
        pods=dict(pods),
        counted=Counter(namespace for _, (namespace, _), _ in answer.values),
        unusable=dict(unusable),
        faults=_faults(query, answer, by_pod=by_pod, are_undated=not series and not unusable),
        held=answer.counts() if agreed and not by_pod else {},
        targets=answer.targets(by_pod=by_pod),
        ahead=ahead.seconds,
        agreed=agreed,
    )


def _host(labels: Mapping[str, str]) -> str:
    """The host of a scrape target's address."""
    instance = labels.get("instance", "")
    return instance.rpartition(":")[0].strip("[]") or instance


def _finite(text: str) -> float:
    """A time. Raises ValueError, also for NaN: it would stay fresh for ever, for it is older than nothing."""
    at = float(text)
    if not math.isfinite(at):
        raise ValueError(text)
    return at


def _described(value: str) -> str:
    """A value that does not count, in words: the server's text may be anything."""
    try:
        number = float(value)
    except ValueError:
        return "no number"
    return "NaN" if math.isnan(number) else "a negative value" if number < 0 else "a value that is too large"


def _advice(query: InstantQuery) -> str:
    return f"write it as sum by ({query.namespace_label}, {query.pod_label}) (…)"


def _faults(query: InstantQuery, answer: Answer, *, by_pod: bool, are_undated: bool) -> dict[str, str]:
    """Why the result is unusable, by namespace."""
    write, faults = _advice(query), dict[str, str]()
    if by_pod:
        seen = {place for _, place, _ in answer.values}
        # Some series belong to no pod (cAdvisor's root cgroup); if none has the labels, the query is wrong.
        namespaces = {namespace for namespace, _ in seen}
        for namespace in namespaces - {namespace for namespace, pod in seen if pod} - {""}:
            faults[namespace] = f"its series lack the label {query.pod_label!r}; {write}"
        if namespaces == {""}:
            faults[""] = f"its series lack the label {query.namespace_label!r}; {write}"
    if not answer.values and answer.most == 1:
        ranges = " and ".join(sorted({f"{window.seconds:g} s" for window in query.inputs.windows}))
        faults[""] = f"its range of {ranges} holds one sample, and a rate needs two; make it four scrape intervals"
    if answer.values and are_undated:
        of = f" of the same {query.namespace_label} and {query.pod_label}" if by_pod else ""
        faults.setdefault("", f"no series that it reads has a sample{of} in the last {query.max_age:g} s")
    return faults
