"""A namespace whose services the registry answers slowly or never does not delay other namespaces."""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.registries.http import HttpSource
from adapter.registries.polaris import PolarisSource
from adapter.registries.source import RosterSource, ServiceKey
from adapter.registries.cache import RosterCache
from adapter.settings.registries import HttpRegistry, PolarisRegistry
from tests.registries.http_kit import said
from tests.registries.kit import book
from tests.registries.test_polaris import LIST

INTERVAL = 1.0
SLACK = 1.5
"""Seconds more than without the others; without turns it would be many."""
SOON = 10.0
"""Seconds; without turns a new service would wait for 45."""
OURS = [ServiceKey("own", f"web-{number}") for number in range(6)]
THEIRS = [ServiceKey("own", f"evil-{number}") for number in range(120)]
ALONE = dict.fromkeys(OURS, "shop")
FOLLOWED = ALONE | dict.fromkeys(THEIRS, "evil")


class Registry:
    """Answers our services at once and theirs after a delay; records the time of each query."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: dict[str, list[float]] = defaultdict(list)

    def longest(self) -> float:
        """The most seconds between two queries of one of our services, or since the last one."""
        now = asyncio.get_running_loop().time()
        by_service = ([*self.asked[key.service], now] for key in OURS)
        return max(later - earlier for asked in by_service for earlier, later in pairwise(asked))

    async def handle(self, request: web.Request) -> web.Response:
        polaris = request.method == "POST"
        service = (await request.json())["service"]["name"] if polaris else request.query["service"]
        self.asked[service].append(asyncio.get_running_loop().time())
        if service.startswith("evil"):
            await asyncio.sleep(self.seconds)
        return web.Response(text=json.dumps(LIST if polaris else said(service=service)))


@contextlib.asynccontextmanager
async def following(
    seconds: float, kind: str = "HTTP", followed: Mapping[ServiceKey, str] = FOLLOWED
) -> AsyncIterator[tuple[Registry, RosterSource, RosterCache]]:
    registry = Registry(seconds)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", registry.handle)
    async with TestServer(app) as server:
        url = str(server.make_url("/roster"))
        given = {"name": "own", "type": kind, "interval_seconds": INTERVAL, "timeout_seconds": 5}
        rosters = book("own")
        source: RosterSource = (
            HttpSource(HttpRegistry.model_validate({**given, "url": url}), rosters)
            if kind == "HTTP"
            else PolarisSource(PolarisRegistry.model_validate({**given, "servers": [url]}), rosters)
        )
        rosters.follow(followed)
        source.refresh()
        task = asyncio.create_task(source.run())
        try:
            yield registry, source, rosters
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("kind", "seconds"), [("HTTP", 0.45), ("HTTP", 20.0), ("Polaris", 3.0)])
async def test_other_services_are_polled_once_per_interval(kind: str, seconds: float) -> None:
    async with (
        following(seconds, kind) as (registry, _, rosters),
        following(seconds, kind, ALONE) as (alone, _, _),  # as slow a machine
    ):
        await asyncio.sleep(6 * INTERVAL)
        assert registry.longest() <= alone.longest() + SLACK
        for key in OURS:
            assert (found := rosters.roster(key)) is not None
            assert found.valid
            assert found.error is None


async def test_a_new_service_of_another_namespace_is_polled_soon() -> None:
    async with following(3.0) as (registry, source, rosters):
        await asyncio.sleep(INTERVAL)
        rosters.follow({**FOLLOWED, ServiceKey("own", "new"): "cart"})
        source.refresh()
        async with asyncio.timeout(SOON):
            while not registry.asked["new"]:  # noqa: ASYNC110  no event
                await asyncio.sleep(0.05)


async def test_slow_services_are_answered_all_the_same_and_prompt_again_when_they_are() -> None:
    async with following(0.8) as (registry, _, rosters):
        async with asyncio.timeout(60):
            while not all((found := rosters.roster(key)) and found.valid for key in THEIRS):  # noqa: ASYNC110  no event
                await asyncio.sleep(0.1)
        registry.seconds = 0.0
        await asyncio.sleep(4 * INTERVAL)
        registry.asked.clear()
        async with asyncio.timeout(60):
            while min(len(registry.asked[key.service]) for key in THEIRS) < 3:  # noqa: ASYNC110  no event
                await asyncio.sleep(0.1)
        assert max(len(registry.asked[key.service]) for key in OURS) <= 15, "theirs take turns still"
