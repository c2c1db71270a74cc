"""Turns the answer to a query's question into samples by namespace and pod, or the one number of a service. Pure.

Each value has the time of the samples that it was computed from, not the time of its evaluation, and the number of
samples in its windows.
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import median_low
from typing import Generic, TypeVar

import msgspec

from adapter.load.quantity import QuantityError, parse_number
from adapter.load.samples import ELSEWHERE, UNCOUNTED, Point, QuerySamples
from adapter.runtime.decoding import Decoder, shared
from adapter.runtime.source_errors import QueryRejected, WrongAnswer
from adapter.usage.polling import AheadDates
from adapter.usage.prometheus_api import Sample
from adapter.usage.promql import INPUT_LABEL, Selector
from adapter.usage.query_catalog import InstantQuery

_SHOWN = 200
_LABELS = Decoder(dict[str, str])

Place = tuple[str, str]
"""A namespace and a pod; empty: series without that label."""

N = TypeVar("N", bound=float)


class Series(msgspec.Struct, frozen=True, gc=False):
    """A series: its labels as JSON, and its sample."""

    text: bytes
    point: Point

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels, decoded at each call: few series are ever asked for by their labels."""
        return _LABELS.decode(self.text)


SeriesByPlace = Mapping[str, Mapping[str, Sequence[Series]]]  # by namespace and pod; of a correct one each has one


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedQueryResult:
    """The last result of a named query without variables.

    Samples count for `max_age` seconds. `error` says why the last poll gave no result; the result before it stays until
    its samples are too old. `fetched_at` is epoch seconds.
    """

    name: str
    by_pod: bool
    pod_label: str = "pod"
    namespace_label: str = "namespace"
    max_age: float = 90.0
    series: SeriesByPlace = field(default_factory=dict)
    fetched_at: float | None = None
    error: str | None = None


class _Inputs(Generic[N]):
    """What an answer says of one selector's samples by place. Where several series stand for one, the `extreme` counts.

    `targets`: how many scrape targets have a sample, by namespace, and by pod or host.
    """

    def __init__(self, selector: Selector, extreme: Callable[[N, N], N]) -> None:
        self._has_namespace, self._has_pod = map(bool, selector.sources)
        self._extreme = extreme
        self.by_place: dict[Place, N] = {}
        self._by_namespace: dict[str, N] = {}  # made where a value of no pod asks for it
        self._names_pods = False
        self.targets: dict[Place, int] = {}

    def add(self, place: Place, value: N) -> None:
        """Add a time, or a number of samples."""
        known = self.by_place.get(place)
        self.by_place[place] = value if known is None else self._extreme(value, known)
        self._names_pods = self._names_pods or place[1] != ""
        self._by_namespace.clear()

    def of(self, place: Place) -> N | None:
        """What went into a value; where the series have a pod label, only the pod's own ones go into that of a pod."""
        namespace, pod = place
        if pod and self._has_pod and self._names_pods:
            own = self.by_place.get(place)
            return self.by_place.get(("", pod)) if own is None else own
        for (name, _), value in () if self._by_namespace else self.by_place.items():
            for key in {"", name}:
                self._by_namespace[key] = self._extreme(value, self._by_namespace.get(key, value))
        is_by_namespace = self._has_namespace and len(self._by_namespace) > 1
        return self._by_namespace.get(namespace if is_by_namespace else "")


