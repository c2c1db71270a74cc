"""Against Spring Cloud's Eureka: every way to pull a pod out and put it back, and every way in which Eureka is ill."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from adapter.load.pods import PodState
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


def has_status(followed: Followed, name: str, status: str) -> bool:
    return followed.statuses[name] == status


async def do(action: Callable[..., object], *arguments: object, **more: object) -> None:
    """Let a server's client do something meanwhile."""
    await asyncio.to_thread(action, *arguments, **more)


class TestPullingOut:
    async def test_override_outlives_heartbeats_and_new_registrations(self, eureka: EurekaServer, service: str) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            await do(eureka.set_status, service, f"{service}-1", "OUT_OF_SERVICE")
            await followed.until_out("web-1")
            await do(eureka.renew, service, f"{service}-1")
            for status in ("UP", "STARTING"):  # where it starts, the override waits for the end of that
                await do(eureka.register, service, f"{service}-1", "10.0.0.11", status=status, again=status)
                await followed.until(
                    lambda status=status: status in {one.metadata.get("again") for one in followed.listing.instances}
                )
                assert followed.pods.out() == ["web-1"]

    async def test_instance_that_reports_down_is_out_until_it_reports_up(
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
    async def test_starting_and_unknown_are_not_evidence(self, eureka: EurekaServer, service: str, status: str) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            await do(eureka.register, service, f"{service}-2", "10.0.0.12", status=status)
            await followed.until(lambda: followed.statuses[f"{service}-2"] == status)
            assert followed.pods.out() == []

    async def test_name_of_a_service_has_no_case(self, eureka: EurekaServer, service: str) -> None:
        register_pods(eureka, service.upper())
        async with following(eureka.url, service=service.title()) as followed:
            await followed.until_listed(4)

    async def test_metadata_key_names_the_pod(self, eureka: EurekaServer, service: str) -> None:
        register_pods(eureka, service, 3)
        eureka.register(service, "one", "10.0.0.13", podName="web-3")
        async with following(eureka.url, service=service, pod_name_key="podName") as followed:
            await followed.until_listed(4)
            await do(eureka.set_status, service, "one", "OUT_OF_SERVICE")
            await followed.until(partial(has_status, followed, "one", "OUT_OF_SERVICE"))
            assert followed.pods.out() == ["web-3"]


async def test_instances_that_self_preservation_keeps_count_by_their_status(service: str) -> None:
    with EurekaServer(cache_ms=0, self_preservation=True) as cautious:
        register_pods(cautious, service, 3, lease=60)
        cautious.register(service, f"{service}-3", "10.0.0.13", lease=1)
        async with following(cautious.url, service=service) as followed:
            await followed.until_listed(4)
            await do(cautious.set_status, service, f"{service}-0", "OUT_OF_SERVICE")
            await followed.until_out("web-0")
            assert followed.states()[1:] == [SERVING] * 3
