"""What a Polaris says that a real one cannot be made to say, and metadata and namespaces of a real one."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from tests.registries.kit import FollowedService, follow, served

following = partial(follow, "Polaris")
LIST: dict[str, Any] = {
    "code": 200000,
    "service": {"revision": "r1"},
    "instances": [
        {"id": "b", "host": "10.0.0.11", "port": 8080, "weight": None, "healthy": None, "isolate": None},
        {"id": "a", "host": "10.0.0.10", "port": 8080, "weight": 100, "healthy": True, "metadata": {"k": "v"}},
    ],
}


class Fake:
    """Answers everything at `url` with the body that a test sets."""

    def __init__(self) -> None:
        self.body, self.url = json.dumps(LIST), ""
        self.asked: list[Any] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        return web.Response(text=self.body)


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    fake = Fake()
    async with served(fake.answer) as fake.url:
        yield fake


@pytest.fixture
async def world(fake: Fake) -> AsyncIterator[FollowedService]:
    async with following(fake.url, pod_name_key="k") as followed:
        await followed.until_listed(2)
        yield followed


async def test_missing_fields_and_another_order_are_not_evidence(fake: Fake, world: FollowedService) -> None:
    assert world.pods.out() == []
    first, second = world.listing.instances
    assert (first.ip, second.ip) == ("10.0.0.10", "10.0.0.11")
    assert (second.healthy, second.isolated, second.weight) == (True, False, None)
    assert (first.metadata, first.pod_name, first.registered_at) == ({"k": "v"}, "v", None)
    reported = len(world.changes)
    fake.body = json.dumps({**LIST, "instances": LIST["instances"][::-1]})
    await world.until_confirmed()
    await world.until_confirmed()
    assert len(world.changes) == reported


async def test_last_revision_is_sent_and_no_change_confirms(fake: Fake, world: FollowedService) -> None:
    await world.until_confirmed()
    fake.body = json.dumps({"code": 200001})
    await world.until_confirmed()
    assert world.listed == 2
    assert fake.asked[0] == {"type": 1, "service": {"name": "shop", "namespace": "default", "revision": ""}}
    assert {question["service"]["revision"] for question in fake.asked[1:]} == {"r1"}


async def test_alias_is_answered_by_its_target(fake: Fake) -> None:
    named = {"name": "shop", "namespace": "default"}
    service = {"name": "shop-v2", "namespace": "default", "revision": "r2"}
    fake.body = json.dumps({**LIST, "service": service, "aliasFor": named})
    async with following(fake.url) as world:
        await world.until_listed(2)


@pytest.mark.parametrize(("place", "asked"), [({}, "green"), ({"namespace": "blue"}, "blue")])
async def test_namespace_is_that_of_the_policy_else_of_the_settings(
    fake: Fake, place: dict[str, str], asked: str
) -> None:
    async with following(fake.url, place=place, namespace="green") as world:
        await world.until_listed(2)
    assert {question["service"]["namespace"] for question in fake.asked} == {asked}
