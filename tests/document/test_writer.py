"""A document that the server writes leads to the decision that the server made, whatever it was made from."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver.decision_document import document
from adapter.commands.decide.reader import DecisionCase, decision_json, read_document
from adapter.load.assess import assess
from adapter.load.assessment import AssessmentInputs
from adapter.load.decide import decide
from adapter.load.explanation import explain
from adapter.load.memory import Memory
from adapter.load.roster import Instance
from adapter.load.samples import Point, QuerySamples, Samples
from adapter.load.spec import Bounds, HpaTolerance, Policy, Scale
from tests.load.kit import BOUNDS, NOW, REGISTRY, TARGET, cpu, out, pod, policy, queue, roster, scale, usage
from tests.load.services import Service, calm_services

ANYTHING = {"metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m"}]}


def written(case: DecisionCase, spec: dict[str, Any]) -> str:
    return msgspec.json.encode(document(case.inputs, json.dumps(spec).encode(), case.scale, case.now)).decode()


def read_again(case: DecisionCase, spec: dict[str, Any] | None = None) -> DecisionCase:
    """The case after it was written and read; the policy is the original one, unless `spec` is it."""
    sources = {
        one.name: {"query": {"name": one.name}} if one.query is not None else {"resource": {"name": "cpu"}}
        for one in case.inputs.policy.metrics
    }
    stub = {"metrics": [{"name": name, "highWatermark": "1", **source} for name, source in sources.items()]}
    again = read_document(written(case, spec or stub))
    return again if spec else again._replace(inputs=replace(again.inputs, policy=case.inputs.policy))


def told(case: DecisionCase) -> tuple[Any, ...]:
    assessment = assess(case.inputs)
    decision = decide(assessment, case.scale, case.inputs.bounds, case.now)
    sentences = explain(assessment, decision, case.inputs.bounds, case.now)
    return decision.desired, decision.served, decision.error, decision.verdict, decision.held_by, sentences


VECTORS = Path(__file__).parent.parent / "vectors"
COURSES = itertools.groupby(sorted(VECTORS.glob("*/[0-9]*.yaml")), lambda file: file.parent)


@pytest.mark.parametrize("files", [pytest.param(list(files), id=folder.name) for folder, files in COURSES])
def test_documents_of_the_steps_of_a_vector_decide_as_their_inputs_do(files: list[Path]) -> None:
    memory = None
    for file in files:
        text = file.read_text()
        case = read_document(text)
        if memory is not None:  # as in the server, the memory never was JSON
            case = case._replace(inputs=replace(case.inputs, memory=memory))
        again = read_again(case, yaml.load(text, yaml.CSafeLoader)["policy"]["spec"])
        assert decision_json(again) == decision_json(case)
        memory = assess(case.inputs).memory


def inputs_of(service: Service) -> AssessmentInputs:
    loads = {name: None if load is None else f"{load}m" for name, load in service.loads.items() if name in service.pods}
    listed = roster(*(one.ips[0] for one in service.pods.values()), at=service.now - 1)
    pods = [replace(one, labels={"app": "web", "pod-template-hash": "abc"}) for one in service.pods.values()]
    return AssessmentInputs(
        policy=service.rule, pods=pods, samples=usage(loads, at=service.now - 10), roster=listed,
        scale=scale(service.current), bounds=BOUNDS, target=TARGET, memory=service.memory, now=service.now,
    )  # fmt: skip


@given(calm_services(), st.lists(st.tuples(st.integers(1, 90), st.integers(0, 13)), min_size=1, max_size=6))
def test_documents_of_a_service_that_lives_on_decide_as_the_server_does(
    service: Service, steps: list[tuple[int, int]]
) -> None:
    """Pods lose their sample, or leave, one after another; somebody scales before the HPA asks."""
    for seconds, index in steps:
        names = list(service.pods)
        name = names[index % len(names)]
        loads = service.loads | ({name: None} if index % 2 else {})
        pods = service.pods if index % 3 or len(names) == 1 else {n: service.pods[n] for n in names if n != name}
        service = replace(service, now=service.now + seconds, loads=loads, pods=pods)
        inputs = inputs_of(service)
        live = replace(inputs.scale, replicas=inputs.scale.replicas + index % 3)
        case = DecisionCase(inputs, live, inputs.now + 7)
        assert told(read_again(case)) == told(case)
        service = replace(service, memory=assess(case.inputs).memory)


def case_of(rule: Policy, **changes: Any) -> DecisionCase:
    scale = Scale(replicas=3, status_replicas=3, selector="app=web")
    bounds = Bounds(minimum=1, maximum=20)
    known: dict[str, Any] = {"scale": scale, "bounds": bounds, "target": TARGET, "now": NOW, "memory": Memory()}
    inputs = AssessmentInputs(policy=rule, **(known | changes))
    return DecisionCase(inputs, scale, NOW + 3.25)


FAILED = QuerySamples(
    error="HTTP 503 (last answer at 2026-01-01T00:00:00Z)", fetched_at=NOW - 12, max_age=45.0, window=60.0
)


@pytest.mark.parametrize(
    "samples", [FAILED, QuerySamples(), QuerySamples(by_pod=False), replace(FAILED, behind=604800.0, by_pod=True)]
)
def test_a_query_that_failed_or_never_answered_is_written_as_that_beside_what_the_server_alone_knows(
    samples: QuerySamples,
) -> None:
    bounds = Bounds(minimum=0, maximum=7, last_scale=NOW - 60, tolerance=HpaTolerance(Fraction(1, 10), Fraction(1, 40)))
    memory = Memory(started_at=NOW - 100, rose_at=NOW - 50)
    case = case_of(policy(queue("10")), samples=Samples(queries={"queue": samples}), bounds=bounds, memory=memory)
    again = read_again(case).inputs
    assert (again.samples.queries["queue"], again.bounds) == (samples, bounds)
    assert again.memory == memory


def test_samples_of_other_pods_are_left_out_and_still_known_to_exist() -> None:
    points = {"web-0": Point(NOW - 5, 10**9), "other": Point(NOW - 6, 2 * 10**9)}
    case = case_of(
        policy(queue("10")), pods=[pod("web-0")], samples=Samples(queries={"queue": QuerySamples(pods=points)})
    )
    samples = read_again(case).inputs.samples.queries["queue"]
    assert (set(samples.pods), samples.by_pod) == ({"web-0"}, True)
    assert '"web-0":{"at":' in written(case, ANYTHING), "people change documents: each value has its name"


def test_registrations_keep_no_metadata_but_the_name_of_their_pod() -> None:
    listed = roster("10.0.0.1")
    secret = Instance(ip="10.0.0.1", port=80, metadata={"pod": "web-0", "token": "s3cret", "password": "hunter2"})
    rule = policy(registry=replace(REGISTRY, pod_name_key="pod"))
    case = case_of(rule, roster=replace(listed, instances=(secret,)))
    text = written(case, ANYTHING)
    assert not [word for word in ("s3cret", "hunter2") if word in text]
    assert read_document(text).inputs.roster.instances[0].metadata == {"pod": "web-0"}


def test_a_pod_that_no_endpoint_serves_and_one_pulled_out_by_hand_stay_so() -> None:
    mine = {"app": "web", "pod-template-hash": "abc"}
    pods = [pod("web-0", endpoint_serving=False), out("web-1"), pod("web-2", ready=False)]
    pods = [replace(one, labels=mine) for one in pods]
    case = case_of(policy(cpu("1", "500m")), pods=pods, samples=usage({"web-0": "1", "web-1": "2", "web-2": "1"}))
    assert told(read_again(case)) == told(case)
