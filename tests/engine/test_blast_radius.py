"""A single broken input changes only the answers of the policies that use it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from adapter.evaluation import worker
from adapter.kube import scale
from tests.engine.inputs import INPUTS
from tests.engine.kit import DESIRED, PATIENCE_SECONDS, SERVICES, SILENCE_SECONDS, Stand, running, standing, until
from tests.registries.http_kit import said

WATCHED_SECONDS = 1.0


@pytest.fixture
async def stand(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stand]:
    monkeypatch.setattr(scale, "DEADLINE_SECONDS", 5.0)
    monkeypatch.setattr(worker, "RESYNC_SECONDS", 0.5)
    async with standing(*SERVICES) as stand, running(stand):
        await stand.until_answered()
        yield stand


@pytest.mark.parametrize("name", INPUTS)
async def test_a_broken_input_changes_only_the_answers_of_policies_that_use_it(stand: Stand, name: str) -> None:
    broken = INPUTS[name]
    users = {one.name for one in SERVICES if broken.used_by(one)}
    others = [one for one in SERVICES if one.name not in users]
    found: dict[str, set[str]] = {one.name: set() for one in others}

    async def watch_the_others() -> None:
        while True:
            for one in others:
                found[one.name].add(await stand.answer(one))
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch_the_others())
    broken.breaks(stand)
    await stand.until_refused(users, broken.says)
    await asyncio.sleep(WATCHED_SECONDS)
    watching.cancel()
    assert found == {one.name: {DESIRED} for one in others}
    stand.cluster.mend()


async def test_a_failing_registry_changes_no_answer_and_a_changed_roster_only_those_of_its_services(
    stand: Stand,
) -> None:
    name = "first"
    users = {one.name for one in SERVICES if one.registry == name}
    before = await stand.all_answers()
    stand.platforms[name].status = 503
    deadline = asyncio.get_running_loop().time() + SILENCE_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        assert await stand.all_answers() == before
        await asyncio.sleep(0.1)
    stand.platforms[name].status = 200
    stand.platforms[name].answer = said(*({"pod": f"{one.name}-0", "state": "out"} for one in SERVICES))

    async def changed() -> bool:
        found = await stand.all_answers()
        assert {one for one in found if found[one] != before[one]} <= users
        return all(found[one] != before[one] for one in users)

    await until(changed, PATIENCE_SECONDS, stand.all_answers)  # a service that failed is asked again within 30 s


@pytest.mark.parametrize(
    ("how", "what"), [("muted", "pods"), ("refused", "horizontalpodautoscalers"), ("gone", "widgets")]
)
async def test_after_each_fault_every_policy_is_answered_again(stand: Stand, how: str, what: str) -> None:
    stand.cluster.break_watches(getattr(stand.cluster, how), what)
    await stand.until_refused({"s6"})
    stand.cluster.mend()
    await stand.until_answered()


async def test_a_refused_namespace_does_not_affect_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither where the right was never there, nor where it is taken away later."""
    async with standing(*SERVICES, kubernetes={"namespaces": ["shop", "cart"]}) as stand:
        shop = {one.name for one in SERVICES if one.namespace == "shop"}
        cart = {one.name for one in SERVICES} - shop
        stand.cluster.refused |= {"pods in cart", "widgets in cart"}
        async with running(stand):
            await stand.until_answered(shop)
            await stand.until_refused(cart, "pods in namespace cart have not been listed yet")
            assert stand.engine.freshness.unready() is None
            stand.cluster.mend()
            await stand.until_answered()
            stand.cluster.break_watches(stand.cluster.refused, "horizontalpodautoscalers in shop")
            await stand.until_refused(shop, "the watch of horizontalpodautoscalers in namespace shop")
            await stand.until_answered(cart)
            assert stand.engine.freshness.unready() is None
            assert stand.silent("horizontalpodautoscalers") == 1
            stand.cluster.break_watches(stand.cluster.refused, "pods in cart")
            await stand.until_refused(cart)
            assert stand.engine.freshness.unready() is None
            assert "namespace" in (stand.engine.freshness.warning() or "")
