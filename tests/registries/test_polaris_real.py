"""Against a real Polaris: metadata and namespaces of its own protocol."""

import pytest

from lab.harness.registries.polaris import Polaris
from tests.registries.polaris_kit import Registrations, following

pytestmark = [pytest.mark.integration, pytest.mark.builds("polaris")]


async def test_metadata_can_name_the_pod(polaris: Polaris) -> None:
    Registrations(polaris, "shop").register(0, metadata={"pod-name": "web-0"}, isolate=True)
    async with following(polaris.http, pod_name_key="pod-name") as world:
        await world.until_out("web-0")


async def test_namespace_is_that_of_the_policy_else_of_the_settings(polaris: Polaris) -> None:
    Registrations(polaris, "shop", "blue").register(0)
    Registrations(polaris, "shop", "green").register(0, 1)
    async with following(polaris.http, namespace="green") as world:
        await world.until_listed(2)
    async with following(polaris.http) as world:
        await world.until(lambda: "no such service" in world.error)
    async with following(polaris.http, place="blue", namespace="green") as world:
        await world.until_listed(1)
