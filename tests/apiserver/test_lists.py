"""A list of many objects is made and written in slices; a user makes few at a time, and who does not read loses it."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest
import trustme
from adapter.apiserver.fair_gate import ByteBudget, FairGate

from adapter.apiserver import handler
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import RequestInfo
from adapter.runtime import inbound
from tests.apiserver import snapshots
from tests.apiserver.cluster import REVIEWS, Cluster
from tests.apiserver.conftest import HPA, Ask, Clock, Service
from tests.apiserver.metric_requests import CUSTOM, POLICY
from tests.effort import steps
from tests.security.connections import PATIENCE, begun, is_whole, unread
from tests.waiting import eventually

PODS = f"{CUSTOM}/pods/%2A/effective_cpu"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop"


@pytest.fixture
def many(service: Service) -> int:
    """The number of pods of the policy."""
    pods = [snapshots.reading(f"p{number}", cpu=100 + number) for number in range(10_000)]
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=service.session.now(), pods=pods)))
    return len(pods)


async def test_a_list_has_every_pod_once(ask: Ask, many: int) -> None:
    answer = await ask(PODS)
    names = [item["describedObject"]["name"] for item in answer.json()["items"]]
    assert (answer.status, len(names), len(set(names))) == (200, many, many)
    assert int(answer.headers["Content-Length"]) == len(answer.body)


@pytest.fixture
async def slow(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A list of bob is being made."""
    monkeypatch.setattr(handler, "QUEUE_SECONDS", 0.2)
    begun, made, make = asyncio.Semaphore(0), asyncio.Event(), MetricsProvider.custom

    async def custom(self: MetricsProvider, request: RequestInfo) -> bytes:
        if request.metric == "effective_slow":
            begun.release()
            await made.wait()
        return await make(self, request)

    monkeypatch.setattr(MetricsProvider, "custom", custom)
    path = PODS.replace("cpu", "slow")
    making = asyncio.create_task(ask(path, "bob"))
    async with asyncio.timeout(PATIENCE):
        await begun.acquire()
    yield
    made.set()
    assert (await making).status == 404


async def test_a_user_has_one_list_at_a_time_and_others_do_not_wait(ask: Ask, many: int, slow: None) -> None:
    refused = await ask(PODS, "bob")
    assert (refused.status, refused.message) == (503, "other lists took all of 0.2 s")
    assert (await ask(PODS, "ann")).status == 200
    assert (await ask(f"{POLICY}/effective_cpu", "bob")).status == 200


async def test_lists_of_users_take_no_place_of_the_hpas(few: None, ask: Ask, many: int, slow: None) -> None:
    assert (await ask(PODS, "ann")).status == 503
    for user in (HPA, "system:kube-controller-manager"):
        assert (await ask(PODS, user)).status == 200


async def test_what_looks_at_all_pods_or_policies_takes_a_place_and_the_metric_of_a_policy_that_is_named_does_not(
    few: None, service: Service, ask: Ask, many: int, slow: None
) -> None:
    current = service.snapshot_store.current
    service.snapshot_store.swap(dataclasses.replace(current, queries={"requests": snapshots.query("requests")}))
    for list_ in (f"{EXTERNAL}/requests", f"{EXTERNAL}/effective_cpu", f"{CUSTOM}/pods/p1/effective_cpu"):
        assert (await ask(list_, "ann")).status == 503
    for metric in ("effective_cpu", "desired_replicas"):
        assert (await ask(f"{EXTERNAL}/{metric}?labelSelector=policy%3Dcheckout", "ann")).status == 200


async def test_a_long_selector_takes_a_place_while_it_is_read(few: None, ask: Ask, many: int, slow: None) -> None:
    """Reading one takes 4 ms: with 16 connections a tenant kept the HPA waiting for 80 ms."""
    target = f"{POLICY}/effective_cpu?metricLabelSelector=policy+in+(checkout,{','.join(f'p{n}' for n in range(500))})"
    assert (await ask(target, "ann")).status == 503
    assert (await ask(target)).status == 200


async def test_lists_that_are_not_read_take_no_place_of_those_that_are_made(
    few: None, scarce: None, service: Service, ask: Ask, proxy: trustme.LeafCert, many: int
) -> None:
    wires = [await begun(service, proxy, user, PODS) for user in ("bob", "bob", "eve", "eve")]
    for user in ("bob", "ann"):
        assert (await ask(PODS, user)).status == 200
    for wire in wires:
        wire.close()


