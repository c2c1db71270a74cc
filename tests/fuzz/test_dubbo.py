"""Faulty nodes and rules of Dubbo in ZooKeeper: decoded or reported."""

import json

import pytest
from hypothesis import strategies as st

from adapter.registries.zookeeper.registrations import newest_registrations, parse_provider
from adapter.registries.zookeeper.rules import LARGEST_RULE, apply_rules, parse_override_urls, parse_rules
from tests.fuzz.kit import fuzz
from tests.fuzz.spoil import TEXTS, spoilt

URL = "dubbo://10.0.0.7:20880/com.shop.Order?application=shop&interface=com.shop.Order&timestamp=1700000000123&weight=5"
OVERRIDE = "override://10.0.0.7:20880/com.shop.Order?category=configurators&disabled=true&priority=1&weight=2"
URL_PIECES = ["://", ":", "/", "?", "&", "=", "@", "[", "]", "%", "%25", "%00", "%ud800", "#", "\ud800", "０", "."]


def nodes(node: str) -> None:
    """Decodes the node as a provider and as a rule; both are read or refused."""
    try:
        found = [parse_provider(node, "pod")]
    except ValueError as error:
        str(error)
        found = []
    rules = parse_override_urls([node])
    for one in newest_registrations(apply_rules(found, rules.rules)):
        json.dumps([one.instance.ip, one.instance.port, one.instance.weight, one.instance.registered_at])


@fuzz(300, start=st.integers(0, 120), piece=st.lists(st.sampled_from([*URL_PIECES, *TEXTS]), max_size=6).map("".join))
def test_a_node_with_more_in_it_is_read_or_refused(start: int, piece: str) -> None:
    for url in (URL, OVERRIDE):
        nodes(url[:start] + piece + url[start:])


RULE = {
    "configVersion": "v2.7",
    "scope": "application",
    "key": "shop",
    "enabled": True,
    "configs": [
        {
            "side": "provider",
            "addresses": ["10.0.0.7:20880"],
            "providerAddresses": None,
            "applications": ["cart"],
            "services": ["com.shop.Order"],
            "type": "general",
            "enabled": True,
            "parameters": {"weight": "50", "disabled": True},
            "match": None,
        }
    ],
}


@fuzz(150, body=spoilt(RULE))
def test_a_rule_with_several_faults_is_read_or_told_of(body: bytes) -> None:
    parse_rules("shop.configurators", body)


NESTED, UNTEXT, COUNTED = "nested more than", "a key must be a text", "aliases counted"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"[" * LARGEST_RULE, NESTED),
        (b" [" * (LARGEST_RULE // 2), NESTED),
        (b"a: " + b"[" * (LARGEST_RULE - 3), NESTED),
        (b"key: shop\nconfigs: " + b"[" * 60_000, NESTED),
        (b"- " * (LARGEST_RULE // 2), NESTED),
        (b"{a: " * (LARGEST_RULE // 4), NESTED),
        (b"{" * LARGEST_RULE, NESTED),
        (b"? " * (LARGEST_RULE // 2), NESTED),
        (b"!!python/object/apply:os.system [x]", "has the tag"),
        (
            b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"a%d: &a%d [%b]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 30)),
            COUNTED,
        ),
        (
            b"key: a\nconfigs: [&c {side: provider, parameters: {disabled: true}, applications: [%b]}%b]"
            % (b",".join([b"s"] * 900), b",*c" * 900),
            COUNTED,
        ),
    ],
    ids=lambda value: value[:24].decode() if isinstance(value, bytes) else "",
)
def test_a_rule_made_to_break_its_reader_is_told_of(body: bytes, says: str) -> None:
    """The C loader of YAML has no bound: its recursion ended in a segmentation fault."""
    found = parse_rules("shop.configurators", body)
    [fault] = found.faults
    assert found.rules == ()
    assert says in fault
    assert len(fault) < 1000
