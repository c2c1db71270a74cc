"""Against a real Consul: every way to pull a pod out and put it back, and every way in which Consul is ill."""

import asyncio
import secrets
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from adapter.load.pods import PodState
from adapter.registries.consul import source as source_module
from adapter.registries.consul.wire import UNTIL_CHECKED
from lab.harness.registries.consul import Consul
from tests.load.kit import pod
from tests.registries.consul_kit import Followed, following, register_pods

pytestmark = [pytest.mark.integration, pytest.mark.builds("consul")]

TTL = {"TTL": "300s", "Status": "passing"}
SEES_ALL = 'service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }'
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


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Certificate, key and CA."""
    authority, folder = trustme.CA(), tmp_path_factory.mktemp("tls")
    leaf = authority.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    leaf.private_key_pem.write_to_path(str(folder / "key.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return folder / "cert.pem", folder / "key.pem", folder / "ca.pem"


@pytest.fixture
def service() -> str:
    return f"web-{secrets.token_hex(4)}"


@pytest.fixture(autouse=True)
def _quick_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "LIVENESS_SECONDS", 0.5)


def states(followed: Followed) -> list[PodState]:
    return [state for _, state in sorted(followed.pods.states().items())]


def check_of_its_own(consul: Consul) -> str:
    """A URL that answers a check with success while this Consul runs."""
    return f"{consul.url}/v1/status/leader"


def until_checked(followed: Followed, ip: str) -> bool:
    """Whether the registration at this address is in doubt until its checks have run."""
    return [one.doubtful_until for one in followed.roster.instances if one.ip == ip] == [UNTIL_CHECKED]


SERVING, OUT = PodState.SERVING, PodState.PULLED_OUT


class TestPullingOut:
    async def test_registered_pods_serve(self, consul: Consul, service: str) -> None:
        register_pods(consul, service)
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            assert states(followed) == [SERVING] * 4
            assert followed.roster.alive

    async def test_maintenance_of_the_service_takes_a_pod_out_until_it_ends(self, consul: Consul, service: str) -> None:
        register_pods(consul, service)
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            await asyncio.to_thread(consul.maintenance, f"{service}-1", on=True)
            await followed.until_out("web-1")
            await asyncio.to_thread(consul.maintenance, f"{service}-1", on=False)
            await followed.until(lambda: states(followed) == [SERVING] * 4)

    async def test_maintenance_of_the_node_takes_out_all_its_pods(
        self, consul: Consul, agent: Consul, service: str
    ) -> None:
        register_pods(consul, service, 3)
        agent.register(service, f"{service}-3", "10.0.0.13")
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            await asyncio.to_thread(agent.call, "PUT", "/v1/agent/maintenance?enable=true")
            await followed.until_out("web-3")
            await asyncio.to_thread(agent.call, "PUT", "/v1/agent/maintenance?enable=false")
            await followed.until(lambda: states(followed) == [SERVING] * 4)

    async def test_maintenance_of_the_node_with_every_pod_is_doubt(self, consul: Consul, service: str) -> None:
        register_pods(consul, service)
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            await asyncio.to_thread(consul.call, "PUT", "/v1/agent/maintenance?enable=true")
            try:
                await followed.until(lambda: {one.status for one in followed.roster.instances} == {"MAINTENANCE"})
                assert states(followed) == [PodState.DOUBTFUL] * 4
            finally:
                await asyncio.to_thread(consul.call, "PUT", "/v1/agent/maintenance?enable=false")
            await followed.until(lambda: states(followed) == [SERVING] * 4)

    async def test_a_critical_check_takes_a_pod_out(self, consul: Consul, service: str) -> None:
        register_pods(consul, service, Check=TTL)
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            await asyncio.to_thread(consul.check, f"service:{service}-2", "fail")
            await followed.until_out("web-2")
            await asyncio.to_thread(consul.check, f"service:{service}-2", "pass")
            await followed.until(lambda: states(followed) == [SERVING] * 4)

    async def test_a_check_that_is_not_reported_in_time_takes_a_pod_out(self, consul: Consul, service: str) -> None:
        register_pods(consul, service, 3)
        consul.register(service, f"{service}-3", "10.0.0.13", Check={"TTL": "1s", "Status": "passing"})
        async with following(consul, service) as followed:
            await followed.until_out("web-3")

    @pytest.mark.parametrize(("warning_is_out", "expected"), [(False, []), (True, ["web-0"])])
    async def test_a_warning_takes_a_pod_out_where_the_settings_say_so(
        self, consul: Consul, service: str, warning_is_out: bool, expected: list[str]
    ) -> None:
        register_pods(consul, service, Check=TTL, Weights={"Passing": 10})
        async with following(consul, service, warning_is_out=warning_is_out) as followed:
            await followed.until_listed(4)
            await asyncio.to_thread(consul.check, f"service:{service}-0", "warn")
            await followed.until(lambda: "WARNING" in {one.status for one in followed.roster.instances})
            assert followed.pods.out() == expected

    async def test_a_pod_that_deregisters_is_out_once_its_absence_is_confirmed(
        self, consul: Consul, service: str
    ) -> None:
        register_pods(consul, service)
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            followed.pods.states()
            await asyncio.to_thread(consul.deregister, f"{service}-3")
            await followed.until_listed(3)
            assert followed.pods.out() == []
            followed.clock.jump(100)  # past the hold that follows the first connection
            assert followed.aged(60) == {"web-3"}
            await asyncio.to_thread(register_pods, consul, service)
            await followed.until(lambda: states(followed) == [SERVING] * 4)

    async def test_the_last_pod_of_a_service_that_deregisters_leaves_doubt_for_two_minutes(
        self, consul: Consul, service: str
    ) -> None:
        register_pods(consul, service)
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            followed.pods.states()
            for number in range(4):
                await asyncio.to_thread(consul.deregister, f"{service}-{number}")
            await followed.until_listed(0)
            assert followed.roster.alive
            assert followed.aged(110) == set()

    async def test_a_failed_agent_takes_out_the_pods_of_its_node(self, consul: Consul, service: str) -> None:
        """Explicit evidence: Consul's own clients send these pods nothing either."""
        with Consul(joins=consul) as lost:
            register_pods(consul, service, 3)
            lost.register(service, f"{service}-3", "10.0.0.13")
            async with following(consul, service) as followed:
                await followed.until_listed(4)
                lost.kill()
                await followed.until(lambda: followed.pods.out() == ["web-3"], 60)
                assert {one.status for one in followed.roster.instances} == {"PASSING", "CRITICAL"}

    async def test_failed_agents_of_every_pod_turn_nobody_out(self, consul: Consul, service: str) -> None:
        with Consul(joins=consul) as lost:
            register_pods(lost, service)
            async with following(consul, service) as followed:
                await followed.until_listed(4)
                followed.pods.states()
                with followed.pods.nothing_changes():
                    lost.kill()
                    await followed.until(lambda: {one.status for one in followed.roster.instances} == {"CRITICAL"}, 60)

    async def test_what_stays_critical_for_too_long_is_deregistered(self, consul: Consul, service: str) -> None:
        """Consul's shortest is a minute, and it looks every 30 s."""
        check = {**TTL, "DeregisterCriticalServiceAfter": "1m"}
        register_pods(consul, service, 3)
        consul.register(service, f"{service}-3", "10.0.0.13", Check=check)
        consul.check(f"service:{service}-3", "fail")  # one that begins critical is never taken out
        async with following(consul, service) as followed:
            await followed.until_out("web-3")
            await followed.until(lambda: followed.listed == 3, 120)
            assert followed.pods.out() == []  # it is absence now, and that is not confirmed yet
            followed.clock.jump(100)
            assert followed.aged(60) == {"web-3"}


