"""One metric of a target: its samples, its sums, and what the watermarks make of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

from adapter.load.assessment import MetricAssessment, Scenario
from adapter.load.census import Census
from adapter.load.departures import NO_DEPARTURES, DepartedLoad, departed_load
from adapter.load.effective_usage import (
    MetricReader,
    PodSample,
    aging_from,
    began_at,
    dated_ahead,
    is_service_total,
    no_capacity_sentence,
    query_samples,
    source_error,
    source_name,
    source_of,
)
from adapter.load.memory import AheadSample, LastSample, Memory
from adapter.load.pod_groups import PodGroups
from adapter.load.sample_columns import Column, Columns, StaticRow, read_columns, static_rows
from adapter.load.samples import Samples
from adapter.load.scenarios import scenarios_of
from adapter.load.spec import Average, Metric, Policy
from adapter.load.totals import Band, DoubtfulPod, Totals, Weights

NO_POD_SERVES = "no pod serves"
"""The error of a metric that lacks nothing but pods."""


@dataclass(frozen=True, slots=True)
class MeasuredMetric:
    """One metric's assessment and its samples of the pods. `ahead`: the service total, where it is dated ahead."""

    assessment: MetricAssessment
    columns: Columns
    ahead: AheadSample | None = None


def band_of(policy: Policy, metric: Metric, *, total: bool) -> Band:
    """The watermarks of a metric with the policy's tolerance; zero is believed of service totals unless told."""
    return Band(
        high=metric.high,
        low=metric.low,
        tolerance=policy.tolerance,
        average=policy.average,
        tolerate_zero=policy.tolerate_zero if policy.tolerate_zero is not None else total,
        multiple_of=policy.multiple_of,
    )


def assess_metric(
    policy: Policy, metric: Metric, groups: PodGroups, samples: Samples, memory: Memory, now: float
) -> MeasuredMetric:
    """Read one metric of a target in every way that the doubtful pods allow."""
    total = query_samples(metric, samples).total if metric.resource is None else None
    if total is not None:
        return _measure_total(policy, metric, groups, samples, memory, now)
    meter = MetricReader(metric, samples, now, believes_zero=policy.tolerate_zero is True)
    census = groups.census
    serving, doubtful = _rows(census, metric, meter)
    columns = read_columns(
        meter,
        memory.samples_of(metric.name),
        (census.serving, serving),
        (census.doubtful, doubtful),
        chain(census.idle, census.out),
        groups.young_doubtful,
    )
    return MeasuredMetric(_assess_columns(policy, metric, groups, columns, samples, memory, now), columns)


def _rows(census: Census, metric: Metric, meter: MetricReader) -> tuple[Sequence[StaticRow], Sequence[StaticRow]]:
    known = census.rows.get(metric.name)
    if known is None or known[0] is not metric:
        known = census.rows[metric.name] = (
            metric,
            static_rows(meter, census.serving),
            static_rows(meter, census.doubtful),
        )
    return known[1:]


def _assess_columns(
    policy: Policy,
    metric: Metric,
    groups: PodGroups,
    columns: Columns,
    samples: Samples,
    memory: Memory,
    now: float,
) -> MetricAssessment:
    band = band_of(policy, metric, total=False)
    counted = (columns.serving, columns.doubtful)
    mean = _mean_capacity(columns) if metric.of else None
    weights = Weights(band, mean, is_share=metric.of is not None)
    departed = departed_load(memory, metric.name, _began(counted))
    scenarios: list[Scenario] = []
    young = _young(groups, columns)
    for order in _orders(weights, _doubtful(weights, groups, columns)):
        totals = weights.totals([columns.serving], young, departed)
        scenarios += scenarios_of(policy, band, groups.away, totals, order)
    everyone = weights.totals(counted)
    running = weights.totals([*counted, _with_samples(columns.others)])
    ats, knows = (list(chain.from_iterable(each)) for each in zip(*((c.ats, c.knows) for c in counted), strict=True))
    windows = list(chain.from_iterable(column.windows for column in counted))
    oldest = knows.index(min(knows)) if knows else None
    return MetricAssessment(
        name=metric.name,
        high=metric.high,
        low=metric.low,
        n=everyone.n,
        missing=everyone.missing,
        usage=_usage(everyone, policy.average),
        raw=_usage(running, policy.average),
        total=is_service_total(metric, samples),
        scenarios=tuple(scenarios),
        sampled_at=None if oldest is None else knows[oldest],
        stale_at=min(ats) + source_of(metric, samples).max_age if ats else None,
        window=None if oldest is None else windows[oldest],
        error=None if everyone.n else _error(metric, groups, columns, samples, now),
    )


def _began(columns: Iterable[Column]) -> float | None:
    """When the window of the sample began that began first; None where there is none."""
    began = (
        knows - (window or 0.0)
        for column in columns
        for knows, window in zip(column.knows, column.windows, strict=True)
    )
    return min(began, default=None)


def _mean_capacity(columns: Columns) -> Fraction | None:
    """The mean capacity of the running pods that have one, where some pod needs it."""
    gaps = [*columns.serving.gaps, *columns.doubtful.gaps, *columns.others]
    if all(sample.capacity for sample in gaps):
        return None
    known = [sample.capacity for sample in gaps if sample.capacity]
    known += [each for column in (columns.serving, columns.doubtful) for each in column.capacities if each]
    return Fraction(sum(known), len(known)) if known else None


def _with_samples(samples_of_pods: Iterable[PodSample]) -> Column:
    column = Column()
    for sample in samples_of_pods:
        if sample.usage is not None:
            column.add(sample)
    return column


