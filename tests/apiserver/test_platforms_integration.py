"""Platforms' service accounts, RBAC on paths, and a real API server that vouches and reviews."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import aiohttp
import pytest
from yarl import URL

from adapter.apiserver.server import ServerOptions
from adapter.kube.session import Session
from harness import snapshots
from harness.client import Client
from harness.control_plane import ControlPlane
from harness.workloads import until
from tests.apiserver.conftest import Service, running
from tests.manifests.rendering import MANIFESTS, documents

pytestmark = pytest.mark.integration

ROLE = "effective-load-registry-push"
RBAC = "rbac.authorization.k8s.io"
BINDINGS = f"/apis/{RBAC}/v1/clusterrolebindings"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
DOCUMENT = json.dumps({"complete": True, "instances": [], "ttlSeconds": 60})


class Listener:
    """Takes everything."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def push(
        self, registry: str, service: str, namespace: str, group: str, document: bytes
    ) -> tuple[HTTPStatus, str] | None:
        self.told.append(f"{registry} {service} {namespace} {group} {document.decode()}")
        return None


@pytest.fixture
async def session(api_server: ControlPlane) -> AsyncIterator[Session]:
    async with await Session.open(str(api_server.kubeconfig_for("adapter", "system:masters"))) as session:
        yield session


NARROW = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "narrow-teller"},
    "rules": [
        {
            "verbs": ["put"],
            "nonResourceURLs": ["/registries/own/namespaces/prod/*", "/registries/own/groups/a%2Fb/services/shop"],
        }
    ],
}


def bind(client: Client, role: str, namespace: str, account: str, path: str) -> None:
    """Give a role to an account, and wait until the API server knows that it may put there."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    head = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role}}
    client.apply({**head, "roleRef": reference, "subjects": [subject]})
    user = f"system:serviceaccount:{namespace}:{account}"
    spec = {"user": user, "nonResourceAttributes": {"verb": "put", "path": path}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    until(lambda: client.post(REVIEWS, review)["status"]["allowed"], 60, lambda: f"{user} may not tell")


@contextlib.asynccontextmanager
async def telling(
    session: Session, options: ServerOptions, listener: Listener
) -> AsyncIterator[Callable[[str, str], Awaitable[int]]]:
    """A server, and what puts a roster to a path with a token: the status of its answer."""
    service = Service(None, session, options, listener)  # type: ignore[arg-type]  # the real cluster
    service.picture.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    async with running(service), aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as client:

        async def put(path: str, token: str) -> int:
            headers, url = {"Authorization": f"Bearer {token}"}, URL(service.url + path, encoded=True)
            async with client.put(url, headers=headers, data=DOCUMENT) as answer:
                return answer.status

        yield put


async def test_an_account_with_the_components_role_may_tell_and_others_may_not(
    api_server: ControlPlane, session: Session, options: ServerOptions, api_namespace: str
) -> None:
    listener, client = Listener(), api_server.client
    teller, other = [await asyncio.to_thread(api_server.token, api_namespace, name) for name in ("teller", "other")]
    for role in documents(MANIFESTS / "components" / "registry-push" / "rbac.yaml"):
        await asyncio.to_thread(client.apply, role)
    await asyncio.to_thread(bind, client, ROLE, api_namespace, "teller", "/registries/own/services/shop")
    try:
        async with telling(session, options, listener) as put:
            assert await put("/registries/own/namespaces/prod/services/shop", teller) == 204
            assert listener.told == [f"own shop prod  {DOCUMENT}"]
            assert await put("/registries/own/services/shop", other) == 403
            assert await put("/registries/own/services/shop", f"{teller[:-8]}AAAAAAAA") == 401
            assert len(listener.told) == 1
    finally:
        await asyncio.to_thread(client.delete, f"{BINDINGS}/{ROLE}")


NARROWLY = {
    "/registries/own/namespaces/prod/services/shop": 204,
    "/registries/own/namespaces/prod/groups/g/services/shop": 204,
    "/registries/own/groups/a%2fb/services/shop": 204,
    "/registries/own/groups/a%2Fb/services/sh%6fp": 204,
    "/registries/own/namespaces/prod-2/services/shop": 403,
    "/registries/own/namespaces/prod%2Fx/services/shop": 403,
    "/registries/own/groups/a%2Fb/services/other": 403,
    "/registries/own/services/shop": 403,
    "/registries/own/shop?namespace=prod": 403,
}


async def test_a_narrow_role_covers_what_it_names_and_nothing_else(
    api_server: ControlPlane, session: Session, options: ServerOptions, api_namespace: str
) -> None:
    listener, client = Listener(), api_server.client
    token = await asyncio.to_thread(api_server.token, api_namespace, "teller")
    await asyncio.to_thread(client.apply, NARROW)
    granted = "/registries/own/namespaces/prod/services/any"
    await asyncio.to_thread(bind, client, "narrow-teller", api_namespace, "teller", granted)
    try:
        async with telling(session, options, listener) as put:
            assert {path: await put(path, token) for path in NARROWLY} == NARROWLY
        assert [told.partition(" {")[0] for told in listener.told] == [
            "own shop prod ",
            "own shop prod g",
            "own shop  a/b",
            "own shop  a/b",
        ]
    finally:
        await asyncio.to_thread(client.delete, f"{BINDINGS}/narrow-teller")
