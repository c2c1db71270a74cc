"""What Dubbo and Curator write into ZooKeeper: registrations, and Dubbo's rules beside them. Pure."""

import json
from urllib.parse import quote

import pytest

from adapter.load.roster import Instance
from adapter.registries.zookeeper.dubbo import (
    LARGEST_RULE,
    Registration,
    Rules,
    apply_rules,
    parse_document,
    parse_override_urls,
    parse_provider,
    parse_rules,
)
from tests.registries.zookeeper_kit import SPRING, document

URL = "dubbo://10.0.0.7:20880/com.shop.Order?application=shop&interface=com.shop.Order&timestamp=1700000000123"


def provider(more: str = "", base: str = URL, pod_name_key: str = "") -> Registration:
    return parse_provider(quote(base + more, safe=""), pod_name_key)


def instance_of(body: bytes, pod_name_key: str = "") -> Instance:
    """The instance of a document whose node was created in second 5."""
    return parse_document(body, 5.0, pod_name_key).instance


class TestProviders:
    def test_a_url_has_address_time_and_parameters(self) -> None:
        found = provider("&pod=web-0&version=1.2&group=blue", pod_name_key="pod")
        one = found.instance
        assert (one.ip, one.port, one.registered_at) == ("10.0.0.7", 20880, 1700000000.123)
        assert (one.enabled, one.weight, one.pod_name, one.metadata["pod"]) == (True, 100.0, "web-0", "web-0")
        assert (found.application, found.service) == ("shop", "com.shop.Order:1.2:blue")

    def test_version_0_0_0_is_none_and_the_path_may_name_the_interface(self) -> None:
        assert provider("&version=0.0.0").service == "com.shop.Order::"
        assert provider(base="tri://10.0.0.7:50051/com.shop.Order").service == "com.shop.Order::"

    @pytest.mark.parametrize(
        ("authority", "ip", "port"),
        [
            ("[fd00::7]:20880", "fd00::7", 20880),
            ("fd00:0:0:0:0:0:0:7:20880", "fd00:0:0:0:0:0:0:7", 20880),
            ("::ffff:10.0.0.7:20880", "::ffff:10.0.0.7", 20880),
            ("user@10.0.0.7:20880", "10.0.0.7", 20880),
            ("10.0.0.7", "10.0.0.7", None),
        ],
    )
    def test_dubbo_writes_ipv6_with_and_without_brackets(self, authority: str, ip: str, port: int | None) -> None:
        found = provider(base=f"dubbo://{authority}/com.shop.Order?weight=0").instance
        assert (found.ip, found.port, found.weight) == (ip, port, 0.0)

    @pytest.mark.parametrize(
        ("more", "enabled"),
        [
            ("&disabled=true", False),
            ("&disabled=false", True),
            ("&enabled=false", False),
            ("&disabled=TRUE&enabled=true", False),
            ("&disabled=&enabled=false", False),
        ],
    )
    def test_disabled_decides_if_present_else_enabled(self, more: str, enabled: bool) -> None:
        assert provider(more).instance.enabled is enabled

    @pytest.mark.parametrize(("written", "weight"), [("0", 0.0), ("50", 50.0), ("", 100.0), ("nan", None), ("x", None)])
    def test_a_weight_is_read_or_unknown(self, written: str, weight: float | None) -> None:
        assert provider(f"&weight={written}").instance.weight == weight

    @pytest.mark.parametrize("name", ["", "10.0.0.7:20880", "dubbo:///x", "dubbo://10.0.0.7:port/x", "d://h:99999/x"])
    def test_another_text_is_an_error(self, name: str) -> None:
        with pytest.raises(ValueError):
            provider(base=name)


