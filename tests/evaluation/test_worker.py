import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from adapter.evaluation.worker import Worker
from adapter.load.spec import Target
from adapter.runtime.concurrency import PASSES
from adapter.runtime.work_queue import WorkQueue
from adapter.snapshot import Key, PolicyView, SnapshotStore, TargetKey
from adapter.telemetry.metrics import Metrics
from tests.apiserver import snapshots
from tests.load.kit import NOW, assess_and_decide, cpu, policy, same, usage

A, B = Key("shop", "a"), Key("shop", "b")


def view(key: Key, target: str = "") -> PolicyView:
    named = Target(api_version="apps/v1", kind="Deployment", name=target) if target else None
    return PolicyView(policy=policy(name=key.name), target=named, target_resource="deployments.apps" if target else "")


class Bench:
    """A worker that evaluates to these views, and what it was asked for."""

    def __init__(self) -> None:
        self.views: dict[Key, PolicyView | Exception | None] = {}
        self.seen: list[Key] = []
        self.snapshots = SnapshotStore()
        self.queue = WorkQueue(spacing=0.01)
        self.metrics = Metrics()
        self.worker = Worker(self.queue, self.snapshots, self.evaluate, self.metrics)
        self.changed = asyncio.Event()
        self.running: asyncio.Task[None] | None = None

    def run(self, *keys: Key, begin: Callable[[Key], PolicyView | Callable[[], PolicyView]] | None = None) -> None:
        """Queue these policies, and let the worker run until the test ends."""
        if begin is not None:
            self.worker = Worker(self.queue, self.snapshots, begin, self.metrics)
        self.running = asyncio.create_task(self.worker.run())
        for key in keys:
            self.queue.add(key)

    def evaluate(self, key: Key) -> PolicyView | None:
        self.seen.append(key)
        self.changed.set()
        found = self.views.get(key)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    if bench.running is not None:
        bench.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bench.running


async def until(bench: Bench, count: int) -> None:
    while len(bench.seen) < count:
        bench.changed.clear()
        await asyncio.wait_for(bench.changed.wait(), 5)
    for _ in range(2 * PASSES):
        await asyncio.sleep(0)


async def test_a_policy_is_evaluated_again_as_soon_as_a_sample_becomes_too_old(bench: Bench) -> None:
    pods, loads = same(2, "1")
    now = NOW + 79.9
    assessment, _ = assess_and_decide(policy(cpu()), pods, usage(loads, at=NOW - 10), now=now)
    assert assessment.stale_at == NOW + 80
    bench.views[A] = replace(view(A), assessment=assessment)
    bench.run(A)
    await until(bench, 2)


async def test_a_failed_evaluation_drops_the_last_assessment_and_stops_no_other_policy(bench: Bench) -> None:
    bench.worker.publish({A: snapshots.view(A.name)})
    assert bench.snapshots.current.policies[A].assessment is not None
    bench.views |= {A: ValueError("broken"), B: view(B)}
    bench.run(A, B)
    await until(bench, 2)
    current = bench.snapshots.current
    assert current.policies[A].assessment is None
    assert current.policies[B] == view(B)
    assert bench.metrics.registry.get_sample_value("effective_load_errors_total", {"reason": "assessment"}) == 1


async def test_every_policy_is_evaluated_again_without_a_change(bench: Bench) -> None:
    bench.worker.resync_seconds = 0.05
    bench.views[A] = view(A)
    bench.run(A)
    await until(bench, 3)
    assert set(bench.seen) == {A}


async def test_pending_policies_are_published_at_once_until_each_was_evaluated_or_deleted(bench: Bench) -> None:
    bench.views[A] = view(A)
    bench.worker.publish_pending({A: view(A), B: view(B)})
    assert {key: found.pending for key, found in bench.snapshots.current.policies.items()} == {A: True, B: True}
    evaluated = asyncio.create_task(bench.worker.evaluated())
    bench.run(A)
    await until(bench, 1)
    await asyncio.sleep(0)
    assert (evaluated.done(), bench.worker.pending) == (False, {B})
    bench.queue.add(B)
    await asyncio.wait_for(evaluated, 5)
    assert {key: found.pending for key, found in bench.snapshots.current.policies.items()} == {A: False}


async def test_a_policy_whose_first_evaluation_fails_is_still_published(bench: Bench) -> None:
    bench.views[A] = ValueError("broken")
    bench.worker.publish_pending({A: view(A)})
    bench.run(A)
    await asyncio.wait_for(bench.worker.evaluated(), 5)
    assert bench.snapshots.current.policies == {A: view(A)}


async def test_a_policy_that_is_deleted_or_has_another_target_frees_its_first_unless_another_took_it_over(
    bench: Bench,
) -> None:
    web, api = (TargetKey("shop", "deployments.apps", name) for name in ("web", "api"))
    bench.worker.publish({A: view(A, "web")})
    bench.worker.publish({A: view(A, "api")})
    assert bench.snapshots.current.by_target == {api: A}
    bench.worker.publish({A: view(A, "web"), B: view(B, "web")})
    bench.worker.publish({A: view(A, "api")})
    assert bench.snapshots.current.by_target == {web: B, api: A}
    bench.worker.publish({A: None})
    assert bench.snapshots.current.by_target == {web: B}
    assert bench.snapshots.current.policies.keys() == {B}
