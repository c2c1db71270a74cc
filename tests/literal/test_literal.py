"""The adapter against the page: two implementations, one of them literal, and no difference between their answers.

`LITERAL_DOCUMENTS` sets how many random documents are compared (10,000; more for a night's run).
"""

import collections
import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from adapter.runtime import document_text
from tests.literal import model
from tests.literal.compare import Case, adapters, difference, reduced
from tests.literal.generator import sequence
from tests.literal.memory import Memory, load
from tests.literal.served import served

DOCUMENTS = int(os.environ.get("LITERAL_DOCUMENTS", "10000"))
PARTS = 10
VECTORS = Path(__file__).parent.parent / "vectors"
NAMES = sorted(str(file.relative_to(VECTORS).with_suffix("")) for file in VECTORS.rglob("[0-9]*.yaml"))
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((VECTORS / "expected.yaml").read_text())


@pytest.mark.parametrize("part", range(PARTS))
def test_the_adapter_decides_every_document_as_the_literal_model_does(part: int) -> None:
    compared, seed = 0, part * 1_000_000
    while compared < DOCUMENTS / PARTS:
        case = Case(seed)
        assert not case.difference, str(case)
        compared += len(case.answers)
        seed += 1


@pytest.mark.parametrize("name", [name for name in NAMES if "/" not in name])
def test_the_literal_implementation_holds_the_vectors(name: str) -> None:
    answer, _ = model.answer(given(name), load(given(name).get("memory")))
    assert part_of(answer, EXPECTED[name]) == {}


@pytest.mark.parametrize("directory", sorted({name.partition("/")[0] for name in NAMES if "/" in name}))
def test_the_literal_implementation_holds_the_vectors_with_several_steps(directory: str) -> None:
    memory = Memory()
    for name in NAMES:
        if name.startswith(f"{directory}/"):
            answer, memory = model.answer(given(name), memory)
            assert part_of(answer, EXPECTED[name]) == {}, name


def test_the_documents_reach_every_answer_that_the_page_knows() -> None:
    seen: dict[str, collections.Counter[Any]] = collections.defaultdict(collections.Counter)
    for answer in answers(4_000):
        seen["verdict"][answer["verdict"]] += 1
        seen["heldBy"][answer["heldBy"]] += 1
        seen["state"].update(answer["pods"].values())
        seen["error"][answer["error"]] += 1
        seen["zero"][answer["desiredReplicas"] == 0] += 1
    assert {*seen["verdict"]} == {"Above", "Inside", "Below", "Error"}
    assert {*seen["heldBy"]} == {
        None, "Doubt", "Missing", "MinServing", "MetricError", "Departed", "Schedule", "Velocity", "Cooldown", "Bounds",
        "Mode", "HPATolerance", "Delay",
    }  # fmt: skip
    assert {*seen["state"]} == {"terminating", "finished", "starting", "unready", "pulledOut", "doubtful", "serving"}
    assert {"is scaled to zero", "no pods exist", "rollout in progress", None} < {*seen["error"]}
    assert seen["zero"][True] > 10
    rare = {kind: {what: n for what, n in counter.items() if n < 2} for kind, counter in seen.items()}
    assert {kind: {what for what in few if what is not None} for kind, few in rare.items() if few} == {}


def given(name: str) -> dict[str, Any]:
    found: dict[str, Any] = document_text.read_document((VECTORS / f"{name}.yaml").read_text())
    return found


def part_of(answer: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """What the vectors expect and the literal implementation does not answer."""
    counts = dict(collections.Counter(answer["pods"].values()))
    compared = {name: expected[name] for name in ("desiredReplicas", "served", "verdict", "heldBy") if name in expected}
    wrong = {name: (value, answer[name]) for name, value in compared.items() if answer[name] != value}
    if expected.get("counts", counts) != counts:
        wrong["counts"] = (expected["counts"], counts)
    if "error" in expected and (expected["error"] is None) != (answer["error"] is None):
        wrong["error"] = (expected["error"], answer["error"])
    return wrong


def answers(documents: int) -> list[dict[str, Any]]:
    """The literal implementation's answers to so many documents."""
    found: list[dict[str, Any]] = []
    seed = 0
    while len(found) < documents:
        memory = Memory()
        for one in sequence(seed):
            answer, memory = model.answer(one, memory)
            found.append(answer)
        for one, remembered in documents_with_memories(seed) if seed % 4 == 0 else ():
            document = served(one, remembered, Random(seed))
            found.append(model.answer(document, load(document["memory"]))[0])
        seed += 1
    return found


def test_a_difference_is_detected() -> None:
    case = Case(3)
    wrong = reduced(case.full) | {"desiredReplicas": -1}
    assert difference(case.answers[-1], wrong).startswith("desiredReplicas: the page says")


@pytest.mark.parametrize("part", range(4))
def test_the_adapter_decides_a_servers_documents_as_the_literal_model_does(part: int) -> None:
    for seed in range(part * 1_000, part * 1_000 + 40):
        for given_one, memory in documents_with_memories(seed):
            document = served(given_one, memory, Random(seed))
            full = adapters(document, document["memory"])
            literal, _ = model.answer(document, load(document["memory"]))
            found = difference(literal, reduced(full))
            assert not found, f"seed {seed}: {found}\n{yaml.safe_dump(document, sort_keys=False)}"


def documents_with_memories(seed: int) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """The documents of a sequence, each with the memory that the adapter had before it."""
    memory: dict[str, Any] | None = None
    for one in sequence(seed):
        yield one, memory
        memory = json.loads(json.dumps(adapters(one, memory)["memory"]))


def test_a_pod_that_is_seen_only_after_its_roster_was_counted_is_registered() -> None:
    one = json.loads(json.dumps(given("01-above")))  # its pods share parts
    at = one["now"]
    pods = one["pods"]
    for index, pod in enumerate(pods):
        pod["status"]["podIP"] = f"10.0.0.{index + 1}"
    pods[0]["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": at}]
    instances = [{"ip": f"10.0.0.{index + 1}"} for index in range(len(pods))]
    one["policy"]["spec"]["registry"] = {"name": "main", "service": "web"}
    one["roster"] = {"at": at, "instances": instances}
    remembered = {"everInRoster": True, "rosterAt": at, "rosters": 1, "lastValid": one["roster"]}
    answer, _ = model.answer(one, load(remembered))
    full = adapters(one, remembered)
    assert answer["pods"][pods[0]["metadata"]["name"]] == "serving"
    assert not difference(answer, reduced(full))
