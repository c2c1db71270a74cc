"""`decide`: from an assessment and the live count to the count that the policy asks for; at each request."""

from collections.abc import Iterable
from functools import partial

from adapter.load.assessment import Assessment, Decision, HeldBy, MetricAssessment, Outcome, Scenario, Verdict
from adapter.load.explanation import metric_errors
from adapter.load.floor import floor_outcome, rounded_up
from adapter.load.pacing import Paced, held_by_fast_scale_up, pace, raise_to_floor
from adapter.load.pods import GONE
from adapter.load.remembering import after_scale, last_scaled
from adapter.load.schedule import ScheduleLimits, limits_at
from adapter.load.served import served_value, within_hpa_tolerance
from adapter.load.spec import Bounds, Converge, Policy, Scale, Strategy


def decide(assessment: Assessment, scale: Scale, bounds: Bounds, now: float) -> Decision:
    """Decide the count that the policy asks for at the live replica count. `now` is the API server's time (seconds).

    Where nothing can be decided, the decision has an error (a sentence) and no count; the HPA then holds.
    """
    current, policy = scale.replicas, assessment.policy
    outcomes = _outcomes(assessment, scale, bounds, now)
    deciding = [outcome for outcome in outcomes if not outcome.metric.floor]
    best = max(deciding, key=lambda outcome: outcome.proposal, default=None)
    floor = max(
        (outcome for outcome in outcomes if outcome.metric.floor), key=lambda outcome: outcome.proposal, default=None
    )
    if policy.rests(now):
        return _decision(scale, bounds, Paced(current, HeldBy.MODE), best, outcomes)
    open_now = limits_at(assessment.windows, now)
    error = _error(assessment, current, best)
    if error is not None or best is None:
        substitute = _substitute(assessment, current, open_now, now)
        if floor is not None and floor.proposal > current:
            paced = _paced(assessment, Paced(floor.proposal, None), scale, bounds, open_now, now)
            substitute, best = (paced, floor) if paced.desired > substitute.desired else (substitute, best)
        if substitute.desired == current or (current == 0 and bounds.minimum > 0):
            return Decision(error=error or "no metric has an answer", current=current, outcomes=outcomes)
        return _decision(scale, bounds, _bounded(substitute, bounds), best, outcomes)
    if current == 0 and bounds.minimum > 0:
        return _decision(scale, bounds, Paced(0, None), best, outcomes)
    all_answer = len(deciding) == sum(not metric.floor for metric in assessment.metrics)
    wanted = Paced(best.proposal, best.held_by)
    if best.proposal < current and not assessment.may_shrink:
        wanted = Paced(current, HeldBy.MIN_SERVING)
    elif best.proposal < current and not all_answer:
        wanted = Paced(current, HeldBy.METRIC_ERROR)
    elif best.proposal < current and held_by_fast_scale_up(assessment, current, bounds):
        wanted = Paced(current, HeldBy.FAST_SCALE_UP)
    if floor is not None and floor.proposal > wanted.desired:
        wanted, best = Paced(floor.proposal, None), floor
    paced = _paced(assessment, wanted, scale, bounds, open_now, now)
    return _decision(scale, bounds, _bounded(paced, bounds), best, outcomes)


def _paced(
    assessment: Assessment, wanted: Paced, scale: Scale, bounds: Bounds, open_now: ScheduleLimits, now: float
) -> Paced:
    rises = wanted.desired > scale.replicas
    last_scale = last_scaled(after_scale(assessment.memory, scale, now), bounds, now, earliest=rises)
    return pace(wanted, scale.replicas, assessment.policy, open_now, last_scale, now)


def _substitute(assessment: Assessment, current: int, open_now: ScheduleLimits, now: float) -> Paced:
    """The count while no metric has an answer: the current, the fallback's or a schedule's, whichever is largest."""
    substitute = Paced(current, None)
    fallback = assessment.policy.fallback
    since = assessment.memory.error_since if in_error(assessment, current) else None  # the watched count may differ
    if fallback is not None and since is not None and now - since >= fallback.after and fallback.replicas > current:
        substitute = Paced(fallback.replicas, HeldBy.METRIC_ERROR)
    return raise_to_floor(substitute, open_now.floor)


def _bounded(paced: Paced, bounds: Bounds) -> Paced:
    bounded = max(bounds.minimum, min(bounds.maximum, paced.desired))
    return paced if bounded == paced.desired else Paced(bounded, HeldBy.BOUNDS)


def _decision(
    scale: Scale, bounds: Bounds, paced: Paced, best: Outcome | None, outcomes: tuple[Outcome, ...]
) -> Decision:
    effective = within_hpa_tolerance(paced, scale, bounds)
    if isinstance(effective, str):
        return Decision(error=effective, current=scale.replicas, outcomes=outcomes)
    return Decision(
        desired=effective.desired,
        served=served_value(effective.desired, scale.status_replicas),
        verdict=best.scenario.verdict if best else Verdict.ERROR,
        held_by=effective.held_by,
        current=scale.replicas,
        outcome=best,
        outcomes=outcomes,
        swallowed=paced.desired - effective.desired,
    )


