"""Against a real Consul: every way to pull a pod out and put it back, and every way in which Consul is ill."""

import asyncio
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lab.harness.registries.consul import Consul
from tests.registries.kit import follow
from tests.registries.worlds import SEES_ALL

pytestmark = [pytest.mark.integration, pytest.mark.builds("consul")]

ANONYMOUS = "00000000-0000-0000-0000-000000000002"


following = partial(follow, "Consul")


def register_pods(consul: Consul, service: str, count: int = 4) -> None:
    """Register the pods of a followed service with a Consul."""
    for number in range(count):
        consul.register(service, f"{service}-{number}", f"10.0.0.{10 + number}")


@pytest.fixture(scope="module")
def consul() -> Iterator[Consul]:
    """A Consul for this module; each test has a service of its own in it."""
    with Consul() as server:
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[Consul]:
    """A Consul that denies by default."""
    with Consul(deny=True) as server:
        yield server


@pytest.fixture
def service() -> str:
    return f"web-{secrets.token_hex(4)}"


class TestPullingOut:
    async def test_failed_agent_pulls_out_the_pods_of_its_node_unless_they_are_all(
        self, consul: Consul, service: str
    ) -> None:
        """Explicit evidence: Consul's own clients send these pods nothing either."""
        with Consul(joins=consul) as lost:
            register_pods(consul, service, 3)
            lost.register(service, f"{service}-3", "10.0.0.13")
            register_pods(lost, f"{service}-all")
            async with following(consul.url, service) as followed, following(consul.url, f"{service}-all") as doubted:
                await followed.until_listed(4)
                await doubted.until_listed(4)
                doubted.pods.states()
                with doubted.pods.nothing_changes():
                    lost.kill()
                    await followed.until_out("web-3")
                    await doubted.until(lambda: {one.status for one in doubted.listing.instances} == {"CRITICAL"})


class TestOutages:
    async def test_cluster_without_a_leader_is_an_error(self, service: str) -> None:
        with Consul() as first, Consul(joins=first, server=True) as second:
            register_pods(first, service)
            await asyncio.to_thread(first.wait_voters, 2)
            async with following(first.url, service, timeout_seconds=10) as followed:  # Consul waits 7 s for a leader
                await followed.until_listed(4)
                followed.pods.states()
                with followed.pods.nothing_changes():
                    second.kill()
                    await followed.until_error("leader")
                    second.component.start()
                    await followed.until(lambda: not followed.error)

    async def test_agent_that_streams_is_valid(self, consul: Consul, service: str) -> None:
        register_pods(consul, service)
        with Consul(joins=consul) as agent:
            async with following(agent.url, service, wait_seconds=1) as followed:
                await followed.until_listed(4)
                for on, expected in ((True, ["web-1"]), (False, [])):
                    await asyncio.to_thread(consul.maintenance, f"{service}-1", on=on)
                    await followed.until_out(*expected)
                await followed.until(lambda: not followed.error)
            agent.call("PUT", "/v1/agent/leave")


class TestRights:
    async def test_token_for_this_service_alone_is_enough(self, guarded: Consul, service: str, tmp_path: Path) -> None:
        register_pods(guarded, service)
        rules = f'service "{service}" {{ policy = "read" }} node_prefix "" {{ policy = "read" }}'
        async with following(guarded.url, service, token_file=written(tmp_path, guarded.token(rules)[1])) as followed:
            await followed.until_listed(4)
            followed.pods.states()
            for number in range(4):
                await asyncio.to_thread(guarded.deregister, f"{service}-{number}")
            await followed.until_listed(0)
            followed.clock.jump(100)
            assert followed.aged(600) == set()

    async def test_empty_list_without_a_token_is_an_error_under_default_deny(
        self, guarded: Consul, service: str
    ) -> None:
        register_pods(guarded, service)
        policy = guarded.call("PUT", "/v1/acl/policy", {"Name": secrets.token_hex(8), "Rules": SEES_ALL})
        async with following(guarded.url, service) as followed:
            await followed.until_error("without a token")
            assert followed.listed == -1
            rights = {"Policies": [{"ID": policy["ID"]}]}
            await asyncio.to_thread(guarded.call, "PUT", f"/v1/acl/token/{ANONYMOUS}", rights)
            await followed.until_listed(4)
            followed.pods.states()
            with followed.pods.nothing_changes():
                await asyncio.to_thread(guarded.call, "PUT", f"/v1/acl/token/{ANONYMOUS}", {"Policies": []})
                await asyncio.to_thread(guarded.register, service, f"{service}-9", "10.0.0.19")  # wakes the query
                await followed.until_error("without a token")
                assert followed.listed == 4


def written(folder: Path, secret: str) -> str:
    (folder / "token").write_text(f"{secret}\n")
    return str(folder / "token")
