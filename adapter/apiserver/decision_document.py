"""A policy's decision with its reasons, and its document: everything that the count which the HPA gets is decided from.

`GET …/namespaces/NAMESPACE/watermarkpolicies.effective-load.io/NAME/decision` of custom.metrics.k8s.io, authorized as
a metric of that policy is. Policy, HPA and scale are written as the Kubernetes objects that `decide` reads, what was
observed as the data of `load` as it is: times in epoch seconds, amounts in nano-units.

Without secrets: an instance of a registry keeps only the metadata that names its pod, and nothing of the settings is in
it but what a policy's conditions and errors say too.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from http import HTTPStatus
from typing import Any

import msgspec

from adapter.apiserver.provider import MetricsProvider, name_of, require_assessment
from adapter.apiserver.request_info import RequestInfo
from adapter.apiserver.status import StatusError, unavailable
from adapter.load.assessment import Assessment, AssessmentInputs, Decision, MetricAssessment, Outcome
from adapter.load.explanation import explain
from adapter.load.memory import Memory
from adapter.load.pod_samples import PodSample
from adapter.load.pods import Pod, PodAssessment
from adapter.load.quantity import NANO, milli_text, nano_text
from adapter.load.roster import Roster
from adapter.load.samples import ELSEWHERE, QuerySamples, Samples
from adapter.load.spec import Bounds, Scale, Target
from adapter.policy import status_memory
from adapter.policy.behavior import hpa_manifest
from adapter.policy.hpa import DIRECTIONS, CrossVersionReference
from adapter.policy.watermark_policy import API_VERSION, HOLD_UNTIL, KIND
from adapter.runtime.times import format_micro_time, format_time
from adapter.telemetry.metrics import package_version

MOST_ITEMS = 5000
"""The pods, and the registered instances, of a document: as many as `decide` reads within two seconds."""

Object = dict[str, Any]


class Observed(msgspec.Struct):
    """The inputs of the assessment besides policy and HPA, and its time: those of `AssessmentInputs`."""

    now: float
    pods: tuple[Pod, ...]
    samples: Samples
    roster: Roster | None
    scale: Scale
    target: Target | None
    memory: Memory


async def answer(provider: MetricsProvider, info: RequestInfo) -> bytes:
    """The decision at this moment and its document, as JSON, written in a thread.

    Raises StatusError: as a request for `desired_replicas` does, and 413 for a document that would be too large. A
    decision that is an error is no StatusError.
    """
    live = await provider.live_decision(info)
    inputs, policy = live.view.inputs, live.view.policy
    assessment = require_assessment(live.view)
    if inputs is None or inputs.target is None or not live.view.spec:
        raise unavailable(f"the inputs of {name_of(live.view)} are not kept")
    count = max(len(inputs.pods), len(inputs.roster.instances) if inputs.roster is not None else 0)
    if count > MOST_ITEMS:
        message = f"{name_of(live.view)} has {count} pods or instances; a document has at most {MOST_ITEMS}"
        raise StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)

    def written() -> bytes:
        answered = {
            "kind": "PolicyDecision",
            "apiVersion": f"{info.group}/{info.version}",
            "metadata": {"namespace": policy.namespace, "name": policy.name},
            "server": {"version": package_version()},
            "decision": decision_json(assessment, live.decision, inputs.bounds, live.now),
            "document": document(inputs, live.view.spec, live.scale, live.now),
        }
        return msgspec.json.encode(answered, enc_hook=_plain)

    return await asyncio.to_thread(written)


def decision_json(assessment: Assessment, decision: Decision, bounds: Bounds, now: float) -> Object:
    """The decision at `now` (seconds). `desiredReplicas` and `served` are null where `error` is set."""
    outcomes = {outcome.metric.name: outcome for outcome in decision.outcomes}
    explanation = list(explain(assessment, decision, bounds, now))
    if decision.current == 0 and bounds.minimum > 0:
        explanation.append(
            f"the target was scaled to 0 by hand: an HPA with minReplicas {bounds.minimum} rests there until somebody "
            "scales it to 1 or more"
        )
    samples: dict[str, dict[str, PodSample]] = {}
    for metric in assessment.metrics:
        for sample in metric.samples:
            samples.setdefault(sample.pod.uid, {})[metric.name] = sample
    return {
        "desiredReplicas": decision.desired,
        "served": None if decision.served is None else milli_text(decision.served),
        "error": decision.error,
        "verdict": decision.verdict.value,
        "heldBy": decision.held_by.value if decision.held_by else None,
        "current": decision.current,
        "lowerBound": decision.lower_bound,
        "upperBound": decision.upper_bound,
        "pods": [_pod(each, samples.get(each.pod.uid, {})) for each in assessment.pods],
        "counts": {state.value: count for state, count in assessment.counts.items() if count},
        "metrics": [_metric(metric, outcomes.get(metric.name)) for metric in assessment.metrics],
        "conditions": dict(assessment.conditions),
        "explanation": explanation,
        "memory": status_memory.to_status(assessment.memory),
    }


def _pod(assessed: PodAssessment, samples: Mapping[str, PodSample]) -> Object:
    missing = {name: sample.missing for name, sample in samples.items() if sample.usage is None}
    return {
        "name": assessed.pod.name,
        "state": assessed.state.value,
        "reason": assessed.reason,
        "evidence": assessed.evidence or None,
        "usage": {name: nano_text(sample.usage) for name, sample in samples.items() if sample.usage is not None},
        **({"missing": missing} if missing else {}),
    }


def _metric(metric: MetricAssessment, outcome: Outcome | None) -> Object:
    values = {name: getattr(metric, name) for name in ("usage", "raw", "high", "low")}
    values["target"] = metric.metric.target
    return {
        "name": metric.name,
        "n": metric.n,
        "missing": metric.missing,
        **{name: None if value is None else nano_text(value) for name, value in values.items()},
        "windowSeconds": metric.window,
        "verdict": outcome.verdict.value if outcome else "Error",
        "lowerBound": outcome.lower_bound if outcome else None,
        "upperBound": outcome.upper_bound if outcome else None,
        "proposal": outcome.proposal if outcome else None,
        "replaced": outcome.replaced if outcome else 0,
        "staleAt": None if metric.stale_at is None else format_time(metric.stale_at),
        "error": metric.error,
    }


def document(inputs: AssessmentInputs, spec: bytes, scale: Scale, now: float) -> Object:
    """The document that `decide` reads.

    `inputs` are those of the assessment, with a target; `spec` is the policy's (JSON), `scale` the live one, `now` the
    time of the decision.
    """
    policy, target, bounds = inputs.policy, inputs.target, inputs.bounds
    assert target is not None
    metadata = {field: getattr(policy, field) for field in ("name", "namespace", "generation", "uid")}
    hold = {} if policy.hold_until is None else {HOLD_UNTIL: format_micro_time(policy.hold_until)}
    # HPAs hold tolerances as quantities, so nano-units are exact.
    behavior = {
        direction: {"tolerance": nano_text(ratio * NANO)}
        for direction, ratio in zip(DIRECTIONS, bounds.tolerance or (), strict=False)
    }
    reference = CrossVersionReference(target.api_version, target.kind, target.name)
    named = {"name": policy.hpa, "namespace": policy.namespace}
    last = {} if bounds.last_scale is None else {"lastScaleTime": format_micro_time(bounds.last_scale)}
    counts = {"replicas": scale.status_replicas, "selector": scale.selector}
    return {
        "now": format_micro_time(now),
        "policy": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": metadata | {"annotations": hold},
            "spec": msgspec.Raw(spec),
        },
        "hpa": hpa_manifest(named, policy.name, reference, bounds, behavior) | {"status": last},
        "scale": {"spec": {"replicas": scale.replicas}, "status": counts},
        "observed": msgspec.to_builtins(_observed(inputs), enc_hook=_plain, str_keys=True),
    }


def with_observed(inputs: AssessmentInputs, observed: object) -> AssessmentInputs:
    """The inputs with what a document's `observed` has. Raises msgspec.ValidationError, which names the place."""
    read = msgspec.convert(observed, Observed, dec_hook=lambda kind, value: kind(value))
    return replace(inputs, **msgspec.structs.asdict(read))


