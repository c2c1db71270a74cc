"""One metric of a target: from its samples to the range of counts that its load allows."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain

from adapter.load import step
from adapter.load.assessment import AssessmentInputs, HeldBy, MetricAssessment, Verdict
from adapter.load.bounds import Band, Loads, Sums, band_of, drift_of, reading_of, sums_of, upper_of
from adapter.load.memory import (
    LAST_SAMPLE_SECONDS,
    MEDIANS_SECONDS,
    Departed,
    LastSample,
    Memory,
    MetricMemory,
    lasting,
)
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
from adapter.load.samples import UNCOUNTED, Point, QuerySamples
from adapter.load.spec import Metric, Strategy

NO_POD_SERVES = "no pod serves"
"""The error of a metric whose samples are fine but whose target has no pod in service."""
FIRST_SAMPLE_SECONDS = 120.0
"""How long after a metric's window a new pod may have no sample: of scrapes, polls and clocks."""


def assess_metric(inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> tuple[MetricAssessment, MetricMemory]:
    """The range of counts that one metric allows, and the memory of it. A floor has only its total."""
    before = inputs.memory.metric(metric.name)
    high, low = inputs.policy.limits_of(metric)
    blank = MetricAssessment(name=metric.name, target=metric.target, floor=metric.floor, high=high, low=low)
    if metric.resource is None and query_samples(metric, inputs.samples).total is not None:
        assessment, memory = _assess_total(blank, inputs, metric, groups, before)
    elif metric.floor:
        source, error = query_samples(metric, inputs.samples), source_error(metric, inputs.samples)
        if source.pods or source.by_pod:
            needed = "a floor needs one number for the service; sum the query up, or take floor away"
            error = f"{source_name(metric)} answers by pod, and {needed}"
        assessment, memory = replace(blank, total=True, error=error), before
    else:
        assessment, memory = _assess_pods(blank, inputs, metric, groups, before)
    upper = assessment.upper
    is_above = any(reading.needed is not None for reading in assessment.lower)
    is_below = upper.hold is None and (upper.step is not None or bool(upper.stages and upper.stages[-1][1] is not None))
    newest = inputs.now if assessment.newest_at is None else assessment.newest_at
    above_since = lasting(before.above_since, newest, holds=is_above)
    below_since = lasting(before.below_since, newest, holds=is_below)
    delays = ((Verdict.ABOVE, above_since, metric.delay.up), (Verdict.BELOW, below_since, metric.delay.down))
    delayed = frozenset(side for side, since, delay in delays if since is not None and newest - since < delay)
    memory = replace(memory, above_since=above_since, below_since=below_since)
    return (replace(assessment, delayed=delayed) if delayed else assessment), memory


def _assess_pods(
    blank: MetricAssessment, inputs: AssessmentInputs, metric: Metric, groups: PodGroups, before: MetricMemory
) -> tuple[MetricAssessment, MetricMemory]:
    """Assess a metric of the pods."""
    policy, memory, now = inputs.policy, inputs.memory, inputs.now
    source, band = source_of(metric, inputs.samples), band_of(policy, metric, total=False)
    reader = MetricReader(
        metric, inputs.samples, now, before,
        accepts_zero=policy.accept_zero_usage is True, started_at=memory.started_at,
    )  # fmt: skip
    since = {pod.uid: in_service_since(pod, memory.pod(pod.uid)) for pod in inputs.pods}
    reader.count_windows({pod.name: since[pod.uid] for pod in chain(groups.serving, groups.doubtful, groups.out)})
    serving, doubtful, idle, out = (
        [reader.sample(pod, since[pod.uid]) for pod in pods]
        for pods in (groups.serving, groups.doubtful, groups.idle, groups.out)
    )
    everything = [*serving, *doubtful, *idle, *out]
    all_in = [*serving, *doubtful]
    counted = [sample for sample in chain(all_in, out) if sample.usage is not None]
    oldest = min(counted, key=lambda sample: sample.at, default=None)
    began = min((sample.began for sample in counted), default=now) - source.interval
    medians = [each for each in before.medians if now - each[0] <= MEDIANS_SECONDS]
    if reader.median is not None:
        medians.append((now, reader.median))
    turned = {pod.uid for pod in chain(groups.doubtful, groups.out) if _has_turned(memory, pod, began)}
    turned |= {pod.uid for pod in groups.idle if since[pod.uid] >= began}
    after = MetricMemory(
        last=_lasts(before, everything, turned, now),
        medians=_thinned(medians),
        gap_at=reader.gaps(everything),
    )
    sums = sums_of(all_in)
    sampled = [sample for sample in everything if sample.usage is not None]
    assessment = replace(
        blank,
        n=sums.sampled,
        missing=sums.pods - sums.sampled,
        partial=sum(sample.is_partial for sample in counted),
        young=len(groups.young),
        overdue=sum(_is_overdue(inputs, metric, sample, since, before) for sample in all_in),
        usage=sums_of(sample for sample in all_in if sample.usage is not None).average(band),
        raw=sums_of(sampled).average(band),
        total=is_service_total(metric, inputs.samples),
        sampled_at=None if oldest is None else oldest.at,
        newest_at=max((sample.at for sample in counted), default=None),
        began_at=began,
        stale_at=None if oldest is None else oldest.at + source.max_age,
        window=None if oldest is None else oldest.window or None,
        samples=everything,
        error=None if sums.sampled else _error(inputs, metric, groups, all_in),
    )
    if assessment.error is not None:
        return assessment, after
    if sums.usage == 0 and not band.accepts_zero:
        return replace(assessment, verdict=Verdict.INSIDE, is_ignored_zero=True), after
    in_use = [*serving, *(sample for sample in doubtful if band.exceeds(sample))]
    left_out = {sample.pod.uid for sample in doubtful} - {sample.pod.uid for sample in in_use}
    readings = [(sums, groups.replaceable)]
    if doubtful:
        readings.append((sums_of(in_use), groups.replaceable + len(groups.doubt_replaceable & left_out)))
    loads = _loads(metric, groups, band, memory, began, since, serving, doubtful, idle, out)
    hold = None
    if not any(sample.usage is not None for sample in serving):
        hold = HeldBy.MISSING if serving else HeldBy.DOUBT
    is_whole = not loads.gaps and all(sample.bound == sample.usage for sample in serving)
    by_pod = step.usages_of(serving, band) if policy.strategy is Strategy.STEP else ((), ())
    return _with_range(
        assessment, inputs, groups, band, readings, loads, by_pod, medians, hold, is_whole=is_whole
    ), after  # fmt: skip


def _assess_total(
    blank: MetricAssessment, inputs: AssessmentInputs, metric: Metric, groups: PodGroups, before: MetricMemory
) -> tuple[MetricAssessment, MetricMemory]:
    """Assess a number for the whole service: all pods that are in share it, and none is missing.

    A floor is compared with no pods, so it needs none to serve.
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
    all_in = [*groups.serving, *groups.doubtful]
    is_fresh = now - at <= source.max_age
    error = None if is_fresh else source_error(metric, inputs.samples)
    if is_fresh and groups.running and not all_in and not metric.floor:
        error = NO_POD_SERVES
    bound = _bound_of_total(point, medians, memory, now, source.window) if is_fresh else None
    sums, whole = (Sums(pods, pods, point.value, pods, 0) for pods in (len(all_in), groups.running))
    assessment = replace(
        blank,
        n=sums.pods,
        usage=sums.average(band) if is_fresh else None,
        raw=whole.average(band) if is_fresh else None,
        partial=sums.pods if bound != point.value else 0,
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
    if error is not None or metric.floor or not all_in:
        return assessment, after
    if point.value == 0 and not band.accepts_zero:
        return replace(assessment, is_ignored_zero=True), after
    serving, doubtful = len(groups.serving), len(groups.doubtful)
    readings = [(sums, groups.replaceable)]
    if doubtful and serving:
        of_serving = Sums(serving, serving, point.value, serving, 0)
        readings.append((of_serving, groups.replaceable + len(groups.doubt_replaceable)))
    most = point.value if bound is None else bound
    out = 0 if groups.deletes_out_first else len(groups.out)
    one_pod = Fraction(0) if band.is_absolute else band.low or Fraction(0)
    loads = Loads(
        pods=len(all_in) + out,
        serving=serving,
        size=len(all_in) + out,
        known=most + out * one_pod,
        doubt=doubtful * one_pod,
        filled=0,
        departed=0,
        gaps=len(groups.young) if policy.strategy is Strategy.STEP else 0,
        doubtful=doubtful,
        left=len(_left_since(memory, began)),
        kept=doubtful + out,
    )
    is_unread = _reads_some_pods(source, all_in) or any(
        in_service_since(pod, memory.pod(pod.uid)) >= began for pod in all_in
    )
    hold = HeldBy.MISSING if bound is None or is_unread else None
    is_whole = not is_unread and bound == point.value
    shared = (Fraction(most, serving),) if serving else ()
    assessment = _with_range(
        assessment, inputs, groups, band, readings, loads, (None, shared), medians, hold,
        is_whole=is_whole,
    )  # fmt: skip
    is_idle = band.low is not None and point.value == bound == 0
    return replace(assessment, upper=assessment.upper._replace(idle=loads.kept if is_idle else None)), after


def _with_range(
    assessment: MetricAssessment,
    inputs: AssessmentInputs,
    groups: PodGroups,
    band: Band,
    readings: Sequence[tuple[Sums, int]],
    loads: Loads,
    by_pod: tuple[Sequence[Fraction] | None, Sequence[Fraction]],
    medians: Sequence[tuple[float, int]],
    hold: HeldBy | None,
    *,
    is_whole: bool,
) -> MetricAssessment:
    """The assessment with the range of counts that the load allows.

    `readings`: the sums of each, and how many pods it replaces. `by_pod`: the usages of the serving pods that strategy
    Step compares with its limit above, and below. `hold`: why the metric itself shrinks nothing. `is_whole`: no sample
    is missing or partial, so that the count may drift down.
    """
    policy, memory = inputs.policy, inputs.memory
    began = inputs.now if assessment.began_at is None else assessment.began_at
    has_changed = bool(_left_since(memory, began)) or any(_has_turned(memory, pod, began) for pod in groups.out)
    if policy.strategy is Strategy.STEP:
        shown, bounds = by_pod
        lower = tuple(step.reading(sums, shown, band, policy.step, replaceable) for sums, replaceable in readings)
        upper = step.upper(bounds, loads, band, policy.step, has_changed=has_changed)
    else:
        lower = tuple(reading_of(sums, band, replaceable) for sums, replaceable in readings)
        upper = upper_of(loads, band)
    is_moving = _are_moving(medians, inputs.now, assessment.window or 0.0)
    hold = _hold(memory, groups, began) or hold or (HeldBy.WINDOWS if is_moving else None)
    drift, usage = None, assessment.usage
    if policy.converge_towards is not None:
        is_settled = (
            is_whole
            and not (has_changed or groups.doubtful or groups.young)
            and not any(in_service_since(pod, memory.pod(pod.uid)) >= began for pod in groups.serving)
        )
        drift = drift_of(policy.converge_towards, readings[0][0], band, is_settled=is_settled)
    is_above = band.beyond is not None and usage is not None and usage > band.beyond
    is_below = band.under is not None and usage is not None and usage < band.under
    verdict = Verdict.BELOW if is_below or upper.step is not None else Verdict.INSIDE
    if is_above or any(reading.needed is not None for reading in lower):
        verdict = Verdict.ABOVE
    return replace(
        assessment,
        lower=lower,
        upper=upper._replace(hold=hold),
        drift=drift,
        verdict=verdict,
    )


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
    known: Fraction | int = sum(sample.bound for sample in serving if sample.bound is not None)  # D1
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
    away = [sample for sample in doubtful if sample.bound is not None and sample.pod.uid not in groups.young]
    out_uids = {sample.pod.uid for sample in out}
    for sample in chain(away, out):  # D3
        size = mean if sample.sizes is None else sample.sizes.smaller
        own, one_pod = sample.bound or 0, 0 if band.is_absolute else low * size
        is_out = sample.pod.uid in out_uids
        if groups.deletes_out_first and is_out and sample.bound is not None:  # D4
            known, one_pod = known + own, 0
        else:
            known += max(own, one_pod) if is_out else own
            doubt += 0 if is_out else max(0, one_pod - own)
        if _has_turned(memory, sample.pod, began):
            # Others carry by now what it carried before, which only its last sample of that time shows.
            shifted += max(0, sample.last - own) + min(own, one_pod)
    lasts = [departed.last.get(metric.name, 0) for departed in _left_since(memory, began)]
    shown = [sample.bound for sample in serving if sample.bound is not None]
    average = Fraction(sum(shown), len(shown)) if shown and lasts else Fraction(0)
    gone = sum((max(average, Fraction(last)) for last in lasts), Fraction(0))  # D5
    return Loads(
        pods=len(counted),
        serving=len(serving),
        size=sum(sizes) + mean * (len(counted) - len(sizes)),
        known=known,
        doubt=doubt,
        filled=filled,
        departed=shifted + max(Fraction(0), gone - newcomers),
        gaps=gaps,
        doubtful=len(doubtful),
        left=len(lasts),
        kept=len(doubtful) + (0 if groups.deletes_out_first else len(out)),
    )


def _left_since(memory: Memory, began: float) -> list[Departed]:
    """The pods that left since the samples began: others carry their load now."""
    return [departed for departed in memory.departed.values() if departed.at >= began]


def _has_turned(memory: Memory, pod: Pod, began: float) -> bool:
    """Whether this pod turned pulled out or doubtful since the samples began."""
    turned_at = memory.pod(pod.uid).turned_at
    return turned_at is not None and turned_at >= began


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


def _lasts(
    before: MetricMemory, samples: Sequence[PodSample], turned: Collection[str], now: float
) -> dict[str, LastSample]:
    """The newest samples that counted, by UID; of pods that `turned` away or unready, the largest since then.

    Samples are not all of the same time: theirs may show that they are idle before those of others show their load.
    """
    lasts = {}
    for sample in samples:
        uid, remembered = sample.pod.uid, before.last.get(sample.pod.uid)
        if sample.bound is not None and (remembered is None or sample.at >= remembered.at):
            lasts[uid] = LastSample(sample.at, sample.last if uid in turned else sample.bound)
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


def _error(inputs: AssessmentInputs, metric: Metric, groups: PodGroups, samples: Sequence[PodSample]) -> str:
    """Why nothing can be compared, as a sentence."""
    pods, source = [sample.pod for sample in samples], source_of(metric, inputs.samples)
    if not groups.running and source.error:
        return source_error(metric, inputs.samples)
    if not pods:
        return NO_POD_SERVES
    if sentence := absent_container_sentence(metric, pods):
        return sentence
    if metric.relative_to is not None and not any(sample.sizes for sample in samples):
        return no_capacity_sentence(metric, pods)
    reasons = {sample.missing for sample in samples} - {"", "no sample"}
    if not source.error and source.pods and reasons:
        return f"{source_name(metric)} has no fresh sample of a serving pod: {min(reasons)}"
    return source_error(metric, inputs.samples)
