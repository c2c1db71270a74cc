"""One metric of a target: from its samples to the scenarios that the watermarks decide."""

from collections.abc import Mapping, Sequence
from copy import copy
from fractions import Fraction
from itertools import chain
from typing import Any

from adapter.load.assessment import AssessmentInputs, MetricAssessment, Scenario
from adapter.load.delay import BREAK_SECONDS, with_delay
from adapter.load.doubt import scenarios_of
from adapter.load.memory import LAST_SAMPLE_SECONDS, LastSample
from adapter.load.pod_groups import PodGroups
from adapter.load.pod_samples import (
    MetricReader,
    PodSample,
    Readings,
    absent_container_sentence,
    answered_at,
    dated,
    in_service_since,
    is_service_total,
    no_capacity_sentence,
    query_samples,
    source_error,
    source_name,
    source_of,
)
from adapter.load.pods import Pod, PodState
from adapter.load.quantity import NANO
from adapter.load.remembering import NO_DEPARTURES, UNKNOWN_DEPARTURES, DepartedLoad, departed_load
from adapter.load.samples import Point, QuerySamples
from adapter.load.spec import Average, Metric, Policy, Strategy, Trigger
from adapter.load.totals import Band, Totals

NO_POD_SERVES = "no pod serves"
"""The error of a metric whose samples are fine but whose target has no pod in service."""
FIRST_SAMPLE_SECONDS = 120.0
"""How long after a metric's window a new pod may have no sample: of scrapes, polls and clocks."""


def band_of(policy: Policy, metric: Metric, *, total: bool) -> Band:
    """The watermarks of a metric, or its target as both, with the tolerance around them.

    By default a service total of 0 is believed.
    """
    aim = metric.target
    return Band(
        high=metric.high if aim is None else aim,
        low=metric.low if aim is None else aim,
        tolerance=policy.tolerance_of(metric),
        average=policy.average,
        tolerate_zero=policy.tolerate_zero if policy.tolerate_zero is not None else total,
        multiple_of=policy.multiple_of,
        converge=policy.converge_towards,
        saturation=policy.saturation_factor if metric.is_throttled and policy.saturation_factor > 1 else None,
        step=policy.step if policy.strategy is Strategy.STEP else None,
    )


