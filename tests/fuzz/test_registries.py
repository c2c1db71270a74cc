"""What registries answer, gone wrong: registrations, or an error that says so, and no long step."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from adapter.load.roster import Instance
from adapter.registries import consul_wire, eureka_wire, http_wire, nacos_wire, polaris_wire, zookeeper_layouts
from adapter.registries.errors import RegistryError
from adapter.registries.eureka_state import RegistryCopy
from adapter.registries.http1 import RawReply
from adapter.registries.nacos_http import ADMIN, CLIENT
from adapter.registries.nacos_wire import Place
from tests.fuzz.kit import in_steps
from tests.fuzz.spoil import each_place

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
    "revision": 7,
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

READER = nacos_wire.Reader((), "pod")
PLACE = Place("public", "DEFAULT_GROUP", "shop")


async def eureka(body: bytes) -> tuple[Instance, ...]:
    copy = RegistryCopy(["SHOP"], "pod")
    try:
        await copy.fill(eureka_wire.applications(body)[1], 1.7e9)
        changes = eureka_wire.applications(body)[1]
        await copy.apply(changes)
        unasked = RegistryCopy([], "pod")
        await unasked.fill(changes, 1.7e9, copy)
    except msgspec.MsgspecError:
        return ()
    str(copy.hashcode)
    return copy.instances("SHOP")


async def consul(body: bytes) -> tuple[Instance, ...]:
    try:
        consul_wire.server_ids(body, "http://consul")
    except RegistryError:
        pass
    return await consul_wire.instances(body, "http://consul", pod_name_key="", warning_is_out=True)


async def nacos(body: bytes) -> tuple[Instance, ...]:
    found: tuple[Instance, ...] = ()
    for view in (*ADMIN, *CLIENT):
        try:
            found += view.read(READER, body, view.path).instances
        except RegistryError as error:
            str(error)
    return found


async def nacos_pushed(body: bytes) -> tuple[Instance, ...]:
    from adapter.registries import nacos_grpc, nacos_push

    sent = nacos_wire.decode(nacos_wire.encode(nacos_wire.Payload("NotifySubscriberRequest", body), {"a": "b"}))
    assert sent.body == body
    found: tuple[Instance, ...] = ()
    for decode in (nacos_grpc._RESPONSE, nacos_grpc._NOTIFICATION, nacos_push._SUBSCRIBED):
        try:
            told = nacos_wire.reading(decode, sent.body, "gRPC")
        except RegistryError as error:
            str(error)
            continue
        info = getattr(told, "service_info", None)
        found += READER.listed(info).instances if info is not None else ()
    return found


async def polaris(body: bytes) -> tuple[Instance, ...]:
    for status in (500, 200):
        try:
            found = await polaris_wire.answer(RawReply(status, b"HTTP/1.1 200", body), "http://p", "shop", "default")
        except RegistryError:
            if status == 200:
                raise
    return await polaris_wire.instances(found, "pod") if isinstance(found, polaris_wire.Listed) else ()


async def platform(body: bytes) -> tuple[Instance, ...]:
    try:
        http_wire.document(body)
    except RegistryError as error:
        str(error)
    return (await http_wire.document_in_slices(body)).instances


async def curator(body: bytes) -> tuple[Instance, ...]:
    try:
        return (zookeeper_layouts.newest([zookeeper_layouts.curator(body, 1.7e9, "pod")])[0].instance,)
    except ValueError as error:
        raise RegistryError(str(error)) from error


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
    """The registrations, which can be told apart and shown; none where the answer is refused in words."""
    reader, _ = FAMILIES[family]

    async def reading() -> tuple[Instance, ...]:
        return await reader(body)

    try:
        found = in_steps(reading)
    except RegistryError as error:
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


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_with_anything_anywhere_is_read_or_refused(family: str) -> None:
    for what, body in each_place(FAMILIES[family][1]):
        try:
            read(family, body)
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error
