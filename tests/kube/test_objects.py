"""The narrow objects: every field that is used is found where the API puts it."""

from typing import Any

import msgspec
import pytest

from adapter.kube.objects import EndpointSlice


def read(value: Any) -> EndpointSlice:
    return msgspec.json.decode(msgspec.json.encode(value), type=EndpointSlice)


class TestEndpointSlice:
    def test_endpoints_and_the_pods_behind_them_are_read(self) -> None:
        found = read(
            {
                "metadata": {"namespace": "shop", "name": "web-x", "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4",
                "endpoints": [
                    {
                        "addresses": ["10.0.0.7"],
                        "conditions": {"ready": False, "serving": True, "terminating": True},
                        "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u-1"},
                        "nodeName": "n",
                    }
                ],
            },
        )
        assert (found.metadata.namespace, found.metadata.name) == ("shop", "web-x")
        assert found.endpoints is not None
        endpoint = found.endpoints[0]
        assert endpoint.target_ref is not None
        assert (endpoint.target_ref.name, endpoint.target_ref.uid) == ("web-1", "u-1")

    @pytest.mark.parametrize(
        ("conditions", "serving"),
        [
            ({"ready": True, "serving": True}, True),
            ({"ready": False, "serving": True}, True),
            ({"ready": True, "serving": False}, False),
            ({"ready": False}, False),
            ({"ready": True}, True),
            ({}, True),  # unknown is to be read as ready
            ({"ready": None, "serving": None}, True),
        ],
    )
    def test_serving_defers_to_ready_and_unknown_is_serving(self, conditions: dict[str, Any], serving: bool) -> None:
        found = read({"endpoints": [{"addresses": [], "conditions": conditions}]})
        assert found.endpoints is not None
        assert found.endpoints[0].is_serving is serving