def _young(groups: PodGroups, columns: Columns) -> list[PodSample]:
    """The samples_of_pods of all pods that are young where every doubtful pod is out."""
    uids = {assessed.pod.uid for assessed in groups.young}
    young = [sample for sample in columns.others if sample.pod.uid in uids] if uids else []
    return [*young, *(columns.whole[uid] for uid in groups.young_doubtful)]


def _doubtful(weights: Weights, groups: PodGroups, columns: Columns) -> list[DoubtfulPod]:
    """The doubtful pods by name. What fills one with a sample matters only where it is young."""
    column, young = columns.doubtful, groups.young_doubtful
    seen = dict(zip(column.uids, zip(column.values, column.capacities, strict=True), strict=True))
    gaps = {sample.pod.uid: sample for sample in column.gaps}
    doubtful = []
    for assessed in groups.census.doubtful:
        uid = assessed.pod.uid
        sample = gaps.get(uid) or columns.whole.get(uid)
        usage, capacity = seen.get(uid) or (None, sample.capacity if sample is not None else None)
        weight = weights.weigh(capacity)
        fill = weights.fill(weight, sample.last) if sample is not None else 0
        is_old, is_replaceable = uid in groups.long_doubtful, uid in groups.replaceable_doubtful
        doubtful.append(DoubtfulPod(usage, weight, fill, is_old, is_replaceable, uid in young))
    return doubtful


def _orders(weights: Weights, doubtful: Sequence[DoubtfulPod]) -> list[list[DoubtfulPod]]:
    """The doubtful pods, most loaded first; a second time with those that have no sample last, where there are such."""
    first = weights.ranked(doubtful)
    blind = [pod for pod in first if pod.usage is None]
    if not blind or len(blind) == len(first):
        return [first]
    return [first, [pod for pod in first if pod.usage is not None] + blind]


def _measure_total(
    policy: Policy, metric: Metric, groups: PodGroups, samples: Samples, memory: Memory, now: float
) -> MeasuredMetric:
    """A number for the whole service: every pod that is in shares it, and none is missing."""
    source, census = query_samples(metric, samples), groups.census
    point = source.total
    assert point is not None
    ahead = dated_ahead(LastSample(point.at, point.value), memory.ahead.get(metric.name), source, now)
    at = aging_from(LastSample(point.at, point.value), ahead)
    began = began_at(at, source.window, ahead)
    stale = now - at > source.max_age
    n = len(census.serving) + len(census.doubtful)
    band = band_of(policy, metric, total=True)
    # A share of the number needs no departed load: whoever left, the number has it.
    departed = departed_load(memory, metric.name, began) if policy.average is Average.TOTAL else NO_DEPARTURES
    scenarios = () if stale else tuple(_scenarios_of_total(policy, band, groups, point.value, departed))
    error = source_error(metric, samples, now) if stale else None
    running = sum(1 for _ in census.running)
    if error is None and running and not n:
        error = NO_POD_SERVES
    assessment = MetricAssessment(
        name=metric.name,
        high=metric.high,
        low=metric.low,
        n=n,
        usage=None if stale else _share_of(point.value, n, policy.average),
        raw=None if stale else _share_of(point.value, running, policy.average),
        total=True,
        total_value=None if stale else point.value,
        scenarios=scenarios,
        sampled_at=began_at(at, None, ahead),
        stale_at=None if stale else at + source.max_age,
        window=source.window or None,
        error=error,
    )
    return MeasuredMetric(assessment, Columns(measured=False), ahead)


def _scenarios_of_total(
    policy: Policy, band: Band, groups: PodGroups, value: int, departed: DepartedLoad
) -> list[Scenario]:
    weights = Weights(band, None, is_share=False)
    fill = weights.fill(1, 0)
    doubtful = []
    for uid in (assessed.pod.uid for assessed in groups.census.doubtful):
        is_old, is_replaceable = uid in groups.long_doubtful, uid in groups.replaceable_doubtful
        doubtful.append(DoubtfulPod(0, 1, fill, is_old, is_replaceable, uid in groups.young_doubtful))
    n, young = len(groups.census.serving), len(groups.young) + len(groups.young_doubtful)
    totals = Totals(
        usage=value, n=n, weight=n, young=young, young_weight=young, young_fill=fill * young,
        total=True, fill_unit=weights.fill_unit, departed=departed,
    )  # fmt: skip
    return scenarios_of(policy, band, groups.away, totals, doubtful)


def _share_of(total: int, pods: int, average: Average) -> Fraction | None:
    if average is Average.TOTAL:
        return Fraction(total)
    return Fraction(total, pods) if pods else None


def _usage(totals: Totals, average: Average) -> Fraction | None:
    if not totals.n:
        return None
    return totals.average() if average is Average.PER_POD else Fraction(totals.usage)


def _error(metric: Metric, groups: PodGroups, columns: Columns, samples: Samples, now: float) -> str:
    """Why no assessed could compare anything."""
    source, census = source_of(metric, samples), groups.census
    counted = [*columns.serving.gaps, *columns.doubtful.gaps]
    if not any(census.running) and source.error:
        return source_error(metric, samples, now)
    if not census.serving and not census.doubtful:
        return NO_POD_SERVES
    if metric.of is not None and not any(sample.capacity for sample in [*counted, *columns.others]):
        return no_capacity_sentence(metric, [r.pod for r in [*census.serving, *census.doubtful]])
    reasons = {sample.missing for sample in counted if sample.missing}
    if not source.error and source.pods and reasons - {"no sample"}:
        return f"{source_name(metric)} has no fresh sample of a serving pod: {min(reasons - {'no sample'})}"
    return source_error(metric, samples, now)
