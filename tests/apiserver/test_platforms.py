"""Platforms that tell by PUT which pods serve: who may, what is taken, and what becomes of it."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import NamedTuple

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
from tests.apiserver.conftest import Answer, Service, pem, running

TARGET = "/registries/own/services/shop"
DOCUMENT = {"complete": True, "ttlSeconds": 60, "instances": [{"pod": "web-1", "state": "out"}]}
PLATFORM = {"username": "system:serviceaccount:platform:teller", "groups": ["system:authenticated"]}
TOKEN = {"Authorization": "Bearer good"}


class Told(NamedTuple):
    registry: str
    service: str
    namespace: str
    group: str
    document: bytes


class Listener:
    """Takes everything, or refuses it with what a test sets."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.refusal: tuple[HTTPStatus, str] | None = None

    async def push(
        self, registry: str, service: str, namespace: str, group: str, document: bytes
    ) -> tuple[HTTPStatus, str] | None:
        self.told.append(Told(registry, service, namespace, group, document))
        return self.refusal


@pytest.fixture
async def listener() -> Listener:
    return Listener()


@pytest.fixture
async def service(
    cluster: Cluster, session: Session, options: ServerOptions, front_proxy: trustme.CA, listener: Listener
) -> AsyncIterator[Service]:
    """A ready server that hands the word of platforms to `listener`; the token `good` is a platform's."""
    cluster.trust(pem(front_proxy))
    cluster.tokens["good"] = PLATFORM
    service = Service(cluster, session, options, listener)
    service.picture.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    async with running(service):
        await service.ready()
        yield service


async def put(service: Service, target: str = TARGET, body: object = json.dumps(DOCUMENT), **more: str) -> Answer:
    return await service.ask(target, method="PUT", headers={**TOKEN, **more}, body=body)


async def test_a_word_is_handed_on_with_its_service_namespace_and_group(service: Service, listener: Listener) -> None:
    answer = await put(service, "/registries/own/namespaces/prod/groups/a%20b/services/providers%3Ashop")
    assert (answer.status, answer.body) == (204, b"")
    assert listener.told == [Told("own", "providers:shop", "prod", "a b", json.dumps(DOCUMENT).encode())]


async def test_the_right_is_to_put_to_the_path(service: Service, cluster: Cluster, listener: Listener) -> None:
    cluster.may = lambda spec: spec.get("nonResourceAttributes") != {"verb": "put", "path": TARGET}
    answer = await put(service, TARGET)
    assert answer.status == 403
    assert f'cannot put path "{TARGET}"' in answer.message
    assert listener.told == []
    await put(service, "/registries/own/services/other")
    asked = [body["spec"]["nonResourceAttributes"] for path, body in cluster.bodies if path == REVIEWS]
    assert {"verb": "put", "path": "/registries/own/services/other"} in asked
    assert len(listener.told) == 1


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"X-Remote-User": "admin"}])
async def test_who_is_not_known_tells_nothing(service: Service, listener: Listener, headers: dict[str, str]) -> None:
    answer = await service.ask(TARGET, method="PUT", headers=headers, body=json.dumps(DOCUMENT))
    assert answer.status == 401
    assert listener.told == []


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_other_methods_are_not_allowed(service: Service, listener: Listener, method: str) -> None:
    answer = await service.ask(TARGET, method=method, headers=TOKEN)
    assert answer.status == 405
    assert "by PUT" in answer.message
    assert listener.told == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [(HTTPStatus.BAD_REQUEST, "BadRequest"), (HTTPStatus.NOT_FOUND, "NotFound"), (HTTPStatus.CONFLICT, "Conflict")],
)
async def test_a_refusal_is_a_status(service: Service, listener: Listener, code: HTTPStatus, reason: str) -> None:
    listener.refusal = (code, "for a reason")
    answer = await put(service)
    assert (answer.status, answer.json()["reason"], answer.message) == (code, reason, "for a reason")


async def test_a_document_that_is_too_large_is_not_taken(service: Service, listener: Listener) -> None:
    answer = await put(service, body=io.BytesIO(b"x" * (roster_push.LARGEST_DOCUMENT + 1)))
    assert (answer.status, answer.message) == (413, "the document is larger than 1 MiB")
    assert listener.told == []
    assert (await put(service, body=io.BytesIO(b"x" * roster_push.LARGEST_DOCUMENT))).status == 204


async def test_a_document_that_does_not_come_is_not_waited_for(
    service: Service, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster_push, "READ_SECONDS", 0.05)
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
    assert listener.told == []


async def test_there_is_nothing_to_tell_above_the_registries(service: Service, listener: Listener) -> None:
    assert (await put(service, "/registries")).status == 405
    assert listener.told == []


async def test_a_server_without_registries_takes_no_word(
    cluster: Cluster, session: Session, options: ServerOptions, front_proxy: trustme.CA
) -> None:
    cluster.trust(pem(front_proxy))
    cluster.tokens["good"] = PLATFORM
    async with running(Service(cluster, session, options)) as service:
        service.picture.swap(snapshots.snapshot(snapshots.view(at=session.now())))
        await service.ready()
        assert (await put(service)).status == 404


class Hub:
    """The real registries behind the server: one that listens, one that only asks."""

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
    async def test_a_word_becomes_the_roster(self, hub: Hub) -> None:
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
    async def test_a_word_that_nobody_waits_for_is_not_kept(
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
    async def test_a_word_that_cannot_be_taken_leaves_the_last(
        self, hub: Hub, document: bytes, code: HTTPStatus
    ) -> None:
        await hub.registries.push("own", "shop", "prod", "", json.dumps({**DOCUMENT, "revision": 2}).encode())
        refusal = await hub.registries.push("own", "shop", "prod", "", document)
        assert refusal is not None
        assert refusal[0] is code
        roster = hub.registries.roster(hub.key)
        assert roster is not None
        assert len(roster.instances) == 1
