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
from adapter.registries.nacos.lists import ADMIN_CALLS, CLIENT_CALLS, instance_of, listed_in
from adapter.registries.polaris import read_answer
from adapter.registries.zookeeper.registrations import newest_registrations, parse_document
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


async def eureka(body: bytes) -> tuple[Instance, ...]:
    return read_application(body, "shop", "pod").instances


async def consul(body: bytes) -> tuple[Instance, ...]:
    return read_entries(body, "", warning_is_out=True).instances


async def nacos(body: bytes) -> tuple[Instance, ...]:
    found: tuple[Instance, ...] = ()
    for call in (*ADMIN_CALLS, *CLIENT_CALLS):
        try:
            found += tuple(instance_of(host, "pod") for host in listed_in(call, body, call.path).hosts)
        except SourceError as error:
            str(error)
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
        found = parse_document(body, 1.7e9, "pod")
    except ValueError as error:
        raise SourceError(str(error)) from error
    return (newest_registrations([found])[0].instance,)


FAMILIES: dict[str, tuple[Callable[[bytes], Awaitable[tuple[Instance, ...]]], Any]] = {
    "eureka": (eureka, EUREKA),
    "consul": (consul, CONSUL),
    "nacos info": (nacos, INFO),
    "nacos hosts": (nacos, NACOS),
    "nacos page": (nacos, PAGE),
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