def assess_metric(inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> MetricAssessment:
    """Compare one metric with its watermarks in every scenario of the doubtful pods; a floor needs no comparison."""
    of_spec: dict[str, Any] = {"name": metric.name, "target": metric.target, "floor": metric.floor}
    of_spec |= inputs.policy.limits_of(metric)._asdict()
    if metric.resource is None and query_samples(metric, inputs.samples).total is not None:
        assessment = _assess_total(of_spec, inputs, metric, groups)
    elif metric.floor:
        source, error = query_samples(metric, inputs.samples), source_error(metric, inputs.samples)
        if source.pods or source.by_pod:
            needed = "a floor needs one number for the service; sum the query up, or take floor away"
            error = f"{source_name(metric)} answers by pod, and {needed}"
        ahead = inputs.memory.ahead.get(metric.name)
        assessment = MetricAssessment(**of_spec, total=True, error=error, ahead=ahead)
    else:
        assessment = _assess_pods(of_spec, inputs, metric, groups)
    if not metric.delay.up and not metric.delay.down:
        return assessment
    lasts = max(BREAK_SECONDS, source_of(metric, inputs.samples).max_age)
    return with_delay(assessment, metric.delay, inputs.memory.beyond.get(metric.name), inputs.now, lasts)


def _assess_pods(
    of_spec: dict[str, Any], inputs: AssessmentInputs, metric: Metric, groups: PodGroups
) -> MetricAssessment:
    """Assess a metric of the pods. `of_spec`: the fields that the policy says."""
    policy, samples, memory = inputs.policy, inputs.samples, inputs.memory
    reader = MetricReader(metric, samples, inputs.now, believes_zero=policy.tolerate_zero is True)
    seen, grouped = memory.samples_of(metric.name), (groups.serving, groups.doubtful, chain(groups.idle, groups.out))
    readings = Readings(*([reader.sample(pod, seen, memory.pod(pod.uid)) for pod in pods] for pods in grouped))
    band = band_of(policy, metric, total=False)
    capacities, unit = [sample.capacity for sample in readings.all if sample.capacity], 1 if metric.of is None else NANO
    counted = [sample for sample in chain(readings.serving, readings.doubtful) if sample.usage is not None]
    began = min([sample.began for sample in counted], default=None)
    oldest = min(counted, key=lambda sample: sample.until, default=None)
    forgets = _forgets(inputs, groups, readings)
    departed = UNKNOWN_DEPARTURES if forgets else departed_load(memory, metric.name, began)
    totals = Totals(
        unit=unit,
        mean=None if metric.of is None else Fraction(sum(capacities), len(capacities) or 1),
        full=Fraction(band.high_plus or 0, unit),
        departed=departed,
        seeks_extremes=band.step is not None and band.step.trigger is Trigger.ANY_POD,
    )
    for sample in readings.serving:
        totals.add(sample)
    for sample in readings.others:
        if sample.pod.uid in groups.young:
            totals.add_young(sample)
    doubtful = [(sample, groups.doubt[sample.pod.uid]) for sample in readings.doubtful]
    scenarios: list[Scenario] = []
    if any(sample.usage is None or sample.is_partial for sample in readings.doubtful):
        # On the way down a pod without a sample carries a full load: it may be the one that keeps the count.
        order = sorted(doubtful, key=lambda doubtful_pod: totals.rank_down(doubtful_pod[0]), reverse=True)
        scenarios = scenarios_of(policy, band, groups.away, copy(totals), order)[:-1]
    order = sorted(doubtful, key=lambda doubtful_pod: totals.rank_up(doubtful_pod[0]), reverse=True)
    scenarios += scenarios_of(policy, band, groups.away, totals, order)
    raw = copy(totals)
    for sample in readings.others:
        if sample.usage is not None:
            raw.add(sample)
    # The emptiest window may lack the most of its value, or nobody can tell how much.
    emptiest = max(
        (sample for sample in counted if sample.fullness),
        key=lambda each: (each.bound is None, Fraction(each.bound, each.usage) if each.bound and each.usage else 0),
        default=None,
    )
    lacking = (sample for sample in chain(readings.serving, readings.doubtful) if sample.bound is None)
    # A window of which nobody can tell how full it is, is told at once.
    overdue = [
        sample
        for sample in lacking
        if _is_late(inputs, metric, sample.pod, sample.newest.at if sample.newest and sample.usage is None else None)
    ]
    return MetricAssessment(
        **of_spec,
        n=totals.n,
        missing=totals.missing,
        partial=totals.partial,
        overdue=sum(sample.usage is None for sample in overdue),
        overdue_partial=sum(sample.usage is not None for sample in overdue),
        fullness=emptiest.fullness if emptiest is not None else "",
        usage=totals.effective_usage(policy.average) if totals.n else None,
        raw=raw.effective_usage(policy.average) if raw.n else None,
        total=is_service_total(metric, samples),
        scenarios=scenarios,
        sampled_at=None if oldest is None else oldest.until,
        began_at=began,
        stale_at=min([sample.at for sample in counted]) + source_of(metric, samples).max_age if counted else None,
        window=None if oldest is None else oldest.window,
        error=None if totals.n else _error(inputs, metric, groups, readings),
        readings=readings,
        ahead=memory.ahead.get(metric.name),  # a frozen total may come back
        newest=max([sample.until for sample in counted], default=None),
    )


def _is_late(inputs: AssessmentInputs, metric: Metric, pod: Pod, last: float | None) -> bool:
    """Whether a pod without a whole sample should have one: it is not new in service, and has missed several.

    `last`: the time of its last whole sample (seconds; None: unknown). One missed scrape is no trouble to tell of.
    """
    source = source_of(metric, inputs.samples)
    window = source.window if isinstance(source, QuerySamples) else 0.0
    is_new = inputs.now - in_service_since(pod, inputs.memory.pod(pod.uid)) < FIRST_SAMPLE_SECONDS + window
    return not is_new and (last is None or inputs.now - last > source.max_age + window)


def _forgets(inputs: AssessmentInputs, groups: PodGroups, readings: Readings) -> bool:
    """Whether the process before this one may remember more than this one of a pod without a sample, or at exactly 0.

    A status holds no samples but those of pods that had none when it was written.
    """
    since = inputs.memory.observing_since
    if since is None or inputs.now - since > LAST_SAMPLE_SECONDS:
        return False
    never_ready = {assessed.pod.uid for assessed in groups.assessed if assessed.state is PodState.STARTING}
    soon = (sample for sample in readings.others if sample.pod.uid in groups.young - never_ready)
    lacking = (
        sample
        for sample in chain(readings.serving, readings.doubtful, soon)
        if not sample.last and (sample.usage is None or (not sample.usage and inputs.policy.tolerate_zero is not True))
    )
    return any(in_service_since(sample.pod, inputs.memory.pod(sample.pod.uid)) < since for sample in lacking)


def _assess_total(
    of_spec: dict[str, Any], inputs: AssessmentInputs, metric: Metric, groups: PodGroups
) -> MetricAssessment:
    """Assess a number for the whole service: all pods that are in share it, and none is missing.

    Of a floor no pods are compared: it needs none to serve.
    """
    policy, samples, now = inputs.policy, inputs.samples, inputs.now
    source = query_samples(metric, samples)
    point = source.total
    assert point is not None
    # A floor may be the past on purpose: it ages from when its value was the answer.
    sample = LastSample(point.at + source.behind if metric.floor else point.at, point.value)
    ahead, at, until = dated(sample, inputs.memory.ahead.get(metric.name), answered_at(source, now))
    began = until - source.window
    stale = now - at > source.max_age or point.is_hollow
    bounded = None if point.is_hollow else point.bound
    seen, pods = inputs.memory.samples_of(metric.name).read, [*groups.serving, *groups.doubtful]
    fresh = {pod.uid for pod in pods if pod.name in source.reads} | ({""} if bounded is not None else set())
    uids = [uid for uid in ("", *(pod.uid for pod in pods)) if uid in fresh or uid in seen]
    read = {uid: now if uid in fresh else seen[uid] for uid in uids}
    lack, is_late = _lack_of_total(inputs, metric, pods, began, read)
    if bounded is None:
        is_late = not point.window_samples or now - read.get("", 0.0) > source.max_age + source.window
    n, running = len(pods), groups.running
    # A share of the total needs no departed load: the total includes it.
    departed = departed_load(inputs.memory, metric.name, began) if policy.average is Average.TOTAL else NO_DEPARTURES
    scenarios: Sequence[Scenario] = ()
    if not stale and not metric.floor:
        scenarios = _scenarios_of_total(policy, metric, groups, point, departed, is_blind=bool(lack))
    error = source_error(metric, samples) if stale else None
    if point.is_hollow and now - at <= source.max_age:
        error = f"{source_name(metric)} has no fresh sample: its window {point.fullness}"
    if error is None and running and not n and not metric.floor:
        error = NO_POD_SERVES
    return MetricAssessment(
        **of_spec,
        n=n,
        usage=None if stale else _share_of(point.value, n, policy.average),
        raw=None if stale else _share_of(point.value, running, policy.average),
        partial=n if point.is_partial or lack else 0,
        overdue_partial=n if is_late and not stale else 0,
        fullness=point.fullness if point.is_partial else lack,
        total=True,
        total_value=None if stale else point.value,
        total_bound=None if stale else bounded,
        scenarios=scenarios,
        sampled_at=until,
        began_at=began,
        stale_at=None if stale else at + source.max_age,
        window=source.window or None,
        error=error,
        ahead=ahead,
        read=read,
    )


def _lack_of_total(
    inputs: AssessmentInputs, metric: Metric, pods: Sequence[Pod], began: float, read: Mapping[str, float]
) -> tuple[str, bool]:
    """A predicate about a pod that a service total's window does not tell of, and whether that is late.

    Empty where it tells of all. Where one of several pods is read, it speaks for all, as the leader of a group does;
    where none is, something else counts their load, such as an ingress. `read`: when each was last read, by UID.
    """
    source = query_samples(metric, inputs.samples)
    for pod in pods if source.window else ():
        if in_service_since(pod, inputs.memory.pod(pod.uid)) > began:
            return f"began before {pod.name} came into service", _is_late(inputs, metric, pod, None)
    unread = [pod for pod in pods if pod.name not in source.reads]
    are_read = len(pods) - len(unread)
    if not unread or (are_read <= 1 and are_read != len(unread)):
        return "", False
    late = [pod for pod in unread if _is_late(inputs, metric, pod, read.get(pod.uid))]
    first = min(late or unread, key=lambda pod: pod.name)
    return f"holds no sample of {first.name}", bool(late)


def _scenarios_of_total(
    policy: Policy, metric: Metric, groups: PodGroups, point: Point, departed: DepartedLoad, *, is_blind: bool
) -> list[Scenario]:
    band, n, bound = band_of(policy, metric, total=True), len(groups.serving), point.bound
    totals = Totals(
        usage=point.value,
        n=n,
        weight=n,
        bound=point.value if bound is None else bound,
        partial=n if is_blind or point.is_partial else 0,
        total=True,
        is_blind=is_blind or bound is None,
        full=band.high_plus or 0,
        departed=departed,
    )
    for pod in groups.idle:
        if pod.uid in groups.young:
            totals.add_young(PodSample(pod, 0))
    order = [(PodSample(pod, 0, bound=0), groups.doubt[pod.uid]) for pod in groups.doubtful]
    return scenarios_of(policy, band, groups.away, totals, order)


def _share_of(total: int, pods: int, average: Average) -> Fraction | None:
    if average is Average.TOTAL:
        return Fraction(total)
    return Fraction(total, pods) if pods else None


def _error(inputs: AssessmentInputs, metric: Metric, groups: PodGroups, readings: Readings) -> str:
    """Why no scenario could compare anything, as a sentence."""
    samples, pods = inputs.samples, [*groups.serving, *groups.doubtful]
    source = source_of(metric, samples)
    if not groups.running and source.error:
        return source_error(metric, samples)
    if not pods:
        return NO_POD_SERVES
    if sentence := absent_container_sentence(metric, pods):
        return sentence
    if metric.of is not None and not any(sample.capacity for sample in readings.all):
        return no_capacity_sentence(metric, pods)
    reasons = {sample.missing for sample in chain(readings.serving, readings.doubtful)} - {"", "no sample"}
    if not source.error and source.pods and reasons:
        return f"{source_name(metric)} has no fresh sample of a serving pod: {min(reasons)}"
    return source_error(metric, samples)
