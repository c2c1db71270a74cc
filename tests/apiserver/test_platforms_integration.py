"""A platform's service account, RBAC on a path, and a real API server that vouches and reviews."""

import asyncio
import json
from collections.abc import AsyncIterator
from http import HTTPStatus

import aiohttp
import pytest

from adapter.apiserver.server import ServerOptions
from adapter.kube.session import Session
from tests.apiserver import pictures
from tests.apiserver.conftest import Service, running
from tests.cluster.client import Client
from tests.cluster.controlplane import ControlPlane
from tests.cluster.workloads import until
from tests.manifests.rendering import MANIFESTS, documents

pytestmark = pytest.mark.integration

ROLE = "effective-load-registry-push"
RBAC = "rbac.authorization.k8s.io"
BINDINGS = f"/apis/{RBAC}/v1/clusterrolebindings"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Listener:
    """Takes everything."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(
        self, registry: str, service: str, namespace: str, group: str, document: bytes
    ) -> tuple[HTTPStatus, str] | None:
        self.told.append(f"{registry} {service} {namespace} {group} {document.decode()}")
        return None


@pytest.fixture
async def session(api_server: ControlPlane) -> AsyncIterator[Session]:
    async with await Session.open(str(api_server.kubeconfig_for("adapter", "system:masters"))) as session:
        yield session


def bind(client: Client, namespace: str, account: str) -> None:
    """Give the component's role to an account, and wait until the API server knows it."""
    for role in documents(MANIFESTS / "components" / "registry-push" / "rbac.yaml"):
        client.apply(role)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": ROLE}
    head = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": ROLE}}
    client.apply({**head, "roleRef": reference, "subjects": [subject]})
    user = f"system:serviceaccount:{namespace}:{account}"
    spec = {"user": user, "nonResourceAttributes": {"verb": "put", "path": "/registries/own/shop"}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    until(lambda: client.post(REVIEWS, review)["status"]["allowed"], 60, lambda: f"{user} may not tell")


async def test_an_account_with_the_components_role_may_tell_and_others_may_not(
    api_server: ControlPlane, session: Session, options: ServerOptions, api_namespace: str
) -> None:
    listener = Listener()
    service = Service(None, session, options, listener)  # type: ignore[arg-type]  # the real cluster
    service.picture.swap(pictures.snapshot(pictures.view(at=session.now())))
    document = json.dumps({"complete": True, "instances": [], "ttlSeconds": 60})
    teller, other = [await asyncio.to_thread(api_server.token, api_namespace, name) for name in ("teller", "other")]
    await asyncio.to_thread(bind, api_server.client, api_namespace, "teller")
    try:
        async with running(service), aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as client:

            async def put(path: str, token: str) -> int:
                headers = {"Authorization": f"Bearer {token}"}
                async with client.put(service.url + path, headers=headers, data=document) as answer:
                    return answer.status

            assert await put("/registries/own/shop?namespace=prod", teller) == 204
            assert listener.told == [f"own shop prod  {document}"]
            assert await put("/registries/own/shop", other) == 403
            assert await put("/registries/own/shop", f"{teller[:-8]}AAAAAAAA") == 401
            assert len(listener.told) == 1
    finally:
        await asyncio.to_thread(api_server.client.delete, f"{BINDINGS}/{ROLE}")
