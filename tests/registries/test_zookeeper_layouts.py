"""What Dubbo and Curator write into ZooKeeper, read."""

import json
from urllib.parse import quote

import pytest

from adapter.load.roster import Instance
from adapter.registries.zookeeper.layouts import (
    ServiceInstance,
    newest_registrations,
    parse_provider,
    parse_service_instance,
)
from tests.registries.zookeeper_kit import APPLICATION, SPRING, document

URL = "dubbo://10.0.0.7:20880/com.shop.Order?application=shop&interface=com.shop.Order&timestamp=1700000000123"


def provider(more: str = "", base: str = URL, pod_name_key: str = "") -> ServiceInstance:
    return parse_provider(quote(base + more, safe=""), pod_name_key)


def document_instance(body: bytes, pod_name_key: str = "") -> Instance:
    """The instance of a document whose node is of second 5."""
    return parse_service_instance(body, 5.0, pod_name_key).instance


class TestProviders:
    def test_a_url_has_address_time_and_parameters(self) -> None:
        found = provider("&pod=web-0&version=1.2&group=blue")
        one = found.instance
        assert (one.ip, one.port, one.registered_at) == ("10.0.0.7", 20880, 1700000000.123)
        assert (one.enabled, one.weight, one.pod_name, one.metadata["pod"]) == (True, 100.0, "", "web-0")
        assert (found.interface, found.version, found.group) == ("com.shop.Order", "1.2", "blue")
        assert found.application == "shop"

    def test_the_pods_name_is_taken_from_the_key_of_the_settings(self) -> None:
        assert provider("&pod=web-0", pod_name_key="pod").instance.pod_name == "web-0"

    def test_version_0_0_0_is_none(self) -> None:
        assert provider("&version=0.0.0").version == ""

    def test_the_path_names_the_interface_where_the_query_does_not(self) -> None:
        assert provider(base="tri://10.0.0.7:50051/com.shop.Order").interface == "com.shop.Order"

    def test_an_address_of_ipv6_is_read(self) -> None:
        found = provider(base="dubbo://[fd00::7]:20880/com.shop.Order").instance
        assert (found.ip, found.port) == ("fd00::7", 20880)

    @pytest.mark.parametrize(
        ("more", "enabled"),
        [
            ("&disabled=true", False),
            ("&disabled=false", True),
            ("&enabled=false", False),
            ("&enabled=true", True),
            ("&disabled=TRUE&enabled=true", False),
            ("&disabled=&enabled=false", False),
        ],
    )
    def test_disabled_decides_where_it_is_there_and_enabled_where_not(self, more: str, enabled: bool) -> None:
        assert provider(more).instance.enabled is enabled

    @pytest.mark.parametrize(("written", "weight"), [("0", 0.0), ("50", 50.0), ("", 100.0), ("nan", None), ("x", None)])
    def test_a_weight_is_what_is_written_or_dubbos_own_and_never_a_guess(
        self, written: str, weight: float | None
    ) -> None:
        assert provider(f"&weight={written}").instance.weight == weight

    @pytest.mark.parametrize("timestamp", ["", "soon", "-5"])
    def test_a_time_that_is_none_is_unknown(self, timestamp: str) -> None:
        assert provider(base=f"dubbo://10.0.0.7:20880/x?timestamp={timestamp}").instance.registered_at is None

    @pytest.mark.parametrize("name", ["", "10.0.0.7:20880", "dubbo:///x", "dubbo://10.0.0.7:port/x"])
    def test_what_is_no_url_is_an_error(self, name: str) -> None:
        with pytest.raises(ValueError):
            provider(base=name)


class TestDocuments:
    @pytest.mark.parametrize("layout", [SPRING, APPLICATION])
    def test_a_document_has_address_and_metadata(self, layout: str) -> None:
        found = document_instance(document("10.0.0.7", "order", layout, zone="a"))
        assert (found.ip, found.port, found.enabled, found.pod_name) == ("10.0.0.7", 8080, True, "")
        assert found.metadata["zone"] == "a"

    def test_springs_status_is_the_status_and_curators_own_flag_disables(self) -> None:
        found = document_instance(
            document("10.0.0.7", "order", SPRING, instance_status="OUT_OF_SERVICE", enabled=False)
        )
        assert (found.status, found.enabled) == ("OUT_OF_SERVICE", False)

    @pytest.mark.parametrize(("written", "at"), [(9000, 9.0), (4000, 5.0), (0, 5.0)])
    def test_the_later_of_two_clocks_counts(self, written: int, at: float) -> None:
        # A session that was lost and made anew writes the old document into a new node; a server's clock may be behind.
        body = json.dumps({"address": "10.0.0.7", "registrationTimeUTC": written}).encode()
        assert document_instance(body).registered_at == at

    def test_a_secure_port_alone_is_the_port(self) -> None:
        assert document_instance(b'{"address":"10.0.0.7","port":null,"sslPort":8443}').port == 8443

    @pytest.mark.parametrize(("key", "name"), [("", "web-1"), ("pod", "web-0")])
    def test_a_host_name_is_the_pods_own_name_unless_the_key_of_the_settings_has_one(self, key: str, name: str) -> None:
        assert document_instance(document("web-1.web.shop.svc", "order", SPRING, pod="web-0"), key).pod_name == name

    @pytest.mark.parametrize(
        ("payload", "metadata"),
        [
            ("null", {}),
            ('"text"', {}),
            ("[1]", {}),
            ('{"metadata":null}', {}),
            ('{"other":1}', {}),
            ('{"metadata":7}', {}),
            ('{"metadata":{"n":1}}', {"n": "1"}),
        ],
    )
    def test_a_payload_of_another_make_is_no_fault(self, payload: str, metadata: dict[str, str]) -> None:
        assert document_instance(f'{{"address":"10.0.0.7","payload":{payload}}}'.encode()).metadata == metadata

    @pytest.mark.parametrize("body", [b"", b"10.0.0.7", b"{", b"[]", b"{}", b'{"address":null}', b'{"address":7}'])
    def test_what_is_no_instance_is_an_error(self, body: bytes) -> None:
        with pytest.raises(ValueError):
            document_instance(body)


def test_of_one_place_and_group_the_latest_registration_counts() -> None:
    old, new, other_port, other_group = (
        ServiceInstance(instance=Instance(ip="10.0.0.7", port=port, registered_at=at), group=group)
        for port, at, group in [(1, 1.0, ""), (1, 2.0, ""), (2, 1.0, ""), (1, None, "green")]
    )
    assert newest_registrations([new, old, other_port, other_group]) == [new, other_port, other_group]
