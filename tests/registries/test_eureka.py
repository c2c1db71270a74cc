"""Eureka's JSON."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.roster import Instance
from adapter.registries.eureka import read_application
from adapter.runtime.source_errors import WrongAnswer

NOW = 1_767_268_800.0
KEYS = st.sampled_from(["application", "instance", "name", "port", "$", "status", "metadata"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)
)
"""Documents that resemble Eureka's now and then."""


def instance(number: int) -> dict[str, Any]:
    """An instance of pod `web-<number>`, as Eureka writes it."""
    return {
        "instanceId": f"web-{number}",
        "hostName": f"web-{number}",
        "ipAddr": f"10.0.0.{10 + number}",
        "status": "UP",
        "port": {"$": 8080, "@enabled": "true"},
        "leaseInfo": {"durationInSecs": 90, "lastRenewalTimestamp": 1},  # self-preservation keeps it: its status counts
        "metadata": {},
    }


def read(instances: object, pod_name_key: str = "") -> tuple[Instance, ...]:
    body = json.dumps({"application": {"name": "WEB", "instance": instances}}).encode()
    return read_application(body, "web", pod_name_key).instances


def one(**more: Any) -> Instance:
    """The instance that Eureka writes with these fields."""
    [read_one] = read([{**instance(1), **more}])
    return read_one


class TestJson:
    def test_list_of_one_may_be_that_one(self) -> None:
        assert [each.metadata["instanceId"] for each in read(instance(1))] == ["web-1"]
        assert read(None) == ()

    @pytest.mark.parametrize(
        ("port", "secure", "expected"),
        [
            ({"$": 8080, "@enabled": "true"}, {"$": 8443, "@enabled": "false"}, 8080),
            ({"$": "8080", "@enabled": True}, None, 8080),
            ({"$": 8080, "@enabled": "false"}, {"$": "8443", "@enabled": "true"}, 8443),
            ({"$": 8080, "@enabled": "false"}, {"$": 8443, "@enabled": "false"}, None),
            (8080, None, 8080),
            (None, None, None),
            ({"$": "http", "@enabled": "true"}, None, None),
        ],
    )
    def test_port_is_the_enabled_one(self, port: object, secure: object, expected: int | None) -> None:
        assert one(port=port, securePort=secure).port == expected

    @pytest.mark.parametrize(
        ("lease", "at"),
        [
            ({"registrationTimestamp": 1_767_268_800_000}, NOW),
            ({"registrationTimestamp": "1767268800000"}, NOW),
            ({"registrationTimestamp": "?"}, None),
            ({"registrationTimestamp": "1e400"}, None),
            ({}, None),
            (None, None),
        ],
    )
    def test_registration_time_is_milliseconds_or_unknown(self, lease: object, at: float | None) -> None:
        assert one(leaseInfo=lease).registered_at == at

    @pytest.mark.parametrize(
        ("status", "override", "expected"),
        [
            ("UP", "UNKNOWN", "UP"),
            ("OUT_OF_SERVICE", "UNKNOWN", "OUT_OF_SERVICE"),
            ("out_of_service", None, "OUT_OF_SERVICE"),
            ("STARTING", "OUT_OF_SERVICE", "OUT_OF_SERVICE"),
            ("UP", "OUT_OF_SERVICE", "UP"),
            ("DOWN", "UP", "DOWN"),
            (None, None, "UNKNOWN"),
        ],
    )
    def test_override_counts_once_it_takes_effect(
        self, status: str | None, override: str | None, expected: str
    ) -> None:
        for key in ("overriddenStatus", "overriddenstatus"):
            fields = {"overriddenStatus": None, "status": status, key: override}
            assert one(**fields).status == expected

    def test_metadata_has_host_name_and_id_and_may_name_the_pod(self) -> None:
        fields = {"metadata": {"@class": "x", "podName": "web-7", "n": 1}, "hostName": "h", "instanceId": None}
        [named] = read([{**instance(1), **fields}], "podName")
        assert named.pod_name == "web-7"
        assert named.metadata == {"hostName": "h", "instanceId": "h", "podName": "web-7", "n": "1"}

    @given(document=ANYTHING)
    def test_any_document_is_read_or_refused(self, document: object) -> None:
        for body in (document, {"application": {"name": "WEB", "instance": document}}):
            with contextlib.suppress(WrongAnswer):
                read_application(json.dumps(body).encode(), "web", "")
