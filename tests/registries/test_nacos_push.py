"""Nacos by push: a push wakes the list of its service, and lists replace pushes while there are none.

A pushed service is listed once a minute without a push, so what is seen sooner was pushed.
"""

import asyncio
import contextlib
import gc
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from adapter.registries.nacos.login import signature
from adapter.registries.nacos.push import decode_payload, encode_payload, grpc_address
from adapter.registries.source import ServiceKey
from adapter.settings.base import ClientTls
from adapter.settings.registries import NacosRegistry
from tests.registries.nacos_kit import CART, SHOP, FakeNacos, following, host, subscribed
from tests.waiting import eventually

SHOP_PLACE = ("public", "DEFAULT_GROUP@@shop")


def pushed(nacos: FakeNacos, **more: Any) -> NacosRegistry:
    """Settings with which nothing is polled in a test."""
    return nacos.settings(**{"interval_seconds": 3600, **more})


def established(port: int) -> int:
    """How many TCP connections to this port there are, by the kernel's own tables."""
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows[1:])


class TestPushes:
    @pytest.mark.parametrize("admin", [False, True])
    async def test_a_push_has_its_service_listed_at_once(self, nacos: FakeNacos, admin: bool) -> None:
        async with following(pushed(nacos, admin=admin)) as followed:
            await subscribed(nacos, followed)
            nacos.put(host(1))
            await followed.until_pods("web-1")
            nacos.put()
            await followed.until_pods()

    async def test_a_change_between_list_and_subscription_is_not_lost(self, nacos: FakeNacos) -> None:
        nacos.hold_registration = asyncio.Event()
        async with following(pushed(nacos)) as followed:
            await followed.until_pods("web-0", "web-1")
            nacos.services[SHOP_PLACE] = [host(1)]
            nacos.hold_registration.set()
            await followed.until_pods("web-1")

    async def test_a_push_during_a_list_has_it_listed_again(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos)) as followed:
            await subscribed(nacos, followed)
            nacos.hold, asked = asyncio.Event(), len(nacos.asked)
            nacos.put(host(0))
            await nacos.until(lambda: len(nacos.asked) > asked)
            nacos.put(host(1))
            nacos.hold.set()
            await followed.until_pods("web-1")

    async def test_a_list_from_before_the_change_is_not_the_last(self, nacos: FakeNacos) -> None:
        """The servers behind one address replicate a change up to 3 s after it is pushed."""
        async with following(pushed(nacos)) as followed:
            await subscribed(nacos, followed)
            asked = len(nacos.asked)
            nacos.push(*SHOP_PLACE)
            await nacos.until(lambda: len(nacos.asked) > asked)
            nacos.services[SHOP_PLACE] = [host(1)]
            await followed.until_pods("web-1")

    async def test_every_key_with_a_pushed_name_is_listed(self, nacos: FakeNacos) -> None:
        """A push does not name the namespace; two keys may be names of one service."""
        also, other = ServiceKey("nacos", "shop", "public", "DEFAULT_GROUP"), ServiceKey("nacos", "shop", "prod")
        nacos.put(host(2), namespace="prod")
        async with following(pushed(nacos), SHOP, also, other) as followed:
            await nacos.until(lambda: len(nacos.subscriptions) == 2)
            nacos.put(host(1))
            await followed.until_pods("web-1")
            await followed.until_pods("web-1", key=also)
            nacos.put(host(0), namespace="prod")
            await followed.until_pods("web-0", key=other)
            assert followed.pod_names() == ["web-1"]

    async def test_requests_of_the_server_are_acknowledged(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos)) as followed:
            await subscribed(nacos, followed)
            for number, kind in enumerate(("ClientDetectionRequest", "SomethingNewRequest")):
                async with asyncio.timeout(10):
                    await nacos.send(kind, str(number)).wait()
        assert "ClientDetectionResponse" in nacos.calls

    async def test_a_live_connection_confirms_lists_without_asking(self, nacos: FakeNacos) -> None:
        services = [SHOP._replace(service=f"s{number}") for number in range(100)]
        async with following(pushed(nacos), *services) as followed:
            await subscribed(nacos, followed, *(key.service for key in services))
            await nacos.until(lambda: len(nacos.asked) == 2 * len(services))  # at first, and once subscribed
            followed.clock.jump(100)
            for key in services:
                await followed.until(lambda key=key: followed.age(key) < 50)  # type: ignore[misc]
            assert len(nacos.asked) == 2 * len(services)

    async def test_a_dead_connection_confirms_nothing(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos, timeout_seconds=0.3)) as followed:
            await subscribed(nacos, followed)
            nacos.beats_answered, nacos.faults["shop"] = False, 500
            nacos.push(*SHOP_PLACE)
            await followed.until_error("HTTP 500")
            await followed.until_failed_again()
            assert followed.pod_names() == ["web-0", "web-1"]


