"""Kinds of scale targets: watched while a policy needs them, dropped afterwards, resolved again when they return."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client.exposition import generate_latest

from adapter.evaluation import targets
from adapter.kube import reflector
from adapter.runtime.backoff import Backoff
from tests.engine.kit import Service, Stand, running, standing, until

WEB = Service("shop", "web", "deployments", "cpu")
THING = Service("shop", "thing", "widgets", "cpu")
CONFIRMED_SECONDS = 2.0


@pytest.fixture
async def stand(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stand]:
    monkeypatch.setattr(reflector, "CONFIRMED_SECONDS", CONFIRMED_SECONDS)
    monkeypatch.setattr(targets, "Backoff", lambda: Backoff(lambda _, bound: min(bound, 0.2)))
    async with standing() as stand:
        stand.add(WEB)
        stand.add(THING)
        async with running(stand):
            await stand.until_answered()
            yield stand


def drop(stand: Stand, plural: str = "watermarkpolicies") -> None:
    stand.cluster.remove(plural, "shop/thing")


async def until_dropped(stand: Stand) -> None:
    async def gone() -> bool:
        return b"widgets" not in generate_latest(stand.metrics.registry)

    await until(gone, 5, stand.all_answers)


@pytest.mark.parametrize("plural", ["watermarkpolicies", "horizontalpodautoscalers"])
async def test_a_kind_without_policies_is_dropped_with_its_watch_and_its_series(stand: Stand, plural: str) -> None:
    assert stand.silent("widgets.example.com") == 0
    drop(stand, plural)
    await until_dropped(stand)
    stand.cluster.asked.clear()
    stand.cluster.break_watches(stand.cluster.gone, "widgets")
    deadline = asyncio.get_running_loop().time() + 3 * CONFIRMED_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        assert await stand.answer(WEB) == "5"
        await asyncio.sleep(0.05)
    assert [one for one in stand.cluster.asked if "example.com" in one] == []


async def test_a_kind_that_comes_back_is_watched_again(stand: Stand) -> None:
    drop(stand)
    await until_dropped(stand)
    stand.cluster.remove("widgets", "shop/thing")
    stand.services.remove(THING)
    stand.add(THING)
    await stand.until_answered()


async def test_a_kind_whose_definition_was_deleted_and_created_again_is_watched_again(stand: Stand) -> None:
    stand.cluster.break_watches(stand.cluster.gone, "widgets")
    await stand.until_refused(["thing"], "serves no")
    assert stand.silent("widgets.example.com") is None
    assert await stand.answer(WEB) == "5"
    stand.cluster.mend()
    await stand.until_answered()


async def test_changed_paths_of_a_kinds_scale_are_used_without_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "REDISCOVERY_SECONDS", 0.2)
    async with standing() as stand:
        stand.add(WEB)
        stand.add(THING)
        async with running(stand):
            await stand.until_answered()
            thing = stand.cluster.objects["widgets"]["shop/thing"]
            status = dict(thing["status"])
            status["podsBy"] = status.pop("selector")
            stand.cluster.put("widgets", {**thing, "status": status})
            await stand.until_refused(["thing"], "has no selector")
            stand.cluster.selector_path = ".status.podsBy"
            await stand.until_answered()


async def test_an_unchanged_kind_keeps_its_watch_while_discovery_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "REDISCOVERY_SECONDS", 0.02)
    async with standing() as stand:
        stand.add(THING)
        async with running(stand):
            await stand.until_answered()
            stand.cluster.asked.clear()

            async def looked_up() -> bool:
                return sum("customresourcedefinitions" in one for one in stand.cluster.asked) >= 3

            await until(looked_up, 5, stand.all_answers)
            stand.cluster.refused.add("definitions")
            stand.cluster.asked.clear()
            await until(looked_up, 5, stand.all_answers)
            assert [one for one in stand.cluster.asked if one.endswith("/widgets")] == []
            assert await stand.answer(THING) == "5"


async def test_an_unresolved_kind_is_looked_up_with_back_off_until_it_is_not_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    def wait(_: float, bound: float) -> float:
        waits.append(bound)
        return 0.05

    monkeypatch.setattr(targets, "Backoff", lambda: Backoff(wait))
    async with standing() as stand:
        stand.add(WEB)
        stand.add(THING)
        stand.cluster.gone.add("widgets")
        async with running(stand):
            await stand.until_answered(["web"])
            await stand.until_refused(["thing"], "serves no")

            async def waited() -> bool:
                return len(waits) >= 8

            await until(waited, 10, stand.all_answers)
            assert waits[:8] == [0.5, 1, 2, 4, 8, 16, 30, 30]
            drop(stand)
            await asyncio.sleep(0.5)
            count = len(waits)
            await asyncio.sleep(0.5)
            assert len(waits) == count


async def test_a_target_whose_watch_was_never_listed_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "CONFIRMED_SECONDS", CONFIRMED_SECONDS)
    async with standing() as stand:
        stand.add(WEB)
        stand.add(THING)
        stand.cluster.refused.add("widgets")
        async with running(stand):
            await stand.until_refused(["thing"], "widgets.example.com have not been listed yet: widgets is forbidden")
            await stand.until_answered(["web"])


async def test_a_server_that_may_not_list_reports_it_in_answers_and_readiness() -> None:
    async with standing() as stand:
        stand.add(WEB)
        stand.cluster.refused.add("pods")
        async with running(stand):
            await stand.until_refused(["web"], "pods have not been listed yet: pods is forbidden")
            ready = stand.engine.unready() or ""
            assert "bind ClusterRole effective-load-server" in ready
            stand.cluster.mend()
            await stand.until_answered()
            assert stand.engine.unready() is None


async def test_a_server_whose_list_hangs_names_the_cache() -> None:
    async with standing() as stand:
        stand.add(WEB)
        stand.cluster.muted.add("horizontalpodautoscalers")
        async with running(stand):
            await stand.until_refused(
                ["web"],
                "the Kubernetes caches are still being filled: horizontalpodautoscalers have not been listed yet",
            )
            assert not stand.engine.snapshots.current.synced
            stand.cluster.mend()
            await stand.until_answered()


async def test_a_kind_in_discovery_that_is_not_served_is_looked_up_with_back_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    def wait(_: float, bound: float) -> float:
        waits.append(bound)
        return 0.05

    monkeypatch.setattr(targets, "Backoff", lambda: Backoff(wait))
    async with standing() as stand:
        stand.add(THING)
        stand.cluster.withdrawn.add("widgets")
        async with running(stand):
            await stand.until_refused(["thing"], "serves no widgets.example.com any more")

            async def waited() -> bool:
                return len(waits) >= 5

            await until(waited, 10, stand.all_answers)
            assert waits[:5] == [0.5, 1, 2, 4, 8]
            stand.cluster.withdrawn.clear()
            await stand.until_answered()


async def test_a_kind_whose_definition_may_not_be_read_has_that_fault_until_it_may() -> None:
    async with standing() as stand:
        stand.add(WEB)
        stand.add(THING)
        stand.cluster.refused.add("definitions")
        async with running(stand):
            await stand.until_answered(["web"])
            await stand.until_refused(["thing"], "may not be read: may not get; manifests/base/rbac.yaml")
            stand.cluster.mend()
            await stand.until_answered()
