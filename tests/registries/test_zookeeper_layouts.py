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


def url(more: str = "", base: str = URL) -> Instance:
    return parse_provider(quote(base + more, safe=""), "").instance


class TestProviders:
    def test_a_url_has_address_time_and_parameters(self) -> None:
        found = url("&pod=web-0")
        assert (found.ip, found.port, found.registered_at) == ("10.0.0.7", 20880, 1700000000.123)
        assert found.metadata["pod"] == "web-0"
        assert (found.enabled, found.weight, found.pod_name) == (True, 100.0, "")

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
        assert url(more).enabled is enabled

    @pytest.mark.parametrize(("written", "weight"), [("0", 0.0), ("50", 50.0), ("", 100.0), ("nan", None), ("x", None)])
    def test_a_weight_is_what_is_written_or_dubbos_own_and_never_a_guess(
        self, written: str, weight: float | None
    ) -> None:
        assert url(f"&weight={written}").weight == weight

    def test_interface_version_and_group_come_from_the_query(self) -> None:
        found = parse_provider(quote(URL + "&version=1.2&group=blue", safe=""), "")
        assert (found.interface, found.version, found.group, found.application) == (
            "com.shop.Order",
            "1.2",
            "blue",
            "shop",
        )

    def test_version_0_0_0_is_none(self) -> None:
        assert parse_provider(quote(URL + "&version=0.0.0", safe=""), "").version == ""

    def test_the_path_names_the_interface_where_the_query_does_not(self) -> None:
        assert parse_provider(quote("tri://10.0.0.7:50051/com.shop.Order", safe=""), "").interface == "com.shop.Order"

    def test_an_address_of_ipv6_is_read(self) -> None:
        found = url(base="dubbo://[fd00::7]:20880/com.shop.Order")
        assert (found.ip, found.port) == ("fd00::7", 20880)

    def test_the_pods_name_is_taken_from_the_key_of_the_settings(self) -> None:
        assert parse_provider(quote(URL + "&pod=web-0", safe=""), "pod").instance.pod_name == "web-0"

    @pytest.mark.parametrize("timestamp", ["", "soon", "-5"])
    def test_a_time_that_is_none_is_unknown(self, timestamp: str) -> None:
        assert url(base=f"dubbo://10.0.0.7:20880/x?timestamp={timestamp}").registered_at is None

    @pytest.mark.parametrize("name", ["", "10.0.0.7:20880", "dubbo:///x", "dubbo://10.0.0.7:port/x"])
    def test_what_is_no_url_is_an_error(self, name: str) -> None:
        with pytest.raises(ValueError):
            parse_provider(quote(name, safe=""), "")


class TestDocuments:
    @pytest.mark.parametrize("layout", [SPRING, APPLICATION])
    def test_a_document_has_address_and_metadata(self, layout: str) -> None:
        found = parse_service_instance(document("10.0.0.7", "order", layout, zone="a"), 5.0, "").instance
        assert (found.ip, found.port, found.enabled, found.pod_name) == ("10.0.0.7", 8080, True, "")
        assert found.metadata["zone"] == "a"

    def test_springs_status_is_the_status(self) -> None:
        body = document("10.0.0.7", "order", SPRING, instance_status="OUT_OF_SERVICE")
        assert parse_service_instance(body, 5.0, "").instance.status == "OUT_OF_SERVICE"

    def test_curators_own_flag_disables(self) -> None:
        assert not parse_service_instance(
            document("10.0.0.7", "order", SPRING, enabled=False), 5.0, ""
        ).instance.enabled

    @pytest.mark.parametrize(("written", "node", "at"), [(9000, 5.0, 9.0), (4000, 5.0, 5.0), (0, 5.0, 5.0)])
    def test_the_later_of_two_clocks_counts(self, written: int, node: float, at: float) -> None:
        # A session that was lost and made anew writes the old document into a new node; a server's clock may be behind.
        body = json.dumps({"address": "10.0.0.7", "registrationTimeUTC": written}).encode()
        assert parse_service_instance(body, node, "").instance.registered_at == at

    def test_a_secure_port_alone_is_the_port(self) -> None:
        assert (
            parse_service_instance(b'{"address":"10.0.0.7","port":null,"sslPort":8443}', 5.0, "").instance.port == 8443
        )

    def test_a_host_name_is_the_pods_own_name(self) -> None:
        assert parse_service_instance(b'{"address":"web-0.web.shop.svc"}', 5.0, "").instance.pod_name == "web-0"

    def test_the_key_of_the_settings_beats_a_host_name(self) -> None:
        assert (
            parse_service_instance(document("node-1", "order", SPRING, pod="web-0"), 5.0, "pod").instance.pod_name
            == "web-0"
        )

    @pytest.mark.parametrize("payload", ["null", '"text"', "[1]", '{"metadata":null}', '{"other":1}', '{"metadata":7}'])
    def test_a_payload_of_another_make_is_no_fault(self, payload: str) -> None:
        body = f'{{"address":"10.0.0.7","payload":{payload}}}'.encode()
        assert parse_service_instance(body, 5.0, "").instance.metadata == {}

    def test_metadata_that_are_no_strings_become_some(self) -> None:
        assert parse_service_instance(b'{"address":"a","payload":{"metadata":{"n":1}}}', 5.0, "").instance.metadata == {
            "n": "1"
        }

    @pytest.mark.parametrize("body", [b"", b"10.0.0.7", b"{", b"[]", b"{}", b'{"address":null}', b'{"address":7}'])
    def test_what_is_no_instance_is_an_error(self, body: bytes) -> None:
        with pytest.raises(ValueError):
            parse_service_instance(body, 5.0, "")


def test_of_one_place_the_latest_registration_counts() -> None:
    old = ServiceInstance(instance=Instance(ip="10.0.0.7", port=1, registered_at=1.0, status="OUT_OF_SERVICE"))
    new = ServiceInstance(instance=Instance(ip="10.0.0.7", port=1, registered_at=2.0))
    other = ServiceInstance(instance=Instance(ip="10.0.0.7", port=2, registered_at=1.0))
    assert newest_registrations([new, old, other]) == [new, other]


def test_another_group_at_the_same_place_is_another_registration() -> None:
    one = ServiceInstance(instance=Instance(ip="10.0.0.7", port=1), group="blue", protocol="dubbo")
    other = ServiceInstance(instance=Instance(ip="10.0.0.7", port=1), group="green", protocol="dubbo")
    assert newest_registrations([one, other]) == [one, other]
