"""Against Spring Cloud's Eureka: every way to pull a pod out and put it back, and every way in which Eureka is ill."""

import asyncio
import contextlib
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adapter.load.pods import PodState
from adapter.registries.eureka import source as eureka_state
from adapter.registries.eureka import source as source_module
from adapter.registries.eureka.source import RegistryCopy
from adapter.runtime.outbound import Client
from lab.harness.pki import Authority
from lab.harness.registries import eureka as servers
from lab.harness.registries.eureka import EurekaServer
from lab.harness.registries.polaris import Polaris
from tests.registries.eureka_kit import Followed, following, register_pods

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]  # the first run builds the server

SERVING, OUT, DOUBTFUL = PodState.SERVING, PodState.PULLED_OUT, PodState.DOUBTFUL


@pytest.fixture(scope="module")
def eureka() -> Iterator[EurekaServer]:
    """A Eureka that shows changes at once; each test has a service of its own in it."""
    with EurekaServer(cache_ms=0) as server:
        yield server


@pytest.fixture(scope="module")
def mortal() -> Iterator[EurekaServer]:
    """A Eureka that may be killed. Every test leaves it running; what it knew is gone then."""
    with EurekaServer(cache_ms=0) as server:
        yield server


@contextlib.contextmanager
def peers() -> Iterator[tuple[EurekaServer, EurekaServer]]:
    """Two that replicate to each other; one that starts takes over all that the other knows."""
    pair = servers.peers()
    for server in pair:
        server.begin()
    try:
        for server in pair:
            server.wait()
        yield pair
    finally:
        for server in pair:
            server.stop()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"), "eureka-ca")


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[EurekaServer]:
    """A Eureka with TLS and a password."""
    pair = authority.issue("eureka", hosts=["127.0.0.1"])
    tls = (pair.cert_file, pair.key_file)
    with EurekaServer(cache_ms=0, guarded=True, tls=tls, authority=authority.file) as server:
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


def states(followed: Followed) -> list[PodState]:
    return [state for _, state in sorted(followed.pods.states().items())]


def has_status(followed: Followed, name: str, status: str) -> bool:
    return followed.statuses[name] == status


async def do(action: Callable[..., object], *arguments: object, **more: object) -> None:
    """Let a server's client do something meanwhile."""
    await asyncio.to_thread(action, *arguments, **more)


async def revive(server: EurekaServer) -> None:
    """Start it again, by the main thread: a process of the harness dies with the thread that started it."""
    server.component.start()
    await do(server.wait)


