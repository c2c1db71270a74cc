"""Nacos by push: subscriptions, what ends a connection, and that lists take its place meanwhile."""

import asyncio
import gc
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
import trustme

from adapter.registries.nacos import source as nacos_source
from adapter.registries.nacos.push import grpc_address
from adapter.registries.source import ServiceKey
from adapter.settings.registries import NacosRegistry, RegistryTls
from tests.registries.nacos_kit import CART, SHOP, FakeNacos, following, host, subscribed
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nacos_source, "HEALTH_CHECK_SECONDS", 0.05)


def pushed(nacos: FakeNacos, **more: Any) -> NacosRegistry:
    """Settings with which a change can only come by push: lists are asked for once."""
    return nacos.settings(**{"interval_seconds": 3600, **more})


def established(port: int) -> int:
    """How many TCP connections to this port there are, by the kernel's own tables."""
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows[1:])


class TestPushes:
    @pytest.mark.parametrize("namespace_in_push", [False, True])
    async def test_a_change_is_pushed(self, nacos: FakeNacos, namespace_in_push: bool) -> None:
        nacos.namespace_in_push = namespace_in_push
        async with following(pushed(nacos)) as world:
            await subscribed(nacos, world)
            nacos.put(host(1))
            await world.until_pods("web-1")
            nacos.put()
            await world.until_pods()

    async def test_with_the_admin_right_a_push_is_the_word_to_list(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos, admin=True)) as world:
            await subscribed(nacos, world)
            nacos.put(host(0), host(1, enabled=False))
            await world.until(lambda: not all(one.enabled for one in world.roster.instances))
        assert world.pod_names() == ["web-0", "web-1"]

    async def test_a_push_during_a_list_has_it_listed_again(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos, admin=True)) as world:
            await subscribed(nacos, world)
            await world.until_pods("web-0", "web-1")
            nacos.hold, asked = asyncio.Event(), len(nacos.asked)
            nacos.put(host(0))
            await nacos.until(lambda: len(nacos.asked) > asked)
            nacos.put(host(1))
            nacos.hold.set()
            await world.until_pods("web-1")

    async def test_a_list_that_was_asked_for_before_the_subscription_is_dropped(self, nacos: FakeNacos) -> None:
        nacos.hold = asyncio.Event()
        async with following(pushed(nacos)) as world:
            await subscribed(nacos, world)
            nacos.put(host(1))
            await world.until_pods("web-1")
            nacos.services["public", "DEFAULT_GROUP@@shop"] = [host(0)]  # an older state, in words of the list
            changes = len(world.changes.received)
            nacos.hold.set()
            beats = nacos.calls.count("HealthCheckRequest")
            await nacos.until(lambda: nacos.calls.count("HealthCheckRequest") > beats + 3)
        assert world.pod_names() == ["web-1"]
        assert len(world.changes.received) == changes

    async def test_a_list_that_nobody_needs_any_more_may_fail(self, nacos: FakeNacos) -> None:
        nacos.hold = asyncio.Event()
        async with following(pushed(nacos)) as world:
            await nacos.until(lambda: bool(nacos.asked))
            await subscribed(nacos, world)
            await world.until_pods("web-0", "web-1")
            nacos.status, asked, shop = 500, len(nacos.asked), ("public", "DEFAULT_GROUP@@shop")
            nacos.services[shop] = [host(1, weight="NaN")]
            nacos.push(*shop)  # it is listed, once the failed list has ended
            nacos.hold.set()
            await nacos.until(lambda: len(nacos.asked) > asked)
            assert not world.error

    async def test_a_service_whose_subscription_is_not_renewed_is_listed_at_once(
        self, nacos: FakeNacos, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nacos_source, "RESUBSCRIBE_SECONDS", 0.3)
        async with following(pushed(nacos)) as world:
            await subscribed(nacos, world)
            await world.until_pods("web-0", "web-1")
            nacos.push_disabled_for = {"shop"}
            nacos.services["public", "DEFAULT_GROUP@@shop"] = [host(1)]
            await world.until_pods("web-1")

    async def test_subscriptions_are_renewed_however_often_other_services_are_followed(
        self, nacos: FakeNacos, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A push may have been lost."""
        monkeypatch.setattr(nacos_source, "RESUBSCRIBE_SECONDS", 0.5)
        async with following(pushed(nacos)) as world:
            await subscribed(nacos, world)
            await world.until_pods("web-0", "web-1")
            nacos.services["public", "DEFAULT_GROUP@@shop"] = [host(1)]
            async with asyncio.timeout(30):
                while world.pod_names() != ["web-1"]:
                    world.source.refresh()
                    beats = nacos.calls.count("HealthCheckRequest")
                    await nacos.until(lambda beats=beats: nacos.calls.count("HealthCheckRequest") > beats)

    async def test_what_could_not_be_listed_is_not_confirmed_by_a_live_connection(self, nacos: FakeNacos) -> None:
        async with following(nacos.settings(admin=True)) as world:
            await subscribed(nacos, world)
            await world.until_pods("web-0", "web-1")
            nacos.status = 500
            nacos.put(host(1))
            await world.until_error("HTTP 500")
            at, beats = world.roster.at, nacos.calls.count("HealthCheckRequest")
            await nacos.until(lambda: nacos.calls.count("HealthCheckRequest") > beats + 3)
            assert world.error
            assert world.roster.at == at
            nacos.status = 0
            await world.until_pods("web-1")

    @pytest.mark.parametrize("admin", [True, False])
    async def test_a_list_that_a_server_gave_before_it_heard_of_the_change_is_not_the_last(
        self, nacos: FakeNacos, monkeypatch: pytest.MonkeyPatch, admin: bool
    ) -> None:
        """The servers behind one address tell each other of a change later than it is pushed. Without the right a list
        follows a push that cannot be read.
        """
        monkeypatch.setattr(nacos_source, "REPLICATED_SECONDS", 2.0)
        async with following(pushed(nacos, admin=admin)) as world:
            await subscribed(nacos, world)
            await world.until_pods("web-0", "web-1")
            before, asked = nacos.services["public", "DEFAULT_GROUP@@shop"], len(nacos.asked)
            nacos.services["public", "DEFAULT_GROUP@@shop"] = [host(1, weight="NaN")]
            nacos.push("public", "DEFAULT_GROUP@@shop")
            nacos.services["public", "DEFAULT_GROUP@@shop"] = before
            await nacos.until(lambda: len(nacos.asked) > asked)
            nacos.services["public", "DEFAULT_GROUP@@shop"] = [host(1)]
            await world.until_pods("web-1")

    async def test_a_push_that_cannot_be_read_ends_no_connection_and_is_the_word_to_list(
        self, nacos: FakeNacos
    ) -> None:
        async with following(pushed(nacos)) as world:
            nacos.put(host(2), service="cart")
            world.follow([SHOP, CART])
            await subscribed(nacos, world, "shop", "cart")
            nacos.services["public", "DEFAULT_GROUP@@shop"] = [host(1, weight="NaN")]
            nacos.push("public", "DEFAULT_GROUP@@shop")
            await world.until_error("not what Nacos answers")
            nacos.put(host(3), service="cart")
            await world.until(lambda: [one.metadata["pod"] for one in world.book.roster(CART).instances] == ["web-3"])  # type: ignore[union-attr]
            nacos.put(host(1))
            await world.until_pods("web-1")

    async def test_services_are_subscribed_to_and_left_as_policies_come_and_go(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos)) as world:
            await subscribed(nacos, world)
            world.follow([SHOP, CART])
            await subscribed(nacos, world, "shop", "cart")
            nacos.put(host(2), service="cart")
            await world.until(lambda: bool((r := world.book.roster(CART)) and r.instances))
            world.follow([CART])
            await subscribed(nacos, world, "cart")

    async def test_two_names_of_one_service_both_hear_of_it(self, nacos: FakeNacos) -> None:
        also = ServiceKey("nacos", "shop", "public", "DEFAULT_GROUP")
        async with following(pushed(nacos), SHOP, also) as world:
            await nacos.until(lambda: bool(nacos.subscriptions))
            nacos.put(host(1))
            await world.until_pods("web-1")
            await world.until(lambda: world.book.roster(also) is not None)
            assert [one.metadata["pod"] for one in world.book.roster(also).instances] == ["web-1"]  # type: ignore[union-attr]

    async def test_one_name_in_two_namespaces_is_never_taken_for_the_other(self, nacos: FakeNacos) -> None:
        other = ServiceKey("nacos", "shop", "prod")
        nacos.put(host(2), namespace="prod")
        async with following(pushed(nacos), SHOP, other) as world:
            await nacos.until(lambda: len(nacos.subscriptions) == 2)
            nacos.put(host(1))  # Nacos does not say of which namespace it speaks
            await world.until_pods("web-1")
            nacos.put(host(0), namespace="prod")
            await world.until(lambda: [i.ip for i in world.book.roster(other).instances] == ["10.0.0.10"])  # type: ignore[union-attr]
            assert world.pod_names() == ["web-1"]

    async def test_subscriptions_are_renewed_in_case_a_push_was_lost(
        self, nacos: FakeNacos, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nacos_source, "RESUBSCRIBE_SECONDS", 0.1)
        async with following(pushed(nacos)) as world:
            await subscribed(nacos, world)
            nacos.services["public", "DEFAULT_GROUP@@shop"] = [host(1)]  # and no push
            await world.until_pods("web-1")

    async def test_what_the_server_asks_is_acknowledged(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos)) as world:
            await subscribed(nacos, world)
            for number, kind in enumerate(("ClientDetectionRequest", "SomethingNewRequest")):
                async with asyncio.timeout(10):
                    await nacos.send(kind, str(number)).wait()
        assert "ClientDetectionResponse" in nacos.calls

    async def test_a_live_connection_confirms_what_it_told_and_a_dead_one_does_not(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos, timeout_seconds=0.3)) as world:
            await subscribed(nacos, world)
            world.clock.jump(100)
            await eventually(lambda: world.roster.at > world.clock() - 50)
            nacos.beats_answered, nacos.status = False, 500
            await world.until_error("HTTP 500")
            world.clock.jump(100)
            assert world.clock() - world.roster.at > 90
        assert world.pod_names() == ["web-0", "web-1"]

    async def test_at_rest_five_hundred_subscriptions_cost_one_beat(self, nacos: FakeNacos) -> None:
        keys = [SHOP._replace(service=f"s{number}") for number in range(500)]
        async with following(pushed(nacos), *keys) as world:
            await subscribed(nacos, world, *(key.service for key in keys))
            await eventually(lambda: len(nacos.asked) >= 500)
            nacos.calls.clear()
            nacos.asked.clear()
            await nacos.until(lambda: len(nacos.calls) >= 20)
        assert set(nacos.calls) == {"HealthCheckRequest"}
        assert nacos.asked == []


class TestLoss:
    @pytest.mark.parametrize(
        "lose",
        [FakeNacos.drop, FakeNacos.forget, FakeNacos.ask_to_reconnect, lambda nacos: nacos.send_raw(b"\xff\xff")],
        ids=["dropped", "forgotten", "asked to reconnect", "no message of Nacos"],
    )
    async def test_a_lost_connection_is_really_closed_and_made_anew(
        self, nacos: FakeNacos, lose: Callable[[FakeNacos], None]
    ) -> None:
        """Not when garbage happens to be collected: a server may end over connections that are silent."""
        gc.disable()
        try:
            async with following(pushed(nacos)) as world:
                await subscribed(nacos, world)
                for number in range(2, 5):
                    lose(nacos)
                    await nacos.until(lambda number=number: nacos.calls.count("ConnectionSetupRequest") >= number)
                    await subscribed(nacos, world)
                await eventually(lambda: established(nacos.grpc_port) == 1)
                nacos.put(host(1))
                await world.until_pods("web-1")
            await eventually(lambda: established(nacos.grpc_port) == 0)
        finally:
            gc.enable()

    async def test_a_server_may_take_its_time_to_know_a_connection(self, nacos: FakeNacos) -> None:
        nacos.hold_registration = asyncio.Event()
        async with following(pushed(nacos)) as world:
            await nacos.until(lambda: nacos.calls.count("HealthCheckRequest") >= 2)
            nacos.hold_registration.set()
            await subscribed(nacos, world)
        assert nacos.calls.count("ConnectionSetupRequest") == 1

    async def test_two_registries_at_one_server_have_a_connection_each(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos)) as one, following(pushed(nacos)) as other:
            await subscribed(nacos, one)
            await subscribed(nacos, other)
            assert nacos.connections == 2

    async def test_lists_take_over_while_nothing_is_pushed(self, nacos: FakeNacos) -> None:
        async with following(nacos.settings()) as world:
            await subscribed(nacos, world)
            await nacos.stop_grpc()
            nacos.put(host(1))
            await world.until_pods("web-1")
            nacos.put(host(0))
            await world.until_pods("web-0")
            await nacos.start_grpc()
            await subscribed(nacos, world)

    async def test_a_silent_server_is_left(self, nacos: FakeNacos) -> None:
        async with following(pushed(nacos, timeout_seconds=0.3)) as world:
            await subscribed(nacos, world)
            connections = nacos.calls.count("ConnectionSetupRequest")
            nacos.beats_answered = False
            await nacos.until(lambda: nacos.calls.count("ConnectionSetupRequest") > connections)
            nacos.beats_answered = True
            await subscribed(nacos, world)

    async def test_another_server_pushes_when_one_is_gone(self, nacos: FakeNacos) -> None:
        async with FakeNacos() as two:
            two.put(host(0), host(1))
            async with following(pushed(nacos, servers=(nacos.url, two.url), admin=True)) as world:
                await subscribed(nacos, world)
                await nacos.stop_grpc()
                await subscribed(two, world)
                two.put(host(1))
                await world.until_pods("web-1")  # the lists, too, come from there now
                await nacos.start_grpc()

    @pytest.mark.parametrize("lacks", ["a port", "the extra", "the right"])
    async def test_without_push_services_are_polled(
        self, nacos: FakeNacos, monkeypatch: pytest.MonkeyPatch, lacks: str
    ) -> None:
        if lacks == "a port":
            await nacos.stop_grpc()
        elif lacks == "the extra":
            monkeypatch.setitem(sys.modules, "adapter.registries.nacos.push", None)
        else:
            nacos.push_disabled_for = {"shop"}
        async with following(nacos.settings()) as world:
            await world.until_pods("web-0", "web-1")
            if lacks == "the right":
                await nacos.until(lambda: "SubscribeServiceRequest" in nacos.calls)
            nacos.put(host(1))
            await world.until_pods("web-1")
            assert world.source.pushed == frozenset()
        assert nacos.calls == [] or lacks == "the right"


async def test_a_subscription_that_is_never_answered_ends_no_connection(nacos: FakeNacos) -> None:
    nacos.mute = {"cart"}
    nacos.put(host(2), service="cart")
    loop = asyncio.get_running_loop()
    async with following(nacos.settings(timeout_seconds=3), SHOP, CART) as world:
        await world.until(lambda: world.source.pushed == {SHOP})
        await world.until_listed(1, CART)
        later = loop.time() + 4
        await nacos.until(lambda: loop.time() > later)  # the subscription is given up
        nacos.put(host(3), host(4), service="cart")
        await world.until_listed(2, CART)
        assert nacos.calls.count("ServerCheckRequest") == 1


class TestAccess:
    async def test_a_subscription_carries_the_token_and_a_refused_one_is_replaced(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        async with following(pushed(nacos, **user)) as world:
            await subscribed(nacos, world)
            world.clock.jump(31)
            nacos.tokens.clear()
            world.follow([SHOP, CART])
            await subscribed(nacos, world, "shop", "cart")
        assert len(nacos.logins) == 2

    async def test_a_login_that_is_refused_is_not_tried_for_each_service(
        self, nacos: FakeNacos, user: dict[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "password").write_text("wrong")
        services = [ServiceKey("nacos", f"service-{number}") for number in range(30)]
        async with following(pushed(nacos, **user), *services) as world:
            await world.until(lambda: all(map(world.error_of, services)))
            await nacos.until(lambda: len(nacos.logins) >= 2)
            assert len(nacos.logins) < len(services) / 2
            (tmp_path / "password").write_text("right")
            await world.until(lambda: not any(map(world.error_of, services)))

    async def test_services_are_listed_and_pushed_soon_after_logins_that_failed_at_the_start(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.busy = True
        services = [ServiceKey("nacos", f"service-{number}") for number in range(20)]
        async with following(pushed(nacos, **user), *services) as world:
            await nacos.until(lambda: len(nacos.logins) >= 2)
            nacos.busy = False
            async with asyncio.timeout(15):
                await world.until(lambda: all(world.listed_of(key) == 0 for key in services))
                await world.until(lambda: world.source.pushed == world.book.keys)

    @pytest.mark.parametrize(
        ("before", "after"), [([SHOP], [SHOP, CART]), ([SHOP, CART], [SHOP])], ids=["one more", "one fewer"]
    )
    async def test_a_login_that_is_refused_leaves_the_subscriptions_that_there_are(
        self, nacos: FakeNacos, user: dict[str, str], before: list[ServiceKey], after: list[ServiceKey]
    ) -> None:
        nacos.token_ttl = 100
        async with following(pushed(nacos, **user), *before) as world:
            await world.until_pods("web-0", "web-1")
            await world.until(lambda: world.source.pushed == world.book.keys)
            nacos.users, nacos.tokens, logins = {"other": "other"}, {}, len(nacos.logins)
            world.clock.jump(101)
            world.follow(after)
            await nacos.until(lambda: len(nacos.logins) > logins)
            beats = nacos.calls.count("HealthCheckRequest")
            await nacos.until(lambda: nacos.calls.count("HealthCheckRequest") > beats + 3)
            nacos.put(host(1))
            await world.until_pods("web-1")
            assert nacos.calls.count("ServerCheckRequest") == 1

    async def test_a_subscription_is_signed(self, nacos: FakeNacos, tmp_path: Path) -> None:
        nacos.signed = True
        (tmp_path / "ak").write_text("ak")
        (tmp_path / "sk").write_text("sk")
        keys = {"access_key_file": str(tmp_path / "ak"), "secret_key_file": str(tmp_path / "sk")}
        async with following(pushed(nacos, **keys)) as world:
            await subscribed(nacos, world)


async def test_unverified_tls_is_polled_for_grpc_always_verifies() -> None:
    certificate, context = trustme.CA().issue_cert("localhost"), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    pair = (certificate.private_key_pem.bytes(), b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    async with FakeNacos(tls=context, grpc_tls=grpc.ssl_server_credentials([pair])) as nacos:
        nacos.put(host(0))
        async with following(nacos.settings(tls=RegistryTls(insecure_skip_verify=True))) as world:
            await world.until_pods("web-0")
            nacos.put(host(1))
            await world.until_pods("web-1")
        assert nacos.calls == []


@pytest.mark.parametrize(
    ("server", "address", "secure"),
    [
        ("http://nacos:8848/nacos", "nacos:9848", False),
        ("https://nacos/nacos", "nacos:1443", True),
        ("http://[fd00::1]:8848", "[fd00::1]:9848", False),
    ],
)
def test_grpc_is_a_thousand_ports_above(server: str, address: str, secure: bool) -> None:
    assert grpc_address(server, 1000) == (address, secure)
