"""EndpointSlices: which copy of a pod speaks for it, and who hears of a change."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kube.objects import EndpointSlice
from adapter.registries.kubernetes import Endpoints, listing

UID = "uid-1"


def endpoint(pod: str = "web-1", uid: str = UID, **conditions: bool | None) -> dict[str, Any]:
    return {
        "addresses": ["10.0.0.1"],
        "conditions": conditions,
        "targetRef": {"kind": "Pod", "namespace": "shop", "name": pod, "uid": uid},
    }


def a_slice(*endpoints: dict[str, Any], name: str = "web-abc", namespace: str = "shop") -> EndpointSlice:
    document = {
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": list(endpoints),
    }
    return msgspec.json.decode(json.dumps(document), type=EndpointSlice)


def serving(*slices: EndpointSlice, pod: str = "web-1", uid: str = UID) -> bool | None:
    endpoints = Endpoints()
    for number, one in enumerate(slices):
        endpoints.change(None, listing(one, "shop", str(number)))
    return endpoints.endpoint_serving("shop", pod, uid)


class TestOneCopy:
    @pytest.mark.parametrize(
        ("conditions", "expected"),
        [
            ({"ready": True, "serving": True, "terminating": False}, True),
            ({"ready": False, "serving": False, "terminating": False}, False),
            # Terminating and still serving: the pod's own deletion is for others to judge.
            ({"ready": False, "serving": True, "terminating": True}, True),
            ({"ready": False, "serving": False, "terminating": True}, False),
            # publishNotReadyAddresses: ready says nothing.
            ({"ready": True, "serving": False, "terminating": False}, False),
            # What is not told is to be read as ready.
            ({}, True),
            ({"ready": None, "serving": None}, True),
            ({"ready": False}, False),
            ({"ready": True}, True),
            ({"ready": False, "serving": True}, True),
            ({"serving": False}, False),
        ],
    )
    def test_conditions_are_read_as_the_api_asks(self, conditions: dict[str, bool | None], expected: bool) -> None:
        assert serving(a_slice(endpoint(**conditions))) is expected

    @pytest.mark.parametrize(("listed", "asked"), [("", UID), (UID, "")])
    def test_without_a_uid_the_name_decides(self, listed: str, asked: str) -> None:
        assert serving(a_slice(endpoint(uid=listed, ready=False)), uid=asked) is False

    @pytest.mark.parametrize(
        "listed",
        [
            endpoint("web-2", ready=False),
            endpoint(uid="uid-0", ready=False),
            {**endpoint(ready=False), "targetRef": None},
            {**endpoint(ready=False), "targetRef": {"kind": "Node", "name": "web-1", "namespace": "shop"}},
            {**endpoint(ready=False), "targetRef": {"kind": "Pod", "name": "web-1", "namespace": "other"}},
        ],
        ids=["another pod", "an earlier pod of that name", "nothing", "a node", "another namespace"],
    )
    def test_an_endpoint_of_something_else_says_nothing(self, listed: dict[str, Any]) -> None:
        assert serving(a_slice(listed)) is None

    def test_a_slice_of_another_namespace_says_nothing(self) -> None:
        one = {**endpoint(ready=False), "targetRef": {"kind": "Pod", "name": "web-1"}}
        assert [serving(a_slice(one, namespace=name)) for name in ("other", "shop")] == [None, False]


class TestChanges:
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["s-1", "s-2", "s-3"]),
                st.none()
                | st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["u", "v"]), st.booleans()), max_size=4),
            ),
            max_size=12,
        )
    )
    def test_any_sequence_ends_where_a_fresh_look_would(
        self, steps: list[tuple[str, list[tuple[str, str, bool]] | None]]
    ) -> None:
        told: list[tuple[str, str]] = []
        endpoints = Endpoints(lambda namespace, name: told.append((namespace, name)))
        slices: dict[str, EndpointSlice] = {}

        def words() -> dict[tuple[str, str], bool | None]:
            return {(pod, uid): endpoints.endpoint_serving("shop", pod, uid) for pod in "ab" for uid in "uv"}

        for name, listed in [*steps, *((f"s-{number}", None) for number in (1, 2, 3))]:
            old = slices.pop(name, None)
            if listed is not None:
                slices[name] = a_slice(*(endpoint(pod, uid, ready=ready) for pod, uid, ready in listed), name=name)
            if old is None and listed is None:
                continue
            before = words()
            told.clear()
            endpoints.change(listing(old) if old else None, listing(slices[name]) if listed is not None else None)
            assert {("shop", pod) for (pod, uid), word in words().items() if word is not before[pod, uid]} <= set(told)
            assert words() == {(pod, uid): serving(*slices.values(), pod=pod, uid=uid) for pod, uid in before}
        assert not endpoints.pods, "nothing is kept of what has gone"
