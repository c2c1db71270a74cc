"""A real ZooKeeper with sessions that end, rules and connections that break: nothing of it pulls a pod out."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest
from kazoo.security import make_digest_acl  # type: ignore[import-untyped]

from adapter.registries.zookeeper import readers as readers_module
from adapter.registries.zookeeper import source as source_module
from lab.harness.registries.zookeeper import ZooKeeper
from tests.registries.kit import Forwarder
from tests.registries.zookeeper_kit import INTERFACE, RULES, SPRING, Followed, Processes, following

pytestmark = pytest.mark.integration


class Crowd:
    """A server, and sessions of pods that may outlive it or not."""

    def __init__(self, server: ZooKeeper, stack: ExitStack) -> None:
        self.server, self._stack = server, stack

    async def pods(self, layout: str, *, session: float = 20, service: str = "", address: str = "") -> Processes:
        """Processes with a session of their own, that lasts so many seconds without a server."""
        opened = self.server.session(session, address=address)
        client = await asyncio.to_thread(self._stack.enter_context, opened)
        return Processes(client, layout, service)


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeper())
        yield Crowd(server, stack)
        await asyncio.to_thread(server.resume)  # or those who take leave of it wait


@pytest.fixture(autouse=True)
def _quick_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PING_SECONDS", 0.2)


async def registered(crowd: Crowd, followed: Followed, pods: Processes) -> None:
    await pods.register()
    await followed.until_listed(4)
    assert followed.serving() == 4


async def test_a_frozen_server_and_sessions_that_ended_meanwhile_pull_no_pod_out(crowd: Crowd) -> None:
    brief = {"timeout_seconds": 1, "session_seconds": 2}
    async with Forwarder(crowd.server.address) as way:
        pods = await crowd.pods(INTERFACE, session=3, address=way.address)
        async with following(crowd.server, INTERFACE, pods.service, **brief) as followed:
            await registered(crowd, followed, pods)
            with followed.pods.nothing_changes():
                with crowd.server.frozen():
                    await way.close()  # the pods do not find back to their session
                    await followed.until(lambda: followed.error)
                    await asyncio.sleep(4)  # what is tested is that this much time passes
                await followed.until_listed(0)
                assert followed.aged(80) == set()


async def test_the_rules_of_before_count_again_after_a_restart(crowd: Crowd) -> None:
    pods = await crowd.pods(INTERFACE)
    await pods.rule(
        f"{RULES}/{pods.service}::.configurators",
        f"key: {pods.service}\nenabled: true\nconfigs:\n- side: provider\n"
        "  addresses: ['10.0.0.11:8080']\n  parameters: {disabled: true}\n".encode(),
    )
    async with following(crowd.server, INTERFACE, pods.service) as followed:
        await pods.register()
        await followed.until_out("web-1")
        with followed.pods.nothing_changes():
            at = followed.clock()
            await asyncio.to_thread(crowd.server.restart)
            await followed.until(lambda: followed.roster.at > at and not followed.error)


async def test_rules_that_may_not_be_read_are_no_missing_rules(crowd: Crowd) -> None:
    pods = await crowd.pods(INTERFACE)
    await asyncio.to_thread(pods.client.ensure_path, "/dubbo/config")
    acl = [make_digest_acl("admin", "x", all=True)]
    await asyncio.to_thread(pods.client.create, "/dubbo/config/dubbo", b"", acl)
    await pods.register()
    async with following(crowd.server, INTERFACE, pods.service) as followed:
        await followed.until_error(f"read {readers_module.DUBBO_RULES}")
        assert followed.listed == -1


async def test_without_the_newest_rules_the_last_answer_grows_old(crowd: Crowd) -> None:
    """A change of the registrations is no news of them: a new rule may pull out the pod that is there."""
    pods = await crowd.pods(INTERFACE)
    await pods.rule(f"{RULES}/other::.configurators", b"key: other")
    await pods.register()
    async with following(crowd.server, INTERFACE, pods.service) as followed:
        await followed.until_listed(4)
        acl = [make_digest_acl("admin", "x", all=True)]
        await asyncio.to_thread(pods.client.create, f"{RULES}/{pods.service}::.configurators", b"", acl)
        await followed.until_error("does not let")
        await pods.deregister(3)
        await followed.until_failed_again()
        assert followed.listed == 4


async def test_a_server_that_takes_a_connection_and_never_answers_is_left(crowd: Crowd) -> None:
    pods = await crowd.pods(SPRING)
    await pods.register()
    async with (
        Forwarder(crowd.server.address, silent=1) as server,
        following(server.address, SPRING, pods.service, session_seconds=60) as followed,
    ):
        await followed.until_listed(4)


async def test_what_is_no_zookeeper_is_an_error(unused_tcp_port: int) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", unused_tcp_port)
    async with server, following(f"127.0.0.1:{unused_tcp_port}", SPRING, "order") as followed:
        await followed.until_error("no connection to ZooKeeper at 127.0.0.1")


async def test_nothing_that_runs_is_left_behind(crowd: Crowd) -> None:
    before = set(threading.enumerate())
    async with following(crowd.server, SPRING, "order") as followed:
        await followed.until(lambda: followed.error)
        begun = set(threading.enumerate()) - before
        assert begun
        crowd.server.component.signal(signal.SIGSTOP)  # frozen, it does not agree to the session's end
    assert not [thread for thread in begun if thread.is_alive()]
    crowd.server.component.signal(signal.SIGCONT)
