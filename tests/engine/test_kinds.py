"""Kinds of scale targets: watched while some policy needs them, let go afterwards, and found again when they return."""

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
PROOF_SECONDS = 1.0


@pytest.fixture
async def stand(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stand]:
    monkeypatch.setattr(reflector, "PROOF_SECONDS", PROOF_SECONDS)
    monkeypatch.setattr(targets, "Backoff", lambda: Backoff(lambda _, bound: min(bound, 0.2)))
    async with standing() as stand:
        stand.add(WEB)
        stand.add(THING)
        async with running(stand):
            await stand.until_answered()
            yield stand


def drop(stand: Stand, plural: str = "watermarkpolicies") -> None:
    stand.cluster.remove(plural, "shop/thing")


async def until_let_go(stand: Stand) -> None:
    async def gone() -> bool:
        return b"widgets" not in generate_latest(stand.metrics.registry)

    await until(gone, 5, stand.all_answers)


@pytest.mark.parametrize("plural", ["watermarkpolicies", "horizontalpodautoscalers"])
async def test_a_kind_whose_last_policy_is_gone_is_let_go_with_its_watch_and_its_series(
    stand: Stand, plural: str
) -> None:
    assert stand.silent("widgets.example.com") == 0
    drop(stand, plural)
    await until_let_go(stand)
    stand.cluster.asked.clear()
    stand.cluster.break_watches(stand.cluster.gone, "widgets")
    deadline = asyncio.get_running_loop().time() + 3 * PROOF_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        assert await stand.answer(WEB) == "5"
        await asyncio.sleep(0.05)
    assert [one for one in stand.cluster.asked if "example.com" in one] == []


async def test_a_kind_that_comes_back_is_watched_again(stand: Stand) -> None:
    drop(stand)
    await until_let_go(stand)
    stand.cluster.remove("widgets", "shop/thing")
    stand.services.remove(THING)
    stand.add(THING)
    await stand.until_answered()


async def test_a_kind_whose_definition_was_deleted_and_made_anew_is_resolved_and_watched_anew(stand: Stand) -> None:
    stand.cluster.break_watches(stand.cluster.gone, "widgets")
    await stand.until_refused(["thing"], "serves no")
    assert stand.silent("widgets.example.com") is None
    assert await stand.answer(WEB) == "5"
    stand.cluster.mend()
    await stand.until_answered()


async def test_a_kind_whose_definition_keeps_the_scale_elsewhere_now_is_read_there_without_a_restart(
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


async def test_a_kind_that_stays_as_it_is_keeps_its_watch_also_while_it_cannot_be_looked_up(
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


async def test_a_kind_that_cannot_be_resolved_is_asked_for_ever_more_seldom_and_no_longer_than_it_is_needed(
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


async def test_a_target_without_a_watch_that_was_ever_listed_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "PROOF_SECONDS", PROOF_SECONDS)
    async with standing() as stand:
        stand.add(WEB)
        stand.add(THING)
        stand.cluster.refused.add("widgets")
        async with running(stand):
            await stand.until_refused(["thing"], "widgets.example.com have not been listed yet: widgets is forbidden")
            await stand.until_answered(["web"])


async def test_a_server_that_may_not_list_says_so_in_its_answers_and_its_readiness() -> None:
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


async def test_a_server_whose_list_gets_no_answer_names_what_it_waits_for() -> None:
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


async def test_a_kind_that_discovery_knows_and_the_server_does_not_serve_is_asked_for_ever_more_seldom(
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


async def test_a_kind_whose_definition_may_not_be_read_is_told_so_until_it_may() -> None:
    async with standing() as stand:
        stand.add(WEB)
        stand.add(THING)
        stand.cluster.refused.add("definitions")
        async with running(stand):
            await stand.until_answered(["web"])
            await stand.until_refused(["thing"], "may not be read: may not get; manifests/base/rbac.yaml")
            stand.cluster.mend()
            await stand.until_answered()
