"""`decide`: from an assessment and the live count to the count that the policy asks for; at each request.

The count moves only as far as it must to be between the lower and the upper bound of the load: `max(lower, min(current,
upper))`. What follows the metrics may move it again: `limit_rate`, then the HPA's bounds.
"""

import math

from adapter.load.assessment import Assessment, Decision, HeldBy, Limited, MetricAssessment, Outcome, Reading, Verdict
from adapter.load.explanation import metric_errors
from adapter.load.memory import Memory, after_scale, last_scaled
from adapter.load.pod_samples import Total
from adapter.load.pods import GONE, PodState
from adapter.load.quantity import approximate_float, percent_text
from adapter.load.schedule import ScheduleLimits, limits_at
from adapter.load.spec import Bounds, HpaTolerance, Mode, Policy, Scale


def decide(assessment: Assessment, scale: Scale, bounds: Bounds, now: float) -> Decision:
    """Decide the count that the policy asks for at the live replica count. `now` is in seconds.

    Where nothing can be decided, the decision has an error (a sentence) and no count; the HPA then holds.
    """
    current, policy = scale.replicas, assessment.policy
    memory = after_scale(assessment.memory, scale, now)
    outcomes = _outcomes(assessment, memory, current, bounds)
    deciding = [outcome for outcome in outcomes if not outcome.metric.floor]
    floors = [outcome for outcome in outcomes if outcome.metric.floor]
    best = max(deciding, key=lambda outcome: outcome.proposal, default=None)
    floor = max(floors, key=lambda outcome: outcome.proposal, default=None)
    if policy.mode_at(now) != Mode.ACTIVE:
        return _decision(scale, bounds, Limited(current, HeldBy.MODE), best, outcomes)
    limits, scaled_at = limits_at(assessment.windows, now), last_scaled(memory, bounds, now)
    error = error_of(assessment, current)
    if error is not None or best is None:
        wanted = _substitute(assessment, current, limits.floor, now)
        if floor is not None and floor.proposal > current:
            raised = limit_rate(Limited(floor.proposal, None), current, policy, limits, scaled_at, now)
            wanted, best = (raised, floor) if raised.desired > wanted.desired else (wanted, best)
        if wanted.desired == current or (current == 0 and bounds.minimum > 0):
            return Decision(error=error, current=current, outcomes=outcomes)
    elif current == 0 and bounds.minimum > 0:  # An HPA that may not scale to 0 rests there.
        return _decision(scale, bounds, Limited(0, HeldBy.BOUNDS), best, outcomes)
    else:
        wanted = Limited(best.proposal, best.held_by)
        if best.proposal < current and len(deciding) < sum(not metric.floor for metric in assessment.metrics):
            wanted = Limited(current, HeldBy.METRIC_ERROR)
        if floor is not None and floor.proposal > wanted.desired:
            wanted, best = Limited(floor.proposal, None), floor
        wanted = limit_rate(wanted, current, policy, limits, scaled_at, now)
    bounded = max(bounds.minimum, min(bounds.maximum, wanted.desired))
    wanted = wanted if bounded == wanted.desired else Limited(bounded, HeldBy.BOUNDS)
    return _decision(scale, bounds, wanted, best, outcomes)


def error_of(assessment: Assessment, current: int) -> str | None:
    """Why nothing can be decided at this count, None where something can.

    At zero replicas only service totals decide, whatever pods are left. A floor decides nothing by itself.
    """
    if current and not any(count for state, count in assessment.counts.items() if state not in GONE):
        return f"no pods of {assessment.target} exist"
    usable = [metric for metric in assessment.metrics if (current or metric.total is not None) and not metric.floor]
    if any(_answers(metric, current) for metric in usable):
        return None
    reasons = ["" if current else f"{assessment.target} is scaled to zero", metric_errors(usable)]
    return "; ".join(filter(None, reasons)) or "no metric has an answer"


