"""`decide`: from an assessment and the live count to the count that the policy asks for; at each request.

The count moves only as far as it must to be between the lower and the upper bound of the load:
`max(lower, min(current, upper))`. What follows the metrics may move it again, in the order of `_limited`.
"""

from dataclasses import replace

from adapter.load.assessment import Assessment, Decision, Drift, HeldBy, MetricAssessment, Outcome, Reading, Verdict
from adapter.load.explanation import metric_errors
from adapter.load.hpa_value import served_value, within_hpa_tolerance
from adapter.load.memory import Memory, after_scale, last_scaled
from adapter.load.pods import GONE, PodState
from adapter.load.rate_limits import Limited, limit_rate, raise_to_floor
from adapter.load.schedule import ScheduleLimits, limits_at
from adapter.load.spec import Bounds, Converge, Policy, Scale


def decide(assessment: Assessment, scale: Scale, bounds: Bounds, now: float) -> Decision:
    """Decide the count that the policy asks for at the live replica count. `now` is in seconds.

    Where nothing can be decided, the decision has an error (a sentence) and no count; the HPA then holds.
    """
    current, policy = scale.replicas, assessment.policy
    memory = after_scale(assessment.memory, scale, now)
    outcomes = _outcomes(assessment, memory, current, bounds)
    deciding = [outcome for outcome in outcomes if not outcome.metric.floor]
    best = max(deciding, key=lambda outcome: outcome.proposal, default=None)
    floors = [outcome for outcome in outcomes if outcome.metric.floor]
    floor = max(floors, key=lambda outcome: outcome.proposal, default=None)
    if policy.rests(now):
        return _decision(scale, bounds, Limited(current, HeldBy.MODE), best, outcomes)
    open_now = limits_at(assessment.windows, now)
    error = _error(assessment, current, best)
    if error is not None or best is None:
        substitute = _substitute(assessment, current, open_now, now)
        if floor is not None and floor.proposal > current:
            raised = _limited(assessment, memory, Limited(floor.proposal, None), current, bounds, open_now, now)
            substitute, best = (raised, floor) if raised.desired > substitute.desired else (substitute, best)
        if substitute.desired == current or (current == 0 and bounds.minimum > 0):
            return Decision(error=error or "no metric has an answer", current=current, outcomes=outcomes)
        return _decision(scale, bounds, _bounded(substitute, bounds), best, outcomes)
    if current == 0 and bounds.minimum > 0:
        return _decision(scale, bounds, Limited(0, None), best, outcomes)
    wanted = Limited(best.proposal, best.held_by)
    if best.proposal < current and len(deciding) < sum(not metric.floor for metric in assessment.metrics):
        wanted = Limited(current, HeldBy.METRIC_ERROR)
    if floor is not None and floor.proposal > wanted.desired:
        wanted, best = Limited(floor.proposal, None), floor
    limited = _limited(assessment, memory, wanted, current, bounds, open_now, now)
    return _decision(scale, bounds, _bounded(limited, bounds), best, outcomes)


def in_error(assessment: Assessment, current: int) -> bool:
    """Whether nothing can be decided: no usable metric has an answer, or the target has no pods."""
    usable = _usable_metrics(assessment, current)
    if current and not _has_pods(assessment):
        return True
    # At zero replicas a total has an answer although no pod serves.
    return bool(usable) and all(metric.error and (current or metric.total_value is None) for metric in usable)


def _outcomes(assessment: Assessment, memory: Memory, current: int, bounds: Bounds) -> tuple[Outcome, ...]:
    """The outcome of each metric that has an answer. At zero replicas only service totals have one."""
    policy = assessment.policy
    if current == 0:
        return tuple(
            _floor(metric, 0, policy.replica_multiple) if metric.floor else _at_zero(metric)
            for metric in assessment.metrics
            if metric.total_value is not None
        )
    starting = assessment.counts.get(PodState.STARTING, 0)
    return tuple(
        _floor(metric, current, policy.replica_multiple)
        if metric.floor
        else _outcome(policy, metric, memory, current, starting, bounds)
        for metric in assessment.metrics
        if metric.error is None
    )


