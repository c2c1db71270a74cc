"""What Nacos answers when something is wrong with it, none of which may turn a pod out."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from adapter.load.pods import PodState
from adapter.registries.nacos import source as nacos_source
from tests.registries.kit import Pods
from tests.registries.nacos_kit import (
    SHOP,
    FakeNacos,
    Followed,
    Password,
    eventually,
    following,
    host,
    polling,
    subscribed,
)

PODS = 4


@pytest.fixture(autouse=True)
def _beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nacos_source, "HEALTH_CHECK_SECONDS", 0.05)


@pytest.fixture
async def nacos() -> AsyncIterator[FakeNacos]:
    async with FakeNacos() as fake:
        fake.put(*(host(number) for number in range(PODS)))
        yield fake


def service(world: Followed) -> Pods:
    """The pods of `shop`, all of which serve just now."""
    found = Pods(world.book, SHOP, world.clock, pods=PODS)
    assert set(found.states().values()) == {PodState.SERVING}
    return found


ALL = tuple(f"web-{number}" for number in range(PODS))


class TestEvidence:
    """The other side: what is a pull-out does turn its pod out, at once where it is explicit."""

    @pytest.mark.parametrize("change", [{"enabled": False}, {"weight": 0}, {"healthy": False}])
    @pytest.mark.parametrize("push", [False, True])
    async def test_explicit_evidence_turns_its_pod_out_at_once(
        self, nacos: FakeNacos, change: dict[str, object], push: bool
    ) -> None:
        async with following(nacos.settings(admin=True, push=push)) as world:
            await world.until_pods(*ALL)
            shop = service(world)
            before = world.roster
            nacos.put(host(0, **change), *(host(n) for n in range(1, PODS)))
            await world.until(lambda: world.roster.instances != before.instances)
            assert shop.out() == ["web-0"]
            nacos.put(*(host(number) for number in range(PODS)))
            await world.until(lambda: world.roster.instances == before.instances)
            assert shop.out() == []

    async def test_to_clients_a_disabled_pod_is_absent_and_counts_as_out_45_s_later(self, nacos: FakeNacos) -> None:
        async with following(polling(nacos)) as world:
            await world.until_pods(*ALL)
            shop = service(world)
            nacos.put(host(0, enabled=False), *(host(n) for n in range(1, PODS)))
            await world.until_pods(*ALL[1:])
            assert shop.states()["web-0"] is PodState.DOUBTFUL
            for _ in range(6):
                world.clock.jump(9)
                at = world.roster.at
                await eventually(lambda at=at: world.roster.at > at + 5)  # type: ignore[misc]
                shop.states()
            assert shop.out() == ["web-0"]


class TestTraps:
    async def test_an_empty_list_after_a_restart_that_polling_noticed(self, nacos: FakeNacos) -> None:
        async with following(polling(nacos)) as world:
            await world.until_pods(*ALL)
            shop = service(world)
            with shop.nothing_changes():
                await nacos.stop()
                await world.until_error("Cannot connect")
                nacos.services.clear()
                await nacos.start()
                await world.until_pods()
                assert world.doubted()

    async def test_an_empty_list_after_a_restart_that_polling_did_not_notice(self, nacos: FakeNacos) -> None:
        async with following(polling(nacos)) as world:
            await world.until_pods(*ALL)
            shop = service(world)
            with shop.nothing_changes():
                nacos.services.clear()
                await world.until_pods()
                assert not world.doubted()

    async def test_an_empty_list_after_a_restart_of_a_server_that_pushes(self, nacos: FakeNacos) -> None:
        async with following(nacos.settings()) as world:
            await subscribed(nacos, world)
            shop = service(world)
            with shop.nothing_changes():
                await nacos.stop()
                nacos.services.clear()
                await nacos.start()
                await world.until_pods()
                assert world.doubted()

    async def test_an_empty_push_while_another_node_restarts(self, nacos: FakeNacos) -> None:
        async with following(nacos.settings()) as world:
            await subscribed(nacos, world)
            shop = service(world)
            with shop.nothing_changes():
                nacos.put()
                await world.until_pods()
            nacos.put(*(host(number) for number in range(PODS)))
            await world.until_pods(*ALL)
            with shop.nothing_changes():
                pass

    @pytest.mark.parametrize("admin", [False, True])
    async def test_a_wrong_namespace(self, nacos: FakeNacos, admin: bool) -> None:
        async with following(nacos.settings(namespace="nowhere", admin=admin)) as world:
            await world.until_pods()
            shop = Pods(world.book, SHOP, world.clock, pods=PODS)
            for _ in range(30):
                world.clock.jump(10)
                assert PodState.PULLED_OUT not in shop.states().values()
            assert shop.desired == PODS

    async def test_the_last_instance_is_deregistered(self, nacos: FakeNacos) -> None:
        async with following(polling(nacos, admin=True)) as world:
            await world.until_pods(*ALL)
            shop = service(world)
            with shop.nothing_changes():
                nacos.services.clear()  # Nacos removes an empty service, and answers 404 from then on
                await world.until_pods()

    async def test_a_server_that_does_not_answer_any_more(self, nacos: FakeNacos) -> None:
        async with following(nacos.settings(timeout_seconds=0.3)) as world:
            await subscribed(nacos, world)
            shop = service(world)
            nacos.put(host(0, weight=0), *(host(n) for n in range(1, PODS)))
            await world.until(lambda: world.roster.instances[0].weight == 0)
            assert shop.out() == ["web-0"]
            nacos.beats_answered, nacos.hold = False, asyncio.Event()
            await world.until_error("no answer within 0.3 s")
            with shop.nothing_changes():  # nor in again: explicit evidence outlives the silence
                assert world.roster.valid
            world.clock.jump(1800)
            assert shop.out() == []  # until it is half an hour old
            nacos.hold.set()

    async def test_a_server_that_is_gone(self, nacos: FakeNacos) -> None:
        async with following(nacos.settings()) as world:
            await subscribed(nacos, world)
            shop = service(world)
            with shop.nothing_changes():
                await nacos.stop()
                await world.until_error("Cannot connect")
        await nacos.start()

    @pytest.mark.parametrize("admin", [False, True])
    async def test_a_token_that_is_refused(self, nacos: FakeNacos, password: Password, admin: bool) -> None:
        nacos.users, nacos.readers = {"reader": "right"}, {"reader"}
        settings = polling(nacos, username="reader", password_file=password.file, admin=admin)
        async with following(settings) as world:
            await world.until_pods(*ALL)
            shop = service(world)
            with shop.nothing_changes():
                nacos.users["reader"] = "changed"
                nacos.tokens.clear()
                world.clock.jump(31)
                await world.until_error("look at `username` and `passwordFile`")

    async def test_protection_says_healthy_of_all_and_then_stops(self, nacos: FakeNacos) -> None:
        async with following(polling(nacos)) as world:
            await world.until_pods(*ALL)
            shop = service(world)
            with shop.nothing_changes():
                nacos.threshold = 0.5
                nacos.put(*(host(n, healthy=n == 0) for n in range(PODS)))
                await world.until(lambda: world.roster.protected)

    async def test_half_of_a_list_is_lost(self, nacos: FakeNacos) -> None:
        """Its total falls by more than 30 %: absence is doubted for 90 s, and the list is back before."""
        async with following(polling(nacos)) as world:
            await world.until_pods(*ALL)
            shop = service(world)
            nacos.put(host(0))
            await world.until_pods("web-0")
            for _ in range(8):
                world.clock.jump(10)
                at = world.roster.at
                await eventually(lambda at=at: world.roster.at > at + 5)  # type: ignore[misc]
                assert shop.out() == []
            nacos.put(*(host(number) for number in range(PODS)))
            await world.until_pods(*ALL)
            assert set(shop.states().values()) == {PodState.SERVING}


async def test_at_rest_five_hundred_subscriptions_cost_one_beat(nacos: FakeNacos) -> None:
    keys = [SHOP._replace(service=f"s{number}") for number in range(500)]
    async with following(nacos.settings(interval_seconds=3600), *keys) as world:
        await subscribed(nacos, world, *(key.service for key in keys))
        await eventually(lambda: len(nacos.asked) >= 500)
        nacos.calls.clear()
        nacos.asked.clear()
        await nacos.until(lambda: len(nacos.calls) >= 20)
    assert set(nacos.calls) == {"HealthCheckRequest"}
    assert nacos.asked == []