def in_error(assessment: Assessment, current: int) -> bool:
    """Whether nothing can be decided although something should: a service without totals rests at zero."""
    has_total = any(metric.total is not None and not metric.floor for metric in assessment.metrics)
    return (current > 0 or has_total) and error_of(assessment, current) is not None


def _answers(metric: MetricAssessment, current: int) -> bool:
    """Whether a metric has an answer: at zero replicas a total has one although no pod serves."""
    return metric.error is None if current else metric.total is not None and metric.total.value is not None


def limit_rate(
    wanted: Limited, current: int, policy: Policy, limits: ScheduleLimits, scaled_at: float | None, now: float
) -> Limited:
    """Limit the change from the current to the wanted count: schedules, then velocity, then cooldown.

    A schedule's floor holds regardless of velocity and cooldown. `scaled_at`: when the count last changed (seconds).
    """
    if limits.cap is not None and limits.cap < wanted.desired:
        wanted = Limited(limits.cap, HeldBy.SCHEDULE)
    wanted = _raised(wanted, limits.floor)
    percent = policy.velocity.up if wanted.desired > current else policy.velocity.down
    if percent is not None:
        step = max(1, current * percent // 100) if percent else 0
        nearest = max(current - step, min(current + step, wanted.desired))
        wanted = wanted if nearest == wanted.desired else Limited(nearest, HeldBy.VELOCITY)
    seconds = policy.cooldown.up if wanted.desired > current else policy.cooldown.down
    if scaled_at is not None and wanted.desired != current and seconds and now - scaled_at < seconds:
        wanted = Limited(current, HeldBy.COOLDOWN)
    return _raised(wanted, limits.floor)


def _raised(limited: Limited, floor: int | None) -> Limited:
    """The count, or the schedules' floor where that is larger."""
    return Limited(floor, HeldBy.SCHEDULE) if floor is not None and floor > limited.desired else limited


def _outcomes(assessment: Assessment, memory: Memory, current: int, bounds: Bounds) -> tuple[Outcome, ...]:
    """The outcome of each metric that has an answer. At zero replicas only service totals have one."""
    outcomes = []
    for metric in assessment.metrics:
        if metric.floor and metric.error is None:
            outcomes.append(_floor(metric, current, assessment.policy.replica_multiple))
        elif _answers(metric, current) and current == 0:
            # Any load of a service that sleeps asks for one pod.
            has_load = metric.total is not None and bool(metric.total.value)
            verdict = Verdict.ABOVE if has_load else Verdict.INSIDE
            outcomes.append(Outcome(metric=metric, proposal=int(has_load), verdict=verdict))
        elif _answers(metric, current):
            outcomes.append(_outcome(assessment, metric, memory, current, bounds))
    return tuple(outcomes)


def _outcome(assessment: Assessment, metric: MetricAssessment, memory: Memory, current: int, bounds: Bounds) -> Outcome:
    """What a metric proposes: the count nearest to the current one that its load allows. Up beats down."""
    policy, starting = assessment.policy, assessment.counts.get(PodState.STARTING, 0)
    multiple, began = policy.replica_multiple, metric.began_at
    changed = began is not None and memory.changed_at is not None and memory.changed_at >= began
    rose = began is not None and memory.rose_at is not None and memory.rose_at >= began
    counts = [(*_count(reading, current, starting, multiple), reading) for reading in metric.lower]
    needed, replaced, reading = max(counts, key=lambda each: each[0], default=(0, 0, None))
    lower = max(current, needed) if needed else None
    upper, cause = _upper(policy, metric, current, bounds, has_changed=changed)
    if metric.drift is not None and not changed and lower is None and upper is None:
        lower, upper = _drifted(metric, current, multiple)
    proposal, held_by = current, cause
    if lower is not None and metric.is_delayed:
        held_by = HeldBy.DELAY
    elif lower is not None:
        is_by_doubt = needed > max(current, counts[0][0])
        proposal, held_by = lower, HeldBy.DOUBT if is_by_doubt else None
    elif metric.verdict is Verdict.ABOVE:
        held_by = HeldBy.MISSING if metric.missing else None
    elif upper is not None and upper < current:
        held_by = metric.upper.hold or (HeldBy.WARMING_UP if rose else None)
        proposal, held_by = (upper, cause) if held_by is None else (current, held_by)
    elif metric.verdict is Verdict.BELOW and cause is None:
        # The known load alone asks for as many pods.
        held_by = metric.upper.hold or (HeldBy.MISSING if metric.is_partial else None)
    return Outcome(
        metric=metric,
        proposal=proposal,
        verdict=metric.verdict,
        lower_bound=lower,
        upper_bound=upper,
        reading=reading if needed else None,
        replaced=replaced if needed else 0,
        held_by=held_by,
    )


def _count(reading: Reading, current: int, starting: int, multiple: int) -> tuple[int, int]:
    """The count that a reading needs (0: it is not above the high watermark), and how many pods of it replace others.

    At most as many are replaced as the count has besides the pods of the reading and those that start.
    """
    if reading.needed is None:
        return 0, 0
    replaced = max(0, min(reading.replaceable, current - reading.pods - starting))
    needed = reading.needed + replaced
    # A count that is enough is kept: rounding up what is needed must not raise it.
    return (needed if needed <= current else _rounded_up(needed, multiple)), replaced


def _upper(
    policy: Policy, metric: MetricAssessment, current: int, bounds: Bounds, *, has_changed: bool
) -> tuple[int | None, HeldBy | None]:
    """The upper bound, and the last rule that raised what would be proposed; None: no bound."""
    upper, step, multiple = metric.upper, policy.step, policy.replica_multiple
    needs_none = upper.idle is not None and bounds.minimum == 0
    if upper.spare is not None:
        if has_changed:
            return None, HeldBy.DEPARTED
        least = step.min_pods if needs_none else max(1, step.min_pods)
        count = min(current, _rounded_up(max(least, current - step.down), multiple))
        # Only the way to 0 takes the last serving pod: those left in the count have not served for long.
        return (count if current - count <= upper.spare or (needs_none and not count) else None), None
    if upper.known is None:
        return None, None
    known = _rounded_up(upper.known, multiple)
    bound = None if upper.bound is None else _rounded_up(upper.bound, multiple)
    cause = upper.cause if known < current and (bound is None or bound > known) else None
    if needs_none and upper.idle is not None and bound is not None:
        bound = _rounded_up(upper.idle, multiple)
    return bound, cause


def _drifted(metric: MetricAssessment, current: int, multiple: int) -> tuple[int | None, int | None]:
    """The bounds that move the count to the next multiple inside the band, unless that passes the watermark."""
    is_up, limit = (True, metric.low) if metric.drift == "Low" else (False, metric.high)
    if not metric.lower or metric.lower[0].usage is None or limit is None:
        return None, None
    load = metric.lower[0].usage * metric.lower[0].pods
    wanted = (current // multiple + 1 if is_up else -(-current // multiple) - 1) * multiple
    pods = metric.lower[0].pods + wanted - current
    if min(pods, wanted) < 1 or (load < limit * pods if is_up else load > limit * pods):
        return None, None
    return (wanted, None) if is_up else (None, wanted)


def _floor(metric: MetricAssessment, current: int, multiple: int) -> Outcome:
    """A floor: a service total that keeps the count from falling below what it needs, and does nothing else.

    It never proposes the current count, so it neither holds nor lowers it. Where a window with a gap needs no more than
    the current count, it may need as much as its bound.
    """
    high, total = metric.high or 1, metric.total or Total()
    needed = math.ceil((total.value or 0) / high)
    is_above = needed > current
    if not is_above and total.bound is not None:
        needed = math.ceil(total.bound / high)
    rounded = _rounded_up(needed, multiple)
    return Outcome(
        metric=metric,
        proposal=rounded if is_above else min(current, rounded),
        verdict=Verdict.ABOVE if is_above else Verdict.INSIDE,
        lower_bound=rounded,
    )


def _rounded_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _substitute(assessment: Assessment, current: int, floor: int | None, now: float) -> Limited:
    """The count while no metric has an answer: the current, the fallback's or a schedule's, whichever is largest."""
    fallback = assessment.policy.fallback
    since = assessment.memory.error_since if in_error(assessment, current) else None  # the watched count may differ
    if fallback is not None and since is not None and now - since >= fallback.after and fallback.replicas > current:
        return _raised(Limited(fallback.replicas, HeldBy.METRIC_ERROR), floor)
    return _raised(Limited(current, None), floor)


def _decision(
    scale: Scale, bounds: Bounds, limited: Limited, best: Outcome | None, outcomes: tuple[Outcome, ...]
) -> Decision:
    effective = within_hpa_tolerance(limited, scale, bounds)
    if isinstance(effective, str):
        return Decision(error=effective, current=scale.replicas, outcomes=outcomes)
    lowers = [outcome.lower_bound for outcome in outcomes if outcome.lower_bound is not None]
    ranges = [outcome.upper_bound for outcome in outcomes if not outcome.metric.floor]
    uppers = [upper for upper in ranges if upper is not None]
    return Decision(
        desired=effective.desired,
        served=served_value(effective.desired, scale.status_replicas),
        verdict=best.verdict if best else Verdict.ERROR,
        held_by=effective.held_by,
        current=scale.replicas,
        lower_bound=max(lowers, default=None),
        upper_bound=max(uppers, default=None) if len(uppers) == len(ranges) else None,
        outcome=best,
        outcomes=outcomes,
        suppressed=limited.desired - effective.desired,
    )


def served_value(desired: int, status_replicas: int) -> int:
    """The metric value (milli-units) for a target AverageValue of 1.

    With tolerance 0 the HPA sets exactly ⌈value⌉. Below the pods that exist, the smallest value of that step is served:
    where the tolerance is not 0, it reaches every count that any value can reach.
    """
    if desired >= status_replicas or desired == 0:
        return 1000 * desired
    return 1000 * (desired - 1) + 1


def within_hpa_tolerance(limited: Limited, scale: Scale, bounds: Bounds) -> Limited | str:
    """The count to serve: the wanted one where the HPA would set it, else the current one.

    A sentence where no value keeps the HPA at the current count: it would set the number of existing pods.
    """
    current = scale.replicas
    # Outside its bounds the HPA does not read metrics.
    if bounds.tolerance is None or not bounds.minimum <= current <= bounds.maximum:
        return limited
    if _hpa_sets(limited.desired, scale, bounds, bounds.tolerance) == limited.desired:
        return limited
    if _hpa_sets(current, scale, bounds, bounds.tolerance) == current:
        return Limited(current, HeldBy.HPA_TOLERANCE)
    what = "rollout in progress" if scale.status_replicas > current else "pods are still being made"
    percents = " up and ".join(map(percent_text, bounds.tolerance))
    return (
        f"{what}: {current} replicas are asked for and {scale.status_replicas} pods exist, which the HPA, with its "
        f"tolerance of {percents} down, would make the count"
    )


def _hpa_sets(desired: int, scale: Scale, bounds: Bounds, tolerance: HpaTolerance) -> int:
    """The count that the HPA sets for the served value of a count, without its `behavior`."""
    served, pods = served_value(desired, scale.status_replicas), scale.status_replicas
    count = -(-served // 1000)
    # In floats, as the HPA computes: rounding decides at the edges of the tolerance.
    down, up = approximate_float(tolerance.down), approximate_float(tolerance.up)
    if pods and 1.0 - down <= served / (1000.0 * pods) <= 1.0 + up:
        count = pods
    return max(bounds.minimum, min(bounds.maximum, count))
