"""One metric of a target: from its samples to the scenarios that the watermarks decide."""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

from adapter.load.assessment import AssessmentInputs, MetricAssessment, Scenario
from adapter.load.census import Census
from adapter.load.delay import BREAK_SECONDS, with_delay
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
from adapter.load.memory import AheadSample, LastSample
from adapter.load.pod_groups import PodGroups
from adapter.load.pods import PodState
from adapter.load.sample_columns import Column, Columns, MetricRows, RowBlock, read_columns, renewed_rows, static_rows
from adapter.load.scenario_list import ScenarioList
from adapter.load.scenario_spans import AlikePods, are_comparable, spans_of
from adapter.load.scenarios import held_with_all_in, only_scenario, scenarios_of
from adapter.load.spec import Average, Metric, Policy, Strategy
from adapter.load.steps import Steps, sorted_in_steps
from adapter.load.totals import Band, DoubtfulPod, Totals, Weights

NO_POD_SERVES = "no pod serves"
"""The error of a metric whose samples are fine but whose target has no pod in service."""
_STEP = 1024
"""Pods that are read in one step."""


@dataclass(frozen=True, slots=True)
class MeasuredMetric:
    """One metric's assessment and the samples behind it. `ahead`: the service total, where it is dated ahead."""

    assessment: MetricAssessment
    columns: Columns
    ahead: AheadSample | None = None


def band_of(policy: Policy, metric: Metric, *, total: bool) -> Band:
    """The watermarks of a metric, or its target as both, with the tolerance around them.

    By default a service total of 0 is believed.
    """
    aim = metric.target
    return Band(
        high=metric.high if aim is None else aim,
        low=metric.low if aim is None else aim,
        tolerance=policy.tolerance if aim is None else policy.tolerance_of(metric),
        average=policy.average,
        tolerate_zero=policy.tolerate_zero if policy.tolerate_zero is not None else total,
        multiple_of=policy.multiple_of,
        step=policy.step if policy.strategy is Strategy.STEP else None,
    )


