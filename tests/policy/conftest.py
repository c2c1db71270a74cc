"""A bare API server that knows WatermarkPolicies."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.harness.client import Client, Response
from lab.harness.control_plane import ControlPlane

CRD = Path(__file__).parents[2] / "manifests" / "crd" / "watermarkpolicies.yaml"
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class PolicyApi:
    """Asks the API server what it makes of a policy, without keeping it."""

    client: Client
    path: str = "/apis/effective-load.io/v1alpha1/namespaces/default/watermarkpolicies"

    def offer(self, document: dict[str, Any]) -> Response:
        query = "?dryRun=All&fieldValidation=Strict"
        return self.client.raw(self.path + query, _JSON, method="POST", body=json.dumps(document).encode())


@pytest.fixture(scope="session")
def policy_api(api_server: ControlPlane) -> PolicyApi:
    crd = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    answer = api_server.client.raw(path, _JSON, method="POST", body=json.dumps(crd).encode())
    assert answer.status in {201, 409}, answer.text
    api = PolicyApi(api_server.client)
    api_server.client.wait_for(f"{path}/{crd['metadata']['name']}", _established, timeout=30)
    # Established is said a moment before it is served: 404 first, then 429 while the storage starts.
    deadline = time.monotonic() + 30
    while (answer := api.client.raw(api.path)).status != 200:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    return api


def _established(item: dict[str, Any]) -> bool:
    conditions = item.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
