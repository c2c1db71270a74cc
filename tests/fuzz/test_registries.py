"""Faulty answers of registries: instances, or an error with a message."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from adapter.load.roster import Instance
from adapter.registries.consul import read_entries
from adapter.registries.eureka import read_application
from adapter.registries.http import read_document
from adapter.registries.nacos import push as nacos_push
from adapter.registries.nacos import wire as nacos_wire
from adapter.registries.nacos.http import ADMIN_CALLS, CLIENT_CALLS
from adapter.registries.polaris import read_answer
from adapter.registries.zookeeper import layouts as zookeeper_layouts
from adapter.runtime.answer_budget import Body
from adapter.runtime.http import Reply
from adapter.runtime.source_errors import SourceError
from tests.fuzz.kit import fuzz, run
from tests.fuzz.spoil import spoilt

METADATA = {"pod": "web-0", "version": "1.2", "none": None}

EUREKA = {
    "application": {
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
                "leaseInfo": {"registrationTimestamp": 1700000000000},
                "metadata": {"@class": "x", "pod": "web-0", "weight": "1"},
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
    return read_application(body, "shop", "pod").instances


async def consul(body: bytes) -> tuple[Instance, ...]:
    return read_entries(body, "", warning_is_out=True).instances


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
            polled = read_answer(Reply(status, {}, body), "shop", "default", "pod")
        except SourceError:
            if status == 200:
                raise
    return polled.answer.instances if polled is not None else ()


async def platform(body: bytes) -> tuple[Instance, ...]:
    return read_document(body, "shop").instances


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
