"""A broken input changes only the answers and the status of the policies that use it; the companion acts on none."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import pytest

from adapter.companion import companion as module
from adapter.companion.companion import Companion
from adapter.evaluation import worker
from adapter.kube import scale
from adapter.kube.leader_election import LeaderElector
from adapter.settings import CompanionSettings
from tests.companion.test_companion import Leading
from tests.engine.inputs import INPUTS
from tests.engine.kit import (
    DESIRED,
    PATIENCE_SECONDS,
    SERVICES,
    SILENCE_SECONDS,
    Service,
    Stand,
    running,
    standing,
    until,
)
from tests.registries.http_kit import said

WATCHED_SECONDS = 1.0
"""Two looks of the companion at every policy."""


@pytest.fixture
async def stand(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stand]:
    """All services, with a companion."""
    monkeypatch.setattr(scale, "DEADLINE_SECONDS", 5.0)
    monkeypatch.setattr(worker, "RESYNC_SECONDS", 0.5)
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.0)
    async with standing(*SERVICES) as stand, running(stand):
        task = asyncio.create_task(make_companion(stand).run())
        await stand.until_answered()
        yield stand
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def make_companion(stand: Stand) -> Companion:
    engine, features = stand.engine, {"fast_scale_up": True, "deletion_cost": True, "hpa_configuration": True}
    settings = CompanionSettings.model_validate(
        {"features": {**features, "events": False}, "writes_per_second": 100, "status_interval_seconds": 0.5}
    )
    lease, index = cast("LeaderElector", Leading()), engine.index
    companion = Companion(
        stand.session, lease, engine.snapshots, index.hpa, index.neighbours, index.tolerance_seen, engine.stale,
        settings, stand.metrics,
    )  # fmt: skip
    engine.snapshots.subscribe(companion.changed)
    return companion


def status(stand: Stand, service: Service) -> dict[str, Any]:
    return dict(stand.cluster.status(f"{service.namespace}/{service.name}"))


def condition(stand: Stand, service: Service, kind: str) -> dict[str, Any]:
    conditions = status(stand, service).get("conditions", ())
    return next((dict(one) for one in conditions if one["type"] == kind), {})


async def until_told(stand: Stand, services: Iterable[Service], kind: str, value: str, contains: str = "") -> None:
    """Wait until the status of each of these services has this condition."""

    async def told() -> bool:
        found = [condition(stand, one, kind) for one in services]
        return all(one.get("status") == value and contains in one["message"] for one in found)

    async def everything() -> dict[str, str]:
        return {one.name: str(status(stand, one).get("decision")) for one in SERVICES}

    await until(told, PATIENCE_SECONDS, everything)


@pytest.mark.parametrize("name", INPUTS)
async def test_a_broken_input_changes_only_answers_and_status_of_policies_that_use_it(stand: Stand, name: str) -> None:
    broken = INPUTS[name]
    users = [one for one in SERVICES if broken.used_by(one)]
    others = [one for one in SERVICES if one not in users]
    found: dict[str, set[str]] = {one.name: set() for one in others}

    async def watch_the_others() -> None:
        while True:
            for one in others:
                found[one.name].add(await stand.answer(one))
            await asyncio.sleep(0.1)

    await until_told(stand, SERVICES, "Ready", "True")
    watching = asyncio.create_task(watch_the_others())
    broken.breaks(stand)
    await stand.until_refused([one.name for one in users], broken.says)
    await until_told(stand, users, "Ready", "False", broken.says)
    if any(word in name for word in ("silent", "refused")):
        await until_told(stand, users, "InputsFresh", "False", " has shown no life since 20")
        assert {condition(stand, one, "InputsFresh")["reason"] for one in users} == {"WatchSilent"}
    stand.cluster.asked.clear()
    await asyncio.sleep(WATCHED_SECONDS)
    watching.cancel()
    assert found == {one.name: {DESIRED} for one in others}
    for one in users:
        said = status(stand, one)
        assert (said["verdict"], said.get("desired")) == ("Error", None)
        assert broken.says in said["decision"]
    assert {condition(stand, one, "Ready")["status"] for one in others} <= {"True"}
    writes = [one for one in stand.cluster.asked if not one.startswith("GET") and not one.endswith("/status")]
    assert writes == [], "the companion acts on nothing"
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
