"""`assess`: from pods, samples, roster and memory to all that does not depend on the live count; once per change."""

from dataclasses import replace

from adapter.load.assessment import Assessment, AssessmentInputs
from adapter.load.decide import decide, in_error
from adapter.load.findings import condition_sentences, distrust
from adapter.load.matching import Registrations, registrations
from adapter.load.metric import assess_metric
from adapter.load.pod_groups import group_pods
from adapter.load.pods import AWAY, PodState
from adapter.load.remembering import (
    after_departures,
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
from adapter.load.states import classify, registry_problem, service_registry

_ESTABLISHED = (PodState.SERVING, PodState.UNREADY, PodState.PULLED_OUT, PodState.DOUBTFUL)
"""The pods that `minServingPercent` is a share of."""


def assess(inputs: AssessmentInputs) -> Assessment:
    """Assess a policy as far as possible without the live replica count.

    The assessment's memory belongs into the inputs of the next one.
    """
    policy, target, scale, now = inputs.policy, inputs.target, inputs.scale, inputs.now
    memory, registry = without_future_times(inputs.memory, now), service_registry(policy)
    roster = inputs.roster if is_new_roster(inputs.roster, memory, policy, now) else memory.last_valid
    listed: Registrations = registrations(inputs.pods, roster, registry) if registry and roster else {}
    before, memory = memory.pods, after_roster(memory, policy, inputs.pods, inputs.roster, now, listed)
    states = classify(policy, inputs.pods, memory, now, listed)
    memory = after_departures(memory, before, states, now)
    memory, pods = after_states(memory, states, now, remembered_seconds(inputs.samples)), tuple(states.values())
    memory = after_scale(after_rollout(memory, target, now), scale, now)
    memory = after_replacing_step(memory, scale, is_away=any(assessed.state in AWAY for assessed in pods))
    inputs = replace(inputs, memory=memory)
    groups = group_pods(inputs, pods)
    metrics = tuple(assess_metric(inputs, metric, groups) for metric in policy.metrics)
    memory = after_samples(inputs, metrics)
    established = sum(groups.counts.get(state, 0) for state in _ESTABLISHED)
    distrusted = distrust(policy, registry_problem(policy, inputs.pods, memory, now), inputs.roster, now)
    assessment = Assessment(
        policy=policy,
        target=f"{target.kind} {target.name}" if target else policy.hpa,
        at=now,
        pods=pods,
        counts=groups.counts,
        metrics=metrics,
        may_shrink=len(groups.serving) * 100 >= established * policy.min_serving_percent,
        windows=schedule_windows(policy.schedules, now),
        conditions=condition_sentences(policy, distrusted, memory, groups, metrics, now),
        memory=memory,
    )
    # The memory notes what is decided at the watched scale.
    decision = decide(assessment, scale, inputs.bounds, now)
    replaced = decision.outcome.replaced if decision.outcome else 0
    memory = after_replacement_request(memory, scale.replicas, replaced, decision.desired, now)
    error_since = lasting(memory.error_since, in_error(assessment, scale.replicas), now)
    if error_since != memory.error_since:
        memory = replace(memory, error_since=error_since)
    return assessment if memory is assessment.memory else replace(assessment, memory=memory)