def _outcome(
    policy: Policy,
    metric: MetricAssessment,
    memory: Memory,
    current: int,
    starting: int,
    bounds: Bounds,
) -> Outcome:
    """What a metric proposes: the count nearest to the current one that its load allows. Up beats down."""
    multiple, began = policy.replica_multiple, metric.began_at
    changed = began is not None and memory.changed_at is not None and memory.changed_at >= began
    lower, reading, replaced = _lower(metric, current, starting, multiple)
    upper, cause = _upper(metric, current, bounds, multiple, has_changed=changed)
    if metric.drift is not None and not changed and lower is None and upper is None:
        lower, upper = _drifted(metric.drift, current, multiple)
    outcome = Outcome(
        metric=metric,
        proposal=current,
        verdict=metric.verdict,
        lower_bound=lower,
        upper_bound=upper,
        reading=reading,
        replaced=replaced,
    )
    if lower is not None and lower >= current:
        if Verdict.ABOVE in metric.delayed:
            return _proposing(outcome, current, HeldBy.DELAY)
        all_in = _count(metric.lower[0], current, starting, multiple) if metric.lower else None
        is_by_doubt = reading is not None and lower > max(current, all_in or 0) and metric.drift is None
        return _proposing(outcome, lower, HeldBy.DOUBT if is_by_doubt else None)
    if metric.verdict is Verdict.ABOVE:
        return _proposing(outcome, current, HeldBy.MISSING if metric.missing else None)
    if upper is None or upper >= current:
        is_kept = metric.verdict is Verdict.BELOW and cause is None
        return _proposing(outcome, current, _why_kept(metric) if is_kept else cause)
    hold = metric.upper.hold
    if hold is None and began is not None and memory.rose_at is not None and memory.rose_at >= began:
        hold = HeldBy.WARMING_UP
    if hold is None and Verdict.BELOW in metric.delayed:
        hold = HeldBy.DELAY
    if hold is not None:
        return _proposing(outcome, current, hold)
    return _proposing(outcome, upper, cause)


def _proposing(outcome: Outcome, proposal: int, held_by: HeldBy | None) -> Outcome:
    return replace(outcome, proposal=proposal, held_by=held_by)


