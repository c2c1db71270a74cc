"""Against a real ZooKeeper: every way to pull a pod out and put it back, in each layout, and who may read."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme
from kazoo.security import make_digest_acl  # type: ignore[import-untyped]

from adapter.registries.follow import probe
from lab.chaos.proxies import TcpProxy
from lab.harness.registries.zookeeper import ZooKeeper
from tests.registries.zookeeper_kit import APPLICATION, INTERFACE, PORT, RULES, SPRING, Processes, following
from tests.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    """A ZooKeeper for this module; each test has a service of its own in it."""
    with ZooKeeper() as server:
        yield server


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ZooKeeper, Path]]:
    """One with TLS for the name localhost, and the folder of its files."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    with ZooKeeper(tls=(folder / "both.pem", folder / "ca.pem")) as server:
        yield server, folder


@pytest.fixture(scope="module")
def client(zookeeper: ZooKeeper) -> Iterator[Any]:
    """The session by which pods register."""
    with zookeeper.session() as session:
        session.ensure_path("/dubbo")
        session.ensure_path("/services")
        yield session


def address(number: int) -> str:
    return f"10.0.0.{10 + number}:{PORT}"


def rule(key: str, scope: str, parameters: str, addresses: str = address(1)) -> bytes:
    return (
        f"configVersion: v2.7\nscope: {scope}\nkey: {key}\nenabled: true\n"
        f"configs:\n- side: provider\n  addresses: ['{addresses}']\n  parameters: {{{parameters}}}\n"
    ).encode()


class TestPullingOut:
    @pytest.mark.parametrize("what", ["disabled", "weight"])
    @pytest.mark.parametrize("layout", [INTERFACE, APPLICATION])
    async def test_a_rule_takes_an_instance_out_until_its_removal(
        self, zookeeper: ZooKeeper, client: Any, layout: str, what: str
    ) -> None:
        pods, value = Processes(client, layout), {"disabled": "true", "weight": "0"}[what]
        application = f"app-{pods.service}" if layout == INTERFACE else pods.service
        await pods.register(**({"application": application} if layout == INTERFACE else {}))
        url = f"override://{address(3)}/{pods.service}?category=configurators&dynamic=false&{what}={value}"
        async with following(zookeeper, layout, pods.service) as followed:
            await followed.until_listed(4)
            node, old = f"{RULES}/{application}.configurators", pods.override(url)
            for number in (1, 2):
                await pods.rule(node, rule(application, "application", f"{what}: {value}", address(number)))
                await followed.until_out(f"web-{number}")
            if layout == INTERFACE:
                await pods.rule(old)
                await followed.until_out("web-2", "web-3")
                await pods.remove(old)
            await pods.remove(node)
            await followed.until(followed.everyone_serves)

    async def test_a_services_rule_beats_its_applications_which_beats_an_override(
        self, zookeeper: ZooKeeper, client: Any
    ) -> None:
        pods = Processes(client, INTERFACE)
        application = f"app-{pods.service}"
        await pods.register(application=application)
        url = f"override://{address(1)}/{pods.service}?category=configurators&dynamic=false&disabled=true"
        await pods.rule(pods.override(url))
        await pods.rule(f"{RULES}/{application}.configurators", rule(application, "application", "disabled: false"))
        async with following(zookeeper, INTERFACE, pods.service) as followed:
            await followed.until_listed(4)
            assert followed.everyone_serves()
            await pods.rule(f"{RULES}/{pods.service}.configurators", rule(pods.service, "service", "disabled: true"))
            await followed.until_out("web-1")

    async def test_rules_that_may_not_be_read_are_an_error(self, zookeeper: ZooKeeper, client: Any) -> None:
        pods = Processes(client, INTERFACE)
        await pods.register()
        node, acl = f"{RULES}/{pods.service}.configurators", [make_digest_acl("admin", "x", all=True)]
        await asyncio.to_thread(client.ensure_path, RULES)
        await asyncio.to_thread(client.create, node, b"", acl)
        async with following(zookeeper, INTERFACE, pods.service) as followed:
            await followed.until_error(f"read {node}")
            assert followed.listed == -1


