"""The companion at work: within its limit, urgent things first, and one policy's trouble is no other's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from adapter.companion import companion as module
from adapter.companion.companion import Companion
from adapter.companion.state import Context, Write
from adapter.companion.status import status_of
from adapter.kube.api import EVENTS
from adapter.kube.leader_election import LeaderElector
from adapter.kube.session import Session
from adapter.load.spec import Mode
from adapter.policy.hpa import Hpa
from adapter.policy.linking import Neighbours
from adapter.settings import CompanionSettings
from adapter.snapshot import Key, Snapshot, SnapshotStore
from adapter.telemetry.metrics import Metrics
from tests.companion.kit import RULE, context, hpa
from tests.kube.fake import FENCED_OFF, Answer, FakeApi, status, text
from tests.waiting import eventually

POLICIES = "/apis/effective-load.io/v1alpha1/namespaces/shop/watermarkpolicies"

Plan = Callable[[Context], Iterator[Write]]


def status_path(name: str = "p000") -> str:
    return f"{POLICIES}/{name}/status"


class Leading:
    """A lease that is held."""

    leads = True

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        await work()


class Case:
    """A companion over `count` policies, and when each of its writes arrived."""

    def __init__(self, api: FakeApi, session: Session, settings: CompanionSettings) -> None:
        self.api, self.metrics = api, Metrics()
        self.staleness: str | None = None
        self.hpa: Hpa | None = None
        self.tolerance_seen, self.picture = True, SnapshotStore()
        self.arrived: list[tuple[float, str]] = []
        self.companion = Companion(
            session, cast("LeaderElector", Leading()), self.picture, lambda _: self.hpa, lambda _: Neighbours(),
            lambda: self.tolerance_seen, lambda _: self.staleness, settings, self.metrics, settle_seconds=0.0,
        )  # fmt: skip
        api.answers[POLICIES] = text('{"metadata": {}, "items": []}')

    def policies(self, count: int) -> None:
        view = context().view
        names = [f"p{index:03}" for index in range(count)]
        self.picture.swap(Snapshot(policies={Key("shop", name): view for name in names}, synced=True))
        for name in names:
            self.api.answers[status_path(name)] = self.takes(name)

    def takes(self, name: str) -> Answer:
        """An answer that notes what was written."""

        async def answer(_: web.Request) -> web.StreamResponse:
            self.arrived.append((asyncio.get_running_loop().time(), name))
            return web.json_response({})

        return answer

    def changed(self) -> None:
        """Every policy has changed."""
        self.companion.changed(self.picture.current.policies)

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.arrived]

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"effective_load_{name}", labels) or 0.0

    async def until(self, holds: Callable[[], bool], seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            await eventually(holds)


Make = Callable[..., Case]


@pytest.fixture
async def make(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    """Starts a companion at the next await; plans take the place of the product's."""
    running: list[asyncio.Task[None]] = []
    async with FakeApi() as api, Session(api.load) as session:

        def begin(count: int, *, urgent: Plan | None = None, steady: Plan | None = None, **settings: Any) -> Case:
            product, plans = module.writes, {True: urgent, False: steady}

            def writes(context: Context, *, urgent: bool) -> Iterator[Write]:
                planned = plans[urgent]
                return planned(context) if planned is not None else product(context, urgent=urgent)

            monkeypatch.setattr(module, "writes", writes)
            case = Case(api, session, CompanionSettings(**settings))
            case.policies(count)
            running.append(asyncio.create_task(case.companion.run()))
            return case

        yield begin
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _write(case: Context) -> Iterator[Write]:
    path = status_path(case.key.name)
    yield Write(key=case.key, kind="WriteStatus", path=path, body=[])


def _nothing(_: Context) -> Iterator[Write]:
    yield from ()


async def test_every_policy_gets_its_status_within_the_limit(make: Make) -> None:
    case = make(30, writes_per_second=20)
    await case.until(lambda: len(set(case.names)) == 30)
    moments = [moment for moment, _ in case.arrived]
    late = 0.25  # a write may arrive so much after it was sent
    assert moments[-1] - moments[0] >= 29 / 20 - late
    for first, last in zip(moments, moments[10:], strict=False):
        assert last - first >= 10 / 20 - late, "nor is it exceeded for a moment"