class TestDocuments:
    @pytest.mark.parametrize(("written", "at"), [(9000, 9.0), (4000, 5.0), (0, 5.0)])
    def test_the_later_of_document_and_node_is_the_time(self, written: int, at: float) -> None:
        body = json.dumps({"address": "10.0.0.7", "registrationTimeUTC": written}).encode()
        assert instance_of(body).registered_at == at

    @pytest.mark.parametrize(("key", "name"), [("", "web-1"), ("pod", "web-0")])
    def test_a_host_name_is_the_pods_name(self, key: str, name: str) -> None:
        assert instance_of(document("web-1.web.shop.svc", "order", SPRING, pod="web-0"), key).pod_name == name

    @pytest.mark.parametrize(
        ("payload", "metadata"),
        [("null", {}), ("[1]", {}), ('{"metadata":7}', {}), ('{"metadata":{"n":1}}', {"n": "1"})],
    )
    def test_a_payload_of_another_framework_is_accepted(self, payload: str, metadata: dict[str, str]) -> None:
        assert instance_of(f'{{"address":"10.0.0.7","payload":{payload}}}'.encode()).metadata == metadata

    @pytest.mark.parametrize("body", [b"", b"10.0.0.7", b"{", b"[]", b"{}", b'{"address":null}', b'{"address":7}'])
    def test_another_document_is_an_error(self, body: bytes) -> None:
        with pytest.raises(ValueError):
            instance_of(body)


def urls(*found: str) -> Rules:
    return parse_override_urls(quote(url, safe="") for url in found)


def after(found: Rules, more: str = "", base: str = URL) -> tuple[bool, float | None]:
    [one] = apply_rules([provider(more, base)], found.rules)
    return one.enabled, one.weight


HERE = "override://10.0.0.7:20880/com.shop.Order?category=configurators&dynamic=false"
EVERYWHERE = "override://0.0.0.0/com.shop.Order?category=configurators&dynamic=false"


class TestOverrides:
    @pytest.mark.parametrize(
        ("rules", "registered", "expected"),
        [
            pytest.param([f"{HERE}&disabled=true"], "", (False, 100.0), id="an address"),
            pytest.param([f"{EVERYWHERE}&disabled=true"], "", (False, 100.0), id="any host"),
            pytest.param([f"{EVERYWHERE}&weight=0"], "", (True, 0.0), id="weight"),
            pytest.param(
                [f"{HERE}&group=blue&version=2&disabled=true"], "&group=blue&version=2", (False, 100.0), id="version"
            ),
            pytest.param([f"{HERE}&application=*&disabled=true"], "", (False, 100.0), id="any application"),
            pytest.param([f"{HERE}&disabled=false"], "&disabled=true", (True, 100.0), id="disabled is undone"),
            pytest.param([f"{HERE}&disabled=false"], "&enabled=false", (False, 100.0), id="not enabled stays so"),
        ],
    )
    def test_a_rule_is_applied(self, rules: list[str], registered: str, expected: tuple[bool, float]) -> None:
        assert after(urls(*rules), registered) == expected

    @pytest.mark.parametrize("written", ["[fd00::7]:20880", "fd00:0:0:0:0:0:0:7:20880"])
    def test_ipv6_addresses_are_compared_as_addresses(self, written: str) -> None:
        base = "dubbo://fd00:0:0:0:0:0:0:7:20880/com.shop.Order?interface=com.shop.Order"
        assert after(urls(f"override://{written}/com.shop.Order?disabled=true"), base=base) == (False, 100.0)
        assert after(rule(f"- side: provider\n  addresses: ['{written}']\n{DISABLED}"), base=base) == (False, 100.0)

    @pytest.mark.parametrize(
        "url",
        [
            "override://10.0.0.8:20880/com.shop.Order?disabled=true",
            "override://10.0.0.7:20881/com.shop.Order?disabled=true",
            f"{HERE}&enabled=false&disabled=true",
            f"{HERE}&group=blue&disabled=true",
            f"{HERE}&version=2&disabled=true",
            f"{HERE}&timeout=1000",
        ],
    )
    def test_rules_about_others_and_other_parameters_change_nothing(self, url: str) -> None:
        assert (after(urls(url)), urls(url).faults) == ((True, 100.0), ())

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            (f"{HERE}&~zone=a&disabled=true", "condition ~zone"),
            (f"{HERE}&application=checkout&disabled=true", "the application checkout alone"),
            (f"{HERE}&weight=half", "weight half is not a number"),
            ("absent://0.0.0.0/com.shop.Order?disabled=true", "protocol is absent"),
            ("10.0.0.7", "not a URL"),
        ],
    )
    def test_an_unclear_rule_is_named_and_not_applied(self, url: str, why: str) -> None:
        found = urls(url)
        assert after(found) == (True, 100.0)
        assert why in found.faults[0]


