"""The companion at work: within its limit, urgent things first, and one policy's trouble is no other's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from adapter.companion import companion as module
from adapter.companion import plan
from adapter.companion.actions import Action, MarkPod, RaiseScale, WriteStatus
from adapter.companion.companion import Companion
from adapter.companion.features.status import status_of
from adapter.companion.state import Context
from adapter.kube.leader_election import LeaderElector
from adapter.kube.session import LARGEST_ANSWER, Session
from adapter.policy.hpa import Hpa
from adapter.settings import CompanionSettings
from adapter.snapshot import Key, Snapshot, SnapshotStore
from adapter.telemetry.metrics import Metrics
from tests.companion.kit import context
from tests.companion.test_fast_scale_up import hpa
from tests.kube.fake import Answer, FakeApi, status

LIST = "/apis/effective-load.io/v1alpha1/watermarkpolicies"


class Leading:
    """A lease that is held, and won again whenever it was `lost`."""

    def __init__(self) -> None:
        self.leads = True
        self.lost = asyncio.Event()

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            self.lost.clear()
            working = asyncio.ensure_future(work())
            try:
                await self.lost.wait()
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)


class Case:
    """A companion over `count` policies, and when each of its writes arrived."""

    def __init__(self, api: FakeApi, session: Session, settings: CompanionSettings) -> None:
        self.api, self.metrics = api, Metrics()
        self.staleness: str | None = None
        self.hpa: Hpa | None = None
        self.lease = Leading()
        self.picture = SnapshotStore()
        self.arrived: list[tuple[float, str]] = []
        self.hangs: set[str] = set()
        self.companion = Companion(
            session,
            cast("LeaderElector", self.lease),
            self.picture,
            lambda _: self.hpa,
            cast("Any", lambda _: context().neighbours),
            lambda: True,
            lambda _: self.staleness,
            settings,
            (),
            self.metrics,
        )
        api.answers[LIST] = self._listed

    async def _listed(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {}, "items": []})

    def policies(self, count: int) -> None:
        view = context().view
        names = [f"p{index:03}" for index in range(count)]
        self.picture.swap(Snapshot(policies={Key("shop", name): view for name in names}, synced=True))
        for name in names:
            self.api.answers[f"{LIST.replace('/watermark', '/namespaces/shop/watermark')}/{name}/status"] = self._took(
                name
            )

    def _took(self, name: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_: web.Request) -> web.StreamResponse:
            self.arrived.append((asyncio.get_running_loop().time(), name))
            if name in self.hangs:
                await asyncio.sleep(10)
            return web.json_response({})

        return answer

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.arrived]

    @property
    def errors(self) -> float:
        """How many plans broke."""
        labels = {"reason": "companion"}
        return self.metrics.registry.get_sample_value("effective_load_errors_total", labels) or 0.0

    async def until(self, holds: Callable[[], bool], seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110  the server tells nobody
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.0)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Case]]:
    running: list[asyncio.Task[None]] = []
    async with FakeApi() as api, Session(api.load) as session:

        def begin(count: int, **settings: Any) -> Case:
            case = Case(api, session, CompanionSettings(**settings))
            case.policies(count)
            running.append(asyncio.create_task(case.companion.run()))
            return case

        yield begin
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _write(case: Context) -> Iterator[Action]:
    yield WriteStatus(key=case.key, uid="u", status={})


def _nothing(_: Context) -> Iterator[Action]:
    yield from ()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The policies that are looked at, by name and in order, while nothing of them is urgent."""
    names: list[str] = []

    def urgent(case: Context) -> Iterator[Action]:
        names.append(case.key.name)
        return _nothing(case)

    monkeypatch.setattr(plan, "urgent", urgent)
    return names


async def test_every_policy_gets_its_status_within_the_limit(make: Callable[..., Case]) -> None:
    case = make(30, writes_per_second=40)
    await case.until(lambda: len(set(case.names)) == 30)
    moments = [moment for moment, _ in case.arrived]
    assert moments[-1] - moments[0] >= 28 / 40
    for first, last in zip(moments, moments[10:], strict=False):
        assert last - first >= 9 / 40, "nor is it exceeded for a moment"


