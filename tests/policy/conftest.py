"""A bare API server that knows WatermarkPolicies."""

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from lab.harness.adapter import install_crds
from lab.harness.client import Client, Response
from lab.harness.control_plane import ControlPlane

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
    install_crds(api_server)
    api = PolicyApi(api_server.client)
    # Established is said a moment before it is served: 404 first, then 429 while the storage starts.
    deadline = time.monotonic() + 30
    while (answer := api.client.raw(api.path)).status != 200:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    return api
