"""Against a real Consul: every way to pull a pod out and put it back, and every way in which Consul is ill."""

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.load.pods import PodState
from lab.harness.registries.consul import Consul
from tests.registries.consul_kit import following, register_pods
from tests.registries.worlds import SEES_ALL, Files

pytestmark = [pytest.mark.integration, pytest.mark.builds("consul")]

TTL = {"TTL": "300s", "Status": "passing"}
ANONYMOUS = "00000000-0000-0000-0000-000000000002"


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
def agent(consul: Consul) -> Iterator[Consul]:
    """An agent of another node, as there is one on each node of a Kubernetes cluster."""
    with Consul(joins=consul) as joined:
        yield joined
        joined.call("PUT", "/v1/agent/leave")


@pytest.fixture
def service() -> str:
    return f"web-{secrets.token_hex(4)}"


SERVING = PodState.SERVING


class TestPullingOut:
    async def test_maintenance_of_a_node_pulls_its_pods_out(self, consul: Consul, agent: Consul, service: str) -> None:
        register_pods(consul, service, 3)
        agent.register(service, f"{service}-3", "10.0.0.13")
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            await asyncio.to_thread(agent.call, "PUT", "/v1/agent/maintenance?enable=true")
            await followed.until_out("web-3")
            await asyncio.to_thread(agent.call, "PUT", "/v1/agent/maintenance?enable=false")
            await followed.until(lambda: followed.states() == [SERVING] * 4)

    async def test_critical_check_and_expired_ttl_pull_a_pod_out(self, consul: Consul, service: str) -> None:
        register_pods(consul, service, 3, Check=TTL)
        consul.register(service, f"{service}-3", "10.0.0.13", Check={"TTL": "1s", "Status": "passing"})
        async with following(consul, service) as followed:
            await followed.until_out("web-3")
            await asyncio.to_thread(consul.check, f"service:{service}-2", "fail")
            await followed.until_out("web-2", "web-3")
            await asyncio.to_thread(consul.check, f"service:{service}-2", "pass")
            await followed.until_out("web-3")

    @pytest.mark.parametrize(("warning_is_out", "expected"), [(False, []), (True, ["web-0"])])
    async def test_warning_pulls_a_pod_out_if_the_settings_say_so(
        self, consul: Consul, service: str, warning_is_out: bool, expected: list[str]
    ) -> None:
        register_pods(consul, service, Check=TTL, Weights={"Passing": 10})
        async with following(consul, service, warning_is_out=warning_is_out) as followed:
            await followed.until_listed(4)
            await asyncio.to_thread(consul.check, f"service:{service}-0", "warn")
            await followed.until(lambda: "WARNING" in {one.status for one in followed.listing.instances})
            assert followed.pods.out() == expected

    async def test_failed_agent_pulls_out_the_pods_of_its_node(self, consul: Consul, service: str) -> None:
        """Explicit evidence: Consul's own clients send these pods nothing either."""
        with Consul(joins=consul) as lost:
            register_pods(consul, service, 3)
            lost.register(service, f"{service}-3", "10.0.0.13")
            async with following(consul, service) as followed:
                await followed.until_listed(4)
                lost.kill()
                await followed.until(lambda: followed.pods.out() == ["web-3"], 60)
                assert {one.status for one in followed.listing.instances} == {"PASSING", "CRITICAL"}

    async def test_failed_agents_of_every_pod_are_doubt(self, consul: Consul, service: str) -> None:
        with Consul(joins=consul) as lost:
            register_pods(lost, service)
            async with following(consul, service) as followed:
                await followed.until_listed(4)
                followed.pods.states()
                with followed.pods.nothing_changes():
                    lost.kill()
                    await followed.until(lambda: {one.status for one in followed.listing.instances} == {"CRITICAL"}, 60)


