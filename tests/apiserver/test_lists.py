"""A list of many objects is made and written in slices, a few at a time."""

import asyncio

import pytest
import trustme

from adapter.apiserver import handler
from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import RequestInfo
from tests.apiserver import snapshots
from tests.apiserver.conftest import Ask, Service
from tests.apiserver.metric_requests import CUSTOM, POLICY
from tests.effort import steps
from tests.security.connections import drop, opened
from tests.security.raw_requests import as_proxy, head
from tests.waiting import eventually

PODS = f"{CUSTOM}/pods/%2A/effective_cpu"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop"


@pytest.fixture
def many(service: Service) -> int:
    """The number of pods of the policy."""
    pods = [snapshots.reading(f"p{number}", cpu=100 + number) for number in range(10_000)]
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=service.session.now(), pods=pods)))
    return len(pods)


async def test_a_list_has_every_pod_once(ask: Ask, many: int) -> None:
    answer = await ask(PODS)
    names = [item["describedObject"]["name"] for item in answer.json()["items"]]
    assert (answer.status, len(names), len(set(names))) == (200, many, many)
    assert int(answer.headers["Content-Length"]) == len(answer.body)


async def test_a_few_lists_are_made_at_a_time_and_the_metric_of_one_policy_waits_for_none(
    service: Service, ask: Ask, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, going, make = 0, asyncio.Event(), MetricsProvider.custom

    async def custom(self: MetricsProvider, request: RequestInfo) -> bytes:
        nonlocal begun
        if request.is_list:
            begun += 1
            await going.wait()
        return await make(self, request)

    monkeypatch.setattr(MetricsProvider, "custom", custom)
    asking = [asyncio.create_task(ask(PODS)) for _ in range(handler.LISTS + 3)]
    await eventually(lambda: begun == handler.LISTS)
    assert (await ask(f"{POLICY}/effective_cpu")).status == 200
    assert begun == handler.LISTS
    going.set()
    assert {answer.status for answer in await asyncio.gather(*asking)} == {200}


async def test_a_client_that_leaves_in_the_middle_of_a_list_is_no_error(
    service: Service, ask: Ask, proxy: trustme.LeafCert, many: int, caplog: pytest.LogCaptureFixture
) -> None:
    wire = await opened(service, proxy)
    wire[1].write(head(PODS, *as_proxy()))
    assert (await wire[0].read(100)).startswith(b"HTTP/1.1 200")
    drop(wire)
    assert (await ask(PODS)).status == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_the_loop_goes_on_while_a_list_of_ten_thousand_pods_is_made(ask: Ask, many: int) -> None:
    with steps() as longest:
        assert (await ask(PODS)).status == 200
    assert longest.calls < 4 * many, "a step makes a part of the list"


@pytest.mark.parametrize(
    "target",
    [
        f"{EXTERNAL}/effective_cpu?labelSelector=",
        f"{CUSTOM}/watermarkpolicies.effective-load.io/%2A/effective_cpu?metricLabelSelector=",
        f"{CUSTOM}/pods/p1/effective_cpu?metricLabelSelector=",
    ],
    ids=["external", "policies", "pods"],
)
async def test_the_loop_goes_on_while_a_thousand_policies_are_selected_from(
    service: Service, ask: Ask, target: str
) -> None:
    """A request took it for 40 ms, and a tenant makes hundreds at once."""
    now = service.session.now()
    service.snapshot_store.swap(snapshots.snapshot(*(snapshots.view(f"p{number}", at=now) for number in range(1000))))
    with steps() as longest:
        answer = await ask(f"{target}{','.join(f'k{n}%21=v' for n in range(32))}")
    assert (answer.status in {200, 404}, longest.calls < 40_000) == (True, True)


async def test_the_loop_goes_on_while_ten_thousand_pods_are_selected_from(ask: Ask, many: int) -> None:
    """One request with 250 requirements took the loop for two seconds."""
    few, most = (",".join(f"%21k{number}" for number in range(count)) for count in (32, 33))
    with steps() as longest:
        answer = await ask(f"{PODS}?labelSelector={few}")
    assert (answer.status, longest.calls < 8 * many) == (200, True)
    answer = await ask(f"{PODS}?labelSelector={most}")
    assert (answer.status, answer.message) == (400, "invalid labelSelector: it has more than 32 requirements")
