"""How a scale and a pod are written: over what was read, by who leads, and not over what is somebody else's."""

from typing import Any, cast

import msgspec
import pytest

from adapter.companion.actions import Action, ActionResult, MarkPod, Notify, RaiseScale
from adapter.companion.writer import Writer
from adapter.kube.session import Session
from adapter.runtime.outbound import Reply
from adapter.telemetry.metrics import Metrics
from tests.companion.kit import KEY

PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
RAISE = RaiseScale(key=KEY, path=PATH, target="uid-1", current=4, to=8)
MARK = MarkPod(key=KEY, namespace="shop", pod="web-1", uid="uid-web-1", first=True)
POD = "/api/v1/namespaces/shop/pods/web-1"


class Leader:
    """Leads for so many looks."""

    def __init__(self, looks: int = 1000) -> None:
        self._left = looks

    def leads(self) -> bool:
        self._left -= 1
        return self._left >= 0


class Server:
    """Stands in for a session: one scale, and every write that arrived."""

    def __init__(self, replicas: int | None = 4, uid: str = "uid-1") -> None:
        spec = {} if replicas is None else {"replicas": replicas}
        metadata = {"name": "web", "namespace": "shop", "uid": uid, "resourceVersion": "77"}
        self.scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": {}}
        self.writes: list[tuple[str, str, dict[str, Any], dict[str, str] | None]] = []

    def now(self) -> float:
        return 0.0

    async def get(self, path: str, **_: Any) -> bytes:
        assert path == PATH
        return msgspec.json.encode(self.scale)

    async def request(
        self, method: str, path: str, *, body: bytes, params: dict[str, str] | None = None, **_: Any
    ) -> Reply:
        self.writes.append((method, path, msgspec.json.decode(body), params))
        return Reply(200, {}, b"{}")


async def carried_out(server: Server, action: Action = RAISE, leader: Leader | None = None) -> ActionResult:
    return await Writer(cast(Session, server), (leader or Leader()).leads, Metrics(), nobody).carry_out(action)


def nobody(_notice: Notify) -> None:
    raise AssertionError("nobody is to be told")


async def test_a_scale_is_updated_with_the_version_that_was_read() -> None:
    server = Server()
    assert await carried_out(server) is ActionResult.DONE
    ((method, path, body, _),) = server.writes
    assert (method, path) == ("PUT", PATH)
    assert body == server.scale | {"spec": {"replicas": 8}}
    assert body["metadata"]["resourceVersion"] == "77"


@pytest.mark.parametrize("server", [Server(5), Server(3), Server(None), Server(uid="uid-2")])
async def test_a_scale_that_changed_since_the_plan_is_left_alone(server: Server) -> None:
    assert await carried_out(server) is ActionResult.OVERTAKEN
    assert server.writes == []


@pytest.mark.parametrize(("looks", "outcome"), [(0, ActionResult.NOT_LEADING), (1, ActionResult.OVERTAKEN)])
async def test_a_former_leader_writes_nothing_more(looks: int, outcome: ActionResult) -> None:
    server = Server()
    assert await carried_out(server, leader=Leader(looks)) is outcome
    assert server.writes == []


async def test_an_answer_that_is_no_scale_is_a_failure() -> None:
    server = Server()
    server.scale = cast(dict[str, Any], ["nonsense"])
    assert await carried_out(server) is ActionResult.FAILED


async def test_a_mark_is_applied_without_force_to_the_pod_of_this_uid() -> None:
    server = Server()
    assert await carried_out(server, MARK) is ActionResult.DONE
    ((method, path, body, params),) = server.writes
    assert (method, path) == ("PATCH", POD)
    assert params == {"fieldManager": "effective-load-companion"}
    assert body["metadata"]["uid"] == "uid-web-1"
    assert body["metadata"]["annotations"] == {
        "controller.kubernetes.io/pod-deletion-cost": "-2147483648",
        "effective-load.io/deletion-cost-set": "true",
    }


async def test_a_mark_is_removed_by_applying_no_annotations() -> None:
    server = Server()
    unmark = MarkPod(key=KEY, namespace="shop", pod="web-1", uid="uid-web-1", first=False)
    assert await carried_out(server, unmark) is ActionResult.DONE
    assert server.writes[0][2]["metadata"]["annotations"] == {}