class TestPullingOut:
    async def test_registered_pods_serve(self, eureka: EurekaServer, service: str) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            assert states(followed) == [SERVING] * 4
            first = followed.roster.instances[0]
            assert (first.ip, first.port, first.status) == ("10.0.0.10", 8080, "UP")
            assert first.registered_at == pytest.approx(time.time(), abs=60)

    @pytest.mark.parametrize("status", ["OUT_OF_SERVICE", "DOWN"])
    async def test_an_override_takes_a_pod_out_until_it_is_taken_away(
        self, eureka: EurekaServer, service: str, status: str
    ) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            await do(eureka.set_status, service, f"{service}-1", status)
            await followed.until_out("web-1")
            await do(eureka.clear_status, service, f"{service}-1")
            await followed.until(lambda: states(followed) == [SERVING] * 4)

    async def test_an_override_outlives_heartbeats_and_a_new_registration(
        self, eureka: EurekaServer, service: str
    ) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            await do(eureka.set_status, service, f"{service}-1", "OUT_OF_SERVICE")
            await followed.until_out("web-1")
            await do(eureka.renew, service, f"{service}-1")
            await do(eureka.register, service, f"{service}-1", "10.0.0.11", again="yes")
            await followed.until(lambda: any("again" in one.metadata for one in followed.roster.instances))
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

    async def test_an_override_that_waits_for_the_end_of_the_start_counts(
        self, eureka: EurekaServer, service: str
    ) -> None:
        register_pods(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            await do(eureka.set_status, service, f"{service}-1", "OUT_OF_SERVICE")
            await followed.until_out("web-1")
            await do(eureka.register, service, f"{service}-1", "10.0.0.11", status="STARTING", again="yes")
            await followed.until(lambda: any("again" in one.metadata for one in followed.roster.instances))
            assert followed.pods.out() == ["web-1"]

    @pytest.mark.parametrize("leaves", ["in good order", "by an ended lease"])
    async def test_a_pod_that_leaves_the_list_is_out_once_its_absence_is_confirmed(
        self, eureka: EurekaServer, service: str, leaves: str
    ) -> None:
        register_pods(eureka, service, 3)
        eureka.register(service, f"{service}-3", "10.0.0.13", lease=1 if leaves == "by an ended lease" else 90)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            assert states(followed) == [SERVING] * 4
            if leaves == "in good order":
                await do(eureka.deregister, service, f"{service}-3")
            await followed.until_listed(3)
            assert states(followed) == [SERVING] * 3 + [DOUBTFUL]
            assert await followed.aged_by_answers(40) == set()
            assert await followed.aged_by_answers(20) == {"web-3"}
            await do(eureka.register, service, f"{service}-3", "10.0.0.13")
            await followed.until_out()

    async def test_the_name_of_a_service_has_no_case(self, eureka: EurekaServer, service: str) -> None:
        register_pods(eureka, service.upper())
        async with following(eureka.url, service=service.title()) as followed:
            await followed.until_listed(4)

    async def test_a_metadata_key_names_the_pod(self, eureka: EurekaServer, service: str) -> None:
        eureka.register(service, "one", "192.0.2.1", podName="web-3")
        async with following(eureka.url, service=service, pod_name_key="podName") as followed:
            await followed.until_listed(1)
            await do(eureka.set_status, service, "one", "OUT_OF_SERVICE")
            await followed.until(lambda: followed.statuses == {"one": "OUT_OF_SERVICE"})
            assert followed.roster.instances[0].pod_name == "web-3"
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


class TestIllness:
    async def test_a_server_that_is_empty_after_its_restart_pulls_no_pod_out(
        self, mortal: EurekaServer, service: str
    ) -> None:
        register_pods(mortal, service)
        async with following(mortal.url, service=service) as followed:
            await followed.until_listed(4)
            before = states(followed)
            with followed.pods.nothing_changes():
                await do(mortal.kill)
                await followed.until_error("Cannot connect")
                await revive(mortal)
                await followed.until_listed(0)
                assert await followed.aged_by_answers(600) == set()
                assert not followed.roster.alive
            await do(register_pods, mortal, service)
            await followed.until_listed(4)
            assert states(followed) == before

    async def test_a_service_that_comes_back_later_than_others_pulls_no_pod_out(
        self, mortal: EurekaServer, service: str
    ) -> None:
        register_pods(mortal, service)
        register_pods(mortal, f"other-{service}")
        async with following(mortal.url, service=service) as followed:
            await followed.until_listed(4)
            assert states(followed) == [SERVING] * 4
            await do(mortal.kill)
            await followed.until_error("Cannot connect")
            await revive(mortal)
            await do(register_pods, mortal, f"other-{service}")
            await followed.until_listed(0)
            assert await followed.aged_by_answers(80) == set()
            assert followed.reconnected()
            await do(register_pods, mortal, service)
            await followed.until_listed(4)
            assert states(followed) == [SERVING] * 4

    async def test_a_service_that_is_gone_for_long_while_others_are_not_is_out_within_the_guards(
        self, eureka: EurekaServer, service: str
    ) -> None:
        register_pods(eureka, service)
        register_pods(eureka, f"other-{service}")
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            assert states(followed) == [SERVING] * 4
            for number in range(4):
                await do(eureka.deregister, service, f"{service}-{number}")
            await followed.until_listed(0)
            assert followed.roster.alive
            assert await followed.aged_by_answers(80) == set()
            assert len(await followed.aged_by_answers(200)) == 2  # at most half of the pods, however long they are gone

    async def test_a_server_that_is_gone_for_longer_than_stale_changes_nothing(
        self, mortal: EurekaServer, service: str
    ) -> None:
        register_pods(mortal, service)
        mortal.set_status(service, f"{service}-0", "OUT_OF_SERVICE")
        async with following(mortal.url, service=service) as followed:
            await followed.until_listed(4)
            assert followed.pods.out() == ["web-0"]
            with followed.pods.nothing_changes():  # for ten minutes
                await do(mortal.kill)
                await followed.until_error("Cannot connect")
            assert len(followed.roster.instances) == 4
            await revive(mortal)

    async def test_self_preservation_is_recognised_and_pulls_no_pod_out(
        self, service: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(eureka_state, "EVICTION_SECONDS", 0.0)
        monkeypatch.setattr(source_module, "RELIST_SECONDS", 0.5)
        with EurekaServer(cache_ms=0, self_preservation=True) as cautious:
            register_pods(cautious, service, 3, lease=60)
            cautious.register(service, f"{service}-3", "10.0.0.13", lease=1)
            async with following(cautious.url, service=service) as followed:
                await followed.until_listed(4)
                assert states(followed) == [SERVING] * 4
                while not followed.roster.protected:  # the last pod died; the others go on
                    await do(cautious.renew, service, f"{service}-1")
                    await followed.until_confirmed()
                assert states(followed) == [SERVING] * 4
                await do(cautious.set_status, service, f"{service}-0", "OUT_OF_SERVICE")
                await followed.until_out("web-0")  # what somebody says is evidence all the same

    async def test_a_service_that_nobody_knows_is_empty_and_pulls_no_pod_out(
        self, eureka: EurekaServer, service: str
    ) -> None:
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(0)
            assert await followed.aged_by_answers(300) == set()


class TestPeers:
    async def test_failover_to_another_peer_is_sticky(self, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        answer = Client.answer

        def noted(self: Client, method: str, url: str, **more: Any) -> Any:
            asked.append(url.partition("/apps")[0])
            return answer(self, method, url, **more)

        monkeypatch.setattr(Client, "answer", noted)
        with peers() as (one, other):
            register_pods(one, service)
            other.wait_listed(service, {f"{service}-{number}": "UP" for number in range(4)})
            async with following(one.url, other.url, service=service) as followed:
                await followed.until_listed(4)
                assert states(followed) == [SERVING] * 4
                assert not followed.reconnected()
                await do(one.kill)
                await followed.until(followed.reconnected)
                assert (followed.error, followed.listed) == ("", 4)
                await do(other.set_status, service, f"{service}-3", "OUT_OF_SERVICE")
                await followed.until_out("web-3")
                await revive(one)
                await followed.until_confirmed()
                assert asked[-1] == other.url
                # The peer that was away learns from the other at its start.
                expected = {f"{service}-{number}": "UP" for number in range(3)} | {f"{service}-3": "OUT_OF_SERVICE"}
                await do(one.wait_listed, service, expected)
                await do(other.kill)
                await followed.until(lambda: asked[-1] == one.url and not followed.error)
                assert followed.pods.out() == ["web-3"]

    async def test_a_peer_that_is_still_empty_pulls_no_pod_out(self, service: str) -> None:
        # Two that know nothing of each other: what a peer is that has just started, and stays so while it is looked at.
        with EurekaServer(cache_ms=0) as one, EurekaServer(cache_ms=0) as other:
            async with following(one.url, other.url, service=service) as followed:
                register_pods(one, service)
                await followed.until_listed(4)
                assert states(followed) == [SERVING] * 4
                with followed.pods.nothing_changes():
                    await do(one.kill)
                    await followed.until_listed(0)
                    assert await followed.aged_by_answers(600) == set()


class TestAccess:
    async def test_a_password_that_turns_wrong_keeps_the_list_until_it_is_mended(
        self, guarded: EurekaServer, authority: Authority, service: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "password"
        file.write_text(servers.PASSWORD + "\n")
        register_pods(guarded, service)
        access = {"username": servers.USER, "password_file": str(file), "tls": {"caFile": str(authority.file)}}
        async with following(guarded.url, service=service, **access) as followed:
            await followed.until_listed(4)
            assert states(followed) == [SERVING] * 4
            with followed.pods.nothing_changes():
                file.write_text("guessed")
                await followed.until_error("wrong user or password; check username and passwordFile")
                assert len(followed.roster.instances) == 4
            file.write_text(servers.PASSWORD)
            await followed.until_listed(4)

    async def test_without_a_password_nothing_is_known(
        self, guarded: EurekaServer, authority: Authority, service: str
    ) -> None:
        tls = {"caFile": str(authority.file)}
        async with following(guarded.url, service=service, tls=tls) as followed:
            await followed.until_error(f"{guarded.url}: HTTP 401")
            assert not followed.roster.valid
            assert followed.pods.out() == []

    async def test_a_certificate_of_somebody_else_is_not_believed(self, guarded: EurekaServer, service: str) -> None:
        async with following(guarded.url, service=service) as followed:
            await followed.until_error("certificate verify failed")
            assert not followed.roster.valid


class TestPolaris:
    async def test_its_facade_is_followed(self, polaris: Polaris, service: str, full_fetches: list[float]) -> None:
        for number in range(4):
            one = {"service": service, "namespace": "default", "host": f"10.0.0.{10 + number}", "port": 8080}
            polaris.call("POST", "/naming/v1/instances", [one])
        isolate = {"service": service, "namespace": "default", "host": "10.0.0.12"}
        async with following(polaris.eureka, service=service) as followed:
            await followed.until_listed(4)
            assert states(followed) == [SERVING] * 4
            await do(polaris.call, "PUT", "/naming/v1/instances/isolate/host", [{**isolate, "isolate": True}])
            await followed.until_out("web-2")
            await do(polaris.call, "PUT", "/naming/v1/instances/isolate/host", [{**isolate, "isolate": False}])
            await followed.until_out()
            await do(polaris.call, "POST", "/naming/v1/instances/delete/host", [isolate])
            await followed.until_listed(3)
            assert states(followed)[2] is DOUBTFUL
            assert len(full_fetches) == 1  # its deltas are like Eureka's


@pytest.mark.parametrize(("cache_ms", "changes"), [(0, 20), (1000, 20)])
async def test_a_change_is_told_within_the_interval_and_a_second(
    service: str, cache_ms: int, changes: int, record_property: Callable[[str, object], None]
) -> None:
    """From the call to the server until the source tells of it, polled each second."""
    delays: list[float] = []
    with EurekaServer(cache_ms=cache_ms) as server:
        register_pods(server, service)
        async with following(server.url, service=service, interval_seconds=1) as followed:
            await followed.until_listed(4)
            for number in range(changes):
                status = "UP" if number % 2 else "OUT_OF_SERVICE"
                followed.changes.received.clear()
                began = time.monotonic()
                await do(server.set_status, service, f"{service}-1", status)
                await followed.changes.until(lambda: bool(followed.changes.received))
                delays.append(followed.changes.received[0][1] - began)
                await asyncio.sleep(secrets.randbelow(100) / 100)  # the next change comes at any moment of the cycle
    delays.sort()
    p50, p99 = statistics.median(delays), delays[round(0.99 * (len(delays) - 1))]
    record_property("p50_seconds", round(p50, 3))
    record_property("p99_seconds", round(p99, 3))
    print(f"cache {cache_ms} ms, interval 1 s, {changes} changes: p50 {p50:.3f} s, p99 {p99:.3f} s")
    # The slowest are those of a busy machine.
    assert delays[round(0.9 * (len(delays) - 1))] <= 1 + 1 + cache_ms / 1000
