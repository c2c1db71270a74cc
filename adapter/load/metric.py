"""One metric of a target: from its samples to the range of counts that its load allows."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

from adapter.load import step
from adapter.load.assessment import AssessmentInputs, HeldBy, MetricAssessment, Reading, Upper, Verdict
from adapter.load.bounds import Band, Loads, Sums, departed_load, drift_of, reading_of, sums_of, upper_of
from adapter.load.memory import LAST_SAMPLE_SECONDS, MEDIANS_SECONDS, LastSample, Memory, MetricMemory, lasting
from adapter.load.pod_groups import PodGroups
from adapter.load.pod_samples import (
    MetricReader,
    PodSample,
    absent_container_sentence,
    counted_total,
    in_service_since,
    is_service_total,
    no_capacity_sentence,
    query_samples,
    source_error,
    source_name,
    source_of,
)
from adapter.load.pods import Pod
from adapter.load.quantity import NANO
from adapter.load.samples import UNCOUNTED, Point, QuerySamples
from adapter.load.spec import Average, Metric, Policy, Strategy

NO_POD_SERVES = "no pod serves"
"""The error of a metric whose samples are fine but whose target has no pod in service."""
FIRST_SAMPLE_SECONDS = 120.0
"""How long after a metric's window a new pod may have no sample: of scrapes, polls and clocks."""


def band_of(policy: Policy, metric: Metric, *, total: bool) -> Band:
    """The watermarks of a metric, or its target as both, with the tolerance around them.

    By default a service total of 0 is accepted.
    """
    high, low = (metric.high, metric.low) if metric.target is None else (metric.target, metric.target)
    tolerance = policy.tolerance_of(metric)
    return Band(
        high=high,
        low=low,
        beyond=None if high is None else high * (1 + tolerance),
        under=None if low is None else low * (1 - tolerance),
        average=policy.average,
        accepts_zero=policy.tolerate_zero if policy.tolerate_zero is not None else total,
        rounds_up=policy.strategy is not Strategy.WATERMARK,
        saturation=policy.saturation_factor if metric.is_throttled and policy.saturation_factor > 1 else None,
        unit=1 if metric.of is None or total else NANO,
    )