class TestWhatIsRegistered:
    async def test_an_instance_without_an_address_has_its_nodes(self, consul: Consul, service: str) -> None:
        consul.register(service, service, "")
        async with following(consul, service) as followed:
            await followed.until_listed(1)
            assert [(one.ip, one.port) for one in followed.roster.instances] == [("127.0.0.1", 8080)]

    async def test_the_address_of_the_other_family_counts_too(self, consul: Consul, service: str) -> None:
        tagged = {"lan_ipv6": {"Address": "fd00::10", "Port": 8081}, "wan": {"Address": "192.0.2.1", "Port": 80}}
        consul.register(service, service, "10.0.0.10", TaggedAddresses=tagged)
        async with following(consul, service) as followed:
            await followed.until_listed(2)
            assert [(one.ip, one.port) for one in followed.roster.instances] == [
                ("10.0.0.10", 8080),
                ("fd00::10", 8081),
            ]

    async def test_a_pods_name_in_the_metadata_counts_at_an_address_of_the_pod_alone(
        self, consul: Consul, service: str
    ) -> None:
        meta, critical = {"pod-name": "web-2", "k8s-namespace": "shop"}, {**TTL, "Status": "critical"}
        consul.register(service, service, "192.0.2.7", Meta=meta | {"pod-name": "web-1"}, Check=critical)
        consul.register(service, f"{service}-2", "10.0.0.12", Meta=meta, Check=critical)
        consul.register(service, f"{service}-0", "10.0.0.10")
        async with following(consul, service) as followed:
            await followed.until_listed(3)
            assert followed.pods.out() == ["web-2"]
            assert {one.metadata.get("k8s-namespace", "") for one in followed.roster.instances} == {"", "shop"}

    async def test_a_name_with_a_slash_and_a_blank_is_asked_for_as_it_is(self, consul: Consul, service: str) -> None:
        register_pods(consul, f"{service}/a b")
        async with following(consul, f"{service}/a b") as followed:
            await followed.until_listed(4)

    async def test_weights_are_passed_on(self, consul: Consul, service: str) -> None:
        consul.register(service, service, "10.0.0.10", Weights={"Passing": 7, "Warning": 3}, Check=TTL)
        async with following(consul, service) as followed:
            await followed.until_listed(1)
            assert followed.roster.instances[0].weight == 7
            await asyncio.to_thread(consul.check, f"service:{service}", "warn")
            await followed.until(lambda: followed.roster.instances[0].weight == 3)


