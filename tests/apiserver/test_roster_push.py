"""Rosters that platforms push by PUT: rights, limits, rejections, and the registry that receives them."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from http import HTTPStatus

import aiohttp
import pytest
import trustme

from adapter.apiserver import roster_push
from adapter.apiserver.server import ServerOptions
from adapter.kube.session import Session
from adapter.registries.manager import RegistryManager
from adapter.registries.roster import ServiceKey
from adapter.runtime.fair_slots import Claim
from adapter.settings.registries import HttpRegistry
from adapter.telemetry.metrics import Metrics
from harness import snapshots
from tests.apiserver.cluster import REVIEWS, Cluster
from tests.apiserver.conftest import Answer, PushedRoster, RosterReceiver, Service, pem, running

TARGET = "/registries/own/services/shop"
DOCUMENT = {"complete": True, "ttlSeconds": 60, "instances": [{"pod": "web-1", "state": "out"}]}
TOKEN = {"Authorization": "Bearer good"}


@pytest.fixture
def service(roster_service: Service) -> Service:
    return roster_service


async def put(service: Service, target: str = TARGET, body: object = json.dumps(DOCUMENT), **more: str) -> Answer:
    return await service.ask(target, method="PUT", headers={**TOKEN, **more}, body=body)


async def test_a_roster_is_passed_on_with_its_service_namespace_and_group(
    service: Service, rosters: RosterReceiver
) -> None:
    answer = await put(service, "/registries/own/namespaces/prod/groups/a%20b/services/providers%3Ashop")
    assert (answer.status, answer.body) == (204, b"")
    assert rosters.pushed == [PushedRoster("own", "providers:shop", "prod", "a b", json.dumps(DOCUMENT).encode())]


async def test_a_push_requires_the_right_to_put_to_its_path(
    service: Service, cluster: Cluster, rosters: RosterReceiver
) -> None:
    cluster.may = lambda spec: spec.get("nonResourceAttributes") != {"verb": "put", "path": TARGET}
    answer = await put(service, TARGET)
    assert answer.status == 403
    assert f'cannot put path "{TARGET}"' in answer.message
    assert rosters.pushed == []
    await put(service, "/registries/own/services/other")
    asked = [body["spec"]["nonResourceAttributes"] for path, body in cluster.bodies if path == REVIEWS]
    assert {"verb": "put", "path": "/registries/own/services/other"} in asked
    assert len(rosters.pushed) == 1


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"X-Remote-User": "admin"}])
async def test_unauthenticated_clients_cannot_push(
    service: Service, rosters: RosterReceiver, headers: dict[str, str]
) -> None:
    answer = await service.ask(TARGET, method="PUT", headers=headers, body=json.dumps(DOCUMENT))
    assert answer.status == 401
    assert rosters.pushed == []


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_other_methods_are_not_allowed(service: Service, rosters: RosterReceiver, method: str) -> None:
    answer = await service.ask(TARGET, method=method, headers=TOKEN)
    assert answer.status == 405
    assert "by PUT" in answer.message
    assert rosters.pushed == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [(HTTPStatus.BAD_REQUEST, "BadRequest"), (HTTPStatus.NOT_FOUND, "NotFound"), (HTTPStatus.CONFLICT, "Conflict")],
)
async def test_a_rejection_is_answered_with_a_status(
    service: Service, rosters: RosterReceiver, code: HTTPStatus, reason: str
) -> None:
    rosters.rejection = (code, "for a reason")
    answer = await put(service)
    assert (answer.status, answer.json()["reason"], answer.message) == (code, reason, "for a reason")


async def test_a_document_that_is_too_large_is_rejected(service: Service, rosters: RosterReceiver) -> None:
    answer = await put(service, body=io.BytesIO(b"x" * (roster_push.MAX_DOCUMENT_BYTES + 1)))
    assert (answer.status, answer.message) == (413, "the document is larger than 1 MiB")
    assert rosters.pushed == []
    assert (await put(service, body=io.BytesIO(b"x" * roster_push.MAX_DOCUMENT_BYTES))).status == 204


async def test_a_document_that_does_not_arrive_in_time_is_a_408(
    service: Service, rosters: RosterReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster_push, "DOCUMENT_SECONDS", 0.05)
    forever = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await forever.wait()

    try:
        answer = await put(service, body=slowly())
        assert answer.status == 408
    except aiohttp.ClientConnectionError:
        pass  # the client may see the closed connection first
    forever.set()
    assert rosters.pushed == []


async def test_the_root_of_the_registries_accepts_no_push(service: Service, rosters: RosterReceiver) -> None:
    assert (await put(service, "/registries")).status == 405
    assert rosters.pushed == []


async def test_a_server_without_registries_rejects_pushes(
    cluster: Cluster, session: Session, options: ServerOptions, front_proxy: trustme.CA
) -> None:
    cluster.trust(pem(front_proxy))
    cluster.tokens["good"] = {"username": "teller"}
    async with running(Service(cluster, session, options)) as service:
        service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=session.now())))
        await service.ready()
        assert (await put(service)).status == 404


class Hub:
    """Real registries: one that accepts pushes, one that only polls."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        listens = HttpRegistry(name="own", type="HTTP", push=True)
        asks = HttpRegistry(name="asked", type="HTTP", url="http://127.0.0.1:1", interval_seconds=60)
        self.registries = RegistryManager([listens, asks], lambda _: self.changed.set(), lambda: 1000.0, Metrics())
        self.key = ServiceKey("own", "shop", "prod")
        keys = (self.key, ServiceKey("asked", "shop"))
        self.registries.watch(Claim("shop", (key.registry,), key) for key in keys)


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    hub = Hub()
    task = asyncio.create_task(hub.registries.run())
    await asyncio.sleep(0.05)  # the registries are connected to in the task
    yield hub
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class TestHub:
    async def test_a_pushed_document_becomes_the_roster(self, hub: Hub) -> None:
        assert await hub.registries.push("own", "shop", "prod", "", json.dumps(DOCUMENT).encode()) is None
        roster = hub.registries.roster(hub.key)
        assert roster is not None
        assert [(one.pod_name, one.status) for one in roster.instances] == [("web-1", "OUT_OF_SERVICE")]
        assert not roster.absence_counts

    @pytest.mark.parametrize(
        ("registry", "service", "words"),
        [
            ("nobody", "shop", "registry 'nobody' accepts no pushed documents"),
            ("asked", "shop", "push: true"),
            ("own", "other", "no policy follows service 'other prod' of registry own"),
        ],
    )
    async def test_a_push_for_an_unknown_registry_or_service_is_rejected(
        self, hub: Hub, registry: str, service: str, words: str
    ) -> None:
        refusal = await hub.registries.push(registry, service, "prod", "", json.dumps(DOCUMENT).encode())
        assert refusal is not None
        assert refusal[0] is HTTPStatus.NOT_FOUND
        assert words in refusal[1]

    @pytest.mark.parametrize(
        ("document", "code"),
        [
            (b"{", HTTPStatus.BAD_REQUEST),
            (b'{"complete":true,"instances":[]}', HTTPStatus.BAD_REQUEST),
            (b'{"complete":true,"instances":[],"ttlSeconds":9,"revision":1}', HTTPStatus.CONFLICT),
        ],
    )
    async def test_an_invalid_push_leaves_the_last_roster(self, hub: Hub, document: bytes, code: HTTPStatus) -> None:
        await hub.registries.push("own", "shop", "prod", "", json.dumps({**DOCUMENT, "revision": 2}).encode())
        refusal = await hub.registries.push("own", "shop", "prod", "", document)
        assert refusal is not None
        assert refusal[0] is code
        roster = hub.registries.roster(hub.key)
        assert roster is not None
        assert len(roster.instances) == 1
