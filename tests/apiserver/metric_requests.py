"""Metric requests without a network: a target in, JSON or a StatusError out."""

from typing import Any
from unittest import mock

import msgspec
import pytest

from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import parse_target
from adapter.apiserver.status import StatusError
from adapter.load.assessment import Assessment, Decision, Verdict
from adapter.load.decide import served_value
from adapter.load.spec import Bounds, Scale
from adapter.snapshot import Snapshot, SnapshotStore
from tests.apiserver.conftest import StubScales
from tests.apiserver.snapshots import NOW

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop"
POLICY = f"{CUSTOM}/watermarkpolicies.effective-load.io/checkout"
FILLING = "the Kubernetes caches are still being filled: pods"
TARGET = f"{CUSTOM}/deployments.apps/web"
PODS = f"{CUSTOM}/pods/%2A"


def seven(_assessment: Assessment, scale: Scale, _bounds: Bounds, _now: float) -> Decision:
    """Decides for seven pods, whatever the assessment."""
    return Decision(
        desired=7,
        served=served_value(7, scale.status_replicas),
        error=None,
        verdict=Verdict.ABOVE,
        held_by=None,
        current=scale.replicas,
    )


async def respond(answers: MetricsProvider, target: str) -> Any:
    return msgspec.json.decode(await answers.answer(parse_target(target)))


async def ask(
    snapshot: Snapshot,
    target: str,
    *,
    scales: StubScales | None = None,
    stale: str | None = None,
    now: float = NOW,
    decide: Any = seven,
) -> Any:
    store, scales = SnapshotStore(), scales or StubScales()
    store.swap(snapshot)
    provider = MetricsProvider(store, scales, lambda _: stale, lambda: FILLING, lambda: now)
    with mock.patch("adapter.apiserver.provider.decide", decide):
        return await respond(provider, target)


async def refused(snapshot: Snapshot, target: str, **more: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await ask(snapshot, target, **more)
    return caught.value


async def items(snapshot: Snapshot, target: str, **more: Any) -> list[dict[str, Any]]:
    answer = await ask(snapshot, target, **more)
    found: list[dict[str, Any]] = answer["items"]
    return found


async def value(snapshot: Snapshot, target: str, **more: Any) -> str:
    found = await items(snapshot, target, **more)
    assert len(found) == 1
    return str(found[0]["value"])
