"""A single broken input changes only the answers and statuses of the policies that use it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import pytest

from adapter.companion.companion import Companion
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

WRITING = {"fast_scale_up": True, "deletion_cost": True, "hpa_configuration": True, "events": False}
SETTINGS = {"features": WRITING, "writes_per_second": 100, "status_interval_seconds": 0.5}


@contextlib.asynccontextmanager
async def answering() -> AsyncIterator[Stand]:
    async with standing(*SERVICES) as stand, running(stand):
        await stand.until_answered()
        yield stand


@contextlib.asynccontextmanager
async def accompanied() -> AsyncIterator[Stand]:
    """The same with a companion, once every policy is reported as ready."""
    async with answering() as stand:
        engine, index = stand.engine, stand.engine.index
        companion = Companion(
            stand.session,
            cast("LeaderElector", Leading()),
            engine.snapshots,
            *(index.hpa, index.neighbours, index.tolerance_seen),
            engine.stale,
            CompanionSettings.model_validate(SETTINGS),
            stand.metrics,
            settle_seconds=0.0,
        )
        engine.snapshots.subscribe(companion.changed)
        task = asyncio.create_task(companion.run())
        try:
            await until_reported(stand, SERVICES, "Ready", "True")
            yield stand
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def condition(stand: Stand, service: Service, kind: str) -> dict[str, Any]:
    conditions = stand.status(service).get("conditions", ())
    return next((dict(one) for one in conditions if one["type"] == kind), {})


async def until_reported(stand: Stand, services: Iterable[Service], kind: str, value: str, contains: str = "") -> None:
    async def reported() -> bool:
        found = [condition(stand, one, kind) for one in services]
        return all(one.get("status") == value and contains in one["message"] for one in found)

    async def decisions() -> dict[str, object]:
        return {one.name: stand.status(one).get("decision") for one in services}

    await until(reported, PATIENCE_SECONDS, decisions)


@contextlib.asynccontextmanager
async def unchanged(stand: Stand, services: Iterable[Service]) -> AsyncIterator[None]:
    """These services have the same answer all the time."""
    found: set[str] = set()

    async def watch() -> None:
        while True:
            found.update([await stand.answer(one) for one in services])
            await asyncio.sleep(0.3)

    watching = asyncio.create_task(watch())
    yield
    await asyncio.sleep(1)
    watching.cancel()
    assert found <= {DESIRED}


@pytest.mark.long
@pytest.mark.parametrize("part", [pytest.param(n, marks=pytest.mark.xdist_group(f"inputs {n}")) for n in range(3)])
async def test_a_broken_input_changes_only_its_policies_until_it_is_mended(part: int) -> None:
    """Four at once, for they wait, each in a cluster of its own. A silent watch has only statuses written."""
    async with contextlib.AsyncExitStack() as stack:
        stands = {name: await stack.enter_async_context(accompanied()) for name in list(INPUTS)[part::3]}
        found = await asyncio.gather(*map(break_and_mend, stands, stands.values()), return_exceptions=True)
    if errors := {name: error for name, error in zip(stands, found, strict=True) if error is not None}:
        raise BaseExceptionGroup(", ".join(errors), list(errors.values()))


async def break_and_mend(name: str, stand: Stand) -> None:
    broken = INPUTS[name]
    users = [one for one in SERVICES if broken.used_by(one)]
    others = [one for one in SERVICES if one not in users]
    async with unchanged(stand, others):
        broken.breaks(stand)
        await stand.until_refused({one.name for one in users}, broken.says)
        await until_reported(stand, users, "Ready", "False", broken.says)
        if "silent" in name or "refused" in name:
            await until_reported(stand, users, "InputsFresh", "False", " has shown no life since 20")
            assert {condition(stand, one, "InputsFresh")["reason"] for one in users} == {"WatchSilent"}
            stand.cluster.asked.clear()
            await asyncio.sleep(2.5)  # two looks at every policy
            writes = [one for one in stand.cluster.asked if not one.startswith("GET")]
            assert [one for one in writes if not one.endswith("/status")] == []
    for status in map(stand.status, users):
        assert (status["verdict"], status.get("desired")) == ("Error", None)
        assert broken.says in status["decision"]
    assert {condition(stand, one, "Ready")["status"] for one in others} <= {"True"}
    stand.cluster.mend()
    await stand.until_answered(None if "Prometheus" not in name else [one.name for one in others])


@pytest.mark.long
async def test_a_failing_registry_changes_no_answer_and_a_changed_roster_only_those_of_its_services() -> None:
    users = {one.name for one in SERVICES if one.registry == "first"}
    async with answering() as stand:
        before = await stand.answers()
        platform = stand.platforms["first"]
        platform.status = 503
        async with unchanged(stand, SERVICES):
            await asyncio.sleep(SILENCE_SECONDS)
        platform.status = 200
        platform.answer = said(*({"pod": f"{one.name}-0", "state": "out"} for one in SERVICES))

        async def changed() -> bool:
            found = await stand.answers()
            assert {one for one in found if found[one] != before[one]} <= users
            return all(found[one] != before[one] for one in users)

        await until(changed, PATIENCE_SECONDS, stand.answers)  # a service that failed is asked again within 30 s


@pytest.mark.long
async def test_a_refused_namespace_does_not_affect_another() -> None:
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
