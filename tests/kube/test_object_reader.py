"""Pages and events: read in one pass where the decoder can, and object by object where one of them is strange."""

import json
from typing import Any

import msgspec
import pytest

from adapter.kube.errors import MalformedAnswer
from adapter.kube.pods import PodDecoder
from adapter.kube.reflector import ObjectReader, Page, TooDeep
from adapter.load.pods import Pod
from lab.benchmarks import scene

(SERVICE,) = scene.services(1, 3, 1)
PODS = [pod for _, pod in scene.pods(SERVICE)]
DEEP = 100_000


def numbered(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods with resource versions."""
    return [
        {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(number)}} for number, pod in enumerate(pods, 7)
    ]


def listed(items: list[Any]) -> bytes:
    return json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": items}).encode()


def in_two_steps() -> ObjectReader[Pod]:
    """A reader that cuts out each object before it decodes it."""
    return ObjectReader(PodDecoder().__call__, "/pods")


def items(page: Page[Pod]) -> list[tuple[str, str, Pod]]:
    metas = [(page.meta_of(one), page.decode(one)) for one in page.objects]
    return [(meta.key, meta.resource_version, pod) for meta, pod in metas]


def test_a_page_holds_the_same_objects_whether_it_is_read_in_one_pass_or_two() -> None:
    body = listed(numbered(PODS))
    whole, cut = ObjectReader(PodDecoder(), "/pods").page(body), in_two_steps().page(body)
    assert not isinstance(whole.objects[0], msgspec.Raw)
    assert isinstance(cut.objects[0], msgspec.Raw)
    assert items(whole) == items(cut)
    assert whole.metadata == cut.metadata
    assert [version for _, version, _ in items(whole)] == ["7", "8", "9"]


def test_a_long_page_is_cut_so_that_no_step_takes_long() -> None:
    pod = PODS[0]
    large = {**pod, "metadata": {**pod["metadata"], "annotations": {"note": "x" * 2_000_000}}}
    page = ObjectReader(PodDecoder(), "/pods").page(listed(numbered([large, *PODS[1:]])))
    assert isinstance(page.objects[0], msgspec.Raw)
    assert [pod.name for _, _, pod in items(page)] == SERVICE.pod_names


def test_one_strange_object_does_not_spoil_its_page() -> None:
    strange = {"metadata": {"name": "odd", "namespace": "n", "resourceVersion": "1"}, "spec": {"containers": "none"}}
    page = ObjectReader(PodDecoder(), "/pods").page(listed([strange, *numbered(PODS)]))
    assert page.meta_of(page.objects[0]).key == "n/odd"
    with pytest.raises(msgspec.MsgspecError):
        page.decode(page.objects[0])
    assert [page.decode(one).name for one in page.objects[1:]] == SERVICE.pod_names


@pytest.mark.parametrize("items", [[], None])
def test_an_empty_page_has_no_objects(items: list[Any] | None) -> None:
    body = json.dumps({"metadata": {"resourceVersion": "9"}, "items": items}).encode()
    assert not ObjectReader(PodDecoder(), "/pods").page(body).objects


def test_a_page_with_a_part_that_is_nested_too_deeply_says_so() -> None:
    deep = b'{"metadata":{},"items":[{"spec":{"x":' + b"[" * DEEP + b"]" * DEEP + b"}}]}"
    with pytest.raises(TooDeep):
        ObjectReader(PodDecoder(), "/pods").page(deep)


@pytest.mark.parametrize("reader", [ObjectReader(PodDecoder(), "/pods"), in_two_steps()])
class TestEvents:
    def test_a_change_holds_its_object(self, reader: ObjectReader[Pod]) -> None:
        (pod,) = numbered(PODS[:1])
        event = reader.event(json.dumps({"type": "MODIFIED", "object": pod}).encode())
        assert (event.type, event.meta.resource_version, event.is_bookmark) == ("MODIFIED", "7", False)
        assert event.decode(event.object).name == SERVICE.pod_names[0]

    def test_a_bookmark_holds_only_a_version(self, reader: ObjectReader[Pod]) -> None:
        event = reader.event(b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12"}}}')
        assert (event.is_bookmark, event.meta.resource_version) == (True, "12")

    def test_an_error_holds_the_status_as_it_came(self, reader: ObjectReader[Pod]) -> None:
        event = reader.event(b'{"type":"ERROR","object":{"kind":"Status","code":410,"metadata":{}}}')
        assert event.is_error
        assert json.loads(bytes(event.object))["code"] == 410

    def test_a_strange_object_still_names_itself(self, reader: ObjectReader[Pod]) -> None:
        """Its last known form must stay, and the watch must go on from its version."""
        event = reader.event(
            b'{"type":"ADDED","object":{"metadata":{"name":"odd","namespace":"n","resourceVersion":"5"},"spec":7}}'
        )
        assert (event.meta.key, event.meta.resource_version) == ("n/odd", "5")
        with pytest.raises(msgspec.MsgspecError):
            event.decode(event.object)

    def test_an_event_of_another_form_is_malformed(self, reader: ObjectReader[Pod]) -> None:
        with pytest.raises(MalformedAnswer, match="/pods"):
            reader.event(b'{"object":{}}')