def assess_metric(inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> tuple[MetricAssessment, MetricMemory]:
    """The range of counts that one metric allows, and the memory of it. A floor has only its total."""
    of_spec: dict[str, Any] = {"name": metric.name, "target": metric.target, "floor": metric.floor}
    of_spec |= inputs.policy.limits_of(metric)._asdict()
    before = inputs.memory.metric(metric.name)
    if metric.resource is None and query_samples(metric, inputs.samples).total is not None:
        assessment, memory = _assess_total(of_spec, inputs, metric, groups, before)
    elif metric.floor:
        source, error = query_samples(metric, inputs.samples), source_error(metric, inputs.samples)
        if source.pods or source.by_pod:
            needed = "a floor needs one number for the service; sum the query up, or take floor away"
            error = f"{source_name(metric)} answers by pod, and {needed}"
        assessment, memory = MetricAssessment(**of_spec, total=True, error=error), before
    else:
        assessment, memory = _assess_pods(of_spec, inputs, metric, groups, before)
    above, below = _proposes(assessment)
    newest = inputs.now if assessment.newest_at is None else assessment.newest_at
    memory = replace(
        memory,
        above_since=lasting(before.above_since, newest, holds=above),
        below_since=lasting(before.below_since, newest, holds=below),
    )
    delays = (
        (Verdict.ABOVE, memory.above_since, metric.delay.up),
        (Verdict.BELOW, memory.below_since, metric.delay.down),
    )
    delayed = frozenset(side for side, since, delay in delays if since is not None and newest - since < delay)
    return (replace(assessment, delayed=delayed) if delayed else assessment), memory


def _proposes(assessment: MetricAssessment) -> tuple[bool, bool]:
    """Whether the metric proposes more, and fewer pods."""
    upper = assessment.upper
    is_below = upper.step is not None or bool(upper.stages and upper.stages[-1][1] is not None)
    is_below = is_below and upper.hold is None
    return any(reading.needed is not None for reading in assessment.lower), is_below


def _assess_pods(
    of_spec: dict[str, Any], inputs: AssessmentInputs, metric: Metric, groups: PodGroups, before: MetricMemory
) -> tuple[MetricAssessment, MetricMemory]:
    """Assess a metric of the pods. `of_spec`: the fields that the policy says."""
    policy, memory, now = inputs.policy, inputs.memory, inputs.now
    source = source_of(metric, inputs.samples)
    reader = MetricReader(
        metric, inputs.samples, now, before,
        accepts_zero=policy.tolerate_zero is True, started_at=memory.started_at,
    )  # fmt: skip
    since = {pod.uid: in_service_since(pod, memory.pod(pod.uid)) for pod in inputs.pods}
    reader.count_windows({pod.name: since[pod.uid] for pod in chain(groups.serving, groups.doubtful, groups.out)})
    serving, doubtful, idle, out = (
        [reader.sample(pod, since[pod.uid]) for pod in pods]
        for pods in (groups.serving, groups.doubtful, groups.idle, groups.out)
    )
    everything = [*serving, *doubtful, *idle, *out]
    band = band_of(policy, metric, total=False)
    counted = [sample for sample in chain(serving, doubtful, out) if sample.usage is not None]
    began = min((sample.began for sample in counted), default=now) - source.interval
    medians = [each for each in before.medians if now - each[0] <= MEDIANS_SECONDS]
    if reader.median is not None:
        medians.append((now, reader.median))
    after = MetricMemory(
        last=_lasts(before, everything, now),
        medians=_thinned(medians),
        gap_at=reader.gaps(everything),
    )
    all_in = [*serving, *doubtful]
    sums = sums_of(all_in)
    whole = [sample for sample in everything if sample.usage is not None]
    raw = sums_of(whole)
    oldest = min(counted, key=lambda sample: sample.at, default=None)
    assessment = MetricAssessment(
        **of_spec,
        n=sums.sampled,
        missing=sums.pods - sums.sampled,
        partial=sum(sample.is_partial for sample in counted),
        young=len(groups.young),
        overdue=sum(_is_overdue(inputs, metric, sample, since, before) for sample in all_in),
        usage=_usage(all_in, band),
        raw=raw.average(band) if whole else None,
        total=is_service_total(metric, inputs.samples),
        sampled_at=None if oldest is None else oldest.at,
        newest_at=max((sample.at for sample in counted), default=None),
        began_at=began,
        stale_at=None if oldest is None else oldest.at + source.max_age,
        window=None if oldest is None else oldest.window or None,
        samples=everything,
        error=None if sums.sampled else _error(inputs, metric, groups, all_in),
    )
    if not sums.sampled:
        return assessment, after
    if sums.usage == 0 and not band.accepts_zero:
        return replace(assessment, verdict=Verdict.INSIDE, is_ignored_zero=True), after
    loads = _loads(metric, groups, band, memory, began, since, serving, doubtful, idle, out)
    hot = [sample for sample in doubtful if band.exceeds(sample)]
    left_out = {sample.pod.uid for sample in doubtful} - {sample.pod.uid for sample in hot}
    groups_read = [(all_in, groups.replaceable)]
    if doubtful:
        groups_read.append(([*serving, *hot], groups.replaceable + len(groups.doubt_replaceable & left_out)))
    if policy.strategy is Strategy.STEP:
        readings = [step.reading(pods, serving, band, policy.step, replaceable) for pods, replaceable in groups_read]
        upper = step.upper(serving, loads, band, policy.step, has_changed=_turned_since(groups, memory, began))
    else:
        readings = [reading_of(sums_of(pods), band, replaceable) for pods, replaceable in groups_read]
        upper = upper_of(loads, band)
    hold = _hold(memory, groups, began)
    if hold is None and _are_moving(medians, now, assessment.window or 0.0):
        hold = HeldBy.WINDOWS
    if hold is None and not any(sample.usage is not None for sample in serving):
        hold = HeldBy.MISSING if serving else HeldBy.DOUBT
    towards = policy.converge_towards
    return (
        replace(
            assessment,
            lower=tuple(readings),
            upper=upper._replace(hold=hold),
            drift=None if towards is None else drift_of(towards, sums, loads, band),
            verdict=_verdict(assessment.usage, readings, upper, band),
        ),
        after,
    )


def _usage(samples: Sequence[PodSample], band: Band) -> Fraction | None:
    """The usage that people are shown: of the pods with a sample alone."""
    sampled = [sample for sample in samples if sample.usage is not None]
    return sums_of(sampled).average(band) if sampled else None


def _verdict(usage: Fraction | None, readings: Sequence[Reading], upper: Upper, band: Band) -> Verdict:
    """Where usage stands against the watermarks, whatever is missing."""
    is_above = band.beyond is not None and usage is not None and usage > band.beyond
    if is_above or any(reading.needed is not None for reading in readings):
        return Verdict.ABOVE
    is_below = band.under is not None and usage is not None and usage < band.under
    return Verdict.BELOW if is_below or upper.step is not None else Verdict.INSIDE


def _loads(
    metric: Metric,
    groups: PodGroups,
    band: Band,
    memory: Memory,
    began: float,
    since: dict[str, float],
    serving: Sequence[PodSample],
    doubtful: Sequence[PodSample],
    idle: Sequence[PodSample],
    out: Sequence[PodSample],
) -> Loads:
    """What the pods may carry, by the rules D1 to D5."""
    full, low = (band.beyond or Fraction(0)) / band.unit, (band.low or Fraction(0)) / band.unit
    known: Fraction | int = 0
    doubt: Fraction | int = 0
    filled: Fraction | int = 0
    shifted: Fraction | int = 0
    newcomers: Fraction | int = 0
    gaps = 0
    missing = [sample for sample in serving if sample.bound is None]
    unsure = [sample for sample in doubtful if sample.bound is None or sample.pod.uid in groups.young]
    young = [sample for sample in idle if sample.pod.uid in groups.young]
    counted = [*serving, *doubtful, *young, *out]
    sizes = [sample.sizes.smaller for sample in counted if sample.sizes is not None]
    mean = Fraction(sum(sizes), len(sizes) or 1)  # of a pod without a capacity
    for sample in chain(missing, unsure, young):  # D2
        fill = max(full * (mean if sample.sizes is None else sample.sizes.smaller), Fraction(sample.last))
        filled, gaps = filled + fill, gaps + 1
        if max(sample.pod.created_at, since[sample.pod.uid] if sample.pod.is_ready else 0.0) >= began:
            newcomers += fill
    known += sum(sample.bound for sample in serving if sample.bound is not None)  # D1
    away = [sample for sample in doubtful if sample.bound is not None and sample.pod.uid not in groups.young]
    out_uids = {sample.pod.uid for sample in out}
    for sample in chain(away, out):  # D3
        size = mean if sample.sizes is None else sample.sizes.smaller
        own, one_pod = sample.bound or 0, 0 if band.is_absolute else low * size
        turned_at, is_out = memory.pod(sample.pod.uid).turned_at, sample.pod.uid in out_uids
        has_turned = turned_at is not None and turned_at >= began
        if groups.deletes_out_first and is_out:  # D4
            known += own
            continue
        known += max(own, one_pod) if is_out else own
        doubt += 0 if is_out else max(0, one_pod - own)
        if has_turned:
            shifted += min(own, one_pod) if sample.bound is not None else sample.last
    left = [departed for departed in memory.departed.values() if departed.at >= began]
    lasts = [departed.last.get(metric.name, 0) for departed in left]
    return Loads(
        pods=len(counted),
        serving=len(serving),
        size=sum(sizes) + mean * (len(counted) - len(sizes)),
        known=known,
        doubt=doubt,
        filled=filled,
        departed=shifted + departed_load(lasts, serving, newcomers),
        gaps=gaps,
        doubtful=len(doubtful),
        left=len(left),
        kept=len(doubtful) + (0 if groups.deletes_out_first else len(out)),
    )


def _turned_since(groups: PodGroups, memory: Memory, began: float) -> bool:
    """Whether pods left, or turned pulled out, since the samples began: others carry their load now."""
    turned = (memory.pod(pod.uid).turned_at for pod in groups.out)
    return any(at is not None and at >= began for at in turned) or any(
        departed.at >= began for departed in memory.departed.values()
    )


def _hold(memory: Memory, groups: PodGroups, began: float) -> HeldBy | None:
    """Why nothing shrinks, whatever the load: too few pods serve, or the samples began before a start or a rise."""
    if not groups.may_shrink:
        return HeldBy.MIN_SERVING
    started, rose = memory.started_at, memory.rose_at
    is_warming = (started is not None and started > began) or (rose is not None and rose >= began)
    return HeldBy.WARMING_UP if is_warming else None


def _are_moving(medians: Sequence[tuple[float, int]], now: float, seconds: float) -> bool:
    """Whether windows fill or drain: their median count moved by more than one in the last so many seconds."""
    recent = [median for at, median in medians if now - at <= seconds]
    return bool(recent) and max(recent) - min(recent) > 1


def _thinned(medians: Sequence[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
    """The medians without those between two equal ones: a policy is assessed many times an hour."""
    return tuple(
        each
        for index, each in enumerate(medians)
        if not 0 < index < len(medians) - 1 or not medians[index - 1][1] == each[1] == medians[index + 1][1]
    )


def _lasts(before: MetricMemory, samples: Sequence[PodSample], now: float) -> dict[str, LastSample]:
    """The newest samples that counted, by UID."""
    lasts = {}
    for sample in samples:
        uid, remembered = sample.pod.uid, before.last.get(sample.pod.uid)
        if sample.bound is not None and (remembered is None or sample.at >= remembered.at):
            lasts[uid] = LastSample(sample.at, sample.bound)
        elif remembered is not None and now - remembered.at <= LAST_SAMPLE_SECONDS:
            lasts[uid] = remembered
    return lasts


def _is_overdue(
    inputs: AssessmentInputs, metric: Metric, sample: PodSample, since: dict[str, float], before: MetricMemory
) -> bool:
    """Whether a pod without a sample should have one: it is not new in service, and has missed several.

    One missed scrape is no trouble to tell of.
    """
    if sample.usage is not None:
        return False
    source, last = source_of(metric, inputs.samples), before.last.get(sample.pod.uid)
    window = source.window if isinstance(source, QuerySamples) else 0.0
    is_new = inputs.now - since[sample.pod.uid] < FIRST_SAMPLE_SECONDS + window
    return not is_new and (last is None or inputs.now - last.at > source.max_age + window)


def _assess_total(
    of_spec: dict[str, Any], inputs: AssessmentInputs, metric: Metric, groups: PodGroups, before: MetricMemory
) -> tuple[MetricAssessment, MetricMemory]:
    """Assess a number for the whole service: all pods that are in share it, and none is missing.

    Of a floor no pods are compared: it needs none to serve.
    """
    policy, memory, now = inputs.policy, inputs.memory, inputs.now
    source, band = query_samples(metric, inputs.samples), band_of(policy, metric, total=True)
    of_target = [*groups.serving, *groups.doubtful, *groups.out]
    point, median = counted_total(source, {pod.name: in_service_since(pod, memory.pod(pod.uid)) for pod in of_target})
    # A floor may be the past on purpose: it ages from when its value was the answer.
    at = point.at + source.behind if metric.floor else point.at
    began = at - source.window - source.interval
    medians = [each for each in before.medians if now - each[0] <= MEDIANS_SECONDS]
    if median is not None:
        medians.append((now, median))
    after = MetricMemory(medians=_thinned(medians))
    in_count, error = [*groups.serving, *groups.doubtful], None
    if now - at > source.max_age:
        error = source_error(metric, inputs.samples)
    bound = None if error else _bound_of_total(point, medians, memory, now, source.window)
    is_fresh = error is None
    if is_fresh and groups.running and not in_count and not metric.floor:
        error = NO_POD_SERVES
    assessment = MetricAssessment(
        **of_spec,
        n=len(in_count),
        usage=_share_of(point.value, len(in_count), policy.average) if is_fresh else None,
        raw=_share_of(point.value, groups.running, policy.average) if is_fresh else None,
        partial=len(in_count) if bound != point.value else 0,
        total=True,
        total_value=point.value if is_fresh else None,
        total_bound=bound,
        verdict=Verdict.INSIDE if error is None else Verdict.ERROR,
        sampled_at=at,
        newest_at=at,
        began_at=began,
        stale_at=at + source.max_age if is_fresh else None,
        window=source.window or None,
        error=error,
    )
    if error is not None or metric.floor or not in_count:
        return assessment, after
    if point.value == 0 and not band.accepts_zero:
        return replace(assessment, is_ignored_zero=True), after
    return _range_of_total(assessment, inputs, metric, groups, medians), after


def _range_of_total(
    assessment: MetricAssessment,
    inputs: AssessmentInputs,
    metric: Metric,
    groups: PodGroups,
    medians: Sequence[tuple[float, int]],
) -> MetricAssessment:
    """The assessment with the range of counts that a service total allows."""
    policy, memory, now = inputs.policy, inputs.memory, inputs.now
    source, band = query_samples(metric, inputs.samples), band_of(policy, metric, total=True)
    point, bound, began = source.total, assessment.total_bound, assessment.began_at or now
    assert point is not None
    n, in_count = len(groups.serving), [*groups.serving, *groups.doubtful]
    readings = [_share(point.value, len(in_count), band, policy, groups.replaceable)]
    if groups.doubtful and n:
        readings.append(_share(point.value, n, band, policy, groups.replaceable + len(groups.doubt_replaceable)))
    is_unread = _reads_some_pods(source, in_count) or any(
        in_service_since(pod, memory.pod(pod.uid)) >= began for pod in in_count
    )
    out = 0 if groups.deletes_out_first else len(groups.out)
    left = [departed for departed in memory.departed.values() if departed.at >= began]
    one_pod = Fraction(0) if band.is_absolute else band.low or Fraction(0)
    loads = Loads(
        pods=len(in_count) + out,
        serving=n,
        size=len(in_count) + out,
        known=(point.value if bound is None else bound) + out * one_pod,
        doubt=len(groups.doubtful) * one_pod,
        filled=0,
        departed=0,
        gaps=0,
        doubtful=len(groups.doubtful),
        left=len(left),
        kept=len(groups.doubtful) + out,
    )
    if policy.strategy is Strategy.STEP:
        of_pods = loads._replace(known=point.value if bound is None else bound)
        upper = step.upper_of_total(of_pods, band, policy.step, has_changed=_turned_since(groups, memory, began))
    else:
        upper = upper_of(loads, band)
    hold = _hold(memory, groups, began)
    if hold is None and (bound is None or is_unread):
        hold = HeldBy.MISSING
    if hold is None and _are_moving(medians, now, source.window):
        hold = HeldBy.WINDOWS
    upper = upper._replace(hold=hold, zero=band.low is not None and point.value == 0 and bound == 0)
    drift, towards = None, policy.converge_towards
    if towards is not None:
        sums = Sums(len(in_count), len(in_count), point.value, len(in_count), 0)
        whole = loads._replace(known=point.value, gaps=int(is_unread or bound != point.value))
        drift = drift_of(towards, sums, whole, band)
    verdict = _verdict(assessment.usage, readings, upper, band)
    return replace(assessment, lower=tuple(readings), upper=upper, drift=drift, verdict=verdict)


def _bound_of_total(
    point: Point, medians: Sequence[tuple[float, int]], memory: Memory, now: float, window: float
) -> int | None:
    """The most that a service total may be, which a window with a gap hides; None where nobody can tell."""
    if point.count is None:
        return point.value
    if point.count == UNCOUNTED:
        return None if memory.started_at is not None and now - memory.started_at <= window else point.value
    if point.count in {0, 1}:
        return None
    full = max((median for _, median in medians), default=0)
    return point.value if point.count >= full else -(-point.value * full // (point.count - 1))


def _reads_some_pods(source: QuerySamples, pods: Sequence[Pod]) -> bool:
    """Whether the query reads some of the pods and not others.

    Where one of several is read, it speaks for all, as the leader of a group does; where none is, something else counts
    their load, such as an ingress.
    """
    read = sum(pod.name in source.reads for pod in pods)
    return 1 < read < len(pods) or (read == 1 and len(pods) == 2)


def _share(total: int, pods: int, band: Band, policy: Policy, replaceable: int) -> Reading:
    """What the pods need that share a service total."""
    usage = Fraction(total) if band.is_absolute else Fraction(total, pods)
    if band.high is None or band.beyond is None or usage <= band.beyond:
        return Reading(pods, usage, None, replaceable)
    needed = -(-(pods * usage) // band.high) if band.is_absolute else -(-Fraction(total) // band.high)
    more = policy.step.up if policy.strategy is Strategy.STEP else 0
    return Reading(pods, usage, int(needed) + more, replaceable)


def _share_of(total: int, pods: int, average: Average) -> Fraction | None:
    if average is Average.TOTAL:
        return Fraction(total)
    return Fraction(total, pods) if pods else None


def _error(inputs: AssessmentInputs, metric: Metric, groups: PodGroups, samples: Sequence[PodSample]) -> str:
    """Why nothing can be compared, as a sentence."""
    pods, source = [sample.pod for sample in samples], source_of(metric, inputs.samples)
    if not groups.running and source.error:
        return source_error(metric, inputs.samples)
    if not pods:
        return NO_POD_SERVES
    if sentence := absent_container_sentence(metric, pods):
        return sentence
    if metric.of is not None and not any(sample.sizes for sample in samples):
        return no_capacity_sentence(metric, pods)
    reasons = {sample.missing for sample in samples} - {"", "no sample"}
    if not source.error and source.pods and reasons:
        return f"{source_name(metric)} has no fresh sample of a serving pod: {min(reasons)}"
    return source_error(metric, inputs.samples)
