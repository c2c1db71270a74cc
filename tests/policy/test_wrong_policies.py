"""Wrong policies: the real API server refuses each with a sentence that helps, and so does `parse_policy`."""

from collections.abc import Iterator
from typing import Any

import pytest

from adapter.policy.documents import SPEC, PolicyError
from adapter.policy.watermark_policy import parse_policy
from tests.policy.conftest import PolicyApi
from tests.policy.wrong import CPU, WRONG, policy

EACH = [
    (path, words, policy("checkout", "default", **spec)) for (path, words), specs in WRONG.items() for spec in specs
]


@pytest.mark.integration
@pytest.mark.versions
def test_api_server_refuses_each_wrong_policy_with_its_words(policy_api: PolicyApi) -> None:
    for _, words, document in EACH:
        answer = policy_api.offer(document)
        assert answer.status in {400, 422}, f"{document['spec']} is not refused"
        assert words in answer.json()["message"], document["spec"]


def test_reader_refuses_each_wrong_policy_with_its_words_at_its_place() -> None:
    for path, words, document in EACH:
        with pytest.raises(PolicyError) as caught:
            parse_policy(document)
        assert any(fault.path == path and words in str(fault) for fault in caught.value.faults), f"{caught.value}"


def test_every_rule_of_the_crd_has_a_wrong_policy() -> None:
    missing = [message for message in _messages(SPEC) if not any(words in message for _, words in WRONG)]
    assert not missing


def _messages(schema: dict[str, Any]) -> Iterator[str]:
    yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    for part in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from _messages(part)


@pytest.mark.integration
def test_name_longer_than_a_label_is_refused_by_both(policy_api: PolicyApi) -> None:
    document = policy("a" * 64, "default")
    assert "at most 63 characters" in policy_api.offer(document).json()["message"]
    with pytest.raises(PolicyError, match="at most 63 characters"):
        parse_policy(document)


def test_every_fault_of_a_policy_is_named_at_once() -> None:
    document = policy(
        metrics=[{**CPU, "name": "A"}, {**CPU, "name": "b", "highWatermark": "x"}, 5],
        mode="Watch",
        tolerance="7",
        registry=[],
        pulledOut={"replace": "no", "replaceafterseconds": 1},
        replicaMultiple=True,
    )
    document["kind"] = "Policy"
    with pytest.raises(PolicyError) as caught:
        parse_policy(document)
    metrics = {"metrics[0].name", "metrics[1].highWatermark", "metrics[2]"}
    others = {"mode", "tolerance", "registry", "pulledOut.replace", "pulledOut.replaceafterseconds", "replicaMultiple"}
    assert {fault.path for fault in caught.value.faults} == {"kind", *(f"spec.{one}" for one in metrics | others)}
    assert "did you mean replaceAfterSeconds?" in str(caught.value)
