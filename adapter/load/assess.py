"""`assess`: from pods, samples, roster and memory to all that does not depend on the live count; once per change."""

from collections.abc import Mapping
from dataclasses import replace

from adapter.load.assessment import Assessment, AssessmentInputs, PodAssessment
from adapter.load.decide import decide, in_error
from adapter.load.findings import condition_sentences, distrust
from adapter.load.matching import Registrations, registrations
from adapter.load.memory import Memory
from adapter.load.metric import assess_metric
from adapter.load.pod_groups import group_pods
from adapter.load.pods import PodState
from adapter.load.remembering import (
    after_departures,
    after_pull_outs,
    after_replacement_request,
    after_replacing_step,
    after_rollout,
    after_roster,
    after_samples,
    after_scale,
    after_states,
    is_new_roster,
    lasting,
    remembered_seconds,
    without_future_times,
)
from adapter.load.schedule import schedule_windows
from adapter.load.spec import Policy
from adapter.load.states import classify, registry_problem, service_registry

_ESTABLISHED = (PodState.SERVING, PodState.UNREADY, PodState.PULLED_OUT, PodState.DOUBTFUL)
"""The pods that `minServingPercent` is a share of."""
_AWAY = {PodState.PULLED_OUT, PodState.DOUBTFUL}


def assess(inputs: AssessmentInputs) -> Assessment:
    """Assess a policy as far as possible without the live replica count.

    The assessment's memory belongs into the inputs of the next one.
    """
    policy, target, now = inputs.policy, inputs.target, inputs.now
    memory, pods = _classified(inputs)
    memory = after_scale(after_rollout(memory, target, now), inputs.scale, now)
    memory = after_replacing_step(memory, inputs.scale, is_away=any(one.state in _AWAY for one in pods))
    inputs = replace(inputs, memory=memory)
    groups = group_pods(inputs, pods)
    measured = [assess_metric(inputs, metric, groups) for metric in policy.metrics]
    memory = after_samples(inputs, measured)
    assessment = Assessment(
        policy=policy,
        target=f"{target.kind} {target.name}" if target else policy.hpa,
        at=now,
        pods=pods,
        readings={one.assessment.name: one.readings for one in measured},
        counts=groups.counts,
        metrics=tuple(one.assessment for one in measured),
        may_shrink=_may_shrink(policy, groups.counts),
        windows=schedule_windows(policy.schedules, now),
        conditions=condition_sentences(
            policy,
            distrust(policy, registry_problem(policy, inputs.pods, memory, now), inputs.roster, now),
            memory,
            groups,
            measured,
            now,
        ),
        memory=memory,
    )
    return _with_own_decision(assessment, inputs)


def _classified(inputs: AssessmentInputs) -> tuple[Memory, tuple[PodAssessment, ...]]:
    """The memory after this roster and these pods, and every pod with its state."""
    policy, pods, now = inputs.policy, inputs.pods, inputs.now
    memory, registry = without_future_times(inputs.memory, now), service_registry(policy)
    roster = inputs.roster if is_new_roster(inputs.roster, memory, policy, now) else memory.last_valid
    listed: Registrations = {}
    if registry is not None and roster is not None:
        listed = registrations(pods, roster, registry)
    memory = after_departures(memory, pods, now)
    memory = after_roster(memory, policy, pods, inputs.roster, now, listed)
    states = classify(policy, pods, memory, now, listed)
    memory = after_pull_outs(memory, states, now)
    memory = after_states(memory, states, now, remembered_seconds(inputs.samples))
    return memory, tuple(states.values())


def _may_shrink(policy: Policy, counts: Mapping[PodState, int]) -> bool:
    """Whether enough of the pods serve for a scale-down (`minServingPercent`)."""
    established = sum(counts.get(state, 0) for state in _ESTABLISHED)
    return counts.get(PodState.SERVING, 0) * 100 >= established * policy.min_serving_percent


def _with_own_decision(assessment: Assessment, inputs: AssessmentInputs) -> Assessment:
    """The assessment, whose memory notes what it decides at the watched scale."""
    scale, now = inputs.scale, inputs.now
    decision = decide(assessment, scale, inputs.bounds, now)
    replaced = decision.outcome.replaced if decision.outcome else 0
    memory = after_replacement_request(assessment.memory, scale.replicas, replaced, decision.desired, now)
    error_since = lasting(memory.error_since, in_error(assessment, scale.replicas), now)
    return replace(assessment, memory=replace(memory, error_since=error_since))
