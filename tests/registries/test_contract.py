"""What every registry has to hold, on its real server: one suite for all that can be started here (`worlds.py`).

What a registry cannot do stands in `worlds.LACKS` with the reason. The wire of each has files of its own. No server is
asked what `allow` forbids: `test_registry_allow.py` holds that.
"""

import asyncio
import json
import random
import re
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from adapter.load.pods import PodState
from adapter.policy import status_memory
from lab.chaos.proxies import TcpProxy
from tests.registries.kit import TYPES, Pods
from tests.registries.worlds import (
    ALL,
    LACKS,
    OPTIONAL,
    WORLDS,
    ConsulWorld,
    DubboInterfaceWorld,
    Files,
    HttpWorld,
    PolarisWorld,
    World,
)
from tests.waiting import eventually

# The first run builds Spring's Eureka.
pytestmark = [pytest.mark.integration, pytest.mark.builds("consul", "polaris"), pytest.mark.timeout(600)]

CHANGES = 12


class Servers:
    """The servers of this module, each started when it is first asked for. Tests kill them and wipe them."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._running, self.files = stack, dict[Any, Any](), Files.of(folder)

    def of(self, kind: type[World], *, safe: bool) -> Any:
        serve: Any = kind.serve
        key = serve.__func__, safe, safe and kind.can("authorize")
        if key not in self._running:
            self._running[key] = self._stack.enter_context(serve(self.files, safe=safe))
        return self._running[key]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory.mktemp("tls"))


@pytest.fixture
def place(servers: Servers, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, ...]:
    """What a world is made of. A server dies with the thread that starts it, so this is not asynchronous."""
    kind, safe = request.param
    return kind, servers.of(kind, safe=safe), servers.files, tmp_path / "password" if safe else None


@pytest.fixture
async def world(place: tuple[Any, ...]) -> AsyncIterator[World]:
    kind, server, files, password = place
    with ExitStack() as stack:
        made: World = kind(server, f"shop-{secrets.token_hex(4)}", stack, files, password)
        yield made
        await made.resume()  # others go on with its server, and sessions take leave of it


ONE_OF_EACH_SERVER = (ConsulWorld, DubboInterfaceWorld, PolarisWorld)
"""For what `adapter.load` decides, whatever the protocol is."""


def worlds(verb: str = "", *, safe: bool = False, among: tuple[type[World], ...] = WORLDS) -> pytest.MarkDecorator:
    """The test runs in each of these worlds, or in each that has the optional verb; one worker has all of a server."""
    kinds = [kind for kind in among if not verb or kind.can(verb)]
    cases = [
        pytest.param(
            (kind, safe),
            id=kind.__name__.removesuffix("World"),
            marks=pytest.mark.xdist_group(kind.serve.__qualname__),
        )
        for kind in kinds
    ]
    return pytest.mark.parametrize("place", cases, indirect=True)


def proxy(address: str) -> tuple[TcpProxy, str]:
    """What stands before a server, and the server's address there."""
    [port] = re.findall(r":(\d+)", address)
    made = TcpProxy(int(port))
    return made, address.replace(f":{port}", f":{made.port}")


def test_every_type_of_registry_has_a_world() -> None:
    assert {kind.kind for kind in WORLDS} == TYPES.keys()


def test_what_registries_cannot_do_is_said_with_the_reason() -> None:
    assert {(kind, verb) for kind in WORLDS for verb in OPTIONAL if not kind.can(verb)} == LACKS.keys()


@worlds()
async def test_a_pod_that_is_pulled_out_is_out_until_it_is_put_back(world: World) -> None:
    async with world.serving() as followed:
        for means in world.means:
            await world.change(1, **means)
            await followed.until_out("web-1")
            await world.change(1)
            await followed.until(followed.everyone_serves)


@worlds("deregister")
async def test_a_pod_that_is_absent_is_out_once_that_is_confirmed_and_until_it_is_back(world: World) -> None:
    async with world.serving() as followed:
        for means in world.hides:
            await world.change(3, **means)
            await followed.until_listed(3)
            await world.change(3)
            await followed.until(followed.everyone_serves)
        await world.deregister(3)
        await followed.until_listed(3)
        assert followed.pods.states()["web-3"] is PodState.DOUBTFUL
        assert followed.aged(40) == set()
        assert followed.aged(120) == {"web-3"}
        await world.register(3)
        await followed.until(followed.everyone_serves)


@worlds("deregister")
async def test_the_end_of_all_instances_that_are_followed_takes_no_pod_out(world: World) -> None:
    async with world.serving() as followed:
        await world.deregister(*ALL)
        await world.until_gone(followed)
        assert followed.aged(600) == set()