class TestWhichInstances:
    async def test_group_and_version_choose_among_the_providers_of_an_interface(
        self, zookeeper: ZooKeeper, client: Any
    ) -> None:
        pods = Processes(client, INTERFACE)
        await pods.register(0, group="blue", version="1")
        await pods.register(1, group="blue", version="2")
        await pods.register(2, group="green", version="1")
        async with following(zookeeper, INTERFACE, pods.service) as followed:
            keys = [
                followed.key._replace(group="blue"),
                followed.key._replace(service=f"{pods.service}:1"),
                followed.key._replace(service=f"{pods.service}:2", group="green"),
            ]
            followed.follow([followed.key, *keys])
            for key, count in zip((followed.key, *keys), (3, 2, 2, 0), strict=True):
                await followed.until_listed(count, key)

    async def test_a_chroot_that_does_not_exist_is_no_empty_list(self, zookeeper: ZooKeeper) -> None:
        async with following(zookeeper, INTERFACE, "com.shop.Order", chroot="/nowhere") as followed:
            await followed.until_error("ZooKeeper has no node /dubbo; check chroot and root")
            assert followed.listed == -1

    async def test_providers_that_cannot_be_read_are_named(self, zookeeper: ZooKeeper, client: Any) -> None:
        """The condition of the policy and `check` say so, and not that the service does not exist."""
        pods = Processes(client, INTERFACE)
        await asyncio.to_thread(client.create, f"{pods.folder}/{quote('no url', safe='')}", b"", makepath=True)
        await asyncio.to_thread(client.create, f"{pods.folder}/{quote('dubbo://a:b/c', safe='')}")
        async with following(zookeeper, INTERFACE, pods.service) as followed:
            await followed.until_error("2 registrations cannot be read")
            assert followed.listing.error == "2 registrations cannot be read"
            [probed] = await probe(followed.settings, [followed.key])
            assert "2 registrations cannot be read" in str(probed.instances[followed.key].error)


@pytest.mark.parametrize(
    ("host", "tls", "words"),
    [
        ("localhost", {"ca_file": "ca.pem"}, "no connection to ZooKeeper at localhost:"),  # without a certificate
        ("127.0.0.1", {"ca_file": "ca.pem", "cert_file": "both.pem"}, "certificate verify failed"),
        ("localhost", {"ca_file": "none.pem"}, "none.pem: No such file"),
        ("localhost", None, "no connection to ZooKeeper at localhost:"),  # without TLS
    ],
)
async def test_tls_that_does_not_fit_is_an_error(
    secured: tuple[ZooKeeper, Path], host: str, tls: dict[str, str] | None, words: str
) -> None:
    server, folder = secured
    files = {"use_tls": True, "tls": {name: str(folder / file) for name, file in tls.items()}} if tls else {}
    async with following(f"{host}:{server.secure_port}", SPRING, "order", **files) as followed:
        await eventually(lambda: words in followed.error)  # the first error may come before the reason


# --- sessions ---


@pytest.fixture
def own() -> Iterator[tuple[ZooKeeper, Any]]:
    """A ZooKeeper for one test, which may stop it, and a session of 20 s."""
    with ZooKeeper() as server, server.session(20) as client:
        client.ensure_path("/services")
        yield server, client
        server.resume()


async def test_a_connection_that_falls_silent_is_left(own: tuple[ZooKeeper, Any]) -> None:
    server, client = own
    pods = Processes(client, SPRING)
    await pods.register()
    with TcpProxy(server.port) as way:
        async with following(f"127.0.0.1:{way.port}", SPRING, pods.service, session_seconds=60) as followed:
            await followed.until_listed(4)
            way.silence()
            await followed.until(lambda: followed.error)
            await pods.deregister(3)
            await followed.until_listed(3)


async def test_no_thread_is_left_after_the_end(own: tuple[ZooKeeper, Any]) -> None:
    server, before = own[0], set(threading.enumerate())
    async with following(server, SPRING, "order") as followed:
        await followed.until_listed(0)
        begun = set(threading.enumerate()) - before
        assert begun
        server.component.signal(signal.SIGSTOP)  # frozen, it does not confirm the end of the session
    assert not [thread for thread in begun if thread.is_alive()]
    server.component.signal(signal.SIGCONT)
