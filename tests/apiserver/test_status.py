"""Errors as Kubernetes Status objects."""

import json

from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver import status
from adapter.apiserver.status import StatusError


def read(error: StatusError) -> dict[str, object]:
    found: dict[str, object] = json.loads(status.encode_status(error))
    return found


def test_a_status_has_exactly_this_shape() -> None:
    error = status.not_found("there is none", kind="deployments", group="apps", name="web")
    assert read(error) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "there is none",
        "reason": "NotFound",
        "details": {
            "name": "web",
            "group": "apps",
            "kind": "deployments",
            "causes": [{"reason": "NotFound", "message": "there is none"}],
        },
        "code": 404,
    }


@given(st.text(st.characters(codec="utf-8")))
def test_any_sentence_arrives_as_it_is_with_its_own_reason_and_no_empty_details(message: str) -> None:
    found = read(StatusError(503, message, reason="Conflict"))
    assert (found["code"], found["reason"], found["message"]) == (503, "Conflict", message)
    assert found["details"] == {"causes": [{"reason": "Conflict", "message": message}]}
