"""Faulty answers of registries: instances, or an error with a message."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from adapter.load.roster import Instance
from adapter.registries import http as http_wire
from adapter.registries import polaris as polaris_wire
from adapter.registries.client import refusal, server_text
from adapter.registries.consul import wire as consul_wire
from adapter.registries.eureka import wire as eureka_wire
from adapter.registries.eureka.source import RegistryCopy
from adapter.registries.nacos import push as nacos_push
from adapter.registries.nacos import wire as nacos_wire
from adapter.registries.nacos.http import ADMIN_CALLS, CLIENT_CALLS
from adapter.registries.zookeeper import layouts as zookeeper_layouts
from adapter.runtime.answer_budget import Body, Limit
from adapter.runtime.decoding import Uncut
from adapter.runtime.http1 import RawReply, ResponseReader
from adapter.runtime.source_errors import SourceError
from tests.fuzz.kit import fuzz, run
from tests.fuzz.spoil import TEXTS, spoilt

METADATA = {"pod": "web-0", "version": "1.2", "none": None}

EUREKA = {
    "applications": {
        "versions__delta": "1",
        "apps__hashcode": "UP_2_",
        "application": [
            {
                "name": "SHOP",
                "instance": [
                    {
                        "instanceId": "web-0:shop:8080",
                        "hostName": "web-0",
                        "ipAddr": "10.0.0.10",
                        "status": "UP",
                        "overriddenStatus": "UNKNOWN",
                        "overriddenstatus": "UNKNOWN",
                        "port": {"$": 8080, "@enabled": "true"},
                        "securePort": {"$": "443", "@enabled": "false"},
                        "leaseInfo": {
                            "durationInSecs": 90,
                            "registrationTimestamp": 1700000000000,
                            "lastRenewalTimestamp": 1700000030000,
                        },
                        "metadata": {"@class": "x", "pod": "web-0", "weight": "1"},
                        "actionType": "ADDED",
                    }
                ],
            }
        ],
    }
}

CONSUL = [
    {
        "Node": {"ID": "n", "Node": "node", "Address": "10.0.1.1"},
        "Service": {
            "ID": "web-0",
            "Address": "10.0.0.10",
            "Port": 8080,
            "Weights": {"Passing": 1, "Warning": 1},
            "Meta": {"pod-name": "web-0", "pod-uid": "u", "k8s-namespace": "shop"},
            "TaggedAddresses": {"lan_ipv4": {"Address": "10.0.0.11", "Port": 8080}},
        },
        "Checks": [{"CheckID": "serfHealth", "Status": "passing"}],
    }
]

HOST = {
    "ip": "10.0.0.10",
    "port": 8080,
    "weight": 1.0,
    "healthy": True,
    "enabled": True,
    "ephemeral": True,
    "clusterName": "DEFAULT",
    "metadata": METADATA,
}
INFO = {"hosts": [HOST], "name": "DEFAULT_GROUP@@shop", "groupName": "DEFAULT_GROUP", "reachProtectionThreshold": False}
NACOS = {"code": 0, "message": "success", "data": [HOST]}
PAGE = {"code": 0, "message": "success", "data": {"count": 1, "instances": [HOST]}}

POLARIS = {
    "code": 200000,
    "info": "execute success",
    "service": {"name": "shop", "namespace": "default", "revision": "r1"},
    "aliasFor": None,
    "instances": [
        {
            "host": "10.0.0.10",
            "port": 8080,
            "weight": 100,
            "healthy": True,
            "isolate": False,
            "metadata": {"pod": "web-0"},
        }
    ],
}

PLATFORM = {
    "complete": True,
    "service": "shop",
    "ttlSeconds": 60,
    "instances": [
        {"ip": "10.0.0.10", "port": 8080, "pod": "web-0", "uid": "u", "state": "out", "weight": 1.5, "reason": "drain"}
    ],
}

CURATOR = {
    "name": "shop",
    "id": "i",
    "address": "10.0.0.10",
    "port": 8080,
    "sslPort": None,
    "payload": {"@class": "x", "id": "shop", "metadata": {"instance_status": "UP", "pod": "web-0"}},
    "registrationTimeUTC": 1700000000000,
    "serviceType": "DYNAMIC",
    "enabled": True,
}

READER = nacos_wire.InstanceDecoder((), "pod")


async def eureka(body: bytes) -> tuple[Instance, ...]:
    copy = RegistryCopy(["SHOP"], "pod")
    try:
        await copy.load(eureka_wire.Applications(Body(body)), 1.7e9)
        await copy.apply_delta(eureka_wire.Applications(Body(body)))
        unasked = RegistryCopy([], "pod")
        await unasked.load(eureka_wire.Applications(Body(body)), 1.7e9, copy)
    except (msgspec.MsgspecError, Uncut):
        return ()
    str(copy.hashcode)
    return copy.instances("SHOP")


async def consul(body: bytes) -> tuple[Instance, ...]:
    listed = await consul_wire.registrations(Body(body), "http://consul", pod_name_key="", warning_is_out=True)
    return tuple(one.instance for one in listed)


async def nacos(body: bytes) -> tuple[Instance, ...]:
    found: tuple[Instance, ...] = ()
    for view in (*ADMIN_CALLS, *CLIENT_CALLS):
        try:
            found += (await view.read(READER, Body(body), view.path)).instances
        except SourceError as error:
            str(error)
    return found


async def nacos_pushed(body: bytes) -> tuple[Instance, ...]:
    sent = nacos_wire.decode_payload(
        nacos_wire.encode_payload(nacos_wire.Payload("NotifySubscriberRequest", body), {"a": "b"})
    )
    assert sent.body == body
    found: tuple[Instance, ...] = ()
    for decode in (nacos_push.RESPONSE, nacos_push.SERVER_REQUEST, nacos_push.SUBSCRIBED):
        try:
            told = nacos_wire.decode_body(decode, sent.body, "gRPC")
        except SourceError as error:
            str(error)
            continue
        info = getattr(told, "service_info", None)
        found += READER.decode(info.hosts) if info is not None else ()
    return found


async def polaris(body: bytes) -> tuple[Instance, ...]:
    for status in (500, 200):
        try:
            reply = RawReply(status, b"HTTP/1.1 200", Body(body))
            answer = await polaris_wire.read_answer(reply, "http://p", "shop", "default", "pod")
        except SourceError:
            if status == 200:
                raise
    return answer.instances if isinstance(answer, polaris_wire.InstanceList) else ()


async def platform(body: bytes) -> tuple[Instance, ...]:
    return (await http_wire.read_document(Body(body))).instances


async def curator(body: bytes) -> tuple[Instance, ...]:
    try:
        found = zookeeper_layouts.parse_service_instance(body, 1.7e9, "pod")
    except ValueError as error:
        raise SourceError(str(error)) from error
    return (zookeeper_layouts.newest_registrations([found])[0].instance,)


FAMILIES: dict[str, tuple[Callable[[bytes], Awaitable[tuple[Instance, ...]]], Any]] = {
    "eureka": (eureka, EUREKA),
    "consul": (consul, CONSUL),
    "nacos info": (nacos, INFO),
    "nacos hosts": (nacos, NACOS),
    "nacos page": (nacos, PAGE),
    "nacos pushed": (nacos_pushed, {"requestId": "1", "namespace": None, "serviceInfo": INFO}),
    "polaris": (polaris, POLARIS),
    "platform": (platform, PLATFORM),
    "curator": (curator, CURATOR),
}


def read(family: str, body: bytes) -> tuple[Instance, ...]:
    """The instances, which are hashable and printable; empty if the answer is refused with a message."""
    reader, _ = FAMILIES[family]

    async def reading() -> tuple[Instance, ...]:
        return await reader(body)

    try:
        found = run(reading())
    except SourceError as error:
        str(error).encode()
        return ()
    for one in found:
        hash((one.ip, one.port, one.status, one.pod_name, one.registered_at))
        json.dumps([one.ip, one.port, one.weight, one.registered_at, dict(one.metadata)])
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_good_answer_is_read(family: str) -> None:
    body = json.dumps(FAMILIES[family][1]).encode()
    assert [one.ip for one in read(family, body)][:1] == ["10.0.0.10"]


@fuzz(60, family=st.sampled_from(sorted(FAMILIES)), data=st.data())
def test_an_answer_with_several_faults_is_read_or_refused(family: str, data: st.DataObject) -> None:
    read(family, data.draw(spoilt(FAMILIES[family][1])))


@fuzz(200, body=st.binary(max_size=300), family=st.sampled_from(sorted(FAMILIES)))
def test_bytes_of_any_kind_are_refused(family: str, body: bytes) -> None:
    read(family, body)


# --- the gRPC envelope of Nacos ---

ENVELOPE = nacos_wire.encode_payload(
    nacos_wire.Payload("NotifySubscriberRequest", json.dumps(INFO).encode()), {"a": "b"}
)


def unwrap(message: bytes) -> None:
    try:
        nacos_wire.decode_payload(message)
    except SourceError as error:
        str(error)


@fuzz(300, start=st.integers(0, len(ENVELOPE)), cut=st.integers(0, 40), piece=st.binary(max_size=40))
def test_a_message_of_nacos_that_was_cut_or_changed_is_refused(start: int, cut: int, piece: bytes) -> None:
    unwrap(ENVELOPE[:start] + piece + ENVELOPE[start + cut :])


# --- HTTP/1.1 decoding of the sources ---

LIMIT = Limit(32 * 1024 * 1024)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nETag: x\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;a=b\r\n}\r\n0\r\nTrailer: x\r\n\r\n"


def fed(data: bytes, at_once: int) -> None:
    """Feeds the bytes in pieces: a complete answer, an incomplete one, or an error."""
    reader = ResponseReader(LIMIT)
    try:
        for start in range(0, len(data), at_once):
            reply = reader.feed(data[start : start + at_once])
            if reply is not None:
                server_text(reply.body.whole())
                str(refusal(reply.plain))
                return
    except SourceError as error:
        str(error)


@fuzz(
    300,
    answer=st.sampled_from([ANSWER, CHUNKED]),
    start=st.integers(0, 110),
    cut=st.integers(0, 20),
    piece=st.one_of(st.binary(max_size=8), st.sampled_from([text.encode(errors="surrogatepass") for text in TEXTS])),
    at_once=st.sampled_from([1, 7, 100_000]),
)
def test_an_answer_whose_http_went_wrong_is_refused(
    answer: bytes, start: int, cut: int, piece: bytes, at_once: int
) -> None:
    fed(answer[:start] + piece + answer[start + cut :], max(at_once, len(piece) // 50))
