"""The specification's table of vectors, as documents that anyone can feed to `effective-load decide`."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import INVALID, NO_DECISION, OK, main
from adapter.commands.decide import reader
from adapter.load.assess import assess

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
IN_SCOPE = {*range(1, 18), *range(20, 48)} - {31}
EXPECTED: dict[str, dict[str, Any]] = yaml.load((HERE / "expected.yaml").read_text(), yaml.CSafeLoader)
Decide = Callable[..., tuple[int, str, str]]
FOUND = sorted(str(file.relative_to(HERE).with_suffix("")) for file in HERE.rglob("[0-9]*.yaml"))


def text_of(name: str) -> str:
    return (HERE / f"{name}.yaml").read_text()


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(text_of(name), yaml.CSafeLoader)
    return found


@cache
def case_of(name: str) -> reader.DecisionCase:
    """A vector; a step beyond the first has the memory of a process that saw the steps before."""
    case = reader.read_document(text_of(name))
    earlier = [other for other in FOUND if "/" in name and other < name and Path(other).parent == Path(name).parent]
    if not earlier:
        return case
    return case._replace(inputs=replace(case.inputs, memory=assess(case_of(earlier[-1]).inputs).memory))


@cache
def answered(name: str) -> dict[str, Any]:
    """The answer to a vector."""
    return reader.decision_json(case_of(name))


def part_of(answer: Any, expected: Any) -> Any:
    """As much of the answer as is expected of it; an empty mapping expects an empty one."""
    if isinstance(expected, dict) and isinstance(answer, dict) and expected:
        return {key: part_of(answer.get(key, "(absent)"), value) for key, value in expected.items()}
    if isinstance(expected, list) and isinstance(answer, list):
        return [part_of(one, like) for one, like in zip(answer, expected, strict=True)]
    return answer


@pytest.mark.parametrize("name", FOUND)
def test_the_answer_is_the_specified_one(name: str) -> None:
    answer = answered(name)
    assert part_of(answer, EXPECTED[name]) == EXPECTED[name], "\n".join(answer["explanation"])
    assert len(answer["pods"]) == sum(answer["counts"].values()) == len(document(name)["pods"])
    assert all(pod["reason"] for pod in answer["pods"])
    assert json.loads(json.dumps(answer)) == answer


def test_every_row_in_scope_has_a_file_and_every_file_an_expectation() -> None:
    assert {int(name.partition("-")[0]) for name in FOUND} == IN_SCOPE
    assert set(EXPECTED) == set(FOUND)


def test_a_vector_reads_the_same_as_json() -> None:
    text = text_of("08-overloaded-and-out")
    assert reader.read_document(text) == reader.read_document(json.dumps(document("08-overloaded-and-out")))


def test_the_order_of_pods_and_samples_does_not_matter() -> None:
    for name in FOUND:
        given = document(name)
        if "/" in name:
            continue
        given["pods"].reverse()
        given.get("usage", []).reverse()
        again = reader.decision_json(reader.read_document(json.dumps(given)))
        same = ("desiredReplicas", "served", "verdict", "heldBy", "error", "counts", "metrics", "conditions")
        assert {key: again[key] for key in same} == {key: answered(name)[key] for key in same}, name


def test_a_key_of_samples_that_would_change_nothing_is_named() -> None:
    given = document("20-service-total")
    given["samples"]["queue"]["stepSeconds"] = 10
    with pytest.raises(reader.DocumentError, match=r"samples\.queue: Object contains unknown field `stepSeconds`"):
        reader.read_document(json.dumps(given))


def test_the_readme_shows_the_programs_output() -> None:
    (shown,) = re.findall(
        r"effective-load decide tests/vectors/08.*?```\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    said = answered("08-overloaded-and-out")["explanation"]
    assert [line for line in shown.splitlines() if line not in said] == []


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Decide:
    """Runs `effective-load decide`: its status, output and errors."""

    def run(*arguments: str, given: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        return main(["decide", *arguments]), *capsys.readouterr()

    return run


class TestTheCommand:
    def test_it_prints_the_answer_as_json_and_exits_with_0(self, decide: Decide) -> None:
        status, out, err = decide(str(HERE / "08-overloaded-and-out.yaml"), "-o", "json")
        assert (status, err) == (OK, "")
        assert json.loads(out) == answered("08-overloaded-and-out")

    def test_it_prints_sentences_by_default_also_as_its_users_start_it(self) -> None:
        command = [sys.executable, "-m", "adapter.cli", "decide", str(HERE / "08-overloaded-and-out.yaml")]
        lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        assert lines == answered("08-overloaded-and-out")["explanation"]
        assert "12" in lines[-1]

    def test_an_answer_that_is_an_error_exits_with_3(self, decide: Decide) -> None:
        given = document("08-overloaded-and-out")
        del given["usage"]
        status, out, _ = decide("-", "-o", "json", given=json.dumps(given))
        answer = json.loads(out)
        assert status == NO_DECISION
        assert answer["desiredReplicas"] is None
        assert answer["served"] is None
        assert answer["verdict"] == "Error"
        assert "metrics.k8s.io" in answer["error"]

    def test_an_invalid_file_exits_with_2_and_names_every_fault_with_its_path(self, decide: Decide) -> None:
        given = document("08-overloaded-and-out")
        del given["now"]
        given["policy"]["spec"]["metrics"][0]["highWatermark"] = "much"
        given["pods"][2]["metadata"]["name"] = ""
        given["replicas"] = 3
        status, out, err = decide("-", "-o", "json", given=json.dumps(given))
        assert (status, out) == (INVALID, "")
        for path in ("now:", "policy.spec.metrics[0].highWatermark:", "pods[2].metadata.name:", "replicas:"):
            assert f"  {path}" in err