async def test_addresses_weights_and_metadata_are_those_registered(consul: Consul, service: str) -> None:
    name = f"{service}/a b"
    tagged = {"lan_ipv6": {"Address": "fd00::10", "Port": 8081}, "wan": {"Address": "192.0.2.1", "Port": 80}}
    meta, critical = {"pod-name": "web-2", "k8s-namespace": "shop"}, {**TTL, "Status": "critical"}
    consul.register(name, f"{service}-node", "")  # has its node's address
    consul.register(name, f"{service}-0", "10.0.0.10", TaggedAddresses=tagged)
    consul.register(name, f"{service}-1", "192.0.2.7", Meta=meta | {"pod-name": "web-1"}, Check=critical)
    consul.register(name, f"{service}-2", "10.0.0.12", Meta=meta, Check=critical)
    consul.register(name, f"{service}-3", "10.0.0.13", Weights={"Passing": 7, "Warning": 3}, Check=TTL)
    async with following(consul, name) as followed:
        await followed.until_listed(6)
        by_ip = {one.ip: one for one in followed.listing.instances}
        assert by_ip["127.0.0.1"].port == by_ip["10.0.0.10"].port == 8080
        assert by_ip["fd00::10"].port == 8081
        assert by_ip["10.0.0.12"].metadata["k8s-namespace"] == "shop"
        assert followed.pods.out() == ["web-2"], "a pod's name counts at an address of the pod alone"
        assert by_ip["10.0.0.13"].weight == 7
        await asyncio.to_thread(consul.check, f"service:{service}-3", "warn")
        await followed.until(lambda: 3 in {one.weight for one in followed.listing.instances})


class TestOutages:
    async def test_cluster_without_a_leader_is_an_error(self, service: str) -> None:
        with Consul() as first, Consul(joins=first, server=True) as second:
            register_pods(first, service)
            await asyncio.to_thread(first.wait_voters, 2)
            async with following(first, service, timeout_seconds=10) as followed:  # Consul waits 7 s for a leader
                await followed.until_listed(4)
                followed.pods.states()
                with followed.pods.nothing_changes():
                    second.kill()
                    await followed.until_error("leader")
                    second.component.start()
                    await followed.until(lambda: not followed.error)

    async def test_agent_that_streams_is_valid(self, consul: Consul, agent: Consul, service: str) -> None:
        register_pods(consul, service)
        async with following(agent, service, wait_seconds=1) as followed:
            await followed.until_listed(4)
            for on, expected in ((True, ["web-1"]), (False, [])):
                await asyncio.to_thread(consul.maintenance, f"{service}-1", on=on)
                await followed.until_out(*expected)
            assert not followed.error

    async def test_service_beyond_the_connection_limit_is_an_error(self, service: str) -> None:
        """Three queries wait for 15 s and more. The fourth is refused meanwhile, each time it is tried again."""
        with Consul(limits={"http_max_conns_per_client": 3}) as own:
            services = [f"{service}-{number}" for number in range(4)]
            for each in services:
                register_pods(own, each, 1)
            async with following(own, services[0], wait_seconds=20) as followed:
                keys = [followed.key._replace(service=each) for each in services]
                followed.follow(keys)

                def one_is_refused() -> bool:
                    errors = list(filter(None, map(followed.error_of, keys)))
                    listed = [key for key in keys if followed.listed_of(key) == 1 and not followed.error_of(key)]
                    return len(listed) == 3 and len(errors) == 1 and "http_max_conns_per_client" in errors[0]

                await followed.until(one_is_refused)


class TestWrongPlaces:
    async def test_unknown_datacenter_is_named(self, consul: Consul, service: str) -> None:
        async with following(consul, service, datacenter="nowhere") as followed:
            await followed.until_error("No path to datacenter")


class TestRights:
    async def test_token_for_this_service_alone_is_enough(self, guarded: Consul, service: str, tmp_path: Path) -> None:
        register_pods(guarded, service)
        rules = f'service "{service}" {{ policy = "read" }} node_prefix "" {{ policy = "read" }}'
        async with following(guarded, service, token_file=written(tmp_path, guarded.token(rules)[1])) as followed:
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
        async with following(guarded, service) as followed:
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


async def test_client_certificate_is_sent(tmp_path: Path, service: str) -> None:
    files = Files.of(tmp_path)
    with Consul(tls=(files.certificate, files.key, files.authority), mutual=True) as secure:
        register_pods(secure, service)
        authority, mine = {"ca_file": str(files.authority)}, {"cert_file": str(files.both)}
        async with following(secure, service, tls=authority | mine) as followed:
            await followed.until_listed(4)
        async with following(secure, service, tls=authority) as followed:
            await followed.until(lambda: followed.error)
            assert followed.listed == -1


def written(folder: Path, secret: str) -> str:
    (folder / "token").write_text(f"{secret}\n")
    return str(folder / "token")
