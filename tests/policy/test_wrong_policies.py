"""Wrong policies: the real API server refuses each with a sentence that helps, and so does `parse_policy`."""

import pytest

from adapter.policy.documents import PolicyError
from adapter.policy.watermark_policy import parse_policy
from tests.policy.conftest import PolicyApi
from tests.policy.wrong import CPU, WRONG, Wrong, metric, policy

each_wrong = pytest.mark.parametrize("wrong", WRONG, ids=[wrong.name.replace(" ", "-") for wrong in WRONG])


@pytest.mark.integration
@pytest.mark.versions
@each_wrong
def test_the_api_server_refuses_with_a_sentence_that_helps(policy_api: PolicyApi, wrong: Wrong) -> None:
    answer = policy_api.offer(wrong.document)
    message = answer.json()["message"]
    assert answer.status in {400, 422}, message
    assert all(word in message for word in wrong.words)


@each_wrong
def test_parsing_refuses_with_the_same_words_at_the_right_place(wrong: Wrong) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(wrong.document)
    (fault,) = caught.value.faults
    assert fault.path == wrong.path
    assert all(word in str(fault) for word in wrong.words)


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
    assert {fault.path for fault in caught.value.faults} == {
        "kind",
        "spec.metrics[0].name",
        "spec.metrics[1].highWatermark",
        "spec.metrics[2]",
        "spec.mode",
        "spec.tolerance",
        "spec.registry",
        "spec.pulledOut.replace",
        "spec.pulledOut.replaceafterseconds",
        "spec.replicaMultiple",
    }
    assert "did you mean replaceAfterSeconds?" in str(caught.value)


@pytest.mark.parametrize("text", ["5%%", "%", "1e", "0x10", "NaN", "1Ki%", " 5", "5 ", "٥", "-1%", "1_000"])
@pytest.mark.integration
def test_what_looks_like_a_quantity_but_is_none_is_refused_by_both(policy_api: PolicyApi, text: str) -> None:
    document = policy(
        "odd", "default", **metric(CPU, resource={"name": "cpu", "relativeTo": "Limit"}, highWatermark=text)
    )
    assert policy_api.offer(document).status == 422
    with pytest.raises(PolicyError):
        parse_policy(document)
