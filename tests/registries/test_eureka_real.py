"""Against Spring Cloud's Eureka: every way to pull a pod out and put it back, and every way in which Eureka is ill."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from adapter.registries.eureka.source import RegistryCopy

from adapter.load.pods import PodState
from adapter.registries.eureka import source as eureka_state
from adapter.registries.eureka import source as source_module
from lab.harness.registries.eureka import EurekaServer
from tests.registries.eureka_kit import Followed, following, register_pods

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]  # the first run builds the server

SERVING, DOUBTFUL = PodState.SERVING, PodState.DOUBTFUL


@pytest.fixture(scope="module")
def eureka() -> Iterator[EurekaServer]:
    """A Eureka that shows changes at once; each test has a service of its own in it."""
    with EurekaServer(cache_ms=0) as server:
        yield server


@pytest.fixture
def service() -> str:
    return f"web-{secrets.token_hex(4)}"


@pytest.fixture
def full_fetches(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a source loaded the full registry."""
    at: list[float] = []
    load = RegistryCopy.load

    async def noted(self: RegistryCopy, *arguments: Any) -> None:
        at.append(time.monotonic())
        await load(self, *arguments)

    monkeypatch.setattr(RegistryCopy, "load", noted)
    return at


def has_status(followed: Followed, name: str, status: str) -> bool:
    return followed.statuses[name] == status


async def do(action: Callable[..., object], *arguments: object, **more: object) -> None:
    """Let a server's client do something meanwhile."""
    await asyncio.to_thread(action, *arguments, **more)


class TestPullingOut:
    async def test_an_override_outlives_heartbeats_and_new_registrations(
        self, eureka: EurekaServer, service: str
    ) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            await do(eureka.set_status, service, f"{service}-1", "OUT_OF_SERVICE")
            await followed.until_out("web-1")
            await do(eureka.renew, service, f"{service}-1")
            for status in ("UP", "STARTING"):  # where it starts, the override waits for the end of that
                await do(eureka.register, service, f"{service}-1", "10.0.0.11", status=status, again=status)
                await followed.until(
                    lambda status=status: status in {one.metadata.get("again") for one in followed.roster.instances}
                )
                assert followed.pods.out() == ["web-1"]

    async def test_a_leftover_at_the_same_address_does_not_hide_the_word_of_the_new_registration(
        self, eureka: EurekaServer, service: str
    ) -> None:
        register_pods(eureka, service)
        eureka.register(service, f"{service}-1-again", "10.0.0.11")
        async with following(eureka.url, service=service) as followed:
            await followed.until(lambda: followed.listed in {4, 5})
            await do(eureka.set_status, service, f"{service}-1-again", "OUT_OF_SERVICE")
            await followed.until_out("web-1")
            await do(eureka.clear_status, service, f"{service}-1-again")
            await followed.until_out()
            await do(eureka.set_status, service, f"{service}-1", "OUT_OF_SERVICE")
            await followed.until_confirmed()
            await followed.until_confirmed()
            assert followed.pods.out() == []

    async def test_an_instance_that_reports_itself_down_is_out_until_it_reports_itself_up(
        self, eureka: EurekaServer, service: str
    ) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            await do(eureka.register, service, f"{service}-2", "10.0.0.12", status="DOWN")
            await followed.until_out("web-2")
            await do(eureka.register, service, f"{service}-2", "10.0.0.12")
            await followed.until_out()

    @pytest.mark.parametrize("status", ["STARTING", "UNKNOWN"])
    async def test_these_statuses_are_no_evidence(self, eureka: EurekaServer, service: str, status: str) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            await do(eureka.register, service, f"{service}-2", "10.0.0.12", status=status)
            await followed.until(lambda: followed.statuses[f"{service}-2"] == status)
            assert followed.pods.out() == []

    async def test_a_pod_whose_lease_ends_is_out_once_its_absence_is_confirmed(
        self, eureka: EurekaServer, service: str
    ) -> None:
        register_pods(eureka, service, 3)
        eureka.register(service, f"{service}-3", "10.0.0.13", lease=1)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            assert followed.states() == [SERVING] * 4
            await followed.until_listed(3)
            assert followed.states() == [SERVING] * 3 + [DOUBTFUL]
            assert await followed.aged_by_answers(40) == set()
            assert await followed.aged_by_answers(20) == {"web-3"}
            await do(eureka.register, service, f"{service}-3", "10.0.0.13")
            await followed.until_out()

    async def test_the_name_of_a_service_has_no_case(self, eureka: EurekaServer, service: str) -> None:
        register_pods(eureka, service.upper())
        async with following(eureka.url, service=service.title()) as followed:
            await followed.until_listed(4)

    async def test_a_metadata_key_names_the_pod(self, eureka: EurekaServer, service: str) -> None:
        register_pods(eureka, service, 3)
        eureka.register(service, "one", "10.0.0.13", podName="web-3")
        async with following(eureka.url, service=service, pod_name_key="podName") as followed:
            await followed.until_listed(4)
            await do(eureka.set_status, service, "one", "OUT_OF_SERVICE")
            await followed.until(partial(has_status, followed, "one", "OUT_OF_SERVICE"))
            assert followed.pods.out() == ["web-3"]

    async def test_many_changes_need_no_second_full_fetch(
        self, eureka: EurekaServer, service: str, full_fetches: list[float]
    ) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            for status in ("OUT_OF_SERVICE", "UP") * 3:
                await do(eureka.set_status, service, f"{service}-1", status)
                await followed.until(partial(has_status, followed, f"{service}-1", status))
            await do(eureka.deregister, service, f"{service}-2")
            await followed.until_listed(3)
            await do(eureka.register, service, f"{service}-2", "10.0.0.12")
            await followed.until_listed(4)
            await followed.until_confirmed()  # a delta confirms only where the hash code matches
            await followed.until_confirmed()
            assert len(full_fetches) == 1


async def test_self_preservation_is_recognised_and_pulls_no_pod_out(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eureka_state, "EVICTION_SECONDS", 0.0)
    monkeypatch.setattr(source_module, "RELIST_SECONDS", 0.5)
    with EurekaServer(cache_ms=0, self_preservation=True) as cautious:
        register_pods(cautious, service, 3, lease=60)
        cautious.register(service, f"{service}-3", "10.0.0.13", lease=1)
        async with following(cautious.url, service=service) as followed:
            await followed.until_listed(4)
            assert followed.states() == [SERVING] * 4
            while not followed.roster.protected:  # the last pod died; the others go on
                await do(cautious.renew, service, f"{service}-1")
                await followed.until_confirmed()
            assert followed.states() == [SERVING] * 4
            await do(cautious.set_status, service, f"{service}-0", "OUT_OF_SERVICE")
            await followed.until_out("web-0")  # what somebody says is evidence all the same


async def test_a_peer_that_is_still_empty_pulls_no_pod_out(service: str) -> None:
    # Two that know nothing of each other: what a peer is that has just started, and stays so while it is looked at.
    with EurekaServer(cache_ms=0) as one, EurekaServer(cache_ms=0) as other:
        async with following(one.url, other.url, service=service) as followed:
            register_pods(one, service)
            await followed.until_listed(4)
            assert followed.states() == [SERVING] * 4
            with followed.pods.nothing_changes():
                await do(one.kill)
                await followed.until_listed(0)
                assert await followed.aged_by_answers(600) == set()