def assess_metric(inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> Steps[MeasuredMetric]:
    """Compare one metric with its watermarks in every scenario of the doubtful pods; a floor needs no comparison."""
    measured = yield from _measure(inputs, metric, groups)
    if not metric.delay.up and not metric.delay.down:
        return measured
    ends = [*measured.columns.serving.knows, *measured.columns.doubtful.knows]
    newest = max(ends) if ends else measured.assessment.sampled_at
    known = inputs.memory.beyond.get(metric.name)
    lasts = max(BREAK_SECONDS, source_of(metric, inputs.samples).max_age)
    assessment = with_delay(measured.assessment, metric.delay, newest, known, inputs.now, lasts)
    return replace(measured, assessment=assessment)


def _measure(inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> Steps[MeasuredMetric]:
    if metric.resource is None and query_samples(metric, inputs.samples).total is not None:
        measured = yield from _assess_total(inputs, metric, groups)
        return measured
    if metric.floor:
        return _without_total(inputs, metric)
    reader = MetricReader(metric, inputs.samples, inputs.now, believes_zero=inputs.policy.tolerate_zero is True)
    census = groups.census
    serving, doubtful = yield from _static_rows(census, metric, reader)
    columns = yield from read_columns(
        reader,
        inputs.memory.samples_of(metric.name),
        (census.serving, serving),
        (census.doubtful, doubtful),
        chain(census.idle, census.out),
        groups.young_doubtful,
    )
    assessment = yield from _assess_columns(inputs, metric, groups, columns)
    # A frozen total may come back.
    return MeasuredMetric(assessment, columns, inputs.memory.ahead.get(metric.name))


def _static_rows(
    census: Census, metric: Metric, reader: MetricReader
) -> Steps[tuple[Sequence[RowBlock], Sequence[RowBlock]]]:
    """The rows of the serving and of the doubtful pods, from the census where it has them of this very metric."""
    rows = census.rows.get(metric.name)
    if rows is None or rows.metric is not metric:
        last = census.last_rows.pop(metric.name, None)
        if last is not None and last.metric is metric and census.changed is not None:
            serving_anew = [one for one in census.anew if one.state is PodState.SERVING]
            doubtful_anew = [one for one in census.anew if one.state is PodState.DOUBTFUL]
            serving = yield from renewed_rows(reader, serving_anew, last.serving, census.changed)
            doubtful = yield from renewed_rows(reader, doubtful_anew, last.doubtful, census.changed)
        else:
            known = (*last.serving, *last.doubtful) if last is not None and last.metric is metric else ()
            serving = yield from static_rows(reader, census.serving, known)
            doubtful = yield from static_rows(reader, census.doubtful, known)
        rows = census.rows[metric.name] = MetricRows(metric, serving, doubtful)
    return rows.serving, rows.doubtful


def _assess_columns(
    inputs: AssessmentInputs, metric: Metric, groups: PodGroups, columns: Columns
) -> Steps[MetricAssessment]:
    policy, samples, census = inputs.policy, inputs.samples, groups.census
    band = census.bands.get(metric.name)
    if band is None:
        band = census.bands[metric.name] = band_of(policy, metric, total=False)
    counted = [column for column in (columns.serving, columns.doubtful) if column.uids]
    mean = _mean_capacity(columns) if metric.of else None
    weights = Weights(band, mean, is_utilization=metric.of is not None)
    began = min((at for column in counted if (at := column.began_at()) is not None), default=None)
    departed = departed_load(inputs.memory, metric.name, began)
    scenarios, everyone = yield from _scenarios(policy, weights, groups, columns, departed)
    usage = everyone.effective_usage(policy.average) if everyone.n else None
    raw = yield from _raw_usage(policy, weights, columns, usage)
    oldest = min(counted, key=lambda column: min(column.knows), default=None)
    limits = metric if metric.target is None else policy.limits_of(metric)
    return MetricAssessment(
        name=metric.name,
        high=limits.high,
        low=limits.low,
        target=metric.target,
        n=everyone.n,
        missing=everyone.missing,
        usage=usage,
        raw=raw,
        total=is_service_total(metric, samples),
        scenarios=scenarios,
        sampled_at=None if oldest is None else min(oldest.knows),
        began_at=began,
        stale_at=min(min(c.ats) for c in counted) + source_of(metric, samples).max_age if counted else None,
        window=None if oldest is None else oldest.windows[oldest.knows.index(min(oldest.knows))],
        error=None if everyone.n else _error(inputs, metric, census, columns),
    )


def _scenarios(
    policy: Policy, weights: Weights, groups: PodGroups, columns: Columns, departed: DepartedLoad
) -> Steps[tuple[Sequence[Scenario], Totals]]:
    """The scenarios that may win, and the totals with every doubtful pod in."""
    serving = [columns.serving]
    young = _young_samples(groups, columns)
    none_in = weights.totals(serving, [*young, *(columns.whole[uid] for uid in groups.young_doubtful)], departed)
    if not groups.census.doubtful:
        return ScenarioList([only_scenario(policy, weights.band, groups.away, none_in)], [0]), none_in
    yield
    all_in = weights.totals([*serving, columns.doubtful], young, departed)
    pods = len(groups.census.doubtful)
    if not weights.may_be_above(none_in, all_in, columns.doubtful):
        scenario = held_with_all_in(policy, weights.band, groups.away, all_in, pods)
        if scenario is not None:
            return ScenarioList([scenario], [0]), all_in
    yield
    alike = yield from _alike_pods(weights, groups, columns.doubtful)
    if alike is not None and are_comparable(policy, weights.band, groups.away, none_in, alike):
        return spans_of(policy, weights.band, groups.away, none_in, alike), all_in
    orders = []
    doubtful = yield from _doubtful_pods(weights, groups, columns)
    for order in (yield from _orders(weights, doubtful)):
        yield
        totals = copy(none_in)
        orders.append((yield from scenarios_of(policy, weights.band, groups.away, totals, order)))
    return (yield from ScenarioList.of(*orders)), all_in


def _raw_usage(policy: Policy, weights: Weights, columns: Columns, usage: Fraction | None) -> Steps[Fraction | None]:
    """The usage of all running pods; `usage` is that of the pods that count."""
    others = yield from _measured_column(columns.others)
    if not others.uids:
        return usage
    return weights.totals((columns.serving, columns.doubtful, others)).effective_usage(policy.average)


def _mean_capacity(columns: Columns) -> Fraction | None:
    """The mean capacity of the running pods that have one; None where every pod has one, or none has."""
    gaps = [*columns.serving.gaps, *columns.doubtful.gaps, *columns.others]
    if all(sample.capacity for sample in gaps):
        return None
    known = [sample.capacity for sample in gaps if sample.capacity]
    known += [each for column in (columns.serving, columns.doubtful) for each in column.capacities if each]
    return Fraction(sum(known), len(known)) if known else None


def _measured_column(samples: Iterable[PodSample]) -> Steps[Column]:
    """The column of the pods that have a sample."""
    column = Column()
    for index, sample in enumerate(samples):
        if index % _STEP == _STEP - 1:
            yield
        if sample.usage is not None:
            column.add(sample)
    return column


def _young_samples(groups: PodGroups, columns: Columns) -> list[PodSample]:
    """The samples of the pods that are young in every scenario."""
    uids = {one.pod.uid for one in groups.young}
    return [sample for sample in columns.others if sample.pod.uid in uids] if uids else []


def _alike_pods(weights: Weights, groups: PodGroups, column: Column) -> Steps[AlikePods | None]:
    """The doubtful pods, if they differ in nothing but their usage; else None."""
    usages, capacities = column.values, column.capacities
    if column.gaps or groups.young_doubtful or capacities.count(capacities[0]) < len(usages):
        return None
    in_order = yield from sorted_in_steps(usages)
    return _alike(groups, in_order, weights.weigh(capacities[0]))


def _alike(groups: PodGroups, usages: Sequence[int], weight: int) -> AlikePods | None:
    long, replaceable = len(groups.long_doubtful), len(groups.replaceable_doubtful)
    if groups.young_doubtful or not {long, replaceable} <= {0, len(usages)}:
        return None
    return AlikePods(usages=usages, weight=weight, is_long=long > 0, is_replaceable=replaceable > 0)


def _doubtful_pods(weights: Weights, groups: PodGroups, columns: Columns) -> Steps[list[DoubtfulPod]]:
    """The doubtful pods by name. The fill of one with a sample matters only where it is young."""
    column, young = columns.doubtful, groups.young_doubtful
    seen = dict(zip(column.uids, zip(column.values, column.capacities, strict=True), strict=True))
    gaps = {sample.pod.uid: sample for sample in column.gaps}
    doubtful = []
    for index, uid in enumerate(one.pod.uid for one in groups.census.doubtful):
        if index % _STEP == _STEP - 1:
            yield
        sample = gaps.get(uid) or columns.whole.get(uid)
        usage, capacity = seen.get(uid) or (None, sample.capacity if sample is not None else None)
        weight = weights.weigh(capacity)
        fill = weights.fill(weight, sample.last) if sample is not None else 0
        is_long, is_replaceable = uid in groups.long_doubtful, uid in groups.replaceable_doubtful
        doubtful.append(DoubtfulPod(usage, weight, fill, is_long, is_replaceable, uid in young))
    return doubtful


def _orders(weights: Weights, doubtful: Sequence[DoubtfulPod]) -> Steps[list[list[DoubtfulPod]]]:
    """The orders in which doubtful pods come in: most loaded first, and again with those without a sample last."""
    first = yield from weights.ranked(doubtful)
    blind = [pod for pod in first if pod.usage is None]
    if not blind or len(blind) == len(first):
        return [first]
    return [first, [pod for pod in first if pod.usage is not None] + blind]


def _assess_total(inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> Steps[MeasuredMetric]:
    """Assess a number for the whole service: all pods that are in share it, and none is missing.

    Of a floor no pods are compared: it needs none to serve.
    """
    policy, samples, now = inputs.policy, inputs.samples, inputs.now
    source, census = query_samples(metric, samples), groups.census
    point = source.total
    assert point is not None
    # A floor may be the past on purpose: it ages from when its value was the answer.
    sample = LastSample(point.at + source.behind if metric.floor else point.at, point.value)
    ahead = dated_ahead(sample, inputs.memory.ahead.get(metric.name), source, now)
    at = aging_from(sample, ahead)
    began = began_at(at, source.window, ahead)
    stale = now - at > source.max_age
    n = len(census.serving) + len(census.doubtful)
    band = band_of(policy, metric, total=True)
    # A share of the total needs no departed load: the total includes it.
    departed = departed_load(inputs.memory, metric.name, began) if policy.average is Average.TOTAL else NO_DEPARTURES
    scenarios: Sequence[Scenario] = ()
    if not stale and not metric.floor:
        scenarios = yield from _scenarios_of_total(policy, band, groups, point.value, departed)
    error = source_error(metric, samples, now) if stale else None
    running = sum(1 for _ in census.running)
    if error is None and running and not n and not metric.floor:
        error = NO_POD_SERVES
    limits = metric if metric.target is None else policy.limits_of(metric)
    assessment = MetricAssessment(
        name=metric.name,
        high=limits.high,
        low=limits.low,
        target=metric.target,
        n=n,
        usage=None if stale else _share_of(point.value, n, policy.average),
        raw=None if stale else _share_of(point.value, running, policy.average),
        total=True,
        total_value=None if stale else point.value,
        scenarios=scenarios,
        sampled_at=began_at(at, None, ahead),
        began_at=began,
        stale_at=None if stale else at + source.max_age,
        window=source.window or None,
        error=error,
        floor=metric.floor,
    )
    return MeasuredMetric(assessment, Columns(measured=False), ahead)


def _without_total(inputs: AssessmentInputs, metric: Metric) -> MeasuredMetric:
    """A floor whose query has given no number for the whole service."""
    source = query_samples(metric, inputs.samples)
    error = source_error(metric, inputs.samples, inputs.now)
    if source.pods or source.by_pod:
        error = (
            f"{source_name(metric)} answers by pod, and a floor needs one number for the service; "
            "sum the query up, or take floor away"
        )
    assessment = MetricAssessment(
        name=metric.name, high=inputs.policy.limits_of(metric).high, target=metric.target, total=True, error=error,
        floor=True,
    )  # fmt: skip
    return MeasuredMetric(assessment, Columns(measured=False), inputs.memory.ahead.get(metric.name))


def _scenarios_of_total(
    policy: Policy, band: Band, groups: PodGroups, value: int, departed: DepartedLoad
) -> Steps[Sequence[Scenario]]:
    weights = Weights(band, None, is_utilization=False)
    fill = weights.fill(1, 0)
    n, young = len(groups.census.serving), len(groups.young) + len(groups.young_doubtful)
    totals = Totals(
        usage=value, n=n, weight=n, young=young, young_weight=young, young_fill=fill * young,
        total=True, fill_unit=weights.fill_unit, departed=departed,
    )  # fmt: skip
    if not groups.census.doubtful:
        return ScenarioList([only_scenario(policy, band, groups.away, totals)], [0])
    alike = _alike(groups, [0] * len(groups.census.doubtful), 1)
    if alike is not None and are_comparable(policy, band, groups.away, totals, alike):
        return spans_of(policy, band, groups.away, totals, alike)
    doubtful = []
    for uid in (one.pod.uid for one in groups.census.doubtful):
        is_long, is_replaceable = uid in groups.long_doubtful, uid in groups.replaceable_doubtful
        doubtful.append(DoubtfulPod(0, 1, fill, is_long, is_replaceable, uid in groups.young_doubtful))
    candidates = yield from scenarios_of(policy, band, groups.away, totals, doubtful)
    return (yield from ScenarioList.of(candidates))


def _share_of(total: int, pods: int, average: Average) -> Fraction | None:
    if average is Average.TOTAL:
        return Fraction(total)
    return Fraction(total, pods) if pods else None


def _error(inputs: AssessmentInputs, metric: Metric, census: Census, columns: Columns) -> str:
    """Why no scenario could compare anything, as a sentence."""
    samples, now = inputs.samples, inputs.now
    source = source_of(metric, samples)
    counted = [*columns.serving.gaps, *columns.doubtful.gaps]
    if not any(census.running) and source.error:
        return source_error(metric, samples, now)
    if not census.serving and not census.doubtful:
        return NO_POD_SERVES
    if metric.of is not None and not any(sample.capacity for sample in [*counted, *columns.others]):
        return no_capacity_sentence(metric, [one.pod for one in [*census.serving, *census.doubtful]])
    reasons = {sample.missing for sample in counted if sample.missing}
    if not source.error and source.pods and reasons - {"no sample"}:
        return f"{source_name(metric)} has no fresh sample of a serving pod: {min(reasons - {'no sample'})}"
    return source_error(metric, samples, now)