@pytest.mark.parametrize("paces", [False, True], ids=["does not read", "reads a kilobyte at a time"])
async def test_a_client_that_takes_less_than_a_step_in_its_time_is_dropped(
    service: Service, proxy: trustme.LeafCert, many: int, monkeypatch: pytest.MonkeyPatch, paces: bool
) -> None:
    monkeypatch.setattr(inbound, "STEP_SECONDS", 0.3)
    wire = await asyncio.to_thread(unread, service, proxy, "bob", PODS)
    await eventually(lambda: bool(service.server.connections.connections))
    async with asyncio.timeout(PATIENCE):
        while service.server.connections.connections:
            await asyncio.to_thread(wire.recv, 1024) if paces else None
            await asyncio.sleep(0.01)
    wire.close()


@pytest.mark.parametrize("users", [1, 10])
async def test_answers_that_are_not_read_take_a_bounded_number_of_bytes_and_keep_nobody_elses_out(
    scarce: None, service: Service, ask: Ask, proxy: trustme.LeafCert, many: int, users: int
) -> None:
    wires = [await begun(service, proxy, f"user-{number % users}", PODS) for number in range(10)]
    answers = await asyncio.gather(*(ask(PODS) for _ in range(5)))
    assert [answer.status for answer in answers] == 5 * [200]
    whole = [await asyncio.to_thread(is_whole, wire) for wire in wires]
    assert 0 < whole.count(True) <= 6, "each takes more than two megabytes of sixteen"


async def test_a_user_who_does_not_read_keeps_a_slow_reader_from_nothing(
    scarce: None, service: Service, proxy: trustme.LeafCert, many: int
) -> None:
    slow = await begun(service, proxy, "ann", PODS)
    wires = [await begun(service, proxy, "bob", PODS) for _ in range(8)]
    assert await asyncio.to_thread(is_whole, slow)
    for wire in wires:
        wire.close()


