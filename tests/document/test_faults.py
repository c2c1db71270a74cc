"""A document that `decide` cannot read ends in named faults, each with its path."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import INVALID, main
from adapter.commands.decide import reader

VECTOR = Path(__file__).parent.parent / "vectors" / "08-overloaded-and-out.yaml"


def vector() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(VECTOR.read_text(), yaml.CSafeLoader)
    return found


def put(data: Any, path: tuple[str | int, ...], value: object) -> str:
    """The document as JSON with the value at the path."""
    *above, last = path
    inner = data
    for step in above:
        inner = inner[step]
    inner[last] = value
    return json.dumps(data)


def faults_of(text: str) -> list[str]:
    with pytest.raises(reader.DocumentError) as raised:
        reader.read_document(text)
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("scale", "spec", "replicas"), -3, "scale.spec.replicas: Expected a number from 0"),
        (("scale", "spec", "replicas"), "ten", "scale.spec.replicas: Expected a number from 0"),
        (("scale", "status", "replicas"), "ten", "scale.status.replicas: Expected a number from 0"),
        (("policy", "apiVersion"), [], "policy.apiVersion: []: must be effective-load.io/v1alpha1"),
        (("pods", 2, "metadata", "name"), 5, "pods[2].metadata.name: Expected `str`, got `int`"),
        (("now",), "9999-12-31T23:59:59Z", "now: '9999-12-31T23:59:59Z': must be a time from 1970 to the year 9000"),
        (("memory",), {"errorSince": "x"}, "memory.errorSince: Invalid RFC3339 encoded datetime"),
        (("pods", 0), 5, "pods[0]: Expected `object`, got `int`"),
        (("memory",), {"errorSince": 5}, "memory.errorSince: Expected `datetime | null`, got `int`"),
        (("memory",), {"observed": {"rose_at": "x"}}, "memory.observed.rose_at: Expected `float | null`, got `str`"),
        (("pods", 1), vector()["pods"][0], "pods[1].metadata.uid: is a duplicate of pods[0]"),
        (("scale", "status", "selector"), "a in b", "scale.status.selector: 'a in b': "),
        (("instances",), {"at": vector()["now"], "instances": [{"ip": 5}]}, "instances.instances[0].ip: Expected"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_path(path: tuple[str | int, ...], value: object, sentence: str) -> None:
    faults = faults_of(put(vector(), path, value))
    assert any(fault.startswith(sentence) for fault in faults), faults


def test_a_list_as_kubectl_prints_it_is_read_as_its_items() -> None:
    given = vector()
    given["pods"] = {"apiVersion": "v1", "kind": "List", "items": given["pods"]}
    assert len(reader.read_document(json.dumps(given)).inputs.pods) == len(vector()["pods"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"a: \x00", "is not YAML"),
        (b"", "must be a mapping with now, policy"),
        (b"\xff\xfe", "cannot be read: it is not UTF-8"),
    ],
)  # fmt: skip
def test_the_command_ends_with_2_and_a_sentence(
    text: bytes, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["decide", "-"]) == INVALID
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err


def test_total_written_by_hand_may_be_0_and_counts_as_often_as_its_rarest_series() -> None:
    data = yaml.load((VECTOR.parent / "35-total-towards-high-a.yaml").read_text(), yaml.CSafeLoader)
    data["samples"]["queue"] |= {"total": 0, "counts": {"web-0": 4, "web-1": 1}}
    total = reader.read_data(data).inputs.samples.queries["queue"].total
    assert total is not None
    assert (total.value, total.count) == (0, 1)