class TestLoss:
    @pytest.mark.parametrize(
        "lose",
        [FakeNacos.drop, FakeNacos.forget, FakeNacos.ask_to_reconnect, lambda nacos: nacos.send_raw(b"\xff\xff")],
        ids=["dropped", "forgotten", "asked to reconnect", "unreadable message"],
    )
    async def test_a_lost_connection_is_closed_and_replaced(
        self, nacos: FakeNacos, lose: Callable[[FakeNacos], None]
    ) -> None:
        """Without a garbage collection: a server may end over connections that are silent."""
        gc.disable()
        try:
            async with following(pushed(nacos)) as followed:
                await subscribed(nacos, followed)
                lose(nacos)
                await nacos.until(lambda: nacos.calls.count("ConnectionSetupRequest") >= 2)
                await subscribed(nacos, followed)
                await eventually(lambda: established(nacos.grpc_port) == 1)
                nacos.put(host(1))
                await followed.until_pods("web-1")
            await eventually(lambda: established(nacos.grpc_port) == 0)
        finally:
            gc.enable()

    async def test_lists_replace_pushes_meanwhile(self, nacos: FakeNacos) -> None:
        async with following(nacos.settings()) as followed:
            await subscribed(nacos, followed)
            await nacos.stop_grpc()
            nacos.put(host(1))
            await followed.until_pods("web-1")
            nacos.put(host(0))
            await followed.until_pods("web-0")
            await nacos.start_grpc()
            await subscribed(nacos, followed)

    async def test_another_server_pushes_once_one_is_gone(self, nacos: FakeNacos) -> None:
        async with FakeNacos() as two:
            two.put(host(0), host(1))
            async with following(pushed(nacos, servers=(nacos.url, two.url))) as followed:
                await subscribed(nacos, followed)
                await nacos.stop_grpc()
                await subscribed(two, followed)
                await nacos.start_grpc()

    @pytest.mark.parametrize("lacks", ["a port", "the right"])
    async def test_without_push_services_are_polled(self, nacos: FakeNacos, lacks: str) -> None:
        if lacks == "a port":
            await nacos.stop_grpc()
        else:
            nacos.push_disabled_for = {"shop"}
        async with following(nacos.settings()) as followed:
            await followed.until_pods("web-0", "web-1")
            if lacks == "the right":
                await nacos.until(lambda: "SubscribeServiceRequest" in nacos.calls)
            nacos.put(host(1))
            await followed.until_pods("web-1")
            assert not followed.source.pushed


class TestCredentials:
    async def test_a_subscription_carries_the_token(self, nacos: FakeNacos, user: dict[str, str]) -> None:
        async with following(pushed(nacos, **user)) as followed:
            await subscribed(nacos, followed)
            followed.clock.jump(31)
            nacos.tokens.clear()
            followed.follow([SHOP, CART])
            await subscribed(nacos, followed, "shop", "cart")

    async def test_a_subscription_is_signed(self, nacos: FakeNacos, tmp_path: Path) -> None:
        nacos.signed = True
        (tmp_path / "ak").write_text("ak")
        (tmp_path / "sk").write_text("sk")
        keys = {"access_key_file": str(tmp_path / "ak"), "secret_key_file": str(tmp_path / "sk")}
        async with following(pushed(nacos, **keys)) as followed:
            await subscribed(nacos, followed)

    def test_a_signature_is_a_known_one(self) -> None:
        # By `printf %s 1700000000123@@G@@shop | openssl dgst -sha1 -hmac sk -binary | base64`.
        assert signature("ak", "sk", "G@@shop", 1_700_000_000.123) == {
            "ak": "ak",
            "data": "1700000000123@@G@@shop",
            "signature": "9e/7WhOfoLcnJx9wPgQ8g6Wcoio=",
        }

    async def test_unverified_tls_is_polled_because_grpc_always_verifies(self) -> None:
        certificate, context = trustme.CA().issue_cert("localhost"), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate.configure_cert(context)
        pair = (certificate.private_key_pem.bytes(), b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        async with FakeNacos(tls=context, grpc_tls=grpc.ssl_server_credentials([pair])) as nacos:
            nacos.put(host(0))
            async with following(nacos.settings(tls=ClientTls(insecure_skip_verify=True))) as followed:
                await followed.until_pods("web-0")
                nacos.put(host(1))
                await followed.until_pods("web-1")
            assert nacos.calls == []


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("http://nacos:8848/nacos", "nacos:9848"),
        ("https://nacos/nacos", "nacos:1443"),
        ("http://[fd00::1]:8848", "[fd00::1]:9848"),
    ],
)
def test_grpc_is_a_thousand_ports_above(server: str, address: str) -> None:
    assert grpc_address(server, 1000) == address


# Written by a protobuf library: type "A", header {"k": "v"}, clientIp "1.2.3.4", body {}.
METADATA = b"\x1a\x01A" + b"\x3a\x06\x0a\x01k\x12\x01v"
CLIENT_IP = b"\x42\x071.2.3.4"
ENVELOPE = b"\x12\x0b" + METADATA + b"\x1a\x04\x12\x02{}"


class TestEnvelope:
    def test_it_is_written_as_protobuf_writes_it(self) -> None:
        assert encode_payload("A", b"{}", {"k": "v"}) == ENVELOPE

    def test_unknown_fields_are_skipped(self) -> None:
        message = b"\x12\x14" + METADATA + CLIENT_IP + b"\x1a\x07" + b"\x0a\x01t" + b"\x12\x02{}"
        assert decode_payload(message) == ("A", b"{}")

    @given(st.text(), st.binary(max_size=300), st.dictionaries(st.text(), st.text(max_size=200), max_size=3))
    def test_what_was_written_is_read(self, kind: str, body: bytes, headers: dict[str, str]) -> None:
        assert decode_payload(encode_payload(kind, body, headers)) == (kind, body)

    @given(st.binary(max_size=60), st.integers(0, len(ENVELOPE)), st.integers(0, 40))
    def test_any_bytes_are_a_message_or_an_error(self, data: bytes, start: int, cut: int) -> None:
        for message in (data, ENVELOPE[:start] + data + ENVELOPE[start + cut :]):
            with contextlib.suppress(ValueError):
                decode_payload(message)
