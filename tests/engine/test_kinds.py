"""Kinds of scale targets: watched while a policy needs them, dropped afterwards, resolved again when they return."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client.exposition import generate_latest

from adapter.evaluation import targets
from adapter.runtime.backoff import Backoff
from tests.engine.kit import SILENCE_SECONDS, Service, Stand, running, standing, until
from tests.waiting import eventually

WEB = Service("shop", "web", "deployments", "cpu")
THING = Service("shop", "thing", "widgets", "cpu")


@pytest.fixture
async def stand(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stand]:
    monkeypatch.setattr(targets, "Backoff", lambda: Backoff(lambda _, bound: min(bound, 0.2)))
    async with standing(WEB, THING) as stand, running(stand):
        await stand.until_answered()
        yield stand


def drop(stand: Stand, plural: str = "watermarkpolicies") -> None:
    stand.cluster.remove(plural, "shop/thing")


async def until_dropped(stand: Stand) -> None:
    async def gone() -> bool:
        return b"widgets" not in generate_latest(stand.metrics.registry)

    await until(gone, 5, stand.answers)


@pytest.mark.long
@pytest.mark.parametrize("plural", ["watermarkpolicies", "horizontalpodautoscalers"])
async def test_a_kind_without_policies_is_dropped_with_its_watch_and_its_series(stand: Stand, plural: str) -> None:
    await eventually(lambda: stand.silent("widgets.example.com") == 0)
    drop(stand, plural)
    await until_dropped(stand)
    stand.cluster.asked.clear()
    stand.cluster.break_watches(stand.cluster.gone, "widgets")
    deadline = asyncio.get_running_loop().time() + 1.1 * SILENCE_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        assert await stand.answer(WEB) == "5"
        await asyncio.sleep(0.05)
    assert [one for one in stand.cluster.asked if "example.com" in one] == []


async def test_a_kind_that_is_gone_is_never_said_to_be_about_to_be_listed() -> None:
    async with standing(THING) as stand, running(stand):
        await stand.until_answered()
        stand.cluster.break_watches(stand.cluster.gone, "widgets")
        await stand.until_refused(["thing"], "serves no")
        while "any more" in (said := await stand.answer(THING)):  # noqa: ASYNC110  every answer counts
            await asyncio.sleep(0)
        assert "serves no" in said


async def test_a_kind_that_discovery_names_though_it_is_gone_is_asked_for_ever_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds: list[float] = []
    monkeypatch.setattr(targets, "Backoff", lambda: Backoff(lambda _, bound: bounds.append(bound) or 0.01))
    async with standing(THING) as stand, running(stand):
        await stand.until_answered()
        bounds.clear()
        stand.cluster.break_watches(stand.cluster.withdrawn, "widgets")
        await eventually(lambda: len(bounds) >= 4)
    assert bounds[:4] == [0.5, 1, 2, 4]


async def test_changed_paths_of_a_kinds_scale_are_used_without_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "REDISCOVERY_SECONDS", 0.2)
    async with standing(WEB, THING) as stand, running(stand):
        await stand.until_answered()
        thing = stand.cluster.objects["widgets"]["shop/thing"]
        status = dict(thing["status"])
        status["podsBy"] = status.pop("selector")
        stand.cluster.put("widgets", {**thing, "status": status})
        await stand.until_refused(["thing"], "has no selector")
        stand.cluster.selector_path = ".status.podsBy"
        await stand.until_answered()


@pytest.mark.parametrize(
    ("how", "what", "says", "unready"),
    [
        ("refused", "widgets", "widgets.example.com have not been listed yet: widgets is forbidden", None),
        ("refused", "definitions", "may not be read: may not get; manifests/base/rbac.yaml", None),
        (
            "refused",
            "pods",
            "pods have not been listed yet: pods is forbidden",
            "ClusterRole effective-load-server",
        ),
        (
            "muted",
            "horizontalpodautoscalers",
            "horizontalpodautoscalers have not been listed yet",
            "horizontalpodautoscalers have not been listed yet",
        ),
    ],
)
async def test_what_was_never_read_is_the_reason_in_answers_and_readiness_until_it_is(
    how: str, what: str, says: str, unready: str | None
) -> None:
    async with standing(WEB, THING) as stand:
        getattr(stand.cluster, how).add(what)
        async with running(stand):
            await stand.until_refused(["thing"] if unready is None else ["web", "thing"], says)
            assert (stand.engine.freshness.unready() is None) is (unready is None)
            assert (unready or "") in (stand.engine.freshness.unready() or "")
            if unready is None:
                await stand.until_answered(["web"])
            if how == "muted":
                assert not stand.engine.snapshots.current.synced
            stand.cluster.mend()
            await stand.until_answered()
            assert stand.engine.freshness.unready() is None
