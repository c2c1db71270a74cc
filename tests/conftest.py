"""What every test may ask for: a control plane, an API server alone, a namespace of its own.

Programs are built before the first test runs, not inside a fixture, where a test's time limit would end the build.
"""

import contextlib
import gc
import importlib
import os
import random
import re
import secrets
from collections import Counter
from collections.abc import Generator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from _pytest.nodeid import NodeId
from blockbuster import BlockBuster

from lab.harness import binaries, objects
from lab.harness.adapter import install_crds
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.registries.polaris import Polaris
from lab.harness.workloads import Workloads

hypothesis.settings.register_profile(
    "tests",
    max_examples=25,
    deadline=None,  # a busy machine is no fault of the code
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="CI" in os.environ,  # a merge does not hang on luck; everybody else's runs go on looking
)

NEEDS = {
    "control_plane": binaries.CONTROL_PLANE,
    "api_server": binaries.API_SERVER,
    "prometheus": ("prometheus",),
    "shared_prometheus": ("prometheus",),
    "consul": ("consul",),
}
"""The programs behind each fixture."""


AMOUNTS = {
    "EFFECTIVE_LOAD_DOCUMENTS": "4000",
    "EFFECTIVE_LOAD_EXAMPLES": "300",
    "EFFECTIVE_LOAD_HPA_DECISIONS": "600",
    "EFFECTIVE_LOAD_LOOPS": "2",
}
"""Random documents of `tests/reference`, examples of each theorem of `tests/load`, decisions of the real controller
in `tests/replay/hpa`, and closed loops of each world of `tests/load`. A longer run sets more.
"""

MAY_BLOCK = {
    "adapter/commands/check/rights.py": {"needed_rights"},  # a command serves one person
    "adapter/kube/credentials.py": {"_kubeconfig"},  # in a thread, with a loop of its own
    "adapter/settings/server.py": {"own_namespace"},  # settings are read in a thread, or before anything is served
    "adapter/telemetry/metrics.py": {"__init__", "package_version"},  # the first at the start; the other in commands
    "rich/traceback.py": {"_render_stack"},  # logs as structlog has them by itself, which are not the product's
}
"""Functions that may block where a test has its event loop."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "builds(*names): needs these programs built, beyond what its fixtures need")
    for name, amount in AMOUNTS.items():
        os.environ.setdefault(name, amount)
    hypothesis.settings.load_profile("tests")
    os.environ.setdefault("GOGC", "300")  # real servers look for garbage a third as often, with 150 MB more each


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each worker of a whole run begins its imports with other files: what one has compiled, the others only load.

    Rewriting the asserts of all files takes 14 s of processor time, which each worker of a fresh clone would spend.
    What is made until the end of the collection stays: looking for garbage meanwhile takes time and finds none.
    """
    gc.disable()
    worker = getattr(session.config, "workerinput", None)
    if worker and session.config.args == ["tests"]:
        root = Path(__file__).parent.parent
        files = sorted((root / "tests").rglob("test_*.py"))
        for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
            with contextlib.suppress(Exception):  # the collection reports it
                importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks what a worker of `--dist=loadgroup` takes together: the tests of a file, or of a group that they name.

    Tests of the shared control plane that make nothing once a module go one by one to whichever worker is free, so
    that no long file is left at the end. Those of the bare API server share one, which costs 10 s of work.
    """
    if item.get_closest_marker("xdist_group") is None:
        fixtures, names = getattr(item, "_fixtureinfo", None), getattr(item, "fixturenames", ())
        shares = fixtures and any(one.scope == "module" for all_ in fixtures.name2fixturedefs.values() for one in all_)
        if "api_server" in names and "control_plane" not in names:
            item.add_marker(pytest.mark.xdist_group("api_server"))
        elif shares or "control_plane" not in names:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(trylast=True)  # once the folders have marked theirs
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that wait for servers come first, the largest groups before all, and those that only compute fill the ends.

    A group stays on one worker: one of minutes that began late would be left alone at the end.
    """
    sizes = Counter(map(_group, items))
    items.sort(key=lambda item: (not _is_real(item), not item.get_closest_marker("long"), -sizes[_group(item)]))
    if getattr(config.option, "loadgroup", False):
        for item in items:
            # By this end of its id a worker's group is known. pytest-xdist 3.8 sets `_nodeid`, which pytest 9.2 does
            # not read: without this every worker would start the servers of every group.
            if item.get_closest_marker("xdist_group") and not item.nodeid.endswith(f"@{_group(item)}"):
                item._id = NodeId.parse(f"{item.nodeid}@{_group(item)}")  # type: ignore[attr-defined]  # noqa: SLF001


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else item.nodeid