class Answer:
    """The parts of an answer: `values` by place with their labels as JSON, and what it says of their inputs' samples.

    A value has the time of the oldest of its selectors' newest samples. Every selector must have one, or any of them if
    the expression has alternatives (`or`). A selector whose series lose their pod on the way (`max(factor)`) has its
    newest sample's time. A value without selectors (`vector(1)`) has the time of its evaluation, `evaluated_at`; that
    is `now` where there is nothing. `ended`: the numbers of the selectors that read series which have ended, whose
    times are still to be asked for. Raises QueryRejected for histograms, and WrongAnswer for what was not asked for.
    """

    def __init__(self, query: InstantQuery, samples: list[Sample], now: float) -> None:
        self.query, self.inputs = query, query.inputs
        self.values: defaultdict[Place, list[tuple[bytes, str]]] = defaultdict(list)
        self.times = [_Inputs[float](selector, max) for selector in self.inputs.selectors]
        self.counts = [_Inputs[int](window, min) for window in self.inputs.windows]
        self.evaluated_at = samples[0].value[0] if samples and samples[0].value else now
        self.add(samples)
        reading = [n for n, each in enumerate(self.inputs.selectors) if each.ranged and not each.shift]
        self.ended = [number for number in reading if None in map(self.times[number].of, self.values)]

    def add(self, samples: list[Sample], *, are_live: bool = True) -> None:
        """Add the samples of an answer, and empty their list; `are_live`: their targets are scraped."""
        read = _reader(*self.query.labels, INPUT_LABEL, "instance")
        times = {f"time{number}": each for number, each in enumerate(self.times)}
        counts = {f"count{number}": each for number, each in enumerate(self.counts)}
        live_from = self.evaluated_at - (self.query.window or self.query.max_age)
        samples.reverse()
        while samples:  # each row goes once it is read: 40,000 take 10 MB
            sample = samples.pop()
            if sample.value is None:
                histogram = "the query answers a native histogram; take a number from it, as histogram_quantile does"
                raise QueryRejected(histogram, public=histogram)
            text, value = sample.metric, sample.value[1]
            try:
                namespace, pod, mark, instance = read(text)
                if not mark:
                    self.values[shared(namespace), shared(pod)].append((bytes(text), value))
                elif (inputs := times.get(mark)) is not None:
                    int(at := float(value))  # raises for NaN, which would stay fresh for ever: it is older than nothing
                    inputs.add(place := (namespace, pod), at)
                    target = place if pod else (namespace, instance.rpartition(":")[0].strip("[]") or instance)
                    inputs.targets[target] = inputs.targets.get(target, 0) + (are_live and at >= live_from)
                else:
                    counts[mark].add((namespace, pod), int(value))
            except (ValueError, ArithmeticError, LookupError, msgspec.MsgspecError) as error:
                shown = bytes(text)[:_SHOWN].decode(errors="replace")
                raise WrongAnswer(f"the times and numbers of samples are not what was asked for: {shown}") from error

    def at(self, place: Place) -> float | None:
        """The time of a value; None if no series with a sample went into it."""
        if not self.times[1:]:
            return self.times[0].of(place) if self.times else self.evaluated_at
        own = [at for times in self.times if (at := times.of(place)) is not None]
        is_whole = len(own) == len(self.times) or self.inputs.alternatives
        return min(own, default=None) if is_whole else None

    def count(self, place: Place) -> int | None:
        """The fewest samples in a window of a value; None where it has no window, UNCOUNTED where that is not known."""
        found = [count for counts in self.counts if (count := counts.of(place)) is not None]
        is_known = not self.inputs.uncounted and (len(found) == len(self.counts) or self.inputs.alternatives)
        return min(found, default=None) if is_known else UNCOUNTED

    def held(self) -> dict[str, dict[str, int]]:
        """The fewest samples by namespace and pod, for a value of no pod."""
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for counts in self.counts:
            for (namespace, pod), count in counts.by_place.items():
                if pod:
                    found[namespace][pod] = min(count, found[namespace].get(pod, count))
        return found

    def targets(self, *, by_pod: bool) -> dict[str, dict[str, int]]:
        """How many scrape targets were read, by namespace, and by pod or host; by pod only of pods with several."""
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for times in self.times:
            for (namespace, name), number in times.targets.items():
                known = found[namespace].get(name, 0)
                if number > (1 if by_pod else 0):
                    found[namespace][name] = max(number, known) if by_pod else number + known
        return found