def _observed(inputs: AssessmentInputs) -> Observed:
    """What is written of the inputs: no other pods' samples, and of registrations no metadata but the pod's name."""
    own, resources, roster = {pod.name for pod in inputs.pods}, inputs.samples.resources, inputs.roster
    samples = Samples(
        replace(resources, pods=_of(own, resources.pods)),
        {name: _query(inputs, name, query) for name, query in inputs.samples.queries.items()},
    )
    if roster is not None:
        key = {inputs.policy.registry.pod_name_key} if inputs.policy.registry is not None else set()
        instances = (replace(each, metadata=_of(key, each.metadata)) for each in roster.instances)
        roster = replace(roster, instances=tuple(instances))
    return Observed(inputs.now, tuple(inputs.pods), samples, roster, inputs.scale, inputs.target, inputs.memory)


def _query(inputs: AssessmentInputs, metric: str, samples: QuerySamples) -> QuerySamples:
    """The samples of a metric; scrape targets that are not the target's own pods have no name here."""
    own = {pod.name for pod in inputs.pods}
    known = own | inputs.memory.metric(metric).own.keys() | {ip for pod in inputs.pods for ip in pod.ips}
    targets = _of(known, samples.targets)
    others = sum(samples.targets.values()) - sum(targets.values())
    return replace(
        samples,
        pods=_of(own, samples.pods),
        unusable=_of(own, samples.unusable),
        counts=_of(own, samples.counts),
        targets=targets | ({ELSEWHERE: others} if others else {}),
        by_pod=True if samples.by_pod is None and samples.pods else samples.by_pod,
    )


def _of(names: set[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _plain(value: object) -> Any:
    """A fraction and a mapping that JSON does not know."""
    return str(value) if isinstance(value, Fraction) else dict(value)  # type: ignore[call-overload]
