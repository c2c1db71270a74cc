"""What `run_checks` says of a whole cluster."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.check.command import Scope, run_checks
from adapter.check.report import report_lines
from adapter.settings import Settings
from tests.check.test_rights import IDENTITY, OTHERS, SELF, Rights, identity
from tests.kube.fake import FakeApi, text

POLICIES = "/apis/effective-load.io/v1alpha1/watermarkpolicies"
SILENT = "the watch of widgets.example.com has shown no life since 2026-01-01T00:00:00Z"


def policy(name: str, message: str = "") -> dict[str, Any]:
    condition = {"type": "InputsFresh", "status": "False", "reason": "WatchSilent", "message": message}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1"}]},
        "status": {"conditions": [condition] if message else []},
    }


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        api.answers |= {SELF: Rights().answer, OTHERS: Rights().answer, IDENTITY: identity}
        yield api


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    named = {"name": "tests"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{**named, "cluster": {"server": api.url}}],
        "users": [{**named, "user": {"token": "t"}}],
        "contexts": [{**named, "context": {"cluster": "tests", "user": "tests"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def test_a_silent_watch_is_reported_once_with_the_policies_that_report_it(api: FakeApi, kubeconfig: str) -> None:
    silent = [policy(f"p{number}", SILENT) for number in range(7)]
    api.answers[POLICIES] = text(json.dumps({"items": [*silent, policy("well")]}))
    found = list(report_lines(await run_checks(Settings(), Scope(), kubeconfig), verbose=True))
    told = f"  wrong  {SILENT} (reported by the status of shop/p0, shop/p1, shop/p2, shop/p3, shop/p4 and 2 more)"
    assert [line for line in found if "has shown no life" in line] == [told]
    assert [line for line in found if "it has all " in line]