DISABLED = "  parameters: {disabled: true}\n"
SERVICE, SHOP = "com.shop.Order::", "shop"


def rule(entry: str, key: str = SERVICE, head: str = "") -> Rules:
    return parse_rules(key, f"configVersion: v2.7\nscope: service\n{head}configs:\n{entry}".encode())


class TestDynamicConfiguration:
    @pytest.mark.parametrize("address", ["10.0.0.7:20880", "10.0.0.7", "0.0.0.0", "0.0.0.0:20880", "0.0.0.0:*"])
    def test_an_address_is_disabled(self, address: str) -> None:
        assert after(rule(f'- side: provider\n  addresses: ["{address}"]\n{DISABLED}')) == (False, 100.0)

    @pytest.mark.parametrize("key", [SERVICE, "com.shop.Order", SHOP])
    def test_no_address_means_all(self, key: str) -> None:
        assert after(rule(f"- side: provider\n{DISABLED}", key)) == (False, 100.0)
        assert after(rule("- side: provider\n  parameters: {weight: 0}\n", key)) == (True, 0.0)

    @pytest.mark.parametrize(("was_enabled", "disabled"), [(True, "true"), (False, "false")])
    def test_a_rule_never_enables_an_application(self, was_enabled: bool, disabled: str) -> None:
        found = rule(f"- side: provider\n  parameters: {{disabled: {disabled}}}\n", SHOP)
        instance = Instance(ip="10.0.0.7", port=20880, enabled=was_enabled)
        [one] = apply_rules([Registration(instance=instance, application="shop")], found.rules)
        assert not one.enabled

    @pytest.mark.parametrize(
        ("entry", "key", "head"),
        [
            (f"- side: provider\n{DISABLED}", SERVICE, "enabled: false\n"),
            (f"- side: provider\n{DISABLED}", "com.shop.Order:2:", ""),
            (f"- side: provider\n{DISABLED}", "blue*com.shop.Order", ""),
            (f"- side: provider\n{DISABLED}", "other", ""),
            (f'- side: provider\n  addresses: ["10.0.0.8:20880"]\n{DISABLED}', SERVICE, ""),
            (f"- side: provider\n  type: weight\n  enabled: false\n{DISABLED}", SERVICE, ""),
            ("- side: provider\n  parameters: {timeout: 1000}\n", SERVICE, ""),
        ],
    )
    def test_rules_about_others_and_other_parameters_change_nothing(self, entry: str, key: str, head: str) -> None:
        found = rule(entry, key, head)
        assert (after(found), found.faults) == ((True, 100.0), ())

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (f"configs:\n- side: provider\n  match: {{app: a}}\n{DISABLED}", "`match`"),
            (f"configs:\n- side: provider\n  services: [a]\n{DISABLED}", "`services`"),
            (f"configs:\n- side: provider\n  applications: [a]\n{DISABLED}", "`applications`"),
            (f"configs:\n- addresses: ['10.0.0.7']\n{DISABLED}", "side is missing"),
            (f"configs:\n- side: consumer\n{DISABLED}", "side is consumer"),
            ("configs:\n- side: provider\n  parameters: {weight: heavy}\n", "not a number"),
            ('["override://10.0.0.7:20880/a?disabled=true"]', "Expected `object"),
            ("a: b: c", "mapping values"),
            ("[" * 20_000, "not applied"),
            ("x" * (LARGEST_RULE + 1), "larger than 64 KiB"),
            (b"\xff\xfe", "not applied"),
        ],
    )
    def test_an_unclear_rule_is_named_and_not_applied(self, body: str | bytes, why: str) -> None:
        found = parse_rules("shop", body.encode() if isinstance(body, str) else body)
        assert found.rules == ()
        assert why in found.faults[0]

    def test_the_keys_of_application_and_service_are_read(self) -> None:
        assert provider("&group=blue&version=1").rule_keys == (
            "shop",
            "blue*com.shop.Order:1",
            "com.shop.Order:1:blue",
        )