class TestDelay:
    async def test_a_pull_out_is_heard_within_a_second(
        self, consul: Consul, service: str, record_property: Callable[[str, object], None]
    ) -> None:
        register_pods(consul, service)
        delays = []
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            for number in range(100):
                await asyncio.sleep(source_module.GAP_SECONDS * 1.1)  # one after the other, not a burst
                on = number % 2 == 0
                expected = ["web-1"] if on else []
                began = time.monotonic()
                await asyncio.to_thread(consul.maintenance, f"{service}-1", on=on)
                # An agent whose write to the catalog fails tries again within a minute, and until then Consul itself
                # lists the pod as passing: one such change in a hundred is not ours.
                await followed.until(lambda expected=expected: followed.pods.out() == expected, seconds=100)
                delays.append(followed.changes.received[-1][1] - began)
        middle, late = statistics.median(delays), statistics.quantiles(delays, n=100, method="inclusive")[98]
        record_property("delay_p50_seconds", middle)
        record_property("delay_p99_seconds", late)
        print(f"Consul, {len(delays)} changes: p50 {middle * 1e3:.1f} ms, p99 {late * 1e3:.1f} ms")
        assert late <= 1


class TestOutages:
    async def test_a_restart_pulls_no_pod_out_and_changes_are_heard_after_it(self, service: str) -> None:
        with Consul() as own:
            register_pods(own, service)
            async with following(own, service) as followed:
                await followed.until_listed(4)
                followed.pods.states()
                with followed.pods.nothing_changes():
                    own.kill()
                    await followed.until_error("Cannot connect to host")
                    assert followed.listed == 4
                    own.component.start()
                    await followed.until(lambda: not followed.error)
                assert followed.roster.reconnected_at is not None
                await asyncio.to_thread(own.maintenance, f"{service}-1", on=True)
                await followed.until_out("web-1")

    @pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
    async def test_checks_that_are_critical_since_a_restart_are_doubt(self, service: str, end: signal.Signals) -> None:
        """Consul calls a check critical from the agent's start until it ran for the first time."""
        check = {"HTTP": "http://127.0.0.1:1/", "Interval": "100h", "Status": "passing"}
        with Consul() as own:
            register_pods(own, service, 3, Check=check)
            own.register(service, f"{service}-3", "10.0.0.13")
            async with following(own, service) as followed:
                await followed.until_listed(4)
                assert states(followed) == [SERVING] * 4
                own.component.signal(end)
                await followed.until(lambda: followed.error)
                own.kill()
                own.component.start()
                await followed.until(lambda: [one.status for one in followed.roster.instances].count("CRITICAL") == 3)
                assert states(followed) == [PodState.DOUBTFUL] * 3 + [SERVING]
                assert followed.pods.desired == 4
                await asyncio.to_thread(own.maintenance, f"{service}-3", on=True)
                await followed.until_out("web-3")
                await asyncio.to_thread(own.maintenance, f"{service}-3", on=False)
                await followed.until_out()
                followed.clock.jump(91)
                assert states(followed) == [PodState.DOUBTFUL] * 3 + [SERVING], "they still have not run"

    async def test_a_check_that_has_not_run_since_a_restart_is_doubt_though_it_has_the_output_of_a_run_that_passed(
        self, consul: Consul, service: str
    ) -> None:
        """Where a service is registered again, the agent keeps its check's output, and begins with it the next time."""
        own = check_of_its_own(consul)
        register_pods(consul, service, 3)
        with Consul(joins=consul) as agent:
            agent.register(service, f"{service}-3", "10.0.0.13", Check={"HTTP": own, "Interval": "100ms"})
            async with following(consul, service) as followed:
                await followed.until_listed(4)
                await followed.until(lambda: states(followed) == [SERVING] * 4)
                again = {"HTTP": own, "Interval": "100h"}
                await asyncio.to_thread(agent.register, service, f"{service}-3", "10.0.0.13", Check=again)
                agent.kill()
                await asyncio.to_thread(agent.resume)
                await followed.until(lambda: "CRITICAL" in {one.status for one in followed.roster.instances})
                assert states(followed) == [SERVING] * 3 + [PodState.DOUBTFUL]

    @pytest.mark.parametrize(
        ("end", "check"),
        [
            (signal.SIGKILL, {"TTL": "300s"}),
            (signal.SIGKILL, {"HTTP": "http://127.0.0.1:1/", "Interval": "100h"}),
            (signal.SIGTERM, {"TTL": "300s"}),  # an HTTP check of an agent that left may come back as passing
        ],
    )
    async def test_a_node_that_is_just_back_is_doubt_until_its_checks_have_run(
        self, consul: Consul, service: str, end: signal.Signals, check: dict[str, str]
    ) -> None:
        """A client agent that is killed fails, and one that is terminated leaves. Its pods run all the time."""
        register_pods(consul, service, 3)
        with Consul(joins=consul) as agent:
            agent.register(service, f"{service}-3", "10.0.0.13", Check={**check, "Status": "passing"})
            async with following(consul, service) as followed:
                await followed.until_listed(4)
                assert states(followed) == [SERVING] * 4
                if end is signal.SIGKILL:
                    agent.kill()
                    await followed.until_out("web-3")
                else:
                    await asyncio.to_thread(agent.component.stop, 60)
                    await followed.until_listed(3)
                await asyncio.to_thread(agent.resume)
                await followed.until(lambda: until_checked(followed, "10.0.0.13"))
                followed.clock.jump(600)
                followed.book.confirm()
                assert states(followed) == [SERVING] * 3 + [PodState.DOUBTFUL]
                if "TTL" in check:
                    await asyncio.to_thread(agent.check, f"service:{service}-3", "pass")
                    await followed.until(lambda: states(followed) == [SERVING] * 4)
                    await asyncio.to_thread(agent.check, f"service:{service}-3", "fail")
                    await followed.until_out("web-3")

    async def test_an_agent_that_is_back_and_still_called_failed_is_doubt(
        self, consul: Consul, agent: Consul, service: str
    ) -> None:
        """As while no leader sees it. Written by hand, for here there is one leader, which sees every agent at once."""
        register_pods(consul, service, 3)
        agent.register(service, f"{service}-3", "10.0.0.13", Check=TTL)
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            node = agent.call("GET", "/v1/agent/self")["Config"]["NodeName"]
            serf = {"Node": node, "CheckID": "serfHealth", "Name": "Serf Health Status", "Status": "critical"}
            entry = {"Node": node, "Address": "127.0.0.1", "SkipNodeUpdate": True}
            await asyncio.to_thread(consul.call, "PUT", "/v1/catalog/register", {**entry, "Check": serf})
            await followed.until_out("web-3")
            await asyncio.to_thread(agent.check, f"service:{service}-3", "warn")
            await followed.until(lambda: states(followed) == [SERVING] * 3 + [PodState.DOUBTFUL])

    async def test_a_pod_at_the_address_of_one_that_ended_is_not_out_by_the_checks_of_that_one(
        self, consul: Consul, service: str
    ) -> None:
        register_pods(consul, service, Check=TTL)
        async with following(consul, service) as followed:
            await followed.until_listed(4)
            await asyncio.to_thread(consul.check, f"service:{service}-3", "fail")
            await followed.until_out("web-3")
            followed.clock.jump(60)
            followed.pods.pods[3] = pod("web-new", ip="10.0.0.13", age=1, ready_for=1, now=followed.clock())
            followed.book.confirm()
            assert states(followed) == [SERVING] * 3 + [PodState.STARTING]
            await asyncio.to_thread(consul.check, f"service:{service}-3", "pass")
            await followed.until(lambda: states(followed) == [SERVING] * 4)
            await asyncio.to_thread(consul.check, f"service:{service}-3", "fail")
            await followed.until_out("web-new")

    async def test_one_that_is_away_for_an_hour_pulls_no_pod_out_and_what_was_out_is_doubt(self, service: str) -> None:
        with Consul() as own:
            register_pods(own, service)
            own.maintenance(f"{service}-1", on=True)
            async with following(own, service) as followed:
                await followed.until_out("web-1")
                own.kill()
                await followed.until_error("Cannot connect to host")
                seen = []
                for _ in range(13):
                    followed.clock.jump(300)
                    seen.append(followed.pods.states()["web-1"])
                    assert set(followed.pods.out()) <= {"web-1"}
                assert seen[:5] == [OUT] * 5
                assert seen[-1] is PodState.DOUBTFUL

    async def test_one_that_lost_its_data_pulls_no_pod_out(self, service: str) -> None:
        with Consul() as own:
            register_pods(own, service, Check=TTL)
            for number in range(20):  # so that the index has a way to fall
                own.check(f"service:{service}-0", "warn" if number % 2 else "pass")
            async with following(own, service) as followed:
                await followed.until_listed(4)
                followed.pods.states()
                own.kill()
                await followed.until_error("Cannot connect to host")
                own.wipe()
                own.component.start()
                await followed.until_listed(0)
                assert followed.aged(600) == set()
                assert followed.roster.reconnected_at is not None
                await asyncio.to_thread(register_pods, own, service)
                await followed.until_listed(4)
                assert states(followed) == [SERVING] * 4

    async def test_a_frozen_server_is_an_error_and_goes_on_after_it(self, service: str) -> None:
        with Consul() as own:
            register_pods(own, service)
            async with following(own, service, timeout_seconds=1) as followed:
                await followed.until_listed(4)
                followed.pods.states()
                with followed.pods.nothing_changes():
                    own.component.signal(signal.SIGSTOP)
                    await followed.until_error("no answer within 1 s")
                    own.component.signal(signal.SIGCONT)
                    await followed.until(lambda: not followed.error)
                await asyncio.to_thread(own.maintenance, f"{service}-1", on=True)
                await followed.until_out("web-1")

    async def test_a_cluster_without_a_leader_is_an_error(self, service: str) -> None:
        with Consul() as first, Consul(joins=first, server=True) as second:
            register_pods(first, service)
            await asyncio.to_thread(first.wait_voters, 2)
            async with following(first, service) as followed:
                await followed.until_listed(4)
                followed.pods.states()
                with followed.pods.nothing_changes():
                    second.kill()
                    await followed.until_error("leader")
                    second.component.start()
                    await followed.until(lambda: not followed.error)

    async def test_the_next_server_is_asked_when_one_fails(self, consul: Consul, service: str) -> None:
        register_pods(consul, service)
        with Consul(joins=consul) as first:
            async with following([first.url, consul.url], service) as followed:
                await followed.until_listed(4)
                followed.pods.states()
                with followed.pods.nothing_changes():
                    first.kill()
                    await followed.until(lambda: followed.roster.reconnected_at is not None or followed.error)
                    await asyncio.to_thread(consul.maintenance, f"{service}-1", on=True)
                    await followed.until_out("web-1")
                    await asyncio.to_thread(consul.maintenance, f"{service}-1", on=False)
                    await followed.until_out()

    async def test_an_agent_that_streams_knows_no_leader_and_is_believed(
        self, consul: Consul, agent: Consul, service: str
    ) -> None:
        register_pods(consul, service)
        async with following(agent, service, wait_seconds=1) as followed:
            await followed.until_listed(4)
            for on, expected in ((True, ["web-1"]), (False, [])):
                await asyncio.to_thread(consul.maintenance, f"{service}-1", on=on)
                await followed.until_out(*expected)
            assert not followed.error

    async def test_the_servers_behind_an_agent_can_lose_their_data_and_nobody_turns_out(self, service: str) -> None:
        with Consul() as own, Consul(joins=own) as agent:
            register_pods(own, service)
            async with following(agent, service) as followed:
                await followed.until_listed(4)
                followed.pods.states()
                own.kill()
                await followed.until(lambda: followed.error)
                own.wipe()
                own.component.start()
                await followed.until_listed(0)
                assert followed.aged(600) == set()

    async def test_more_services_than_consul_allows_connections_is_an_error_of_those(self, service: str) -> None:
        with Consul(limits={"http_max_conns_per_client": 3}) as own:
            for number in range(4):
                register_pods(own, f"{service}-{number}", 1)
            async with following(own, f"{service}-0") as followed:
                keys = [followed.key._replace(service=f"{service}-{number}") for number in range(4)]
                followed.follow(keys)

                def errors() -> list[str]:
                    asked = [key for key in keys if followed.book.roster(key) is not None]
                    troubles = [followed.book.trouble(key) for key in asked]
                    return [one.sentence if one else "" for one in troubles] + ["nothing yet"] * (
                        len(keys) - len(asked)
                    )

                await followed.until(lambda: "nothing yet" not in errors())
                assert sum(not error for error in errors()) >= 2
                assert any("http_max_conns_per_client" in error for error in errors())