@worlds()
async def test_a_service_that_nobody_knows_takes_no_pod_out_and_is_heard_once_it_is_there(world: World) -> None:
    async with world.following() as followed:
        await world.until_gone(followed)
        assert followed.aged(300) == set()
        await world.register(*ALL)
        await world.heard(followed)
        assert followed.everyone_serves()
        followed.follow([])
        assert followed.cache.instances(followed.key) is None, "what is not followed any more is forgotten"
        followed.follow([followed.key])
        await followed.until_listed(4)


@worlds()
async def test_what_was_out_in_an_outage_stays_so_for_half_an_hour_and_is_doubt_then(world: World) -> None:
    async with world.serving() as followed:
        await world.change(1, **world.means[0])
        await followed.until_out("web-1")
        absent = ["web-3"] if world.can("deregister") else []
        if absent:
            await world.deregister(3)
            await followed.until_listed(3)
            assert followed.aged(60) == {"web-1", "web-3"}
        listed = followed.listed
        world.kill()
        await followed.until(lambda: followed.error)
        assert followed.listed == listed
        await followed.until_failed_again()
        assert followed.pods.out() == ["web-1", *absent]
        desired = followed.pods.desired
        followed.clock.jump(310)  # absence counts by a list of at most 5 min
        assert followed.pods.out() == ["web-1"]
        followed.clock.jump(1500)
        assert followed.pods.out() == []
        assert followed.pods.states()["web-1"] is PodState.DOUBTFUL
        assert followed.pods.desired == desired


@worlds("restart")
async def test_after_a_restart_pull_outs_and_confirmed_absence_count_as_before(world: World) -> None:
    async with world.serving() as followed:
        world.kill()
        await followed.until(lambda: followed.error)
        assert followed.listed == 4
        await world.restart()
        await world.heard(followed)
        await followed.until(followed.everyone_serves)
        if world.can("deregister"):
            await world.deregister(3)
            await followed.until_listed(3)
            assert followed.aged(40) == set()
            assert followed.aged(20) == {"web-3"}
            await world.register(3)
            await followed.until_listed(4)
        await world.change(1, **world.means[0])
        await followed.until_out("web-1")


@worlds()
async def test_a_frozen_server_is_an_error_that_changes_nothing_and_pull_outs_are_heard_after_it(world: World) -> None:
    async with world.serving(timeout_seconds=1) as followed:
        with followed.pods.nothing_changes():
            with world.frozen():
                await followed.until_error("answer within")
                assert followed.listed == 4
            await world.heard(followed)
        await world.change(1, **world.means[0])
        await followed.until_out("web-1")


@worlds()
async def test_a_wiped_registry_changes_nothing_until_all_are_back_whatever_other_services_have(world: World) -> None:
    await world.register(*ALL)
    await world.beside().register(*ALL)
    async with world.following(**world.brief) as followed:
        await world.heard(followed)
        beside = followed.key._replace(service=world.beside().service)
        followed.follow([followed.key, beside])
        await followed.until_listed(4, beside)
        assert followed.everyone_serves()
        with followed.pods.nothing_changes():
            await world.wipe()
            await world.until_gone(followed)
            if followed.error:
                await followed.until_failed_again()
            await world.beside().register(*ALL)
            await followed.until_listed(4, beside)
        await world.register(*ALL)
        await world.heard(followed)
        assert followed.everyone_serves()


@worlds(among=ONE_OF_EACH_SERVER)
@pytest.mark.parametrize(("back", "out"), [(6, 4), (5, 0), (1, 0)])
async def test_a_wiped_registry_takes_out_fewer_than_half_of_ten_pods_and_shrinks_nothing(
    world: World, back: int, out: int
) -> None:
    """Vector 46. Those that are back are idle, so that the service would shrink if the others did not count."""
    everyone = range(10)
    await world.register(*everyone)
    async with world.following(**world.brief) as followed:
        followed.pods = pods = Pods(followed.cache, followed.key, followed.clock, pods=10)
        pods.loads = {f"web-{number}": "300m" if number < back else "900m" for number in everyone}
        await world.heard(followed, 10)
        assert followed.everyone_serves()
        assert pods.desired == 10
        await world.wipe()
        await world.register(*everyone[:back])
        await world.heard(followed, back)
        for seconds in range(10, 610, 10):
            followed.clock.jump(10)
            followed.confirm()
            states = [pods.states()[f"web-{number}"] for number in everyone]
            assert states[:back] == [PodState.SERVING] * back
            away = PodState.PULLED_OUT if out and seconds > 50 else PodState.DOUBTFUL
            assert seconds in {40, 50} or set(states[back:]) == {away}
            assert pods.desired == 10
        await world.register(*everyone[back:])
        await followed.until(followed.everyone_serves)


