"""Dubbo's rules beside the registrations: which are applied to whom, and which are told of instead."""

from urllib.parse import quote

import pytest

from adapter.load.roster import Instance
from adapter.registries.zookeeper.layouts import (
    LARGEST_RULE,
    OverrideRules,
    ServiceInstance,
    apply_rules,
    parse_configurator,
    parse_override_urls,
    parse_provider,
    rule_key,
)

PROVIDER = "dubbo://10.0.0.7:20880/com.shop.Order?application=shop&interface=com.shop.Order"


def registration(more: str = "") -> ServiceInstance:
    return parse_provider(quote(PROVIDER + more, safe=""), "")


def rules(*urls: str) -> OverrideRules:
    return parse_override_urls(quote(url, safe="") for url in urls)


def after(found: OverrideRules, more: str = "") -> tuple[bool, float | None]:
    [one] = apply_rules([registration(more)], found.rules)
    return one.instance.enabled, one.instance.weight


HERE = "override://10.0.0.7:20880/com.shop.Order?category=configurators&dynamic=false"
EVERYWHERE = "override://0.0.0.0/com.shop.Order?category=configurators&dynamic=false"
ABSENT = "absent://0.0.0.0/com.shop.Order?category=configurators"


class TestOverrides:
    @pytest.mark.parametrize(
        ("urls", "registered", "expected"),
        [
            pytest.param([f"{HERE}&disabled=true"], "", (False, 100.0), id="an address"),
            pytest.param([f"{EVERYWHERE}&disabled=true"], "", (False, 100.0), id="any host"),
            pytest.param(
                ["override://0.0.0.0:20880/com.shop.Order?disabled=true"], "", (False, 100.0), id="any host's port"
            ),
            pytest.param([f"{HERE}&weight=0"], "", (True, 0.0), id="weight of an address"),
            pytest.param([f"{EVERYWHERE}&weight=0"], "", (True, 0.0), id="weight of any host"),
            pytest.param(
                [f"{HERE}&group=blue&version=2&disabled=true"],
                "&group=blue&version=2",
                (False, 100.0),
                id="group and version of the provider",
            ),
            pytest.param([f"{HERE}&application=*&disabled=true"], "", (False, 100.0), id="any application"),
            pytest.param([f"{HERE}&disabled=false"], "&disabled=true", (True, 100.0), id="disabled is undone"),
            pytest.param([f"{HERE}&disabled=false"], "&enabled=false", (False, 100.0), id="not enabled stays so"),
            pytest.param(
                [f"{HERE}&weight=100", f"{EVERYWHERE}&weight=0"], "", (True, 100.0), id="one address beats all"
            ),
            pytest.param(
                [f"{HERE}&weight=7&priority=2", f"{HERE}&weight=0&priority=1"], "", (True, 7.0), id="higher priority"
            ),
            pytest.param([f"{ABSENT}&weight=0"], "&weight=5", (True, 5.0), id="absent leaves what the provider says"),
            pytest.param([f"{ABSENT}&weight=0"], "", (True, 0.0), id="absent says what the provider does not"),
        ],
    )
    def test_a_rule_is_applied(self, urls: list[str], registered: str, expected: tuple[bool, float]) -> None:
        assert after(rules(*urls), registered) == expected

    @pytest.mark.parametrize(
        "url",
        [
            "override://10.0.0.8:20880/com.shop.Order?disabled=true",
            "override://10.0.0.7:20881/com.shop.Order?disabled=true",
            "override://0.0.0.0:20881/com.shop.Order?disabled=true",
            f"{HERE}&enabled=false&disabled=true",
            f"{HERE}&group=blue&disabled=true",
            f"{HERE}&version=2&disabled=true",
            f"{HERE}&timeout=1000",
            "override://10.9.9.9/com.shop.Order?disabled=true",
        ],
    )
    def test_another_place_a_rule_that_is_off_and_other_parameters_change_nothing(self, url: str) -> None:
        found = rules(url)
        assert after(found) == (True, 100.0)
        assert found.warnings == ()

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            (f"{HERE}&~zone=a&disabled=true", "condition ~zone"),
            (f"{HERE}&application=checkout&disabled=true", "the application checkout alone"),
            (f"{HERE}&weight=half", "weight half is not a number"),
            (f"{HERE}&priority=high&weight=0", "invalid literal"),
            ("route://0.0.0.0/com.shop.Order?disabled=true", "protocol is route"),
            ("10.0.0.7", "not a URL"),
        ],
    )
    def test_an_unclear_rule_is_ignored_with_a_warning(self, url: str, why: str) -> None:
        found = rules(url)
        assert after(found) == (True, 100.0)
        assert why in found.warnings[0]


def yaml_rule(entry: str, head: str = "scope: service\nkey: com.shop.Order\nenabled: true") -> OverrideRules:
    return parse_configurator(
        "com.shop.Order::.configurators", f"configVersion: v2.7\n{head}\nconfigs:\n{entry}".encode()
    )


DISABLED = "  parameters: {disabled: true}\n"
APPLICATION = "scope: application\nkey: shop\nenabled: true"