def _drifted(drift: Drift, current: int, multiple: int) -> tuple[int | None, int | None]:
    """The bounds that move the count to the next multiple inside the band, unless that passes the watermark."""
    if drift.towards is Converge.LOW:
        wanted = (current // multiple + 1) * multiple
        pods = drift.pods + wanted - current
        return (wanted, None) if pods > 0 and drift.load / pods >= drift.limit else (None, None)
    wanted = (-(-current // multiple) - 1) * multiple
    pods = drift.pods + wanted - current
    return (None, wanted) if pods > 0 and wanted > 0 and drift.load / pods <= drift.limit else (None, None)


def _why_kept(metric: MetricAssessment) -> HeldBy | None:
    """What keeps the count where usage is below the low watermark, and the known load alone asks for as many pods."""
    return metric.upper.hold or (HeldBy.MISSING if metric.partial else None)


def _lower(
    metric: MetricAssessment, current: int, starting: int, multiple: int
) -> tuple[int | None, Reading | None, int]:
    """The lower bound, the reading that sets it and how many pods of it replace others; None where none is above."""
    above = [reading for reading in metric.lower if reading.needed is not None]
    if not above:
        return None, None, 0
    counts = [(_count(reading, current, starting, multiple) or 0, -index) for index, reading in enumerate(above)]
    count, index = max(counts)
    reading = above[-index]
    return max(current, count), reading, _replaced_pods(reading, current, starting)


def _count(reading: Reading, current: int, starting: int, multiple: int) -> int | None:
    """The count that a reading needs; None where it is not above the high watermark."""
    if reading.needed is None:
        return None
    needed = reading.needed + _replaced_pods(reading, current, starting)
    # A count that is enough is kept: rounding up what is needed must not raise it.
    return needed if needed <= current else _rounded_up(needed, multiple)


def _replaced_pods(reading: Reading, current: int, starting: int) -> int:
    """How many pods that are out are replaced: at most the count less the pods of the reading and those that start."""
    return max(0, min(reading.replaceable, current - reading.pods - starting))


def _upper(
    metric: MetricAssessment, current: int, bounds: Bounds, multiple: int, *, has_changed: bool
) -> tuple[int | None, HeldBy | None]:
    """The upper bound, and the last rule that raised what would be proposed; None: no bound."""
    upper = metric.upper
    needs_none = upper.zero and bounds.minimum == 0
    if needs_none and upper.step is None:
        return 0, None
    if upper.step is not None:
        if has_changed:
            return None, HeldBy.DEPARTED
        least = upper.step.least if needs_none else max(1, upper.step.least)
        count = min(current, _rounded_up(max(least, current - upper.step.by), multiple))
        is_carried = needs_none or upper.step.serving - (current - count) >= upper.step.fewest
        return (count if is_carried else None), None
    before, cause, rounded = current, None, None
    for index, (rule, justified) in enumerate(upper.stages):
        rounded = None if justified is None else _rounded_up(justified, multiple)
        proposed = current if rounded is None else min(current, rounded)
        if index and proposed != before:
            cause = rule
        before = proposed
    return rounded, cause


def _rounded_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _at_zero(metric: MetricAssessment) -> Outcome:
    """At zero replicas any load of the service asks for one pod."""
    verdict = Verdict.ABOVE if metric.total_value else Verdict.INSIDE
    return Outcome(metric=metric, proposal=int(bool(metric.total_value)), verdict=verdict)


def _floor(metric: MetricAssessment, current: int, multiple: int) -> Outcome:
    """A floor: a service total that keeps the count from falling below what it needs, and does nothing else.

    It never proposes the current count, so it neither holds nor lowers it. Where a window with a gap needs no more than
    the current count, it may need as much as its bound.
    """
    one_pod = metric.high if metric.target is None else metric.target
    assert one_pod is not None
    assert metric.total_value is not None
    needed = int(-(-metric.total_value // one_pod))
    is_above = needed > current
    if not is_above and metric.total_bound is not None:
        needed = int(-(-metric.total_bound // one_pod))
    rounded = _rounded_up(needed, multiple)
    return Outcome(
        metric=metric,
        proposal=rounded if is_above else min(current, rounded),
        verdict=Verdict.ABOVE if is_above else Verdict.INSIDE,
        lower_bound=rounded,
    )


def _limited(
    assessment: Assessment,
    memory: Memory,
    wanted: Limited,
    current: int,
    bounds: Bounds,
    open_now: ScheduleLimits,
    now: float,
) -> Limited:
    return limit_rate(wanted, current, assessment.policy, open_now, last_scaled(memory, bounds, now), now)


def _substitute(assessment: Assessment, current: int, open_now: ScheduleLimits, now: float) -> Limited:
    """The count while no metric has an answer: the current, the fallback's or a schedule's, whichever is largest."""
    substitute, fallback = Limited(current, None), assessment.policy.fallback
    since = assessment.memory.error_since if in_error(assessment, current) else None  # the watched count may differ
    if fallback is not None and since is not None and now - since >= fallback.after and fallback.replicas > current:
        substitute = Limited(fallback.replicas, HeldBy.METRIC_ERROR)
    return raise_to_floor(substitute, open_now.floor)


def _bounded(limited: Limited, bounds: Bounds) -> Limited:
    bounded = max(bounds.minimum, min(bounds.maximum, limited.desired))
    return limited if bounded == limited.desired else Limited(bounded, HeldBy.BOUNDS)


def _decision(
    scale: Scale, bounds: Bounds, limited: Limited, best: Outcome | None, outcomes: tuple[Outcome, ...]
) -> Decision:
    effective = within_hpa_tolerance(limited, scale, bounds)
    if isinstance(effective, str):
        return Decision(error=effective, current=scale.replicas, outcomes=outcomes)
    ranges = [outcome for outcome in outcomes if not outcome.metric.floor]
    lowers = [outcome.lower_bound for outcome in outcomes if outcome.lower_bound is not None]
    uppers = [outcome.upper_bound for outcome in ranges]
    is_limited = bool(uppers) and all(upper is not None for upper in uppers)
    return Decision(
        desired=effective.desired,
        served=served_value(effective.desired, scale.status_replicas),
        verdict=best.verdict if best else Verdict.ERROR,
        held_by=effective.held_by,
        current=scale.replicas,
        lower_bound=max(lowers, default=None),
        upper_bound=max(upper for upper in uppers if upper is not None) if is_limited else None,
        outcome=best,
        outcomes=outcomes,
        suppressed=limited.desired - effective.desired,
    )


def _error(assessment: Assessment, current: int, best: Outcome | None) -> str | None:
    """Why nothing can be decided, None where something can."""
    if current and not _has_pods(assessment):
        return f"no pods of {assessment.target} exist"
    if best is not None:
        return None
    at_zero = [] if current else [f"{assessment.target} is scaled to zero"]
    errors = metric_errors(assessment.policy, _usable_metrics(assessment, current))
    return "; ".join(at_zero + [errors] * bool(errors))


def _has_pods(assessment: Assessment) -> bool:
    return any(count for state, count in assessment.counts.items() if state not in GONE)


def _usable_metrics(assessment: Assessment, current: int) -> list[MetricAssessment]:
    """The metrics that can decide at this count: at zero replicas only service totals, whatever pods are left.

    A floor decides nothing by itself.
    """
    return [metric for metric in assessment.metrics if (current or metric.total) and not metric.floor]