class TestWrongPlaces:
    async def test_a_namespace_is_what_the_free_edition_refuses(self, consul: Consul, service: str) -> None:
        async with following(consul, service, place={"namespace": "prod"}) as followed:
            await followed.until_error("Namespaces are a Consul Enterprise feature")

    async def test_an_unknown_datacenter_is_named(self, consul: Consul, service: str) -> None:
        async with following(consul, service, datacenter="nowhere") as followed:
            await followed.until_error("No path to datacenter")

    async def test_the_own_datacenter_can_be_named(self, consul: Consul, service: str) -> None:
        register_pods(consul, service)
        async with following(consul, service, datacenter="dc1") as followed:
            await followed.until_listed(4)

    async def test_a_service_that_nobody_registered_is_empty(self, consul: Consul, service: str) -> None:
        async with following(consul, service) as followed:
            await followed.until_listed(0)
            assert followed.pods.out() == []


class TestRights:
    async def test_a_token_that_may_read_services_and_nodes_sees_all(
        self, guarded: Consul, service: str, tmp_path: Path
    ) -> None:
        register_pods(guarded, service)
        async with following(guarded, service, token_file=written(tmp_path, guarded.token(SEES_ALL)[1])) as followed:
            await followed.until_listed(4)
            assert states(followed) == [SERVING] * 4

    async def test_a_wrong_token_is_an_error_and_the_right_one_is_read_when_it_comes(
        self, guarded: Consul, service: str, tmp_path: Path
    ) -> None:
        register_pods(guarded, service)
        file = written(tmp_path, "00000000-1111-2222-3333-444444444444")
        async with following(guarded, service, token_file=file) as followed:
            await followed.until_error("ACL not found; Consul does not know the token")
            assert followed.listed == -1
            written(tmp_path, guarded.token(SEES_ALL)[1])
            await followed.until_listed(4)

    async def test_a_token_that_is_revoked_keeps_the_last_list(
        self, guarded: Consul, service: str, tmp_path: Path
    ) -> None:
        register_pods(guarded, service)
        accessor, secret = guarded.token(SEES_ALL)
        async with following(guarded, service, token_file=written(tmp_path, secret)) as followed:
            await followed.until_listed(4)
            followed.pods.states()
            with followed.pods.nothing_changes():
                await asyncio.to_thread(guarded.call, "DELETE", f"/v1/acl/token/{accessor}")
                await followed.until_error("ACL not found")
                assert followed.listed == 4

    @pytest.mark.parametrize(
        "rules",
        ['service_prefix "" { policy = "read" }', 'node_prefix "" { policy = "read" }'],
        ids=["no nodes", "no services"],
    )
    async def test_a_token_with_too_few_rights_is_an_error(
        self, guarded: Consul, service: str, tmp_path: Path, rules: str
    ) -> None:
        register_pods(guarded, service)
        async with following(guarded, service, token_file=written(tmp_path, guarded.token(rules)[1])) as followed:
            await followed.until_error("may not see all")
            assert followed.listed == -1

    async def test_a_token_that_loses_a_right_pulls_no_pod_out(
        self, guarded: Consul, service: str, tmp_path: Path
    ) -> None:
        register_pods(guarded, service)
        accessor, secret = guarded.token(SEES_ALL)
        async with following(guarded, service, token_file=written(tmp_path, secret)) as followed:
            await followed.until_listed(4)
            followed.pods.states()
            with followed.pods.nothing_changes():
                await asyncio.to_thread(guarded.call, "PUT", f"/v1/acl/token/{accessor}", {"Policies": []})
                await asyncio.to_thread(guarded.register, service, f"{service}-9", "10.0.0.19")  # wakes the query
                await followed.until_error("may not see all")

    async def test_a_token_that_sees_only_this_service_is_enough_but_no_witness(
        self, guarded: Consul, service: str, tmp_path: Path
    ) -> None:
        register_pods(guarded, service)
        rules = f'service "{service}" {{ policy = "read" }} node_prefix "" {{ policy = "read" }}'
        async with following(guarded, service, token_file=written(tmp_path, guarded.token(rules)[1])) as followed:
            await followed.until_listed(4)
            followed.pods.states()
            assert not followed.roster.alive
            for number in range(4):
                await asyncio.to_thread(guarded.deregister, f"{service}-{number}")
            await followed.until_listed(0)
            followed.clock.jump(100)
            assert followed.aged(600) == set()

    async def test_an_empty_list_without_a_token_is_an_error_where_consul_denies_by_default(
        self, guarded: Consul, service: str
    ) -> None:
        register_pods(guarded, service)
        async with following(guarded, service) as followed:
            await followed.until_error("without a token")
            assert followed.listed == -1

    async def test_the_anonymous_token_that_loses_its_rights_pulls_no_pod_out(
        self, guarded: Consul, service: str
    ) -> None:
        register_pods(guarded, service)
        name = secrets.token_hex(8)
        policy = guarded.call("PUT", "/v1/acl/policy", {"Name": name, "Rules": SEES_ALL})
        guarded.call("PUT", f"/v1/acl/token/{ANONYMOUS}", {"Policies": [{"ID": policy["ID"]}]})
        async with following(guarded, service) as followed:
            await followed.until_listed(4)
            followed.pods.states()
            with followed.pods.nothing_changes():
                await asyncio.to_thread(guarded.call, "PUT", f"/v1/acl/token/{ANONYMOUS}", {"Policies": []})
                await asyncio.to_thread(guarded.register, service, f"{service}-9", "10.0.0.19")  # wakes the query
                await followed.until_error("without a token")
                assert followed.listed == 4


