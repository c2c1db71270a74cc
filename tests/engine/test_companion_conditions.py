"""The companion reports every broken input in the status of the policies that use it, and acts on none of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from adapter.companion import companion as module
from adapter.companion.companion import Companion
from adapter.evaluation import worker
from adapter.kube.leader_election import LeaderElector
from adapter.settings import CompanionSettings
from tests.companion.test_companion import Leading
from tests.engine.inputs import INPUTS
from tests.engine.kit import PATIENCE_SECONDS, SERVICES, Service, Stand, running, standing, until

FEATURES = {"fast_scale_up": True, "deletion_cost": True, "hpa_configuration": True, "events": False}
OF_A_WATCH = ("silent", "refused")


class Told:
    """What the statuses say."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand

    def condition(self, service: Service, kind: str) -> dict[str, Any]:
        status = self.stand.cluster.status(f"{service.namespace}/{service.name}")
        return next((dict(one) for one in status.get("conditions", ()) if one["type"] == kind), {})

    async def until(self, services: list[Service], kind: str, value: str, contains: str = "") -> None:
        async def told() -> bool:
            found = [self.condition(one, kind) for one in services]
            return all(one.get("status") == value and contains in one["message"] for one in found)

        await until(told, PATIENCE_SECONDS, self.everything)

    async def everything(self) -> dict[str, str]:
        found = {one.name: self.stand.cluster.status(f"{one.namespace}/{one.name}") for one in SERVICES}
        return {name: str(status.get("decision")) for name, status in found.items()}


@contextlib.asynccontextmanager
async def accompanied(stand: Stand) -> AsyncIterator[Told]:
    """While a companion runs."""
    task = asyncio.create_task(make_companion(stand).run())
    yield Told(stand)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def told(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Told]:
    monkeypatch.setattr(worker, "RESYNC_SECONDS", 0.5)
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.0)
    async with standing(*SERVICES) as stand, running(stand), accompanied(stand) as told:
        yield told


def make_companion(stand: Stand) -> Companion:
    engine = stand.engine
    settings = CompanionSettings.model_validate(
        {"features": FEATURES, "writes_per_second": 100, "status_interval_seconds": 0.5}
    )
    companion = Companion(
        stand.session,
        cast("LeaderElector", Leading()),
        engine.snapshots,
        engine.index.hpa,
        engine.index.neighbours,
        engine.index.tolerance_seen,
        engine.stale,
        settings,
        stand.metrics,
    )
    engine.snapshots.subscribe(companion.changed)
    return companion


@pytest.mark.parametrize("name", INPUTS)
async def test_a_broken_input_is_reported_in_the_status_of_policies_that_use_it(told: Told, name: str) -> None:
    broken = INPUTS[name]
    users = [one for one in SERVICES if broken.used_by(one)]
    others = [one for one in SERVICES if one not in users]
    await told.until(list(SERVICES), "Ready", "True")
    broken.breaks(told.stand)
    await told.until(users, "Ready", "False", broken.says)
    if any(word in name for word in OF_A_WATCH):
        await told.until(users, "InputsFresh", "False", " has shown no life since 20")
        assert {told.condition(one, "InputsFresh")["reason"] for one in users} == {"WatchSilent"}
    for one in users:
        said = told.stand.cluster.status(f"{one.namespace}/{one.name}")
        assert (said["verdict"], said.get("desired")) == ("Error", None)
        assert broken.says in said["decision"]
    assert {told.condition(one, "Ready")["status"] for one in others} <= {"True"}
    told.stand.cluster.mend()


async def test_nothing_but_the_status_is_written_while_a_watch_is_silent(told: Told) -> None:
    await told.until(list(SERVICES), "Ready", "True")
    told.stand.cluster.break_watches(told.stand.cluster.muted, "pods")
    await told.until(list(SERVICES), "InputsFresh", "False")
    told.stand.cluster.asked.clear()
    await asyncio.sleep(2.5)  # two looks at every policy
    writes = [one for one in told.stand.cluster.asked if not one.startswith("GET")]
    assert [one for one in writes if not one.endswith("/status")] == []
    told.stand.cluster.mend()