def _outcomes(assessment: Assessment, scale: Scale, bounds: Bounds, now: float) -> tuple[Outcome, ...]:
    """The outcome of each metric that has an answer. At zero replicas only service totals have one."""
    policy, current = assessment.policy, scale.replicas
    if current == 0:
        return tuple(
            floor_outcome(metric, 0, policy.multiple_of) if metric.floor else _outcome_at_zero(metric)
            for metric in assessment.metrics
            if metric.total_value is not None
        )
    # The live count may have changed since the assessment.
    last_change = last_scaled(after_scale(assessment.memory, scale, now), bounds, now)
    once = partial(_acting_once, policy, last_change, is_seen=current == assessment.memory.last_replicas)
    return tuple(
        _outcome(metric, [*map(partial(once, metric), metric.scenarios)], current, bounds, policy.multiple_of)
        for metric in assessment.metrics
        if metric.error is None
    )


def _acting_once(
    policy: Policy, changed_at: float | None, metric: MetricAssessment, scenario: Scenario, *, is_seen: bool
) -> Scenario:
    """The scenario without a step that the same samples have led to already, or that was assessed at another count.

    A step down of strategy Step needs samples that began after the count last changed (seconds; None: never). So does
    one up inside the band: pods that were added since have no sample, so the others alone would ask for one step after
    the other. One down there counts the load of departed pods instead. `is_seen`: the count is that of the assessment.
    """
    is_old = changed_at is not None and metric.began_at is not None and metric.began_at < changed_at
    if policy.strategy is Strategy.STEP:
        if not is_old or scenario.shrink is None:
            return scenario
        return scenario._replace(shrink=None, zero=False, held=HeldBy.DEPARTED)
    drifts = is_seen and not (policy.converge_towards is Converge.LOW and scenario.drift > 0 and is_old)
    return scenario if drifts or policy.converge_towards is None else scenario._replace(drift=0, edge=None)


def _outcome_at_zero(metric: MetricAssessment) -> Outcome:
    """At zero replicas any load of the service asks for one pod."""
    awake = Scenario(Verdict.ABOVE, needed=1) if metric.total_value else Scenario(Verdict.INSIDE)
    return Outcome(metric=metric, scenario=awake, proposal=awake.needed or 0)


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


def _outcome(
    metric: MetricAssessment, scenarios: Iterable[Scenario], current: int, bounds: Bounds, multiple_of: int
) -> Outcome:
    """The scenario with the largest proposal wins; on a tie the one with the most doubtful pods in."""
    if metric.floor:
        return floor_outcome(metric, current, multiple_of)
    proposals = [(*_propose(scenario, current, bounds, multiple_of), scenario) for scenario in scenarios]
    if not proposals:
        return Outcome(metric=metric, scenario=Scenario(Verdict.INSIDE), proposal=current)
    proposal, replaced, scenario = max(proposals, key=lambda each: (each[0], each[2].inside))
    held, all_in = scenario.held, proposals[-1][0]
    if all_in < proposal:
        held = HeldBy.DOUBT
    elif scenario.shrink is not None and proposal >= current:
        sampled = _stepped_down(scenario, current, bounds, multiple_of, scenario.shrink.fewest_sampled)
        held = HeldBy.DEPARTED if sampled < current else None
    return Outcome(metric=metric, scenario=scenario, proposal=proposal, replaced=replaced, held_by=held)


def _propose(scenario: Scenario, current: int, bounds: Bounds, multiple_of: int) -> tuple[int, int]:
    """The count that a scenario proposes, and how many of it replace pods that are out."""
    if scenario.verdict is Verdict.ABOVE and scenario.needed is not None:
        replaced = _replaced(scenario, current)
        return max(current, rounded_up(scenario.needed + replaced, multiple_of)), replaced
    if scenario.shrink is not None:
        return _stepped_down(scenario, current, bounds, multiple_of, scenario.shrink.fewest), 0
    if scenario.zero and bounds.minimum == 0:
        return 0, 0
    if scenario.verdict is Verdict.BELOW and scenario.needed is not None:
        return min(current, rounded_up(scenario.needed + scenario.out, multiple_of)), 0
    return _drifted(scenario, current, multiple_of), 0


def _stepped_down(scenario: Scenario, current: int, bounds: Bounds, multiple_of: int, fewest: int) -> int:
    """The count after a step of strategy Step, the current one where fewer than `fewest` serving pods would be left."""
    shrink, needs_none = scenario.shrink, scenario.zero and bounds.minimum == 0
    assert shrink is not None
    least = shrink.least if needs_none else max(1, shrink.least)
    desired = min(current, rounded_up(max(least, current - shrink.by), multiple_of))
    return desired if needs_none or scenario.n - (current - desired) >= fewest else current


def _replaced(scenario: Scenario, current: int) -> int:
    """How many pods that are out are replaced: at most the current count less the pods in and those reserved."""
    room = current - scenario.n - scenario.missing - scenario.reserved
    return max(0, min(scenario.replaceable, room))


def _drifted(scenario: Scenario, current: int, multiple_of: int) -> int:
    """The count after a step inside the band: the next multiple, not beyond the scenario's edge."""
    if scenario.drift > 0:
        drifted = rounded_up(current + 1, multiple_of)
        if scenario.edge is None:
            return drifted
        return min(drifted, max(current, scenario.edge + _replaced(scenario, current)))
    drifted = rounded_up(current + scenario.drift, multiple_of)
    if drifted < 1 or drifted > current:
        return current
    return drifted if scenario.edge is None else max(drifted, min(current, scenario.edge + scenario.out))


def in_error(assessment: Assessment, current: int) -> bool:
    """Whether nothing can be decided: no usable metric has an answer, or the target has no pods."""
    usable = _usable_metrics(assessment, current)
    if current and not _has_pods(assessment):
        return True
    # At zero replicas a total has an answer although no pod serves.
    return bool(usable) and all(metric.error and (current or metric.total_value is None) for metric in usable)