def _is_real(item: pytest.Item) -> bool:
    """Whether it uses a real server."""
    return bool(item.get_closest_marker("e2e") or item.get_closest_marker("integration"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what the collected tests of real servers need, with progress on the terminal.

    The million objects of a collection stay: looking through them again and again would take a tenth of the processor
    time of the tests, and stop them for up to a second each time.
    """
    if session.config.option.collectonly:
        return
    gc.collect()
    gc.freeze()
    gc.enable()
    real = [item for item in session.items if _is_real(item)]
    asked = {name for item in real for name in getattr(item, "fixturenames", ())}
    marked = [mark for item in real for mark in item.iter_markers("builds")]
    names = [program for fixture, programs in NEEDS.items() if fixture in asked for program in programs]
    names += [program for mark in marked for program in mark.args]
    if absent := binaries.missing(dict.fromkeys(names)):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print()
            binaries.ensure(*absent, announce=lambda line: print(line, flush=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Puts the ends of the logs under a failed test that used a cluster."""
    report = yield
    if report.failed and call.when in {"setup", "call"}:
        for name in ("control_plane", "api_server"):
            cluster = getattr(item, "funcargs", {}).get(name)
            if isinstance(cluster, ControlPlane):
                report.sections.extend(_logs(cluster))
    return report


def _logs(cluster: ControlPlane) -> list[tuple[str, str]]:
    dead = [component for component in cluster.components.values() if not component.running]
    shown = {component.name: component.tail(30) for component in (*cluster.watched, *dead)}
    return [(f"log of {name}", text) for name, text in shown.items()]


@pytest.fixture(autouse=True)
def _seed(request: pytest.FixtureRequest) -> None:
    """A test draws the same random numbers in a whole run and alone; hypothesis goes on looking by itself.

    In a whole run a test's id ends in `@` and its group.
    """
    random.seed(request.node.nodeid.partition("@")[0])


@pytest.fixture(scope="session")
def _guard() -> BlockBuster:
    guard = BlockBuster("adapter")
    for function, (file, names) in product(guard.functions.values(), MAY_BLOCK.items()):
        function.can_block_in(file, names)
    return guard


@pytest.fixture(autouse=True)
def _no_blocking(request: pytest.FixtureRequest, _guard: BlockBuster) -> Iterator[None]:
    """A blocking call of ours in the event loop fails the test; those of tests and of their fakes may be made."""
    if request.node.get_closest_marker("asyncio"):
        _guard.activate()
    yield
    _guard.deactivate()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Everything a cluster has but containers; HPAs sync every second. Shared: a test works in its own namespace."""
    with ControlPlane(hpa_sync=1, prepared=install_crds) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def api_server() -> Iterator[ControlPlane]:
    """etcd and kube-apiserver: objects, validation and watches, but nobody who acts on them."""
    with ControlPlane.api_server_only() as cluster:
        yield cluster


def _fresh_name(request: pytest.FixtureRequest) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    return f"{slug[:24].strip('-')}-{secrets.token_hex(3)}"


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of this test's own in the control plane, emptied afterwards."""
    made = Workloads(control_plane, _fresh_name(request))
    made.make_namespace()
    yield made.namespace
    control_plane.restore()
    made.remove_namespace()


@pytest.fixture
def api_namespace(api_server: ControlPlane, request: pytest.FixtureRequest) -> str:
    """A namespace of this test's own in the bare API server, where nobody could clean it up."""
    name = _fresh_name(request)
    api_server.client.apply(objects.namespace(name))
    return name


@pytest.fixture
def workloads(control_plane: ControlPlane, namespace: str) -> Workloads:
    """Deployments, HPAs and load in this test's namespace."""
    return Workloads(control_plane, namespace)


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """A page of series that the test sets, scraped by the `prometheus` fixture."""
    with Exporter() as page:
        yield page


@pytest.fixture
def prometheus(exporter: Exporter) -> Iterator[Prometheus]:
    """A Prometheus of this test's own, which scrapes `exporter` every second."""
    with Prometheus([exporter]) as server:
        yield server


@pytest.fixture
def polaris() -> Iterator[Polaris]:
    """A Polaris of this test's own, which is also a Nacos and a Eureka server; it starts within half a second."""
    with Polaris() as server:
        yield server