@functools.lru_cache(256)
def _reader(*names: str) -> Callable[[msgspec.Raw], tuple[str, ...]]:
    """What reads these labels from JSON, empty where they are missing, in half the time that all labels take."""
    fields = {name: f"label{number}" for number, name in enumerate(names)}
    renamed = {field: name for name, field in fields.items()}
    labels = msgspec.defstruct("Labels", [(field, str, "") for field in renamed], rename=renamed, gc=False)
    decode, take = Decoder(labels).decode, attrgetter(*map(fields.__getitem__, names))
    return lambda text: take(decode(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The result of a query by namespace (empty: series without that label).

    `by_pod` is None where only series would show it, and there are none. `unusable` says what the value of a pod
    (empty: of none) is instead; `faults` says why the result is unusable for a namespace (empty: for all). Of numbers
    for a service, `held` says how many samples the windows of each pod hold. `targets`: how many scrape targets were
    read, by pod or host. `ahead`: how many seconds the dates of samples were ahead of this answer, at most. `agreed`:
    the windows of several selectors have held equally many samples, so that the fewest says which has a gap.
    """

    by_pod: bool | None
    series: SeriesByPlace = field(default_factory=dict)
    pods: dict[str, Mapping[str, Point]] = field(default_factory=dict, compare=False)  # of `series`, once asked for
    unusable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    targets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ahead: float = field(default=0.0, compare=False)
    agreed: bool = False

    def of(self, namespace: str) -> QuerySamples:
        """The samples for a service in this namespace, never those of another namespace."""
        unusable = {**self.unusable.get("", {}), **(own := self.unusable.get(namespace, {}))}
        if self.by_pod and namespace not in self.pods:
            places = self.series.get(namespace, {}).items() if namespace else ()
            self.pods[namespace] = {pod: found[0].point for pod, found in places if pod and pod not in own}
        pods = self.pods.get(namespace, {})
        names = () if self.by_pod else (namespace, "")
        totals = [each.point for name in names for found in self.series.get(name, {}).values() for each in found]
        fault = self.faults.get(namespace) or self.faults.get("")
        if not fault and unusable and not pods and not totals:
            what = " and ".join(sorted(set(unusable.values())))
            fault = f"answers {what}{' for every pod' if self.by_pod else ''}, which does not count"
        if fault:
            return QuerySamples(error=fault)
        targets = {**({} if self.by_pod else self.targets.get("", {})), **self.targets.get(namespace, {})}
        if not self.by_pod and namespace not in self.series:
            # A total without a namespace is of all scrape targets: those of other namespaces stand under one name.
            elsewhere = [sum(found.values()) for name, found in self.targets.items() if name not in {"", namespace}]
            targets |= {ELSEWHERE: sum(elsewhere)} if elsewhere else {}
        return QuerySamples(
            pods=pods,
            total=totals[0] if totals else None,
            unusable=unusable if self.by_pod else {},
            counts={**self.held.get("", {}), **self.held.get(namespace, {})},
            targets=targets,
            ahead=0.0 if self.by_pod else self.ahead,
        )


def build_result(answer: Answer, ahead: AheadDates, *, agreed: bool = False) -> QueryResult:
    """Group samples by namespace and pod. NaN, infinite, negative and undated values are dropped, and named.

    `ahead` has begun with the answer. `agreed`: an earlier answer's windows held equally many samples.
    """
    by_pod, advice = answer.query.by_pod, f"write it as sum by ({', '.join(answer.query.labels)}) (…)"
    medians = [median_low(counts.by_place.values()) for counts in answer.counts if counts.by_place]
    agreed = agreed or max(medians, default=0) - min(medians, default=0) <= 1
    if by_pod is None and answer.values:  # inline PromQL does not declare its scope; the labels of its result show it
        by_pod = any(pod for _, pod in answer.values)
    series: defaultdict[str, dict[str, list[Series]]] = defaultdict(dict)
    unusable: defaultdict[str, dict[str, str]] = defaultdict(dict)
    has_windows = bool(answer.counts or answer.inputs.uncounted)
    for place, rows in answer.values.items():
        (namespace, pod), at = place, answer.at(place)
        count = UNCOUNTED if not agreed else answer.count(place) if has_windows else None
        if by_pod and all(place) and len(rows) > 1:
            unusable[namespace][pod] = f"several series ({advice})"
        for text, value in rows:
            try:
                nano = parse_number(value)
            except QuantityError:
                what = "a negative value" if value.startswith("-") else "a value that is too large"
                unusable[namespace][pod] = "NaN" if value == "NaN" else what
                continue
            if at is not None:
                series[namespace].setdefault(pod, []).append(Series(text, Point(ahead.clamped(text, at), nano, count)))
    return QueryResult(
        by_pod=by_pod,
        series=series,
        unusable=unusable,
        faults=_faults(answer, advice, by_pod=bool(by_pod), are_undated=not series and not unusable),
        held=answer.held() if agreed and not by_pod else {},
        targets=answer.targets(by_pod=bool(by_pod)),
        ahead=ahead.seconds,
        agreed=agreed,
    )


def _faults(answer: Answer, advice: str, *, by_pod: bool, are_undated: bool) -> dict[str, str]:
    """Why the result is unusable, by namespace."""
    query, faults = answer.query, dict[str, str]()
    if answer.values and are_undated:
        of = f" of the same {' and '.join(query.labels)}" if by_pod else ""
        faults[""] = f"no series that it reads has a sample{of} in the last {query.max_age:g} s"
    most = max((count for counts in answer.counts for count in counts.by_place.values()), default=0)
    if not answer.values and most == 1:
        what = f"its range of {query.inputs.shortest:g} s holds one sample"
        faults[""] = f"{what}, and a rate needs two; make it four scrape intervals"
    counted = Counter(namespace for (namespace, _), rows in answer.values.items() for _ in rows)
    naming = {namespace for namespace, pod in answer.values if pod}
    for namespace in counted:
        all_of = counted[namespace] + (counted[""] if namespace else 0)
        if not by_pod and all_of > 1:
            faults.setdefault(namespace, f"answers {all_of} series where one number is wanted; put sum(…) around it")
        # Some series belong to no pod (cAdvisor's root cgroup); if none has the labels, the query is wrong.
        elif by_pod and namespace and namespace not in naming:
            faults[namespace] = f"its series lack the label {query.labels[1]!r}; {advice}"
    if by_pod and set(counted) == {""}:
        faults[""] = f"its series lack the label {query.labels[0]!r}; {advice}"
    return faults
