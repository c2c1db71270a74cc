"""What reaches the API server: nothing of a process that does not lead, nothing over what it did not know or owns."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from adapter.companion.state import Action, ActionResult, RaiseScale, Write, once_done
from adapter.companion.writer import WRITE_SECONDS, Writer
from adapter.kube.api import JSON_PATCH
from adapter.kube.leader_election import BELIEVED_SECONDS, DURATION_SECONDS
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.companion.kit import KEY
from tests.kube.fake import FakeApi, status, text

PATH = "/apis/effective-load.io/v1alpha1/namespaces/shop/watermarkpolicies/web/status"
SCALE = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
HPA = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web"
POD = "/api/v1/namespaces/shop/pods/web-1"
RAISE = RaiseScale(key=KEY, path=SCALE, target="uid-1", current=4, to=8)
BODY = [{"op": "test", "path": "/metadata/uid", "value": "u1"}, {"op": "add", "path": "/status", "value": {}}]
ACTION = Write(key=KEY, kind="WriteStatus", path=PATH, body=BODY, content_type=JSON_PATCH, after=once_done())
MARK = Write(key=KEY, kind="MarkPod", path=POD, body={"metadata": {"uid": "uid-web-1"}}, after=once_done())


class Case:
    """A writer, the API server that it writes to, and what arrived there."""

    def __init__(self, api: FakeApi, session: Session, metrics: Metrics) -> None:
        self.api, self.metrics, self.leads = api, metrics, True
        self.writer = Writer(session, lambda: self.leads, metrics)
        self.arrived: list[Any] = []
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Method, type of the content and query of each write."""
        self.scale: Any = {
            "metadata": {"name": "web", "namespace": "shop", "uid": "uid-1", "resourceVersion": "77"},
            "spec": {"replicas": 4},
            "status": {},
        }
        api.answers |= dict.fromkeys((PATH, SCALE, POD), self._take)

    async def _take(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response(self.scale)
        self.requests.append((request.method, request.content_type, dict(request.query)))
        self.arrived.append(json.loads(await request.read()))
        await self.let_go.wait()
        return web.json_response({})

    def counted(self, result: str) -> float:
        labels = {"action": "WriteStatus", "result": result}
        return self.metrics.registry.get_sample_value("effective_load_companion_writes_total", labels) or 0.0


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    metrics = Metrics()
    async with FakeApi() as api, Session(api.load, metrics=metrics) as session:
        yield Case(api, session, metrics)


async def test_a_patch_is_sent_as_it_was_planned_and_counted(case: Case) -> None:
    assert await case.writer.carry_out(ACTION) is ActionResult.DONE
    assert case.arrived == [BODY]
    assert case.requests == [("PATCH", "application/json-patch+json", {})]
    assert case.counted("done") == 1


@pytest.mark.parametrize("action", [ACTION, RAISE, MARK], ids=["a status", "a scale", "a mark"])
async def test_a_process_that_does_not_lead_writes_nothing(case: Case, action: Action) -> None:
    case.leads = False
    assert await case.writer.carry_out(action) is ActionResult.NOT_LEADING
    assert case.arrived == []


async def test_a_leader_that_is_deposed_while_it_reads_a_scale_does_not_write_it(case: Case) -> None:
    async def read(_: web.Request) -> web.StreamResponse:
        case.leads = False
        return web.json_response(case.scale)

    case.api.answers[SCALE] = read
    assert await case.writer.carry_out(RAISE) is ActionResult.OVERTAKEN
    assert [request.method for request in case.api.seen] == ["GET"]


async def test_a_scale_is_updated_with_the_version_that_was_read(case: Case) -> None:
    assert await case.writer.carry_out(RAISE) is ActionResult.DONE
    assert [method for method, *_ in case.requests] == ["PUT"]
    assert case.arrived == [case.scale | {"spec": {"replicas": 8}}]


@pytest.mark.parametrize(
    "change",
    [{"spec": {"replicas": 5}}, {"spec": {"replicas": 3}}, {"spec": {}}, {"metadata": {"uid": "uid-2"}}],
)
async def test_a_scale_that_changed_since_the_plan_is_left_alone(case: Case, change: dict[str, Any]) -> None:
    case.scale |= change
    assert await case.writer.carry_out(RAISE) is ActionResult.OVERTAKEN
    assert case.arrived == []


async def test_an_apply_is_not_forced(case: Case) -> None:
    assert await case.writer.carry_out(MARK) is ActionResult.DONE
    unforced = {"fieldManager": "effective-load-companion", "force": "false"}
    assert case.requests == [("PATCH", "application/apply-patch+yaml", unforced)]


@pytest.mark.parametrize(("kept", "result"), [("0", ActionResult.DONE), (None, ActionResult.DROPPED)])
async def test_a_tolerance_that_the_api_server_drops_is_seen(
    case: Case, kept: str | None, result: ActionResult
) -> None:
    behavior = {"scaleUp": {"tolerance": "0"}}
    answer = {"spec": {"behavior": {"scaleUp": {} if kept is None else {"tolerance": kept}}}}
    answer["metadata"] = {"annotations": {"applied": json.dumps(behavior)}}
    case.api.answers[HPA] = text(msgspec.json.encode(answer).decode())
    write = Write(key=KEY, kind="WireHpa", path=HPA, body={"spec": {"behavior": behavior}}, after=once_done())
    assert await case.writer.carry_out(write) is result


@pytest.mark.parametrize(
    ("code", "reason", "outcome"),
    [
        (403, "Forbidden", ActionResult.REFUSED),
        (409, "Conflict", ActionResult.OVERTAKEN),
        (422, "Invalid", ActionResult.FAILED),
        (500, "InternalError", ActionResult.FAILED),
        (413, "RequestEntityTooLarge", ActionResult.FAILED),
    ],
)
async def test_the_result_of_a_write_is_returned_and_counted(
    case: Case, code: int, reason: str, outcome: ActionResult
) -> None:
    case.api.answers[PATH] = status(code, reason)
    assert await case.writer.carry_out(ACTION) is outcome
    assert case.counted(reason) == 1
    assert case.writer.may(ACTION) is (outcome is ActionResult.OVERTAKEN)


async def test_a_write_times_out_before_the_lease_can_be_taken(case: Case) -> None:
    case.let_go.clear()
    began = asyncio.get_running_loop().time()
    assert await case.writer.carry_out(ACTION) is ActionResult.FAILED
    assert WRITE_SECONDS - 0.1 < asyncio.get_running_loop().time() - began < DURATION_SECONDS - BELIEVED_SECONDS
    case.let_go.set()


async def test_cancellation_waits_for_the_write_that_has_begun(case: Case) -> None:
    case.let_go.clear()
    writing = asyncio.create_task(case.writer.carry_out(ACTION))
    while not case.arrived:  # noqa: ASYNC110  the server tells nobody
        await asyncio.sleep(0.01)
    writing.cancel()
    await asyncio.sleep(0.1)
    assert not writing.done()
    case.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
