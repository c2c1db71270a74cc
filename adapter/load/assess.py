"""`assess`: from pods, samples, instances and memory to all that does not depend on the live count; once per change."""

from dataclasses import replace

from adapter.load.assessment import Assessment, AssessmentInputs
from adapter.load.decide import in_error
from adapter.load.findings import condition_sentences
from adapter.load.matching import registrations
from adapter.load.memory import after_instances, after_scale, after_states, lasting
from adapter.load.metric import assess_metric
from adapter.load.schedule import schedule_windows
from adapter.load.states import classify, group_pods, service_registry


def assess(inputs: AssessmentInputs) -> Assessment:
    """Assess a policy as far as possible without the live replica count.

    The assessment's memory belongs into the inputs of the next one.
    """
    policy, roster, now = inputs.policy, inputs.roster, inputs.now
    registry = service_registry(policy)
    listed = registrations(inputs.pods, roster, registry) if registry and roster and roster.valid else {}
    inputs = replace(
        inputs, memory=after_instances(inputs.memory, inputs.pods, roster if registry else None, listed, now)
    )
    pods = classify(inputs, listed)
    longest = max((query.window for query in inputs.samples.queries.values()), default=0.0)
    memory = after_scale(after_states(inputs.memory, pods, now, longest), inputs.scale, now)
    inputs = replace(inputs, memory=memory)
    groups = group_pods(inputs, pods)
    assessed = [assess_metric(inputs, metric, groups) for metric in policy.metrics]
    metrics = tuple(metric for metric, _ in assessed)
    zero_since = lasting(memory.zero_since, now, holds=any(metric.is_ignored_zero for metric in metrics))
    memory = replace(memory, metrics={metric.name: after for metric, after in assessed}, zero_since=zero_since)
    assessment = Assessment(
        policy=policy,
        target=f"{inputs.target.kind} {inputs.target.name}" if inputs.target else policy.hpa,
        at=now,
        pods=pods,
        counts=groups.counts,
        metrics=metrics,
        windows=schedule_windows(policy.schedules, now),
        conditions=condition_sentences(inputs, groups, metrics, zero_since),
        memory=memory,
    )
    error_since = lasting(memory.error_since, now, holds=in_error(assessment, inputs.scale.replicas))
    if error_since == memory.error_since:
        return assessment
    return replace(assessment, memory=replace(memory, error_since=error_since))
