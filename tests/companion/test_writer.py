"""What reaches the API server: nothing of a process that does not lead, nothing over what it did not know or owns."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from adapter.companion.state import ActionResult, Write
from adapter.companion.writer import WRITE_SECONDS, Writer, read_manager
from adapter.kube.api import JSON_PATCH
from adapter.kube.leader_election import BELIEVED_SECONDS, DURATION_SECONDS
from adapter.kube.session import Session
from adapter.telemetry.metrics import Metrics
from tests.companion.kit import KEY
from tests.kube.fake import FENCED_OFF, Answer, FakeApi, status, text
from tests.load.kit import TARGET
from tests.waiting import eventually

PATH = "/apis/effective-load.io/v1alpha1/namespaces/shop/watermarkpolicies/web/status"
HPA = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web"
POD = "/api/v1/namespaces/shop/pods/web-1"
BODY = [{"op": "test", "path": "/metadata/uid", "value": "u1"}, {"op": "add", "path": "/status", "value": {}}]
ACTION = Write(key=KEY, kind="WriteStatus", path=PATH, body=BODY, content_type=JSON_PATCH)
INVALID = status(422, "Invalid", 'WatermarkPolicy.effective-load.io "web" is invalid: status.memory: Too long')
MARK = Write(key=KEY, kind="MarkPod", path=POD, body={"metadata": {"uid": "uid-web-1"}})


class Case:
    """A writer, the API server that it writes to, and what arrived there."""

    def __init__(self, api: FakeApi, session: Session, metrics: Metrics) -> None:
        self.api, self.session, self.metrics, self.leads = api, session, metrics, True
        self.writer = Writer(session, lambda: self.leads, metrics)
        self.arrived: list[Any] = []
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Method, type of the content and query of each write."""
        api.answers |= dict.fromkeys((PATH, POD), self._take)

    async def _take(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.content_type, dict(request.query)))
        self.arrived.append(json.loads(await request.read()))
        await self.let_go.wait()
        return web.json_response({})

    def counted(self, write: Write, result: str) -> float:
        labels = {"action": write.kind, "result": result}
        return self.metrics.registry.get_sample_value("effective_load_companion_writes_total", labels) or 0.0


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    metrics = Metrics()
    async with FakeApi() as api, Session(api.load, metrics=metrics) as session:
        yield Case(api, session, metrics)


AS_US = {"fieldManager": "effective-load-companion"}


async def test_a_patch_is_sent_as_it_was_planned_and_an_apply_is_not_forced(case: Case) -> None:
    for write in (ACTION, MARK):
        assert await case.writer.carry_out(write) is ActionResult.DONE
        assert case.counted(write, "done") == 1
    assert case.arrived == [BODY, MARK.body]
    patch, apply = "application/json-patch+json", "application/apply-patch+yaml"
    assert case.requests == [("PATCH", patch, AS_US), ("PATCH", apply, AS_US | {"force": "false"})]


@pytest.mark.parametrize("write", [ACTION, MARK], ids=["a status", "a mark"])
async def test_a_process_that_does_not_lead_writes_nothing(case: Case, write: Write) -> None:
    case.leads = False
    assert await case.writer.carry_out(write) is None
    assert case.arrived == []


@pytest.mark.parametrize("kept", ["0", None])
async def test_a_tolerance_that_the_api_server_drops_is_seen(case: Case, kept: str | None) -> None:
    behavior = {"scaleUp": {"tolerance": "0"}}
    answer = {"spec": {"behavior": {"scaleUp": {} if kept is None else {"tolerance": kept}}}}
    answer["metadata"] = {"annotations": {"applied": json.dumps(behavior)}}
    case.api.answers[HPA] = text(msgspec.json.encode(answer).decode())
    write = Write(key=KEY, kind="WireHpa", path=HPA, body={"spec": {"behavior": behavior}})
    assert await case.writer.carry_out(write) is ActionResult.DONE
    assert case.writer.drops_tolerance is (kept is None)


@pytest.mark.parametrize(
    ("write", "refused", "reason", "outcome"),
    [
        (ACTION, status(403, "Forbidden"), "Forbidden", ActionResult.REFUSED),
        (ACTION, status(404, "NotFound"), "NotFound", ActionResult.OVERTAKEN),
        (ACTION, status(409, "Conflict"), "Conflict", ActionResult.OVERTAKEN),
        pytest.param(ACTION, FENCED_OFF, "ApiStatusError", ActionResult.OVERTAKEN, id="a test of the patch fails"),
        pytest.param(ACTION, INVALID, "ApiStatusError", ActionResult.FAILED, id="the CRD or a webhook refuses it"),
        (MARK, status(422, "Invalid"), "ApiStatusError", ActionResult.FAILED),
        (ACTION, status(500, "InternalError"), "ServerError", ActionResult.FAILED),
    ],
)
async def test_the_result_of_a_write_is_returned_and_counted(
    case: Case, write: Write, refused: Answer, reason: str, outcome: ActionResult
) -> None:
    case.api.answers[write.path] = refused
    assert await case.writer.carry_out(write) is outcome
    assert case.counted(write, reason) == 1
    waits = not case.writer.backoff.is_ready(write.key, write.kind, case.session.now())
    assert waits is (outcome is not ActionResult.OVERTAKEN)
    case.api.answers[write.path] = text("{}")
    assert await case.writer.carry_out(write) is ActionResult.DONE
    assert case.writer.backoff.is_ready(write.key, write.kind, case.session.now())


async def test_a_write_times_out_before_the_lease_can_be_taken(case: Case) -> None:
    case.let_go.clear()
    began = asyncio.get_running_loop().time()
    assert await case.writer.carry_out(ACTION) is ActionResult.FAILED
    assert WRITE_SECONDS - 0.1 < asyncio.get_running_loop().time() - began < DURATION_SECONDS - BELIEVED_SECONDS
    case.let_go.set()


async def test_cancellation_waits_for_the_write_that_has_begun(case: Case) -> None:
    case.let_go.clear()
    writing = asyncio.create_task(case.writer.carry_out(ACTION))
    await eventually(lambda: case.arrived)
    writing.cancel()
    await asyncio.sleep(0.1)
    assert not writing.done()
    case.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await writing


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["helm", "me"], "me"),
        (["me", "helm"], "helm"),
        (["helm", "k3s/scale"], "k3s/scale"),
        (["kubectl-scale/scale"], "kubectl-scale"),
        (["effective-load-companion/scale"], "effective-load-companion"),
        (["unknown"], ""),
        ([], ""),
    ],
)
async def test_who_set_a_count_is_its_newest_owner_unless_that_has_no_name(
    case: Case, names: list[str], expected: str
) -> None:
    deployments, owners = "/apis/apps/v1/namespaces/shop/deployments", [{"manager": "other", "time": "2027"}]
    for day, (name, _, subresource) in enumerate((name.partition("/") for name in names), start=1):
        owner: dict[str, Any] = {"manager": name, "subresource": subresource, "time": f"2026-01-0{day}"}
        owners.append(owner | {"fieldsV1": {"f:spec": {"f:replicas": {}}}})
    found = {"metadata": {"managedFields": owners}, "spec": {"replicas": 3}}
    case.api.answers[deployments] = text(json.dumps({"items": [found]}))
    assert await read_manager(case.session, f"{deployments}/{TARGET.name}/scale", TARGET, 3) == expected
    assert await read_manager(case.session, f"{deployments}/{TARGET.name}/scale", TARGET, 4) == "", "it changed again"
