"""Lists of many objects: complete, and made while others are answered."""

import pytest
import trustme

from tests.apiserver import snapshots
from tests.apiserver.conftest import Ask, Service
from tests.apiserver.metric_requests import CUSTOM
from tests.apiserver.raw import as_proxy, drop, head, opened
from tests.effort import steps

PODS = f"{CUSTOM}/pods/%2A/effective_cpu"


@pytest.fixture
def many(service: Service) -> int:
    """The number of pods of the policy."""
    pods = [snapshots.reading(f"p{number}", cpu=100 + number) for number in range(10_000)]
    service.snapshot_store.swap(snapshots.snapshot(snapshots.view(at=service.session.now(), pods=pods)))
    return len(pods)


async def test_list_of_ten_thousand_pods_is_complete_and_made_in_slices(ask: Ask, many: int) -> None:
    with steps() as longest:
        answer = await ask(PODS)
    names = [item["describedObject"]["name"] for item in answer.json()["items"]]
    assert (answer.status, len(names), len(set(names))) == (200, many, many)
    assert longest.calls < 4 * many, "a step makes a part of the list"


async def test_client_that_leaves_in_the_middle_of_a_list_is_no_error(
    service: Service, ask: Ask, proxy: trustme.LeafCert, many: int, caplog: pytest.LogCaptureFixture
) -> None:
    wire = await opened(service, proxy)
    wire[1].write(head(PODS, *as_proxy()))
    assert (await wire[0].read(100)).startswith(b"HTTP/1.1 200")
    drop(wire)
    assert (await ask(PODS)).status == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
