"""The envelope of Nacos' gRPC messages, byte by byte, and what is made of its instances."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.registries.nacos.http import signature
from adapter.registries.nacos.wire import Host, InstanceDecoder, Payload, ServiceInfo, decode_payload, encode_payload
from adapter.runtime.source_errors import WrongRegistryAnswer

# Written by a protobuf library: type "A", header {"k": "v"}, clientIp "1.2.3.4", body {}.
METADATA = b"\x1a\x01A" + b"\x3a\x06\x0a\x01k\x12\x01v"
CLIENT_IP = b"\x42\x071.2.3.4"
BODY = b"\x1a\x04\x12\x02{}"
ENVELOPE = b"\x12\x0b" + METADATA + BODY


def test_an_envelope_is_written_as_protobuf_writes_it() -> None:
    assert encode_payload(Payload("A", b"{}"), {"k": "v"}) == ENVELOPE


def test_unknown_protobuf_fields_are_skipped() -> None:
    numbers = b"\x08\x96\x01" + b"\x31" + b"8" * 8 + b"\x3d" + b"4" * 4
    type_url = b"\x0a\x01t"
    message = numbers + b"\x12\x14" + METADATA + CLIENT_IP + b"\x1a\x07" + type_url + b"\x12\x02{}"
    assert decode_payload(message) == Payload("A", b"{}")


@given(st.text(), st.binary(max_size=300), st.dictionaries(st.text(), st.text(max_size=200), max_size=3))
def test_what_was_written_is_read(kind: str, body: bytes, headers: dict[str, str]) -> None:
    assert decode_payload(encode_payload(Payload(kind, body), headers)) == Payload(kind, body)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    with contextlib.suppress(WrongRegistryAnswer):
        decode_payload(data)


@pytest.mark.parametrize("cut", [cut for cut in range(1, 19) if cut != 6])
def test_an_envelope_that_was_cut_off_is_an_error_unless_it_lacks_the_whole_body(cut: int) -> None:
    with pytest.raises(WrongRegistryAnswer):
        decode_payload(ENVELOPE[:-cut])
    assert decode_payload(ENVELOPE[:-6]) == Payload("A", b"")


def test_a_host_becomes_an_instance_with_all_that_speaks_for_or_against_it() -> None:
    host = Host(ip="fd00::1", port=1, weight=0.5, healthy=False, enabled=False, metadata={"pod": "a", "none": None})
    [instance] = InstanceDecoder((), "pod").decode([host])
    assert (instance.ip, instance.port, instance.weight) == ("fd00::1", 1, 0.5)
    assert (instance.healthy, instance.enabled) == (False, False)
    assert instance.pod_name == "a"
    assert instance.metadata == {"pod": "a"}


def test_only_the_clusters_of_the_settings_count() -> None:
    hosts = [Host(ip="a", port=1, cluster_name="HZ"), Host(ip="b", port=1, cluster_name="SH")]
    assert [one.ip for one in InstanceDecoder(["SH"], "").decode(hosts)] == ["b"]
    assert [one.ip for one in InstanceDecoder([], "").decode(hosts)] == ["a", "b"]


def test_the_same_hosts_in_another_order_are_no_change() -> None:
    hosts = [Host(ip="b", port=1), Host(ip="a", port=2), Host(ip="a", port=1)]
    decoder = InstanceDecoder([], "")
    assert decoder.decode(hosts) == decoder.decode(reversed(hosts))


def test_a_name_may_hold_the_group_or_stand_beside_it() -> None:
    assert ServiceInfo(hosts=[], name="shop", group_name="G").grouped_name == "G@@shop"
    assert ServiceInfo(hosts=[], name="G@@shop", group_name="G").grouped_name == "G@@shop"


def test_a_signature_is_a_known_one() -> None:
    # By `printf %s 1700000000123@@G@@shop | openssl dgst -sha1 -hmac sk -binary | base64`.
    assert signature("ak", "sk", "G@@shop", 1_700_000_000.123) == {
        "ak": "ak",
        "data": "1700000000123@@G@@shop",
        "signature": "9e/7WhOfoLcnJx9wPgQ8g6Wcoio=",
    }
