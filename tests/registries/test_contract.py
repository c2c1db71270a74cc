"""What every registry has to hold, on its real server: one suite for all that can be started here.

A `World` is a server, and what its clients do with it: register pods, and lose everything.
"""

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from adapter.load.pods import PodState
from adapter.policy import status_memory
from lab.harness.registries.consul import Consul
from lab.harness.registries.polaris import Polaris
from lab.harness.registries.zookeeper import ZooKeeper
from tests.registries import consul_kit, polaris_kit, zookeeper_kit
from tests.registries.kit import FollowedService, Pods

pytestmark = [pytest.mark.integration, pytest.mark.builds("consul", "polaris")]

SERVICE = "shop"


class World(ABC):
    """A registry's server of this test's own, and its clients. `web-<n>` is at 10.0.0.<10 + n>, port 8080."""

    @abstractmethod
    def following(self) -> contextlib.AbstractAsyncContextManager[FollowedService[Any]]:
        """Follow the service while the block runs."""

    @abstractmethod
    async def register(self, *numbers: int) -> None:
        """Register these pods."""

    @abstractmethod
    async def wipe(self) -> None:
        """Kill the server and start it without its data; the pods have to register again."""


class ConsulWorld(World):
    def __init__(self, stack: ExitStack) -> None:
        self.server = stack.enter_context(Consul())

    def following(self) -> contextlib.AbstractAsyncContextManager[FollowedService[Any]]:
        return consul_kit.following(self.server, SERVICE)

    async def register(self, *numbers: int) -> None:
        for number in numbers:
            await asyncio.to_thread(self.server.register, SERVICE, f"{SERVICE}-{number}", f"10.0.0.{10 + number}")

    async def wipe(self) -> None:
        self.server.kill()
        self.server.wipe()
        await asyncio.to_thread(self.server.resume)


class ZooKeeperWorld(World):
    """Dubbo's providers, each registration in one session."""

    def __init__(self, stack: ExitStack) -> None:
        self.server, self._stack = stack.enter_context(ZooKeeper()), stack
        stack.callback(self.server.resume)  # or the sessions that take leave of it wait
        self._processes: zookeeper_kit.Processes | None = None

    def following(self) -> contextlib.AbstractAsyncContextManager[FollowedService[Any]]:
        return zookeeper_kit.following(self.server, zookeeper_kit.INTERFACE, SERVICE)

    async def register(self, *numbers: int) -> None:
        if self._processes is None:
            client = await asyncio.to_thread(self._stack.enter_context, self.server.session(20))
            self._processes = zookeeper_kit.Processes(client, zookeeper_kit.INTERFACE, SERVICE)
        await self._processes.register(*numbers)

    async def wipe(self) -> None:
        self._processes = None
        await asyncio.to_thread(self.server.restart, wipe=True)


class PolarisWorld(World):
    def __init__(self, stack: ExitStack) -> None:
        self.server = stack.enter_context(Polaris())

    def following(self) -> contextlib.AbstractAsyncContextManager[FollowedService[Any]]:
        return polaris_kit.following(self.server.http, service=SERVICE)

    async def register(self, *numbers: int) -> None:
        await asyncio.to_thread(polaris_kit.Registrations(self.server, SERVICE).register, *numbers)

    async def wipe(self) -> None:
        await asyncio.to_thread(self.server.restart, wipe=True)


@pytest.fixture(params=[ConsulWorld, ZooKeeperWorld, PolarisWorld])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    with ExitStack() as stack:
        made: World = await asyncio.to_thread(request.param, stack)
        yield made


@pytest.mark.parametrize("back", [5, 1])
async def test_a_wiped_registry_with_a_part_of_ten_pods_back_takes_none_out_and_shrinks_nothing(
    world: World, back: int
) -> None:
    """Vector 46. Those that are back are idle, so that the service would shrink if the others counted as out."""
    everyone = range(10)
    await world.register(*everyone)
    async with world.following() as followed:
        followed.pods = pods = Pods(followed.book, followed.key, followed.clock, pods=10)
        pods.loads = {f"web-{number}": "300m" if number < back else "900m" for number in everyone}
        await followed.until_listed(10)
        assert set(pods.states().values()) == {PodState.SERVING}
        assert pods.desired == 10
        await world.wipe()
        await world.register(*everyone[:back])
        await followed.until_listed(back)
        for _ in range(60):
            followed.clock.jump(10)
            followed.book.confirm()
            states = pods.states()
            assert [states[f"web-{number}"] for number in everyone] == [PodState.SERVING] * back + [
                PodState.DOUBTFUL
            ] * (10 - back)
            assert pods.desired == 10
        await world.register(*everyone[back:])
        await followed.until(lambda: set(pods.states().values()) == {PodState.SERVING})


async def test_a_registry_wiped_while_no_process_looked_takes_none_out_and_shrinks_nothing(world: World) -> None:
    """A node that ends with the adapter and the registry on it. The next process has what the status says."""
    everyone, back = range(10), 5
    await world.register(*everyone)
    loads = {f"web-{number}": "300m" if number < back else "900m" for number in everyone}
    async with world.following() as before:
        before.pods = first = Pods(before.book, before.key, before.clock, pods=10)
        first.loads = loads
        await before.until_listed(10)
        assert set(first.states().values()) == {PodState.SERVING}
    await world.wipe()
    await world.register(*everyone[:back])
    async with world.following() as followed:
        pods = Pods(followed.book, followed.key, followed.clock, pods=10)
        pods.loads, pods.pods = loads, first.pods
        pods.memory = status_memory.from_status(json.loads(msgspec.json.encode(status_memory.to_status(first.memory))))
        await followed.until_listed(back)
        for _ in range(30):
            followed.clock.jump(10)
            followed.book.confirm()
            assert PodState.PULLED_OUT not in pods.states().values()
            assert pods.desired == 10