async def test_urgent_actions_do_not_wait_for_steady_ones(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    urgent = {"p099"}
    monkeypatch.setattr(plan, "urgent", lambda case: _write(case) if case.key.name in urgent else _nothing(case))
    monkeypatch.setattr(plan, "steady", lambda case: _nothing(case) if case.key.name in urgent else _write(case))
    case = make(100, writes_per_second=5)
    await case.until(lambda: "p099" in case.names)
    assert len(case.names) <= 5


async def test_a_change_is_handled_before_the_resync_of_all_others(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    last = Key("shop", "p199")

    def urgent(case: Context) -> Iterator[Action]:
        if not looked:
            companion.companion.changed([last])
        looked.append(case.key.name)
        return _nothing(case)

    monkeypatch.setattr(plan, "urgent", urgent)
    companion = make(200)
    await companion.until(lambda: len(looked) >= 200)
    assert looked.index(last.name) <= module.URGENT_WORKERS


async def test_who_was_looked_at_lately_is_not_looked_at_again_for_nothing(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch, looked: list[str]
) -> None:
    monkeypatch.setattr(module, "RESYNC_SECONDS", 0.5)
    case = make(2)
    busy = Key("shop", "p000")
    changes = 0
    async with asyncio.timeout(20):
        while looked.count("p001") < 9:
            case.companion.changed([busy])
            changes += 1
            await asyncio.sleep(0.1)
    assert looked.count("p000") <= changes + 3, "the other one was looked at nine times without a change"


async def test_a_deleted_policy_leaves_nothing_to_a_new_one_of_its_name(make: Callable[..., Case]) -> None:
    case = make(0)
    case.policies(1)
    path = f"{LIST.replace('/watermark', '/namespaces/shop/watermark')}/p000/status"
    took, asked = case.api.answers[path], len(case.api.asked)
    case.api.answers[path] = status(403, "Forbidden")
    await case.until(lambda: len(case.api.asked) > asked + 1)
    await asyncio.sleep(0.1)
    (gone,) = case.picture.current.policies
    case.policies(0)
    case.companion.changed([gone])
    case.api.answers[path] = took
    case.policies(1)
    case.companion.changed([gone])
    await case.until(lambda: case.names == ["p000"], 1)


async def test_what_was_done_for_a_deleted_policy_is_not_known_of_a_new_one_of_its_name(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[object] = []

    def steady(one: Context) -> Iterator[Action]:
        known.append(one.state.written.status)
        if len(known) == 1:
            yield WriteStatus(key=one.key, uid="u", status={"current": 4})

    monkeypatch.setattr(plan, "steady", steady)
    case = make(1)
    done = "effective_load_companion_writes_total", {"action": "WriteStatus", "result": "done"}
    await case.until(lambda: case.metrics.registry.get_sample_value(*done) == 1)
    [key] = case.picture.current.policies
    case.policies(0)
    case.companion.changed([key])
    known.clear()
    case.policies(1)
    case.companion.changed([key])
    await case.until(lambda: bool(known))
    assert known[0] == {}


async def test_an_urgent_write_that_hangs_does_not_hold_up_another_one(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "urgent", _write)
    monkeypatch.setattr(plan, "steady", _nothing)
    case = make(0)
    case.hangs = {"p000", "p001", "p002"}
    case.policies(5)
    case.companion.changed(case.picture.current.policies)
    began = asyncio.get_running_loop().time()
    await case.until(lambda: {"p003", "p004"} <= set(case.names))
    assert asyncio.get_running_loop().time() - began < 1


async def test_a_policy_whose_plan_breaks_stops_no_other_and_is_counted(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(case: Context) -> Iterator[Action]:
        if case.key.name == "p001":
            raise RuntimeError("it broke")
        return _write(case)

    monkeypatch.setattr(plan, "steady", planned)
    with capture_logs():  # to print a traceback takes seconds beside other load
        case = make(4, writes_per_second=1000)
        await case.until(lambda: {"p000", "p002", "p003"} <= set(case.names))
    assert case.errors == 1
    assert "p001" not in case.names


async def test_a_plan_that_always_fails_backs_off_and_is_logged_once(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch, looked: list[str]
) -> None:
    def steady(_: Context) -> Iterator[Action]:
        raise RuntimeError("it broke")

    monkeypatch.setattr(plan, "steady", steady)
    with capture_logs() as logs:
        case = make(1)
        for times in range(1, 9):
            await case.until(lambda times=times: len(looked) >= times)  # type: ignore[misc]
            case.companion.changed(case.picture.current.policies)
        await asyncio.sleep(2)
        case.companion.changed(case.picture.current.policies)
        await case.until(lambda: case.errors == 2)
    assert [entry["event"] for entry in logs].count("planning failed") == 1


async def test_where_the_statuses_cannot_be_read_nothing_is_written_until_they_can(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESYNC_SECONDS", 0.1)
    case = make(0)
    case.policies(2)
    listed = case.api.answers[LIST]
    case.api.answers[LIST] = status(503, "ServiceUnavailable")
    await case.until(lambda: len(case.api.asked) >= 3)
    assert case.names == []
    case.api.answers[LIST] = listed
    await case.until(lambda: set(case.names) == {"p000", "p001"})


async def test_a_tenants_large_policies_keep_no_other_policys_status_from_being_written(
    make: Callable[..., Case],
) -> None:
    case = make(0)
    listed = case.api.answers[LIST]

    async def seven_at_most(request: web.Request) -> web.StreamResponse:
        return (
            web.Response(body=b" " * (LARGEST_ANSWER + 1)) if int(request.query["limit"]) > 7 else await listed(request)
        )

    case.api.answers[LIST] = seven_at_most
    case.policies(1)
    await case.until(lambda: case.names == ["p000"])


async def test_inputs_of_a_silent_watch_are_not_used_and_the_status_says_so(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESYNC_SECONDS", 0.05)
    seen: list[Context] = []

    def urgent(one: Context) -> Iterator[Action]:
        seen.append(one)
        return _nothing(one)

    monkeypatch.setattr(plan, "urgent", urgent)
    case = make(0)
    case.staleness, case.hpa = "the watch of pods has shown no life since 2026-01-01T00:00:00Z", hpa()
    case.policies(1)
    await case.until(lambda: case.names == ["p000"])
    assert seen[-1].silent
    assert (seen[-1].decision, seen[-1].hpa, seen[-1].view.scale) == (None, None, None)
    told = dict(status_of(seen[-1]))
    assert told["decision"] == case.staleness
    case.staleness = None
    await case.until(lambda: not seen[-1].silent)
    assert seen[-1].decision is not None
    assert seen[-1].hpa is case.hpa


async def test_a_companion_does_not_campaign_before_its_watches_are_filled(make: Callable[..., Case]) -> None:
    case = make(0)
    case.picture.swap(Snapshot())
    await asyncio.sleep(0.3)
    assert case.api.asked == []
    assert case.metrics.registry.get_sample_value("effective_load_companion_leads") == 0
    case.policies(1)
    await case.until(lambda: case.names == ["p000"])
    assert case.metrics.registry.get_sample_value("effective_load_companion_leads") == 1


async def test_an_action_during_the_reading_of_a_status_is_not_lost(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()
    raised: list[str] = []
    looked: list[Key] = []

    def steady(case: Context) -> Iterator[Action]:
        looked.append(case.key)
        return _write(case)

    def urgent(case: Context) -> Iterator[Action]:
        if asked.is_set() and case.state.raised.at is None:
            yield RaiseScale(key=case.key, path="/scale", target="t", current=4, to=5)

    async def scale(request: web.Request) -> web.StreamResponse:
        raised.extend([request.method] if request.method == "PUT" else [])
        return web.json_response({"metadata": {"uid": "t"}, "spec": {"replicas": 4}})

    async def read_again(_: web.Request) -> web.StreamResponse:
        asked.set()
        await go.wait()
        return web.json_response({"items": [{"metadata": {}, "status": {}}]})

    monkeypatch.setattr(plan, "urgent", urgent)
    monkeypatch.setattr(plan, "steady", steady)
    case = make(0)
    case.policies(1)
    policies = LIST.replace("/watermark", "/namespaces/shop/watermark")
    case.api.answers |= {f"{policies}/p000/status": status(422, "Invalid"), policies: read_again, "/scale": scale}
    async with asyncio.timeout(10):
        await asked.wait()
    case.companion.changed(case.picture.current.policies)
    await case.until(lambda: raised == ["PUT"])
    go.set()
    await case.until(lambda: len(looked) == 2)  # it has been read
    case.companion.changed(case.picture.current.policies)
    await asyncio.sleep(0.2)
    assert raised == ["PUT"]


async def test_an_action_without_the_lease_is_tried_again_and_counts_for_nothing(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Any] = []

    def steady(case: Context) -> Iterator[Action]:
        planned.append(case.state.marking)
        yield MarkPod(key=case.key, namespace="shop", pod="web-1", uid="u1", first=True)

    async def marked(_: web.Request) -> web.StreamResponse:
        case.arrived.append((0.0, "web-1"))
        return web.json_response({})

    monkeypatch.setattr(plan, "steady", steady)
    case = make(0)
    case.api.answers["/api/v1/namespaces/shop/pods/web-1"] = marked
    case.lease.leads = False
    case.policies(1)
    await case.until(lambda: bool(planned))
    case.companion.changed(case.picture.current.policies)
    await case.until(lambda: len(planned) == 2)
    assert planned[0] == planned[1], "the pod's cost was taken for somebody else's"
    case.lease.leads = True
    case.companion.changed(case.picture.current.policies)
    await case.until(lambda: case.names == ["web-1"])


async def test_costs_of_other_clients_are_remembered_when_the_lease_is_won_again(
    make: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[Any] = []

    def steady(case: Context) -> Iterator[Action]:
        known.append(case.state.marking.foreign.keys())
        if not case.state.marking.foreign:
            yield MarkPod(key=case.key, namespace="shop", pod="web-1", uid="u1", first=True)

    monkeypatch.setattr(plan, "steady", steady)
    case = make(0)
    case.api.answers["/api/v1/namespaces/shop/pods/web-1"] = status(409, "Conflict")
    case.policies(1)
    refused = {"action": "MarkPod", "result": "Conflict"}
    name = "effective_load_companion_writes_total"
    await case.until(lambda: case.metrics.registry.get_sample_value(name, refused) == 1)
    case.lease.lost.set()
    await case.until(lambda: len(known) == 2)
    assert known[1] == {"u1"}


@pytest.mark.parametrize("refused", [status(422, "Invalid"), status(409, "Conflict")], ids=["invalid", "conflict"])
async def test_what_was_written_over_meanwhile_is_read_again_before_it_is_written(
    make: Callable[..., Case], refused: Answer
) -> None:
    case = make(0)
    case.policies(1)
    policies = LIST.replace("/watermark", "/namespaces/shop/watermark")
    path = f"{policies}/p000"
    took = case.api.answers[f"{path}/status"]
    case.api.answers[f"{path}/status"] = refused
    read: list[str] = []

    async def current(request: web.Request) -> web.StreamResponse:
        read.append(request.query["fieldSelector"])
        case.api.answers[f"{path}/status"] = took
        return web.json_response({"items": [{"metadata": {}, "status": {"assessedAt": "2020-01-01T00:00:00Z"}}]})

    case.api.answers[policies] = current
    await case.until(lambda: bool(read))
    await asyncio.sleep(2.1)  # what failed waits so long
    case.companion.changed(case.picture.current.policies)
    await case.until(lambda: case.names == ["p000"])
    assert read == ["metadata.name=p000"]


async def test_a_policy_that_is_not_assessed_yet_gets_no_status(make: Callable[..., Case]) -> None:
    case = make(2)
    views = case.picture.current.policies
    [first, second] = views
    announced = replace(views[first], assessment=None, pending=True)
    case.picture.swap(Snapshot(policies={first: announced, second: views[second]}, synced=True))
    await case.until(lambda: second.name in case.names)
    assert first.name not in case.names
    case.picture.swap(Snapshot(policies=views, synced=True))
    await case.until(lambda: first.name in case.names)
