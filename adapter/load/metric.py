"""One metric of a target: from its samples to the range of counts that its load allows."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from adapter.load.assessment import NO_UPPER, AssessmentInputs, Drift, HeldBy, MetricAssessment, Reading, Total, Verdict
from adapter.load.bounds import Band, Loads, Sums, band_of, reading_of, step_down, step_up, sums_of, upper_of
from adapter.load.memory import Departed, LastSample, Memory, MetricMemory, lasting
from adapter.load.pod_groups import PodGroups
from adapter.load.pod_samples import (
    MetricReader,
    PodSample,
    absent_container_sentence,
    bound_of,
    counted_total,
    is_service_total,
    no_capacity_sentence,
    source_error,
    source_name,
    source_of,
)
from adapter.load.pods import Pod, PodState
from adapter.load.samples import UNCOUNTED, QuerySamples
from adapter.load.spec import Converge, Metric, Strategy

NO_POD_SERVES = "no pod serves"
"""The error of a metric whose samples are fine but whose target has no pod in service."""


class _Measured(NamedTuple):
    """What the samples of a metric say before a bound is derived from them; without `readings` they say nothing.

    `readings`: the sums of each, and how many pods it replaces. `shown` and `bounds`: the usages that strategy Step
    compares with its limit above (None: the average alone), and below. `hold`: why the metric itself shrinks nothing.
    `is_whole`: no sample is missing or partial, so that the count may drift down.
    """

    n: int
    missing: int
    usage: Fraction | None
    raw: Fraction | None
    total: Total | None
    at: float | None
    newest: float | None
    began: float
    window: float | None
    error: str | None
    medians: tuple[tuple[float, int], ...]
    last: dict[str, LastSample]
    samples: Sequence[PodSample] = ()
    readings: Sequence[tuple[Sums, int]] = ()
    loads: Loads | None = None
    shown: Sequence[Fraction] | None = None
    bounds: Sequence[Fraction] = ()
    hold: HeldBy | None = None
    is_whole: bool = False


def assess_metric(inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> tuple[MetricAssessment, MetricMemory]:
    """The range of counts that one metric allows, and the memory of it. A floor has only its total."""
    policy, before, source = inputs.policy, inputs.memory.metric(metric.name), source_of(metric, inputs.samples)
    is_total = isinstance(source, QuerySamples) and (metric.floor or source.total is not None)
    band = band_of(policy, metric, total=is_total)
    if isinstance(source, QuerySamples) and is_total:
        measured = _measure_total(inputs, metric, source, band, groups, before)
    else:
        measured = _measure_pods(inputs, metric, band, groups, before)
    lower, upper, drift = tuple[Reading, ...](), NO_UPPER, None
    verdict = Verdict.INSIDE if measured.error is None else Verdict.ERROR
    if measured.loads is not None:
        has_changed = bool(_left_since(inputs.memory, measured.began)) or any(
            _has_turned(inputs.memory, pod, measured.began) for pod in groups.out
        )
        lower = tuple(reading_of(sums, band, replaceable) for sums, replaceable in measured.readings)
        if policy.strategy is Strategy.STEP:
            lower = tuple(step_up(reading, measured.shown, band, policy.step) for reading in lower)
            upper = step_down(measured.bounds, measured.loads, band, policy.step, has_changed=has_changed)
        else:
            upper = upper_of(measured.loads, band)
        is_idle = measured.total == (0, 0) and band.low is not None
        upper = upper._replace(
            hold=_hold(inputs, groups, measured), idle=measured.loads.kept if is_idle and upper.stages else None
        )
        drift = _drift(policy.converge_towards, groups, band, measured, has_changed=has_changed)
        if any(reading.needed is not None for reading in lower) or _exceeds(measured.usage, band.beyond):
            verdict = Verdict.ABOVE
        elif upper.step is not None or (measured.usage is not None and _exceeds(band.under, measured.usage)):
            verdict = Verdict.BELOW
    newest = inputs.now if measured.newest is None else measured.newest
    is_below = upper.hold is None and (upper.step is not None or bool(upper.stages and upper.stages[-1][1] is not None))
    is_above = any(reading.needed is not None for reading in lower)
    above_since = lasting(before.above_since, newest, holds=is_above)
    below_since = lasting(before.below_since, newest, holds=is_below)
    if below_since is not None and newest - below_since < metric.delay.down:
        upper = upper._replace(hold=HeldBy.DELAY)
    limits, max_age = policy.limits_of(metric), source.max_age
    is_fresh = measured.at is not None and inputs.now - measured.at <= max_age
    assessment = MetricAssessment(
        metric=metric,
        high=limits.high,
        low=limits.low,
        n=measured.n,
        missing=measured.missing,
        usage=measured.usage,
        raw=measured.raw,
        total=measured.total,
        verdict=verdict,
        lower=lower,
        upper=upper,
        drift=drift,
        is_delayed=above_since is not None and newest - above_since < metric.delay.up,
        sampled_at=measured.at,
        began_at=measured.began,
        stale_at=measured.at + max_age if measured.at is not None and is_fresh else None,
        window=measured.window or None,
        error=measured.error,
        samples=measured.samples,
    )
    after = MetricMemory(last=measured.last, medians=measured.medians, above_since=above_since, below_since=below_since)
    return assessment, after


def _exceeds(usage: Fraction | None, limit: Fraction | None) -> bool:
    return usage is not None and limit is not None and usage > limit


def _measure_pods(
    inputs: AssessmentInputs, metric: Metric, band: Band, groups: PodGroups, before: MetricMemory
) -> _Measured:
    """Measure a metric of the pods."""
    policy, memory, now, since = inputs.policy, inputs.memory, inputs.now, groups.in_service
    accepts_zero = policy.accept_zero_usage is True
    reader = MetricReader(
        metric, inputs.samples, now, before, accepts_zero=accepts_zero, started_at=memory.started_at
    )  # fmt: skip
    medians = reader.count_windows(chain(groups.serving, groups.doubtful, groups.out), since)
    serving, doubtful, idle, out = (
        [reader.sample(pod, since[pod.uid]) for pod in pods]
        for pods in (groups.serving, groups.doubtful, groups.idle, groups.out)
    )
    all_in, everything = serving + doubtful, [*serving, *doubtful, *out, *idle]
    counted = [sample for sample in everything[: len(everything) - len(idle)] if sample.usage is not None]
    oldest = min(counted, key=lambda sample: sample.at, default=None)
    interval = source_of(metric, inputs.samples).interval
    began = min([sample.at - sample.window for sample in counted], default=now) - interval
    sums, running = sums_of(all_in), [*counted, *(sample for sample in idle if sample.usage is not None)]
    sampled = sums if sums.sampled == sums.pods else sums_of(sample for sample in all_in if sample.usage is not None)
    measured = _Measured(
        n=sums.sampled,
        missing=sums.pods - sums.sampled,
        usage=sampled.average(band),
        raw=(sampled if len(running) == sums.sampled else sums_of(running)).average(band),
        total=Total() if is_service_total(metric, inputs.samples) else None,
        at=None if oldest is None else oldest.at,
        newest=max([sample.at for sample in counted], default=None),
        began=began,
        window=None if oldest is None else oldest.window,
        error=None if sums.sampled else _error(inputs, metric, groups, all_in),
        medians=medians,
        last=reader.lasts(everything, len(serving)),
        samples=everything,
    )
    if measured.error is not None or (sums.usage == 0 and not band.accepts_zero):
        return measured
    readings = [(sums, groups.replaceable)]
    if doubtful:
        idle_doubt = {sample.pod.uid for sample in doubtful if not band.exceeds(sample)}
        in_use = [sample for sample in all_in if sample.pod.uid not in idle_doubt]
        readings.append((sums_of(in_use), groups.replaceable + len(groups.doubt_replaceable & idle_doubt)))
    loads = _loads(metric, groups, band, memory, began, serving, doubtful, idle, out)
    hold = None
    if not any(sample.usage is not None for sample in serving):
        hold = HeldBy.MISSING if serving else HeldBy.DOUBT
    shown: list[Fraction] = []
    bounds: list[Fraction] = []
    if policy.strategy is Strategy.STEP:
        for sample in serving:
            if sample.sizes is not None and sample.usage is not None:
                shown.append(Fraction(sample.usage * band.unit, sample.sizes.larger))
            if sample.sizes is not None and sample.bound is not None:
                bounds.append(Fraction(sample.bound * band.unit, sample.sizes.smaller))
    return measured._replace(
        readings=readings,
        loads=loads,
        shown=shown,
        bounds=bounds,
        hold=hold,
        is_whole=not loads.gaps and all(sample.bound == sample.usage for sample in serving),
    )


def _measure_total(
    inputs: AssessmentInputs, metric: Metric, source: QuerySamples, band: Band, groups: PodGroups, before: MetricMemory
) -> _Measured:
    """Measure a number for the whole service: all pods that are in share it, and none is missing.

    A floor is compared with no pods, so it needs none to serve.
    """
    memory, now, all_in = inputs.memory, inputs.now, [*groups.serving, *groups.doubtful]
    in_service = {pod.name: groups.in_service[pod.uid] for pod in chain(all_in, groups.out)}
    point, median = counted_total(source, in_service)
    medians = before.with_median(median, now)
    error: str | None = source_error(metric, inputs.samples)
    if point is None:
        if source.pods or source.by_pod:
            needed = "a floor needs one number for the service; sum the query up, or take floor away"
            error = f"{source_name(metric)} answers by pod, and {needed}"
        return _Measured(0, 0, None, None, Total(), None, None, now, None, error, medians, {})
    # A floor may be the past on purpose: it ages from when its value was the answer.
    at = point.at + source.behind if metric.floor else point.at
    is_fresh, bound = now - at <= source.max_age, None
    if is_fresh:
        error = NO_POD_SERVES if groups.running and not all_in and not metric.floor else None
    if point.count == UNCOUNTED:
        is_new = memory.started_at is not None and now - memory.started_at <= source.window
        bound = None if is_new else point.value
    elif point.count is None or point.count > 1:
        bound = bound_of(point, max((median for _, median in medians), default=0))
    sums, running, of_serving = (
        Sums(pods, pods, point.value, pods, 0) for pods in (len(all_in), groups.running, len(groups.serving))
    )
    measured = _Measured(
        n=sums.pods,
        missing=0,
        usage=sums.average(band) if is_fresh else None,
        raw=running.average(band) if is_fresh else None,
        total=Total(point.value, bound) if is_fresh else Total(),
        at=at,
        newest=at,
        began=at - source.window - source.interval,
        window=source.window,
        error=error,
        medians=medians,
        last={},
    )
    if error is not None or metric.floor or not all_in or (point.value == 0 and not band.accepts_zero):
        return measured
    serving, doubtful = len(groups.serving), len(groups.doubtful)
    readings = [(sums, groups.replaceable)]
    if doubtful and serving:
        readings.append((of_serving, groups.replaceable + len(groups.doubt_replaceable)))
    most, out = point.value if bound is None else bound, 0 if groups.deletes_out_first else len(groups.out)
    one_pod = Fraction(0) if band.is_absolute else band.low or Fraction(0)
    # Where one of several pods is read, it speaks for all, as the leader of a group does; where none is, something else
    # counts their load, such as an ingress.
    read = sum(pod.name in source.reads for pod in all_in)
    is_unread = 1 < read < len(all_in) or (read == 1 and len(all_in) == 2)
    is_unread = is_unread or any(groups.in_service[pod.uid] >= measured.began for pod in all_in)
    return measured._replace(
        readings=readings,
        loads=Loads(
            pods=len(all_in) + out,
            serving=serving,
            size=len(all_in) + out,
            known=most + out * one_pod,
            doubt=doubtful * one_pod,
            filled=0,
            departed=0,
            gaps=len(groups.young) if inputs.policy.strategy is Strategy.STEP else 0,
            doubtful=doubtful,
            left=len(_left_since(memory, measured.began)),
            kept=doubtful + out,
        ),
        bounds=(Fraction(most, serving),) if serving else (),
        hold=HeldBy.MISSING if bound is None or is_unread else None,
        is_whole=not is_unread and bound == point.value,
    )


def _loads(
    metric: Metric,
    groups: PodGroups,
    band: Band,
    memory: Memory,
    began: float,
    serving: Sequence[PodSample],
    doubtful: Sequence[PodSample],
    idle: Sequence[PodSample],
    out: Sequence[PodSample],
) -> Loads:
    """What the pods may carry, by the rules D1 to D5."""
    full, low = (band.beyond or Fraction(0)) / band.unit, (band.low or Fraction(0)) / band.unit
    idle = [sample for sample in idle if sample.pod.uid in groups.young]
    counted = [*serving, *doubtful, *idle, *out]
    sizes = [sample.sizes.smaller for sample in counted if sample.sizes is not None]
    mean = Fraction(sum(sizes), len(sizes) or 1)  # of a pod without a capacity
    known = sum([sample.bound for sample in serving if sample.bound is not None])  # D1
    lasts = [departed.last.get(metric.name, 0) for departed in _left_since(memory, began)]
    gone: Fraction | int = 0
    if lasts:
        shown = sum(sample.bound is not None for sample in serving)
        mean_load = Fraction(known, shown or 1)
        gone = sum([max(mean_load, Fraction(last)) for last in lasts])  # D5
    carried: Fraction | int = known
    doubt: Fraction | int = 0
    filled = shifted = newcomers = Fraction(0)
    gaps, unsure = 0, [sample for sample in serving if sample.bound is None]
    for state, sample in chain(
        ((PodState.SERVING, sample) for sample in unsure),
        ((PodState.DOUBTFUL, sample) for sample in doubtful),
        ((PodState.STARTING, sample) for sample in idle),
        ((PodState.PULLED_OUT, sample) for sample in out),
    ):
        pod, size = sample.pod, mean if sample.sizes is None else sample.sizes.smaller
        is_out = state is PodState.PULLED_OUT
        if not is_out and (sample.bound is None or pod.uid in groups.young):  # D2
            fill = max(full * size, Fraction(sample.last))
            filled, gaps = filled + fill, gaps + 1
            if max(pod.created_at, sample.since if pod.is_ready else 0.0) >= began:
                newcomers += fill
            continue
        own, one_pod = sample.bound or 0, Fraction(0) if band.is_absolute else low * size  # D3
        if is_out and groups.deletes_out_first and sample.bound is not None:  # D4
            one_pod = Fraction(0)
        carried += max(own, one_pod) if is_out else own
        doubt += 0 if is_out else max(Fraction(0), one_pod - own)
        if _has_turned(memory, pod, began):
            # Others carry by now what it carried before, which only its last sample of that time shows.
            shifted += max(0, sample.last - own) + min(Fraction(own), one_pod)
    return Loads(
        pods=len(counted),
        serving=len(serving),
        size=sum(sizes) + mean * (len(counted) - len(sizes)),
        known=carried,
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


def _hold(inputs: AssessmentInputs, groups: PodGroups, measured: _Measured) -> HeldBy | None:
    """Why nothing shrinks, whatever the load."""
    if not groups.may_shrink:
        return HeldBy.MIN_SERVING
    started, rose = inputs.memory.started_at, inputs.memory.rose_at
    if (started is not None and started > measured.began) or (rose is not None and rose >= measured.began):
        return HeldBy.WARMING_UP
    recent = [median for at, median in measured.medians if inputs.now - at <= (measured.window or 0.0)]
    return measured.hold or (HeldBy.WINDOWS if recent and max(recent) - min(recent) > 1 else None)


def _drift(
    towards: Converge | None,
    groups: PodGroups,
    band: Band,
    measured: _Measured,
    *,
    has_changed: bool,
) -> Drift | None:
    """A step inside the band toward a watermark; None where there may be none.

    One down is only taken where nothing is missing, young, doubtful or partial, and nothing has changed.
    """
    limit = {Converge.LOW: band.low, Converge.HIGH: band.high}.get(towards) if towards is not None else None
    sums = measured.readings[0][0]
    usage = sums.average(band)
    if limit is None or usage is None:
        return None
    is_settled = measured.is_whole and not (has_changed or groups.doubtful or groups.young)
    is_settled = is_settled and not any(groups.in_service[pod.uid] >= measured.began for pod in groups.serving)
    if towards is Converge.HIGH and not is_settled:
        return None
    return Drift(towards is Converge.LOW, sums.pods, usage * sums.pods, limit)


def _error(inputs: AssessmentInputs, metric: Metric, groups: PodGroups, samples: Sequence[PodSample]) -> str:
    """Why nothing can be compared, as a sentence."""
    pods, source = [sample.pod for sample in samples], source_of(metric, inputs.samples)
    if not pods and not (source.error and not groups.running):
        return NO_POD_SERVES
    if sentence := absent_container_sentence(metric, pods):
        return sentence
    if pods and metric.relative_to is not None and not any(sample.sizes for sample in samples):
        return no_capacity_sentence(metric, pods)
    reasons = {sample.missing for sample in samples} - {"", "no sample"}
    if not source.error and source.pods and reasons:
        return f"{source_name(metric)} has no fresh sample of a serving pod: {min(reasons)}"
    return source_error(metric, inputs.samples)