class TestDocuments:
    @pytest.mark.parametrize("address", ["10.0.0.7:20880", "10.0.0.7", "0.0.0.0", "0.0.0.0:20880", "0.0.0.0:*"])
    def test_an_address_is_disabled(self, address: str) -> None:
        assert after(yaml_rule(f'- side: provider\n  addresses: ["{address}"]\n{DISABLED}')) == (False, 100.0)

    def test_no_address_means_all(self) -> None:
        assert after(yaml_rule(f"- side: provider\n{DISABLED}")) == (False, 100.0)
        assert after(yaml_rule(f"- side: provider\n{DISABLED}", APPLICATION)) == (False, 100.0)

    def test_a_weight_of_nothing_is_read(self) -> None:
        assert after(yaml_rule("- side: provider\n  parameters: {weight: 0}\n")) == (True, 0.0)

    def test_all_consumers_of_a_provider_are_the_provider(self) -> None:
        entry = f'- side: consumer\n  addresses: ["0.0.0.0"]\n  providerAddresses: ["10.0.0.7:20880"]\n{DISABLED}'
        assert after(yaml_rule(entry)) == (False, 100.0)

    @pytest.mark.parametrize(("was_enabled", "disabled"), [(True, "true"), (False, "false")])
    def test_an_application_without_interfaces_is_disabled_too_and_never_enabled(
        self, was_enabled: bool, disabled: str
    ) -> None:
        address = '  addresses: ["10.0.0.7:20880"]\n'
        found = yaml_rule(f"- side: provider\n{address}  parameters: {{disabled: {disabled}}}\n", APPLICATION)
        instance = Instance(ip="10.0.0.7", port=20880, enabled=was_enabled)
        [one] = apply_rules([ServiceInstance(instance=instance, application="shop")], found.rules)
        assert not one.instance.enabled

    @pytest.mark.parametrize(("interface", "enabled"), [("com.shop.Order", False), ("com.shop.Other", True)])
    def test_one_interface_of_an_application_is_named(self, interface: str, enabled: bool) -> None:
        entry = f"- side: provider\n  services: [{interface}]\n{DISABLED}"
        assert after(yaml_rule(entry, APPLICATION)) == (enabled, 100.0)

    @pytest.mark.parametrize(
        ("entry", "head"),
        [
            (f"- side: provider\n{DISABLED}", "scope: service\nkey: com.shop.Order\nenabled: false"),
            (f"- side: provider\n{DISABLED}", "scope: service\nkey: com.shop.Order:2\nenabled: true"),
            (f"- side: provider\n{DISABLED}", "scope: service\nkey: blue/com.shop.Order\nenabled: true"),
            (f"- side: provider\n{DISABLED}", "scope: application\nkey: other\nenabled: true"),
            ('- side: provider\n  addresses: ["10.0.0.8:20880"]\n' + DISABLED, "key: com.shop.Order"),
            ("- side: provider\n  applications: [other]\n" + DISABLED, "key: com.shop.Order"),
            ("- side: provider\n  type: weight\n  enabled: false\n" + DISABLED, "key: com.shop.Order"),
            ("- side: provider\n  parameters: {timeout: 1000}\n", "key: com.shop.Order"),
        ],
    )
    def test_what_is_off_or_about_others_changes_nothing(self, entry: str, head: str) -> None:
        found = yaml_rule(entry, head)
        assert after(found) == (True, 100.0)
        assert found.warnings == ()

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (f"key: com.shop.Order\nconfigs:\n- side: provider\n  match: {{app: a}}\n{DISABLED}", "`match`"),
            (f"key: com.shop.Order\nconfigs:\n- addresses: ['10.0.0.7']\n{DISABLED}", "side"),
            (
                f"key: com.shop.Order\nconfigs:\n- side: consumer\n  addresses: ['10.9.9.9']\n{DISABLED}",
                "some consumers",
            ),
            (f"key: com.shop.Order\nconfigs:\n- side: consumer\n  applications: [x]\n{DISABLED}", "some consumers"),
            (f"scope: application\nkey: shop\nconfigs:\n- side: consumer\n{DISABLED}", "some consumers"),
            (f"configs:\n- side: provider\n{DISABLED}", "no key"),
            ("key: com.shop.Order\nconfigs:\n- side: provider\n  parameters: {weight: heavy}\n", "not a number"),
            ("key: com.shop.Order\nconfigs: none\n", "Expected `array"),
            ("just text", "Expected `object"),
            ("a: b: c", "mapping values"),
            ("[" * 20_000, "not applied"),
            ("x" * (LARGEST_RULE + 1), "larger than 64 KiB"),
            ('["override://10.0.0.7:20880/com.shop.Order?~zone=a&disabled=true"]', "condition ~zone"),
        ],
    )
    def test_an_unclear_rule_is_ignored_with_a_warning(self, body: str, why: str) -> None:
        found = parse_configurator("x.configurators", body.encode())
        assert after(found) == (True, 100.0)
        assert why in found.warnings[0]

    def test_a_list_of_overrides_is_read_too(self) -> None:
        found = parse_configurator("x.configurators", f'["{HERE}&disabled=true"]'.encode())
        assert after(found) == (False, 100.0)

    @pytest.mark.parametrize("body", ["", "# nothing", "key: com.shop.Order\nconfigs:\n"])
    def test_an_empty_document_is_no_rule(self, body: str) -> None:
        assert parse_configurator("x.configurators", body.encode()) == OverrideRules()

    def test_bytes_that_are_no_text_are_told_of(self) -> None:
        assert "not applied" in parse_configurator("x.configurators", b"\xff\xfe").warnings[0]


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("shop.configurators", "shop"),
        ("com.shop.Order.configurators", "com.shop.Order"),
        ("com.shop.Order::.configurators", "com.shop.Order"),
        ("com.shop.Order:1.0:blue.configurators", "com.shop.Order"),
        ("blue*com.shop.Order:1.0.configurators", "com.shop.Order"),
    ],
)
def test_a_nodes_name_says_what_it_is_about(node: str, name: str) -> None:
    assert rule_key(node) == name