async def test_a_user_who_did_not_read_and_lost_an_answer_waits_for_the_next_and_nobody_else_does(
    scarce: None, service: Service, ask: Ask, proxy: trustme.LeafCert, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked anew at once kept the loop busy with lists that nobody read."""
    monkeypatch.setattr(handler, "REST_SECONDS", 600.0)
    monkeypatch.setattr(handler, "QUEUE_SECONDS", 0.2)
    wires = [await begun(service, proxy, "bob", PODS) for _ in range(7)]
    refused = await ask(PODS, "bob")
    assert (refused.status, refused.message) == (503, "answers that bob did not read took all of 0.2 s")
    assert (await ask(PODS, "ann")).status == 200
    assert (await ask(f"{POLICY}/effective_cpu", "bob")).status == 200
    for wire in wires:
        wire.close()


async def test_a_flow_that_rests_is_admitted_afterwards_and_others_meanwhile() -> None:
    gate = FairGate(2, 2, 10)
    gate.rest("eve", 0.05)
    waiting = asyncio.create_task(gate.slot("eve", PATIENCE).__aenter__())
    async with gate.slot("ann", 0.0):
        assert not waiting.done()
        await waiting


def test_beyond_the_budget_the_flow_with_the_most_bytes_that_wait_loses_those_that_wait_longest() -> None:
    lost: list[str] = []
    clock = Clock(0.0)
    budget = ByteBudget(100, {"hpa"}, now=clock)
    with contextlib.ExitStack() as stack:

        def hold(flow: str, name: str, size: int) -> None:
            stack.enter_context(budget.hold(flow, size, lambda: lost.append(name)))
            clock.now += 1

        for flow, name, size in [("eve", "e1", 30), ("ann", "a1", 20), ("eve", "e2", 20), ("eve", "e3", 20)]:
            hold(flow, name, size)
        hold("hpa", "h1", 1000)
        hold("bob", "b1", 30)
        assert lost == ["e1"]
        hold("bob", "b2", 50)
        assert lost == ["e1", "e2", "b1"]
        hold("bob", "b3", 200)
        assert lost[3:] == ["b2"], "an answer of any size is written, and gives nobody up who keeps much less"
        hold("cat", "c1", 40)
        assert lost[4:] == ["b3"], "nor what the HPA waits for"


def test_what_a_hold_counts_is_free_once_it_is_left_or_given_up() -> None:
    clock, lost = Clock(0.0), list[int]()
    budget = ByteBudget(100, now=clock)
    for number in range(50):
        with budget.hold("eve", 90, lambda: lost.append(0)):
            clock.now += 1
            with budget.hold("ann", 70, lambda: lost.append(-1)):
                assert lost == [0] * (number + 1)


def test_what_moves_keeps_more_than_what_waits_and_is_displaced_only_beyond_three_times_the_budget() -> None:
    clock, lost = Clock(0.0), list[str]()
    budget = ByteBudget(100, {"hpa"}, patience=1.0, now=clock)
    with (
        budget.hold("eve", 95, lambda: lost.append("eve")) as moving,
        budget.hold("hpa", 900, lambda: lost.append("hpa")),
        budget.hold("bob", 90, lambda: lost.append("bob")),
    ):
        clock.now = 0.9
        budget.moved(moving)
        with budget.hold("ann", 90, lambda: lost.append("ann")):
            assert not lost
            clock.now = 1.2
            with budget.hold("cat", 1, lambda: lost.append("cat")):
                assert lost == ["bob"]
            with budget.hold("cat", 170, lambda: lost.append("cat")):
                assert lost == ["bob", "eve"]


@pytest.mark.parametrize("tight", [8], indirect=True)
async def test_users_who_read_lose_nothing_however_many_ask_at_once(tight: None, ask: Ask, many: int) -> None:
    """Of four users who read four megabytes a second two lost their lists, and rested."""
    users = [f"user-{number}" for number in range(6)]
    answers = await asyncio.gather(*(ask(PODS, user) for user in users))
    assert [answer.status for answer in answers] == 6 * [200]


@pytest.mark.parametrize("tight", [1], indirect=True)
async def test_small_requests_end_neither_an_answer_beyond_the_budget_nor_each_other_beside_the_hpas_lists(
    tight: None, service: Service, ask: Ask, proxy: trustme.LeafCert, many: int, cluster: Cluster
) -> None:
    """A list of 40,000 pods was never whole; a user's small request ended because the HPA's lists were large."""
    wires = [await begun(service, proxy, user, PODS) for user in ("ann", HPA, HPA)]
    before, path = cluster.reviews(), f"{POLICY}/effective_cpu"
    cluster.faults[REVIEWS] = answering = asyncio.Event()
    asking = [asyncio.create_task(ask(path, user)) for user in ("bob", "eve")]
    await eventually(lambda: cluster.reviews() == before + len(asking))
    answering.set()
    assert [(await each).status for each in asking] == [200, 200]
    assert [await asyncio.to_thread(is_whole, wire) for wire in wires] == 3 * [True]


@pytest.fixture
def tight(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many MiB for answers; everybody who takes a step in a minute reads."""
    monkeypatch.setattr(handler, "HELD_BYTES", request.param << 20)
    monkeypatch.setattr(handler, "MOVING_SECONDS", 60.0)
    monkeypatch.setattr(handler, "QUEUE_SECONDS", PATIENCE)
    monkeypatch.setattr(inbound, "STEP_SECONDS", 600.0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One list is made at a time."""
    monkeypatch.setattr(handler, "LISTS", 1)


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six large answers have room, and nothing moves; who reads slowly is not dropped, who did not read rests not."""
    monkeypatch.setattr(handler, "HELD_BYTES", 16 << 20)
    monkeypatch.setattr(handler, "REST_SECONDS", 0.0)
    monkeypatch.setattr(handler, "MOVING_SECONDS", 0.0)
    monkeypatch.setattr(inbound, "STEP_SECONDS", 600.0)


async def test_the_loop_goes_on_while_a_list_of_ten_thousand_pods_is_made(
    service: Service, proxy: trustme.LeafCert, many: int
) -> None:
    wire = await asyncio.to_thread(unread, service, proxy, "bob", PODS)
    with steps() as longest:
        assert (await asyncio.to_thread(wire.recv, 100)).startswith(b"HTTP/1.1 200")
    assert longest.calls < 4 * many, "a step makes a part of the list"
    wire.close()


@pytest.mark.parametrize(
    "target",
    [
        f"{EXTERNAL}/effective_cpu?labelSelector=",
        f"{CUSTOM}/watermarkpolicies.effective-load.io/%2A/effective_cpu?metricLabelSelector=",
        f"{CUSTOM}/pods/p1/effective_cpu?metricLabelSelector=",
    ],
    ids=["external", "policies", "pods"],
)
async def test_the_loop_goes_on_while_a_thousand_policies_are_selected_from(
    service: Service, ask: Ask, target: str
) -> None:
    """A request took it for 40 ms, and a tenant makes hundreds at once."""
    now = service.session.now()
    service.snapshot_store.swap(snapshots.snapshot(*(snapshots.view(f"p{number}", at=now) for number in range(1000))))
    with steps() as longest:
        answer = await ask(f"{target}{','.join(f'k{n}%21=v' for n in range(32))}")
    assert (answer.status in {200, 404}, longest.calls < 40_000) == (True, True)


async def test_the_loop_goes_on_while_ten_thousand_pods_are_selected_from(ask: Ask, many: int) -> None:
    """One request with 250 requirements took the loop for two seconds."""
    few, most = (",".join(f"%21k{number}" for number in range(count)) for count in (32, 33))
    with steps() as longest:
        answer = await ask(f"{PODS}?labelSelector={few}")
    assert (answer.status, longest.calls < 8 * many) == (200, True)
    answer = await ask(f"{PODS}?labelSelector={most}")
    assert (answer.status, answer.message) == (400, "invalid labelSelector: it has more than 32 requirements")