class TestTls:
    async def test_a_given_authority_is_trusted_and_no_other(
        self, files: tuple[Path, Path, Path], service: str
    ) -> None:
        with Consul(tls=files) as secure:
            register_pods(secure, service)
            async with following(secure, service, tls={"ca_file": str(files[2])}) as followed:
                await followed.until_listed(4)
                await asyncio.to_thread(secure.maintenance, f"{service}-1", on=True)
                await followed.until_out("web-1")
            async with following(secure, service) as followed:
                await followed.until_error("certificate verify failed")
            async with following(secure, service, tls={"insecure_skip_verify": True}) as followed:
                await followed.until_listed(4)

    async def test_a_client_certificate_is_shown_where_consul_asks_for_one(
        self, files: tuple[Path, Path, Path], service: str
    ) -> None:
        certificate, key, authority = map(str, files)
        with Consul(tls=files, mutual=True) as secure:
            register_pods(secure, service)
            tls = {"ca_file": authority, "cert_file": certificate, "key_file": key}
            async with following(secure, service, tls=tls) as followed:
                await followed.until_listed(4)
            async with following(secure, service, tls={"ca_file": authority}) as followed:
                await followed.until(lambda: followed.error)
                assert followed.listed == -1


def written(folder: Path, secret: str) -> str:
    (folder / "token").write_text(f"{secret}\n")
    return str(folder / "token")
