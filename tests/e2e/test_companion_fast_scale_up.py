"""Fast scale-up beside an HPA that syncs seldom: the count follows the load before the HPA does.

In `make test` all periods are about a quarter of the real ones: the HPA syncs every 4 s instead of every 15 s, raises
are as far apart, and the server asks as often.
"""

import secrets
import statistics
from collections.abc import Callable, Iterator

import pytest

from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.companion import CompanionProcess, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import Laws
from tests.e2e.course import Course, Numbers
from tests.e2e.kit import query_watermarks, wait_finding

FAST = {"companion": {"features": {"fastScaleUp": True}}}
RIGHTS = ("status", "fast-scale-up")
CHANGES = 3
AT_ONCE = {"tolerance": "0", "stabilizationWindowSeconds": 0}
PACE = {
    "scaleUp": {**AT_ONCE, "policies": [{"type": "Percent", "value": 900, "periodSeconds": 3}]},
    "scaleDown": AT_ONCE,
}
Start = Callable[..., CompanionProcess]


@pytest.fixture(scope="module")
def slow(laws: Laws) -> Iterator[ControlPlane]:
    """A control plane whose HPA syncs as far apart as raises are; that is its default under the real laws."""
    with ControlPlane(hpa_sync=laws.raises_apart, metrics_server=False, prepared=install_crds) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def numbers() -> Iterator[Numbers]:
    """The load as the server reads it."""
    with Numbers() as server:
        yield server


@pytest.fixture(scope="module")
def told() -> Iterator[Numbers]:
    """The load as the companions read it: the same numbers, with recorded reading times."""
    with Numbers() as server:
        yield server


@pytest.fixture(scope="module")
def server(slow: ControlPlane, numbers: Numbers) -> Iterator[AdapterProcess]:
    """The server; it asks as often as the HPA syncs, so that its samples are older than the companion's."""
    with AdapterProcess(slow, numbers.settings(slow.hpa_sync), kubeconfig=account_kubeconfig(slow)) as process:
        yield process


@pytest.fixture
def start(slow: ControlPlane, server: AdapterProcess, told: Numbers, laws: Laws) -> Start:
    """Starts a companion that reads `told`, with the rights of these features."""

    def made(*rights: str) -> CompanionProcess:
        reset_lease(slow)
        return CompanionProcess(slow, laws.over(told.settings() | FAST), kubeconfig=companion_kubeconfig(slow, rights))

    return made


@pytest.fixture
def shop(slow: ControlPlane) -> Iterator[Workloads]:
    """A namespace for one test."""
    made = Workloads(slow, f"shop-{secrets.token_hex(3)}")
    made.make_namespace()
    yield made
    made.remove_namespace()


def follow(shop: Workloads, name: str, *sources: Numbers) -> None:
    """Creates a service of one pod with load 5, below the band of 10 to 100, its policy and its HPA."""
    for source in sources:
        source.set(name, 5)
    shop.deployment(name, 1, wait=False)
    shop.policy(name, [query_watermarks("queue", "100", "10")], fastScaleUp=True)
    shop.hpa(name, maximum=60, behavior=PACE)


def test_the_count_follows_the_load_before_the_hpa_syncs_and_the_hpa_agrees(
    slow: ControlPlane, start: Start, numbers: Numbers, told: Numbers, shop: Workloads
) -> None:
    """The HPA, which reads the new load only after a raise, takes half its period on average."""
    names = [f"web-{index}" for index in range(CHANGES)]
    for name in names:
        follow(shop, name, numbers, told)
    with start(*RIGHTS) as companion, Course(shop) as course:
        companion.wait_leading()
        for name in names:
            shop.wait_ready(name, 1)
            shop.wait_condition(name, "ScalingActive")
        shop.wait_syncs(names[-1], 2)  # the target is observed for as long as raises are apart
        delays = []
        for name in names:
            told.set(name, 450)
            reached = wait_count(course, name, 5)
            # Not before: the HPA would be first where its own read and sync fell into this moment.
            numbers.set(name, 450)
            delays.append(reached - told.read[name, 450])
        shop.wait_syncs(names[-1], 2)
        raises = companion.writes("RaiseScale")
        for name in names:
            assert course.counts(name) == [1, 5], f"{name} went {course.counts(name)}"
            # A sync that read the count just before the raise, and the metric after it, sets the same count once more.
            assert not [sync.line for sync in shop.syncs(name) if sync.outcome == "rescaled" and sync.desired != 5]
    assert raises <= CHANGES  # one that is executed and answered late is not counted
    assert statistics.median(delays) < slow.hpa_sync / 2


def test_without_the_right_the_hpa_scales_and_the_status_gives_the_reason(
    start: Start, numbers: Numbers, told: Numbers, shop: Workloads
) -> None:
    follow(shop, "web", numbers, told)
    with start("status") as companion:
        companion.wait_leading()
        shop.wait_ready("web", 1)
        shop.wait_condition("web", "ScalingActive")
        shop.wait_syncs("web", 2)
        for source in (told, numbers):
            source.set("web", 450)
        shop.wait_replicas("web", 5, 3 * shop.cluster.hpa_sync)
        wait_finding(shop, "FastScaleUp", "Forbidden")
        assert companion.writes("RaiseScale") == 0
        assert 1 <= companion.writes("RaiseScale", "Forbidden") <= 5


def wait_count(course: Course, name: str, count: int) -> float:
    """Waits until a service has this count; returns the time (monotonic seconds)."""
    until(lambda: course.reached(name, count) is not None, 30, lambda: f"{name}: {course.counts(name)}", 0.01)
    reached = course.reached(name, count)
    assert reached is not None
    return reached