@worlds(among=ONE_OF_EACH_SERVER)
async def test_a_registry_wiped_while_no_process_looked_takes_none_out_and_shrinks_nothing(world: World) -> None:
    """A node that ends with the adapter and the registry on it. The next process has what the status says."""
    everyone, back = range(10), 5
    await world.register(*everyone)
    loads = {f"web-{number}": "300m" if number < back else "900m" for number in everyone}
    async with world.following(**world.brief) as before:
        before.pods = first = Pods(before.cache, before.key, before.clock, pods=10)
        first.loads = loads
        await world.heard(before, 10)
        assert before.everyone_serves()
    await world.wipe()
    await world.register(*everyone[:back])
    async with world.following() as followed:
        pods = Pods(followed.cache, followed.key, followed.clock, pods=10)
        pods.loads, pods.pods = loads, first.pods
        status = json.loads(msgspec.json.encode(status_memory.to_status(first.memory)))
        pods.memory = status_memory.from_status(status).of(first.pods)
        await world.heard(followed, back)
        for _ in range(30):
            followed.clock.jump(10)
            followed.confirm()
            assert PodState.PULLED_OUT not in pods.states().values()
            assert pods.desired == 10


@worlds(among=tuple(kind for kind in WORLDS if kind is not HttpWorld))  # its settings have one `url`
async def test_the_next_server_is_asked_once_the_first_is_gone_and_nothing_changes_but_what_it_says(
    world: World,
) -> None:
    await world.register(*ALL)
    address = world.address
    first, there = proxy(address)
    async with world.following(servers=(there, address)) as followed:
        await followed.until_listed(4)
        assert followed.everyone_serves()
        with followed.pods.nothing_changes():
            first.close()
            await followed.until_confirmed()
        await world.change(1, **world.means[0])
        await followed.until_out("web-1")
        assert followed.listed == 4


@worlds(among=ONE_OF_EACH_SERVER)
async def test_a_slow_server_is_one_cause_that_changes_nothing_and_is_over_once_it_is_quick(world: World) -> None:
    await world.register(*ALL)
    address = world.address
    way, there = proxy(address)
    async with world.following(servers=(there,), timeout_seconds=1) as followed:
        await world.heard(followed)
        with followed.pods.nothing_changes():
            with capture_logs() as logs:
                way.delayed = 1.0
                await followed.until_failed_again()
                assert followed.listed == 4
                assert not followed.pods.out()
            way.delayed = 0.0
            began = time.monotonic()
            await world.heard(followed)
            assert time.monotonic() - began < 60
        causes = {entry["error"] for entry in logs if entry["event"] == "registry_failed"}
        assert causes
        assert all(there in cause for cause in causes)
        await world.change(1, **world.means[0])
        await followed.until_out("web-1")
    way.close()


# kazoo's thread ends where an answer overtakes that to a new password ("xids do not match"): a new session follows.
@pytest.mark.filterwarnings("ignore:Exception in thread .*zk_loop:pytest.PytestUnhandledThreadExceptionWarning")
@worlds("authorize", safe=True)
async def test_credentials_that_are_refused_keep_the_last_list_and_right_ones_are_taken_when_their_file_changes(
    world: World,
) -> None:
    await world.register(*ALL)
    for wrong, words in world.refusals.items():
        await world.authorize(wrong)
        async with world.following(**world.brief) as followed:
            await followed.until_error(words)
            assert followed.listed == -1
            assert followed.pods.out() == []
            await world.authorize()
            await world.heard(followed)
            assert followed.everyone_serves()
            with followed.pods.nothing_changes():
                await world.authorize(wrong)
                await followed.until_error(words)
                assert followed.listed == 4
                await followed.until_failed_again()
            await world.authorize()
            await world.heard(followed)


@worlds(safe=True)
async def test_a_server_of_the_named_authority_is_believed_and_of_another_one_not(world: World) -> None:
    await world.register(*ALL)
    if world.can("authorize"):
        await world.authorize()
    async with world.following() as followed:
        await world.heard(followed)
        await world.change(1, **world.means[0])
        await followed.until_out("web-1")
    stranger = world.access()["tls"] | {"ca_file": str(world.files.stranger)}
    for tls in (stranger, {}):
        async with world.following(tls=tls) as followed:
            await eventually(lambda: "certificate" in followed.error.lower())  # the first error may come before it
            assert followed.listed == -1
            assert followed.pods.out() == []


@worlds()
async def test_the_delay_of_a_change(world: World, record_property: Callable[[str, object], None]) -> None:
    delays = []
    async with world.serving() as followed:
        for number in range(CHANGES):
            await asyncio.sleep(random.random())  # at any phase of a server's second and of the adapter's interval
            began, out = time.monotonic(), number % 2 == 0
            await world.change(1, **(world.means[0] if out else {}))
            await followed.until(lambda expected=["web-1"] * out: followed.pods.out() == expected)  # type: ignore[misc]
            delays.append(followed.changes[-1] - began)
    found = {"p50": round(statistics.median(delays), 3), "longest": round(max(delays), 3), "changes": CHANGES}
    record_property("delay_seconds", found)
    print(f"{type(world).__name__}: {found}")
    assert sorted(delays)[-2] <= 1 + world.lag, "all but one: a busy machine has its moments"
