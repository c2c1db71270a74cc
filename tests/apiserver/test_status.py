"""Errors as Kubernetes Status objects."""

import json

import pytest
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


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (status.bad_request("m"), 400, "BadRequest"),
        (status.unauthorized("m"), 401, "Unauthorized"),
        (status.not_found("m"), 404, "NotFound"),
        (status.unavailable("m"), 503, "ServiceUnavailable"),
        (status.not_allowed("m"), 405, "MethodNotAllowed"),
        (StatusError(503, "m", reason="Conflict"), 503, "Conflict"),
    ],
)
def test_code_and_reason_belong_together(error: StatusError, code: int, reason: str) -> None:
    found = read(error)
    assert (found["code"], found["reason"]) == (code, reason)
    assert list(found["details"]) == ["causes"]  # type: ignore[call-overload]


@given(st.text(st.characters(codec="utf-8")))
def test_any_sentence_arrives_as_it_is(message: str) -> None:
    assert read(status.unavailable(message))["message"] == message
