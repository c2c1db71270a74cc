"""The decision path: `assess`, once per change, and `decide`, at each request. There is no other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from adapter.load.assessment import (
    Assessment,
    Decision,
    HeldBy,
    MetricAssessment,
    Outcome,
    Scenario,
    Verdict,
)
from adapter.load.census import Census, take
from adapter.load.deletion_order import out_goes_first
from adapter.load.departures import after_departures, after_pull_outs, after_taking_over, forgotten
from adapter.load.fast_scale_up_hold import overtaken
from adapter.load.findings import conditions, distrust
from adapter.load.matching import records
from adapter.load.membership import trouble, uses_registry
from adapter.load.memory import Memory, PodMemory
from adapter.load.memory_updates import (
    after_errors,
    after_rollout,
    after_roster,
    after_samples,
    after_scale,
    after_states,
    is_news,
    last_scaled,
    note_replacing,
    replacement_ineffective,
    replacing_step,
    rolling_out,
    since_first_step,
    within_reach,
)
from adapter.load.metric_assessment import Standings, measure, select
from adapter.load.metric_value import shape
from adapter.load.pacing import Paced, pace, raised
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.sample_columns import PodAssessments
from adapter.load.samples import Samples
from adapter.load.schedule import Limits, limits, windows
from adapter.load.sentences import metric_errors
from adapter.load.spec import Bounds, Policy, Scale, Target
from adapter.load.tolerance import settle

OLD_DOUBT_SECONDS = 300.0
"""A pod doubtful for so long may be replaced in the readings that have it out."""

_COUNTED_FOR_SHARE = (PodState.SERVING, PodState.UNREADY, PodState.PULLED_OUT, PodState.DOUBTFUL)
_GONE = {PodState.TERMINATING, PodState.FINISHED}
_NOTHING = PodMemory()


def assess(
    policy: Policy,
    pods: Sequence[Pod],
    samples: Samples,
    roster: Roster | None,
    scale: Scale,
    bounds: Bounds,
    memory: Memory,
    now: float,
    *,
    target: Target | None = None,
) -> Assessment:
    """Everything that can be said of a policy but for the live replica count, and the memory to hand to the next call.

    `pods` are those of the target (`matching.owned_by`, and the scale's selector). `roster` is the registry's latest
    answer, None where the policy names no registry or none came yet. `scale` is the watched one; it is used for memory
    only. `now` is the API server's time in seconds.
    """
    memory, census = _counted(policy, pods, roster, within_reach(memory, now), now)
    memory = after_scale(after_rollout(memory, target, now), scale, now)
    memory = after_taking_over(memory, bounds, now)
    memory = replacing_step(memory, scale, is_away=bool(census.out or census.doubtful))
    standings = _standings(policy, target, census, memory, now)
    measured = [measure(policy, metric, standings, samples, memory, now) for metric in policy.metrics]
    columns = {one.assessment.name: one.columns for one in measured}
    memory = after_samples(memory, census, columns, {one.assessment.name: one.ahead for one in measured}, now)
    assessment = Assessment(
        policy=policy,
        target=f"{target.kind} {target.name}" if target else policy.hpa,
        at=now,
        pods=PodAssessments(census.readings, columns),
        counts=census.counts,
        metrics=tuple(one.assessment for one in measured),
        may_shrink=_may_shrink(policy, census.counts),
        windows=windows(policy.schedules, now),
        conditions=conditions(
            policy, distrust(policy, trouble(policy, memory, now), roster, now), memory, census, measured
        ),
        memory=forgotten(memory, now),
    )
    return _noting(assessment, scale, bounds, now)


def _counted(
    policy: Policy, pods: Sequence[Pod], roster: Roster | None, memory: Memory, now: float
) -> tuple[Memory, Census]:
    """The pods by their states, and the memory once those are known; both as they were, where nothing has changed."""
    known = memory.census
    is_new = is_news(roster, memory, policy, now)
    if known is not None and not is_new and known.holds(policy, pods, memory, now):
        return memory, known
    latest, registry = roster if is_new else memory.last_valid, uses_registry(policy)
    found = known.found_again(latest, policy, pods) if known is not None else None
    if found is None:
        found = records(pods, latest, registry) if registry is not None and latest is not None else {}
    memory = after_roster(after_departures(memory, pods, now), policy, pods, roster, now, found)
    census = take(policy, pods, memory, found, now)
    memory = after_pull_outs(memory, census.membership.standings, now)
    return replace(after_states(memory, census.membership, now), census=census), census


def decide(assessment: Assessment, scale: Scale, bounds: Bounds, now: float) -> Decision:
    """The count the policy asks for, given the replica count of this moment. `now` is the API server's time in seconds.

    An error (a sentence, and no count) is answered where nothing may be decided; the HPA then holds.
    """
    current, policy = scale.replicas, assessment.policy
    outcomes = _outcomes(assessment, current, bounds)
    best = max(outcomes, key=lambda outcome: outcome.proposal, default=None)
    if policy.rests(now):
        return _decision(scale, bounds, Paced(current, HeldBy.MODE), best, outcomes)
    open_now = limits(assessment.windows, now)
    error = _error(assessment, current, best)
    if error is not None or best is None:
        rescued = _rescued(assessment, current, open_now, now)
        if rescued.desired == current or (current == 0 and bounds.minimum > 0):
            return _no_decision(error or "no metric has an answer", current, outcomes)
        return _decision(scale, bounds, _bounded(rescued, bounds), best, outcomes)
    if current == 0 and bounds.minimum > 0:
        return _decision(scale, bounds, Paced(0, None), best, outcomes)
    all_answer = len(outcomes) == len(assessment.metrics)
    wanted = _wanted(assessment, current, bounds, best, all_answer=all_answer)
    # The live count may have changed since the assessment.
    last_scale = last_scaled(after_scale(assessment.memory, scale, now), bounds, now)
    paced = pace(wanted, current, policy, open_now, last_scale, now)
    return _decision(scale, bounds, _bounded(paced, bounds), best, outcomes)


def _wanted(assessment: Assessment, current: int, bounds: Bounds, best: Outcome, *, all_answer: bool) -> Paced:
    """The count that the metrics ask for together. At zero nothing can be taken away."""
    if best.proposal < current and not assessment.may_shrink:
        return Paced(current, HeldBy.MIN_SERVING)
    if best.proposal < current and not all_answer:
        return Paced(current, HeldBy.METRIC_ERROR)
    if best.proposal < current and overtaken(assessment, current, bounds):
        return Paced(current, HeldBy.FAST_SCALE_UP)
    return Paced(best.proposal, best.held_by)


def _rescued(assessment: Assessment, current: int, open_now: Limits, now: float) -> Paced:
    """The count that stands in while no metric has an answer: the fallback's, or a schedule's, where that is more."""
    rescued = Paced(current, None)
    fallback = assessment.policy.fallback
    if fallback is not None and fallback.replicas > current and _fails_for(assessment, current, now) >= fallback.after:
        rescued = Paced(fallback.replicas, HeldBy.METRIC_ERROR)
    return raised(rescued, open_now.floor)


def _fails_for(assessment: Assessment, current: int, now: float) -> float:
    """For how long nothing could be decided (seconds); at another count than was watched it may well be possible."""
    since = assessment.memory.error_since
    return now - since if since is not None and _in_error(assessment, current) else -1.0


def _bounded(paced: Paced, bounds: Bounds) -> Paced:
    """The count within the HPA's own bounds, the last stage."""
    bounded = max(bounds.minimum, min(bounds.maximum, paced.desired))
    return paced if bounded == paced.desired else Paced(bounded, HeldBy.BOUNDS)


def _no_decision(error: str, current: int, outcomes: tuple[Outcome, ...]) -> Decision:
    return Decision(
        desired=None,
        served=None,
        error=error,
        verdict=Verdict.ERROR,
        held_by=None,
        current=current,
        outcomes=outcomes,
    )


def _decision(
    scale: Scale, bounds: Bounds, paced: Paced, best: Outcome | None, outcomes: tuple[Outcome, ...]
) -> Decision:
    settled = settle(paced, scale, bounds)
    if isinstance(settled, str):
        return _no_decision(settled, scale.replicas, outcomes)
    return Decision(
        desired=settled.desired,
        served=shape(settled.desired, scale.status_replicas),
        error=None,
        verdict=best.reading.verdict if best else Verdict.ERROR,
        held_by=settled.held_by,
        current=scale.replicas,
        outcome=best,
        outcomes=outcomes,
        swallowed=paced.desired - settled.desired,
    )


def _outcomes(assessment: Assessment, current: int, bounds: Bounds) -> tuple[Outcome, ...]:
    """What each metric that has an answer proposes. At zero only service totals speak, whatever pods are left."""
    if current == 0:
        return tuple(_from_zero(metric) for metric in assessment.metrics if metric.total_value is not None)
    multiple = assessment.policy.multiple_of
    return tuple(_outcome(metric, current, bounds, multiple) for metric in assessment.metrics if metric.error is None)


def _from_zero(metric: MetricAssessment) -> Outcome:
    """Any load of the service asks for one pod."""
    if not metric.total_value:
        return Outcome(metric=metric, reading=Scenario(inside=0, verdict=Verdict.INSIDE), proposal=0)
    return Outcome(metric=metric, reading=Scenario(inside=0, verdict=Verdict.ABOVE, needed=1), proposal=1)


def _error(assessment: Assessment, current: int, best: Outcome | None) -> str | None:
    """Why nothing can be decided, None where something can."""
    if current and not _has_pods(assessment):
        return f"no pods of {assessment.target} exist"
    if best is not None:
        return None
    asked = _asked(assessment, current)
    asleep = [] if current else [f"{assessment.target} is scaled to zero"]
    errors = metric_errors(assessment.policy, asked)
    return "; ".join(asleep + [errors] * bool(errors))


def _has_pods(assessment: Assessment) -> bool:
    return any(count for state, count in assessment.counts.items() if state not in _GONE)


def _asked(assessment: Assessment, current: int) -> list[MetricAssessment]:
    """The metrics that may have an answer: at zero only service totals, whatever pods are left."""
    return [metric for metric in assessment.metrics if current or metric.total]


def _outcome(metric: MetricAssessment, current: int, bounds: Bounds, multiple_of: int) -> Outcome:
    """The largest count among all readings; on a tie the reading with the most pods in."""
    proposals = [(*_propose(reading, current, bounds, multiple_of), reading) for reading in metric.readings]
    if not proposals:
        empty = Scenario(inside=0, verdict=Verdict.INSIDE)
        return Outcome(metric=metric, reading=empty, proposal=current)
    proposal, replaced, reading = max(proposals, key=lambda each: (each[0], each[2].inside))
    most_in = max(each[2].inside for each in proposals)
    all_in = max(each[0] for each in proposals if each[2].inside == most_in)
    held = HeldBy.DOUBT if all_in < proposal else reading.held
    return Outcome(metric=metric, reading=reading, proposal=proposal, replaced=replaced, held_by=held)


def _propose(reading: Scenario, current: int, bounds: Bounds, multiple_of: int) -> tuple[int, int]:
    """The count that one reading proposes, and how many of it stand in for pods that are out."""
    if reading.verdict is Verdict.ABOVE and reading.needed is not None:
        replaced = _replaced(reading, current)
        return max(current, _multiple(reading.needed + replaced, multiple_of)), replaced
    if reading.zero and bounds.minimum == 0:
        return 0, 0
    if reading.verdict is Verdict.BELOW and reading.needed is not None:
        return min(current, _multiple(reading.needed + reading.out, multiple_of)), 0
    return _drifted(reading, current, multiple_of), 0


def _replaced(reading: Scenario, current: int) -> int:
    """How many pods that are out are replaced: no more than the count has room for beside those in and those coming."""
    room = current - reading.n - reading.missing - reading.reserved
    return max(0, min(reading.replaceable, room))


def _drifted(reading: Scenario, current: int, multiple_of: int) -> int:
    """The count after a step inside the band: to the next multiple, and never beyond what the edge would ask for."""
    if reading.drift > 0:
        drifted = _multiple(current + 1, multiple_of)
        if reading.edge is None:
            return drifted
        return min(drifted, max(current, reading.edge + _replaced(reading, current)))
    drifted = _multiple(current + reading.drift, multiple_of)
    if drifted < 1 or drifted > current:
        return current
    return drifted if reading.edge is None else max(drifted, min(current, reading.edge + reading.out))


def _multiple(count: int, of: int) -> int:
    """The count rounded up to a multiple."""
    return -(-count // of) * of


def _standings(policy: Policy, target: Target | None, census: Census, memory: Memory, now: float) -> Standings:
    """What pods that do not count are worth: which of them may be replaced, and which doubts are old."""
    since = {reading.pod.uid: memory.pods.get(reading.pod.uid, _NOTHING).doubt_since for reading in census.doubtful}
    old = frozenset(uid for uid, at in since.items() if at is not None and now - at >= OLD_DOUBT_SECONDS)
    return select(
        census,
        now,
        replaceable=_replaceable(policy, census, memory, now, old),
        old=old,
        never_registered=frozenset(uid for uid in since if memory.pods.get(uid, _NOTHING).seen is None),
        out_goes_first=out_goes_first(policy, target, census.readings),
    )


def _replaceable(policy: Policy, census: Census, memory: Memory, now: float, old: frozenset[str]) -> frozenset[str]:
    """The pods that may be replaced on the way up: out for long enough, and not where replacing leads nowhere."""
    if not policy.pulled_out.replace or rolling_out(memory, now):
        return frozenset()
    only_first = replacement_ineffective(memory, census.readings)
    found = set()
    for reading in chain(census.out, census.doubtful):
        known = memory.pods.get(reading.pod.uid, _NOTHING)
        long_out = known.out_since is not None and now - known.out_since >= policy.pulled_out.replace_after
        if (long_out or reading.pod.uid in old) and not (only_first and since_first_step(memory, reading.pod)):
            found.add(reading.pod.uid)
    return frozenset(found)


def _may_shrink(policy: Policy, counts: Mapping[PodState, int]) -> bool:
    everyone = sum(counts.get(state, 0) for state in _COUNTED_FOR_SHARE)
    return counts.get(PodState.SERVING, 0) * 100 >= everyone * policy.min_serving_percent


def _noting(assessment: Assessment, scale: Scale, bounds: Bounds, now: float) -> Assessment:
    """The assessment with the memory of what its own count, over the watched scale, would do."""
    decision = decide(assessment, scale, bounds, now)
    replaced = decision.outcome.replaced if decision.outcome else 0
    memory = note_replacing(assessment.memory, scale.replicas, replaced, decision.desired, now)
    return replace(assessment, memory=after_errors(memory, _in_error(assessment, scale.replicas), now))


def _in_error(assessment: Assessment, current: int) -> bool:
    """Whether nothing can be decided: no metric has an answer that may have one, or there is no pod to count."""
    asked = _asked(assessment, current)
    if current and not _has_pods(assessment):
        return True
    # At zero a total answers though no pod serves.
    return bool(asked) and all(metric.error and (current or metric.total_value is None) for metric in asked)
