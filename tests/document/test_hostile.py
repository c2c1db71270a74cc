"""Documents that break a careless reader: each ends in named faults, soon, and none is taken silently."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import INVALID, main
from adapter.commands.decide import decision, reader
from adapter.runtime import document_text
from tests.effort import effort

VECTORS = Path(__file__).parent.parent / "vectors"
CALLS = 12_000_000
"""Functions are called some five times for each value that is read."""


def vector(name: str = "08-overloaded-and-out") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((VECTORS / f"{name}.yaml").read_text())
    return found


def pods(count: int) -> list[dict[str, Any]]:
    """So many pods like the first one of the vector."""
    one = vector()["pods"][0]
    return [one | {"metadata": one["metadata"] | {"name": f"w-{n}", "uid": f"u-{n}"}} for n in range(count)]


def put(data: Any, path: tuple[str | int, ...], value: object) -> str:
    """The document as JSON with the value at the path."""
    *above, last = path
    inner = data
    for step in above:
        inner = inner[step]
    inner[last] = value
    return json.dumps(data)


def faults_of(text: str) -> list[str]:
    with pytest.raises(reader.DocumentError) as raised, effort() as done:
        reader.read_document(text)
    assert done.calls < CALLS
    return [str(fault) for fault in raised.value.faults]


WRONG = [
    (("scale", "spec", "replicas"), -3, "scale.spec.replicas: -3: must be a number from 0 to 2147483647"),
    (("scale", "status", "replicas"), -1, "scale.status.replicas: -1: must be a number from 0"),
    (("scale", "spec", "replicas"), "ten", "scale.spec.replicas: 'ten': Expected `int`, got `str`"),
    (("policy", "apiVersion"), [], "policy.apiVersion: []: must be effective-load.io/v1alpha1"),
    (("pods", 2, "metadata", "name"), 5, "pods[2].metadata.name: 5: Expected `str`, got `int`"),
    (
        ("pods", 2, "metadata", "creationTimestamp"),
        "soon",
        "pods[2].metadata.creationTimestamp: 'soon': must be a time",
    ),
    (("pods", 2, "status", "startTime"), "2026-02-30T00:00:00Z", "pods[2].status.startTime: '2026-02-30"),
    (
        ("pods", 2, "status", "conditions", 0, "lastTransitionTime"),
        "2026-01-01T12:00:00",
        "pods[2].status.conditions[0].lastTransitionTime: '2026-01-01T12:00:00': must be a time with its offset",
    ),
    (("usage", 1, "timestamp"), "9999-12-31T23:59:59.9999999Z", "usage[1].timestamp: '9999-12-31"),
    (("usage", 1, "timestamp"), "0001-01-01T00:00:00+14:00", "usage[1].timestamp: '0001-01-01"),
    (("usage", 1, "window"), "15 potatoes", "usage[1].window: '15 potatoes': must be a duration such as 15s"),
    (("usage", 1, "window"), "1s" * 100_000, "usage[1].window: '1s1s1s"),
    (("now",), "9999-12-31T23:59:59Z", "now: '9999-12-31T23:59:59Z': must be a time from 1970 to the year 9000"),
    (("now",), 10**4300, "now: '10000000000000000000…': is a number of 4301 digits"),
    (("memory",), {"errorSince": "soon"}, "memory: errorSince is 'soon'; it must be a time"),
    (("memory",), {"away": {"u": {"since": "2026-01-01T12:00:00Z", "state": "x"}}}, "memory: away.u.state is 'x'"),
    (("policy", "metadata", "name"), "\ud800", "policy.metadata.name: '\\ud800': holds half a character"),
]


@pytest.fixture(autouse=True)
def _long_numbers() -> Any:
    """json.dumps writes numbers of any length here; the reader must not."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.parametrize(
    ("path", "value", "sentence"), WRONG, ids=[sentence.partition(": ")[0] for *_, sentence in WRONG]
)
def test_a_wrong_value_is_named_with_its_path(path: tuple[str | int, ...], value: object, sentence: str) -> None:
    faults = faults_of(put(vector(), path, value))
    assert any(fault.startswith(sentence) for fault in faults), faults


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("weight", "x", "Expected `float"),
        ("weight", True, "Expected `float"),
        ("port", "80", "Expected `int"),
        ("ip", 5, "Expected `str`"),
        ("enabled", 1, "Expected `bool`"),
    ],
)
def test_a_wrong_value_of_a_registration_is_named(key: str, value: object, advice: str) -> None:
    given = vector()
    given["instances"] = {"at": given["now"], "instances": [{"ip": "10.0.0.1", "port": 80, key: value}]}
    (fault,) = faults_of(json.dumps(given))
    assert fault.startswith(f"instances.instances[0].{key}: {value!r}: {advice}")


