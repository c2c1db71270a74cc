"""Texts that crashed their parser or blocked the event loop: findings of fuzzing, one by one (see `tests/fuzz`)."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from multidict import CIMultiDict

from adapter.evaluation.object_index import decode_hpa, decode_policy
from adapter.kube.objects import decode_scale
from adapter.kube.pods import PodDecoder
from adapter.kube.reflector import Reflector
from adapter.kube.session import Session
from adapter.kube.targets import BUILT_IN, TargetObject, target_decoder
from adapter.policy.hpa import read_field_managers
from adapter.registries.consul import wire as consul_wire
from adapter.registries.eureka import wire as eureka_wire
from adapter.registries.zookeeper import layouts as zookeeper_layouts
from adapter.runtime.decoding import DEEPEST_OBJECT, Decoder, truncate_nesting
from adapter.runtime.faults import Fault
from adapter.runtime.outbound import Reply
from adapter.usage import promql
from adapter.usage.promql import PromqlError
from tests.fuzz.kit import in_a_step
from tests.fuzz.spoil import TOKENS, mark, written
from tests.kube.fake import COLLECTION, FakeApi, text

UNREADABLE = ["very deep lists", "very deep mappings", "no UTF-8", "half a character in UTF-8"]
"""What msgspec's own decoders answer with RecursionError and UnicodeDecodeError; Python 3.13 reads 5,000 levels."""


def rollout(name: str, version: int, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"replicas": 3, **more}}


@pytest.mark.parametrize("token", UNREADABLE)
def test_json_that_is_nested_deep_or_no_utf8_is_an_error_of_the_decoder(token: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        Decoder(dict[str, Any]).decode(b'{"a":%b}' % TOKENS[token])


@pytest.mark.parametrize("token", ["deep lists", "deep mappings", "lists as deep as calls may be"])
async def test_an_object_that_is_nested_deep_leaves_the_watch_of_all_others_as_it_is(token: str) -> None:
    """A user who may write such an object could end the process."""
    listed = {"metadata": {"resourceVersion": "7"}, "items": [rollout("listed", 7, more=mark(token))]}
    async with FakeApi() as api, Session(api.load) as session:
        decode = target_decoder("a.io/v1", "Rollout", BUILT_IN)
        seen = asyncio.Event()

        def tell(_: TargetObject | None, new: TargetObject | None) -> None:
            if new is not None and new.target.name == "other":
                seen.set()

        reflector = Reflector(session, COLLECTION, decode, name="things", on_event=tell)
        api.lists.append(text(written(listed).decode()))
        watching = asyncio.create_task(reflector.run())
        async with asyncio.timeout(30):
            watch = await api.watch()
            watch.write(written({"type": "ADDED", "object": rollout("watched", 8, more=mark(token))}) + b"\n")
            watch.write(written({"type": "ADDED", "object": rollout("other", 9)}) + b"\n")
            await seen.wait()
        watching.cancel()
        replicas = {key: one.scale and one.scale.replicas for key, one in reflector.items.items()}
        assert replicas == dict.fromkeys(("shop/listed", "shop/watched", "shop/other"), 3)
        assert reflector.trouble is None
        assert len(api.queries("list")) == 1


@pytest.mark.parametrize("token", UNREADABLE)
@pytest.mark.parametrize("decode", [decode_policy, decode_hpa, decode_scale, PodDecoder()])
def test_each_reader_of_objects_refuses_what_is_nested_deep_or_no_utf8(decode: Any, token: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(written({"metadata": {"name": mark(token)}, "spec": mark(token), "status": mark(token)}))


def test_a_value_nested_deep_or_a_number_of_thousands_of_digits_is_shown_by_its_beginning() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert str(Fault("a", value, "b")).startswith("a: [[[[")
    assert str(Fault("a", 10**5_000, "b")).startswith("a: 0x")
    assert in_a_step(lambda: str(Fault("a", ["x"] * 1_000_000, "b"))).startswith("a: ['x', 'x'")


@pytest.mark.parametrize("value", ["9" * 400, '"1e400"', '"-1e400"', '"NaN"'], ids=lambda value: value[:8])
def test_a_port_or_time_of_eureka_beyond_all_numbers_is_none(value: str) -> None:
    text = value.strip('"')
    body = f'{{"port":"{text}","leaseInfo":{{"registrationTimestamp":{value}}}}}'
    application = eureka_wire.Application("A", msgspec.Raw(body.encode()))
    [registration] = eureka_wire.decode_instances(application, eureka_wire.InstanceInfo)
    found = registration.instance("")
    assert (found.port, found.registered_at, registration.lease) == (None, None, None)


def test_an_index_of_consul_of_thousands_of_digits_is_no_index() -> None:
    reply = Reply(200, CIMultiDict({"X-Consul-Index": "9" * 5_000}), b"[]")
    assert consul_wire.headers(reply, "http://c").revision == 0


def test_a_time_of_dubbo_or_curator_beyond_all_numbers_is_no_time() -> None:
    url = quote(f"dubbo://10.0.0.7:20880/a.B?timestamp={'9' * 400}", safe="")
    assert zookeeper_layouts.parse_provider(url, "").instance.registered_at is None
    body = b'{"address":"10.0.0.7","registrationTimeUTC":%b}' % (b"9" * 400)
    with pytest.raises(ValueError, match="not an instance of Curator's"):
        zookeeper_layouts.parse_service_instance(body, 0.0, "")


@pytest.mark.parametrize(
    "text",
    [
        *(f"rate(a[{range_}])" for range_ in ("9" * 400 + "s", "9" * 4_000, "1s" + "9" * 4_000, "9" * 4_000 + "x")),
        "a=b," * 1_000,
        "(" * 4_096,
        "x+" * 2_048,
    ],
)
def test_a_policys_query_that_is_none_is_refused_at_once(text: str) -> None:
    with pytest.raises(PromqlError, match=r"more than 2000 tokens|not readable at character"):
        in_a_step(lambda: promql.parse_inputs(text))


def test_managed_fields_of_thousands_of_managers_take_no_time() -> None:
    fields = {"f:spec": {"f:behavior": {"f:scaleUp": {f"f:{n}": {} for n in range(5)}}}}
    found = in_a_step(lambda: read_field_managers([{"manager": f"m{n}", "fieldsV1": fields} for n in range(1_000)]))
    assert len(found.owners["scaleUp.0"]) == 1_000


def test_json_made_shallow_is_what_it_was_but_for_what_is_deep() -> None:
    most = DEEPEST_OBJECT - 2  # beside the mapping outside and the list inside
    deep = '[{"a": "]}[\\"{"}, ' * most + "[[1, {}], 2, [3]]" + "]" * most
    found = json.loads(truncate_nesting(f'{{"a": "\\\\", "b": {deep}, "c": {{"d": [1]}}}}'.encode()))
    assert found["a"] == "\\"
    assert found["c"] == {"d": [1]}
    inner = found["b"]
    for _ in range(most):
        assert inner[0] == {"a": ']}["{'}
        inner = inner[1]
    assert inner == [None, 2, None]
    assert truncate_nesting(b'{"a": [1, {}]}') == b'{"a": [1, {}]}'