async def test_no_policy_is_looked_at_before_it_is_known_whether_hpas_have_a_tolerance(make: Make) -> None:
    """An HPA would look wrong until the next look, and its condition would change with each leader."""
    known: list[bool | None] = []

    def looks(case: Context) -> Iterator[Write]:
        known.append(case.has_tolerance)
        return _nothing(case)

    async def version(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return web.json_response({"major": "1", "minor": "34"})

    case = make(3, urgent=looks)
    case.tolerance_seen = False
    case.api.answers["/version"] = version
    case.changed()
    await case.until(lambda: len(known) >= 3)
    assert set(known) == {False}


async def test_urgent_actions_do_not_wait_for_steady_ones(make: Make) -> None:
    def plan(*, is_last: bool) -> Plan:
        return lambda case: _write(case) if (case.key.name == "p099") is is_last else _nothing(case)

    case = make(100, urgent=plan(is_last=True), steady=plan(is_last=False), writes_per_second=1)
    await case.until(lambda: "p099" in case.names)
    assert len(case.names) <= 20


async def test_a_deleted_policy_leaves_nothing_to_a_new_one_of_its_name(make: Make) -> None:
    case = make(1)
    case.api.answers[status_path()] = status(403, "Forbidden")
    await case.until(lambda: case.count("companion_writes_total", action="WriteStatus", result="Forbidden") == 1)
    (gone,) = case.picture.current.policies
    for count in (0, 1):
        case.policies(count)
        case.companion.changed([gone])
    await case.until(lambda: case.names == ["p000"], 1)


async def test_a_policy_whose_plan_breaks_stops_no_other_and_is_counted(make: Make) -> None:
    def planned(case: Context) -> Iterator[Write]:
        if case.key.name == "p001":
            raise RuntimeError("it broke")
        return _write(case)

    with capture_logs():  # to print a traceback takes seconds beside other load
        case = make(4, steady=planned, writes_per_second=1000)
        await case.until(lambda: {"p000", "p002", "p003"} <= set(case.names))
    assert case.count("errors_total", reason="companion") == 1
    assert "p001" not in case.names


async def test_a_status_that_cannot_be_read_holds_up_no_other_policy(make: Make) -> None:
    case = make(3)

    async def all_but_one(request: web.Request) -> web.StreamResponse:
        fails = request.query["fieldSelector"].endswith("p001")
        return web.json_response({"items": []}, status=503 if fails else 200)

    case.api.answers[POLICIES] = all_but_one
    await case.until(lambda: {"p000", "p002"} <= set(case.names))
    assert "p001" not in case.names


async def test_inputs_of_a_silent_watch_are_not_used_and_the_status_says_so(make: Make) -> None:
    seen: list[Context] = []

    def urgent(one: Context) -> Iterator[Write]:
        seen.append(one)
        return _nothing(one)

    case = make(1, urgent=urgent, status_interval_seconds=0.05)
    case.staleness, case.hpa = "the watch of pods has shown no life since 2026-01-01T00:00:00Z", hpa()
    await case.until(lambda: case.names == ["p000"])
    assert seen[-1].silent
    assert (seen[-1].decision, seen[-1].hpa, seen[-1].view.scale) == (None, None, None)
    assert dict(status_of(seen[-1]))["decision"] == case.staleness
    case.staleness = None
    await case.until(lambda: not seen[-1].silent)
    assert seen[-1].decision is not None
    assert seen[-1].hpa is case.hpa


async def test_a_companion_does_not_campaign_before_its_watches_are_filled(make: Make) -> None:
    case = make(0)
    case.picture.swap(Snapshot())
    await asyncio.sleep(0.3)
    assert case.api.asked == []
    assert case.count("companion_leader") == 0
    case.policies(1)
    await case.until(lambda: case.names == ["p000"])
    assert case.count("companion_leader") == 1


@pytest.mark.parametrize("refused", [FENCED_OFF, status(409, "Conflict")], ids=["fenced off", "conflict"])
async def test_what_was_written_over_meanwhile_is_read_again_before_it_is_written(make: Make, refused: Answer) -> None:
    case = make(1)
    took = case.api.answers[status_path()]
    case.api.answers[status_path()] = refused
    read: list[str] = []

    async def current(request: web.Request) -> web.StreamResponse:
        read.append(request.query["fieldSelector"])
        case.api.answers[status_path()] = took
        written = {"metadata": {"name": "p000"}, "status": {"assessedAt": "2020-01-01T00:00:00Z"}}
        return web.json_response({"items": [written]})

    case.api.answers[POLICIES] = current
    await case.until(lambda: bool(read))
    case.changed()
    await case.until(lambda: case.names == ["p000"])
    assert set(read) == {"metadata.name=p000"}


class Terms(Leading):
    """A lease that is lost once, and held again."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        term = asyncio.ensure_future(work())
        await self.lost.wait()
        term.cancel()
        await asyncio.gather(term, return_exceptions=True)
        await work()


async def test_an_event_that_was_refused_until_the_lease_was_lost_is_written_in_the_next_term(make: Make) -> None:
    case, terms, tried = make(0, status_interval_seconds=0.5), Terms(), list[str]()

    async def take(request: web.Request) -> web.StreamResponse:
        tried.append((await request.json())["metadata"]["name"])
        return web.json_response({}, status=201 if terms.lost.is_set() else 500)

    case.companion.lease = cast("LeaderElector", terms)
    case.api.answers[EVENTS.collection("shop")] = take
    observing = context(rule=replace(RULE, mode=Mode.OBSERVE)).view
    case.picture.swap(Snapshot(policies={Key("shop", "p000"): observing}, synced=True))
    await case.until(lambda: bool(tried))
    refused = len(tried)
    terms.lost.set()
    await case.until(lambda: len(tried) > refused)
    assert len(set(tried)) == 1


async def test_a_new_term_goes_on_from_the_status_that_another_leader_wrote(make: Make) -> None:
    terms, seen = Terms(), list[Any]()

    def plan(context: Context) -> Iterator[Write]:
        seen.append(context.written.status.get("decision"))
        yield from ()

    case = make(1, steady=plan)
    case.companion.lease = cast("LeaderElector", terms)
    for leader in ("first", "another"):
        written = f'{{"metadata": {{"name": "p000"}}, "status": {{"decision": "{leader}"}}}}'
        case.api.answers[POLICIES] = text(f'{{"items": [{written}]}}')
        await case.until(lambda: bool(seen) and seen[-1] == leader)  # noqa: B023  awaited at once
        terms.lost.set()


async def test_a_policy_that_is_not_assessed_yet_gets_no_status(make: Make) -> None:
    case = make(2)
    views = case.picture.current.policies
    [first, second] = views
    announced = replace(views[first], assessment=None, pending=True)
    case.picture.swap(Snapshot(policies={first: announced, second: views[second]}, synced=True))
    await case.until(lambda: second.name in case.names)
    assert first.name not in case.names
    case.picture.swap(Snapshot(policies=views, synced=True))
    await case.until(lambda: first.name in case.names)