def test_a_pod_or_its_usage_twice_is_named() -> None:
    assert faults_of(put(vector(), ("usage", 9), vector()["usage"][1])) == [
        "usage[9].metadata.name: 'web-1': is a duplicate of usage[1].metadata.name; keep one of them"
    ]
    assert faults_of(put(vector(), ("pods", 9), vector()["pods"][1])) == [
        f"pods[9].metadata.{field}: is a duplicate of pods[1].metadata.{field.partition(':')[0]}; keep one of them"
        for field in ("name: 'web-1'", "uid: 'uid-web-1'")
    ]


def test_a_key_twice_is_named_in_json_and_in_yaml() -> None:
    as_json = json.dumps(vector()).replace('"maxReplicas": 1000', '"maxReplicas": 1000, "maxReplicas": 2')
    written = (VECTORS / "08-overloaded-and-out.yaml").read_text()
    as_yaml = written.replace("maxReplicas: 1000", "maxReplicas: 1000\n    maxReplicas: 2")
    sentence = "hpa.spec.maxReplicas: 2: is a key that stands here more than once; keep one of them"
    assert faults_of(as_json) == faults_of(as_yaml) == [sentence]


def test_a_key_that_a_merge_brings_too_is_no_fault() -> None:
    assert document_text.read_document("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: {<<: [{x: 9}, *a]}") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
        "c": {"x": 9, "y": 2},
    }


def test_yaml_is_read_as_the_usual_loader_reads_it() -> None:
    for file in VECTORS.rglob("[0-9]*.yaml"):
        assert document_text.read_document(file.read_text()) == yaml.safe_load(file.read_text()), file
    text = (
        "[1, -2, 0x1f, 0o7, 017, 1_000, 12:30, 1.5, .5, 1e3, 1.e+3, .inf, yes, No, ~, null, '', \"1\", '~', !!str 5, a]"
    )
    assert document_text.read_document(text) == yaml.safe_load(text)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
WIDE = "a: &a {" + ", ".join(f"k{n}: 1" for n in range(2000)) + "}\nb: [" + ", ".join(["{<<: *a}"] * 5000) + "]"
LONG = f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 5000)}]"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param('{"a":' * 5000 + "1" + "}" * 5000, "is nested more than 64 levels deep", id="braces"),
        pytest.param("[" * 900 + "]" * 900, "is nested more than 64 levels deep", id="fewer brackets"),
        pytest.param("a: " + "[" * 500_000, "is nested more than 64 levels deep", id="YAML brackets"),
        pytest.param("- " * 100_000, "is nested more than 64 levels deep", id="YAML dashes"),
        pytest.param("? " * 100_000, "a key must be a text", id="YAML keys of keys"),
        pytest.param(f"now: {'9' * 4301}", "now: '99999999999999999999…': is a number of 4301 digits", id="digits"),
        pytest.param(f"now: 0x{'f' * 500_000}", "now: '0xffffffffffffffffff…': is a number", id="hexadecimal digits"),
        pytest.param(f"now: {'1:' * 100_000}1", "now: '1:1:1:1:1:1:1:1:1:1:…': is a number", id="sexagesimal digits"),
        pytest.param(BOMB, "holds more than 200000 values, aliases counted as often as they are used", id="alias bomb"),
        pytest.param(WIDE, "holds more than 200000 values", id="merge bomb"),
        pytest.param(LONG, "holds more than 200000 values", id="bomb of one long text"),
        pytest.param(
            "a: &a [*a]", "*a names no value that is complete before it (&a) (line 1, column 8)", id="alias of itself"
        ),
        pytest.param("a: *b", "*b names no value", id="alias of nothing"),
        pytest.param("a: 1\n---\nb: 2", "begins a second document (---); give one at a time", id="two documents"),
        pytest.param(
            "a: !!python/object:os.system x",
            "has the tag tag:yaml.org,2002:python/object:os.system, which is not read here; leave it away (line 1",
            id="a foreign tag",
        ),
        pytest.param("a: !!binary aGk=", "has the tag tag:yaml.org,2002:binary", id="bytes"),
        pytest.param("a: !!int x", "'x' is no number (line 1, column 4)", id="a number that is none"),
        pytest.param("{[1]: 2}", "a key must be a text, not a mapping or list", id="a key that is a list"),
        pytest.param("{<<: 5}", "expected a mapping or list of mappings for merging", id="a merge of no mapping"),
        pytest.param('{"a": 1,, "b": 2]', "is no JSON (Expecting property name", id="broken JSON"),
        pytest.param("a: \x00", "is no YAML: ", id="a control character"),
        pytest.param("", "must be a mapping with now, policy", id="nothing"),
        pytest.param("a: " + "x" * 300_000, "a: 'xxxxxxxxxxxxxxxxxxxx…': has 300000 characters", id="a long text"),
        pytest.param("[]", "[]: must be a mapping", id="a list"),
        pytest.param("[" + "0," * 600_000 + "0]", "holds more than 500000 values", id="many values"),
        pytest.param(
            "x" * (document_text.LARGEST_BYTES + 1), "the document is larger than 16 MiB", id="a large document"
        ),
        pytest.param("a: [" + "x, " * 2_000_000 + "]", "holds more than 200000 values", id="many YAML values"),
    ],
)
def test_a_text_that_no_reader_should_swallow_is_refused_soon(text: str, sentence: str) -> None:
    faults = faults_of(text)
    assert any(sentence in fault for fault in faults), faults
    assert all(len(fault) < 600 for fault in faults)


