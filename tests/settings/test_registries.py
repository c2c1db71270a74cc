"""The registries in the settings file."""

from typing import get_args

import pytest

from adapter.settings import parse_settings
from adapter.settings.base import type_of
from adapter.settings.registries import ConsulRegistry, HttpRegistry, NacosRegistry, Registry, ZooKeeperRegistry
from tests.settings.test_settings import faults


def test_each_type_has_a_section_of_its_own() -> None:
    read = parse_settings(
        """
registries:
- {name: prod, type: Nacos, servers: ["http://nacos:8848/nacos"], username: adapter, passwordFile: /etc/pw}
- {name: mesh, type: Consul, servers: ["https://consul:8501"], tokenFile: /etc/token, tls: {caFile: /etc/ca.pem}}
- {name: dubbo, type: ZooKeeper, layout: DubboInterface, servers: ["zk-0:2181", "[fd00::1]:2181"]}
- {name: own, type: HTTP, url: "https://platform"}
"""
    )
    nacos, consul, zookeeper, http = read.registries
    assert isinstance(nacos, NacosRegistry)
    assert (nacos.group, nacos.interval_seconds) == ("DEFAULT_GROUP", 2)
    assert isinstance(consul, ConsulRegistry)
    assert consul.tls.ca_file == "/etc/ca.pem"
    assert isinstance(zookeeper, ZooKeeperRegistry)
    assert isinstance(http, HttpRegistry)


@pytest.mark.parametrize("kind", get_args(Registry), ids=type_of)
def test_every_trait_of_a_type_names_its_own_fields_and_the_credentials_are_files(kind: type[Registry]) -> None:
    fields = kind.model_fields
    assert kind.address_field in fields
    for first, *others in kind.credential_fields:
        assert {first, *others} <= fields.keys()
        assert [first, *others][-1].endswith("_file")
    secrets = {name for name in fields if name.endswith(("token_file", "password_file", "key_file"))}
    assert {one for names in kind.credential_fields for one in names if one.endswith("_file")} == secrets


@pytest.mark.parametrize(
    ("written", "path", "word"),
    [
        ("{name: a}", "registries[0]", "has no type; write one of Nacos"),
        ("{name: a, type: Nacoss}", "registries[0]", "unknown type (Nacoss)"),
        ("{name: a, type: Nacos}", "registries[0].servers", "is missing"),
        ("{name: a, type: Nacos, servers: []}", "registries[0].servers", "may not be empty"),
        ("{name: a, type: Nacos, servers: [nacos]}", "registries[0].servers[0]", "http://"),
        ("{name: a, type: Eureka, servers: ['http://u:p@e']}", "registries[0].servers[0]", "contains a user"),
        ("{name: a, type: Nacos, servers: ['http://n'], interval: 1}", "registries[0].interval", "intervalSeconds"),
        (
            "{name: a, type: Consul, servers: ['https://c'], tls: {ca: x}}",
            "registries[0].tls.ca",
            "there are caFile, certFile",
        ),
        ("{name: kubernetes, type: Consul, servers: ['https://c']}", "registries[0].name", "choose another"),
        (
            "{name: z, type: ZooKeeper, layout: Curator, servers: ['http://zk']}",
            "registries[0].servers[0]",
            "host:port",
        ),
        ("{name: z, type: ZooKeeper, servers: ['zk:2181']}", "registries[0].layout", "is missing"),
        ("{name: h, type: HTTP}", "registries[0].url", "is missing"),
        ("{name: h, type: HTTP, url: 'http://h?x=1'}", "registries[0].url", "ends in a query"),
        (
            "{name: e, type: Eureka, servers: ['http://e'], username: u}",
            "registries[0].passwordFile",
            "missing beside username",
        ),
        (
            "{name: e, type: Eureka, servers: ['http://e'], passwordFile: f}",
            "registries[0].username",
            "missing beside passwordFile",
        ),
        (
            "{name: n, type: Nacos, servers: ['http://n'], accessKeyFile: f}",
            "registries[0].secretKeyFile",
            "missing beside accessKeyFile",
        ),
        (
            "{name: h, type: HTTP, url: 'http://h', username: u, passwordFile: f, bearerTokenFile: t}",
            "registries[0]",
            "has both bearerTokenFile and username",
        ),
        (
            "{name: c, type: Consul, servers: ['https://c'], tls: {insecureSkipVerify: true, caFile: f}}",
            "registries[0].tls.insecureSkipVerify",
            "meaningless",
        ),
        ("{name: c, type: Consul, servers: ['https://c'], tls: {keyFile: f}}", "registries[0].tls.certFile", "missing"),
        (
            "{name: c, type: Consul, servers: ['https://c'], allow: [{namespaces: [a]}]}",
            "registries[0].allow[0].services",
            "is missing",
        ),
    ],
)
def test_a_fault_is_named_with_its_path_and_what_to_do(written: str, path: str, word: str) -> None:
    found = faults(f"registries: [{written}]")
    assert list(found) == [path]
    assert word in found[path]


def test_two_registries_of_one_name_are_a_fault() -> None:
    one = "{name: a, type: Consul, servers: ['http://c:8500']}"
    assert faults(f"registries: [{one}, {one}]") == {
        "registries[1].name": "is the name of an earlier entry; names are unique"
    }