@pytest.mark.parametrize("key", ["pods", "usage", "endpointSlices"])
def test_a_hundred_thousand_objects_are_refused_soon(key: str) -> None:
    faults = faults_of(json.dumps(vector() | {key: [{}] * 100_000}))
    assert f"{key}: has 100000 items; at most 5000 are read, so leave out what is not needed" in faults


@pytest.mark.parametrize("key", ["pods", "usage"])
def test_of_thousands_of_faults_a_hundred_are_told(key: str) -> None:
    faults = faults_of(json.dumps(vector() | {key: [{}] * 5000}))
    assert len(faults) == 101
    assert faults[-1] == "and 4900 more faults; mend these first"


def test_a_memory_of_more_pods_than_are_written_is_refused_soon() -> None:
    away = {f"u{n}": {"since": "2026-01-01T11:00:00Z", "state": "doubtful"} for n in range(80_000)}
    (fault,) = faults_of(json.dumps(vector() | {"memory": {"away": away}}))
    assert "away has 80000 items; at most 200 are read" in fault


def calls_for(document: dict[str, Any]) -> int:
    """The calls that reading and deciding a document takes, of which every pod is decided."""
    text = json.dumps(document)
    with effort() as done:
        assert len(decision.decision_json(reader.read_document(text))["pods"]) == len(document["pods"])
    return done.calls


def with_pods(count: int) -> dict[str, Any]:
    usage = vector()["usage"][0]
    return vector() | {"pods": pods(count), "usage": [usage | {"metadata": {"name": f"w-{n}"}} for n in range(count)]}


def test_ten_times_as_many_pods_take_about_ten_times_as_long() -> None:
    assert calls_for(with_pods(2000)) < 12 * calls_for(with_pods(200)), "a hundred times if each met each"


@pytest.mark.parametrize("section", ["policy", "hpa"])
def test_fifty_thousand_unknown_keys_are_refused_soon(section: str) -> None:
    given = vector()
    given[section]["spec"] = {f"someKey{n}": n for n in range(50_000)}
    assert len(faults_of(json.dumps(given))) <= 101


def test_many_endpoints_and_many_pods_are_decided_soon() -> None:
    same = [one | {"status": {"podIP": "10.0.0.1"}} for one in pods(2000)]
    ends = [{"conditions": {"serving": True}, "targetRef": {"kind": "Pod", "name": f"w-{n}"}} for n in range(2000)]
    slices = [{"metadata": {"name": "s"}, "endpoints": ends}] * 5
    assert calls_for(vector() | {"pods": same, "endpointSlices": slices}) < CALLS


def test_a_thousand_pods_as_json_are_read_as_json() -> None:
    text = json.dumps(vector() | {"pods": pods(1000)})
    with effort() as done:
        assert len(reader.read_document(text).inputs.pods) == 1000
    assert done.calls < CALLS, "as YAML"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(BOMB.encode(), "aliases counted as often", id="alias bomb"),
        pytest.param(b"[" * 5000 + b"]" * 5000, "nested more than", id="brackets"),
        pytest.param(b"\xff\xfe", "cannot be read", id="no UTF-8"),
        pytest.param(b"\xc3" * (document_text.LARGEST_BYTES + 9), "larger than 16 MiB", id="too large"),
    ],
)
def test_the_command_ends_with_2_and_a_sentence(
    text: bytes, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["decide", "-"]) == INVALID
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err
