"""Fixtures: adapter and companion processes on the real control plane, with the stock HPA.

One adapter, one companion and one Prometheus are shared by the tests of a worker; each test has a namespace and a page
of series of its own. A test that needs other settings or rights, or breaks a source, makes its own.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapter.settings import parse_settings
from lab.harness import short_laws
from lab.harness.adapter import AdapterProcess, account_kubeconfig, merged
from lab.harness.companion import DEFAULT_RIGHTS, CompanionProcess, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Page, Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.kit import FAST, Load, prometheus_settings

FEATURES = {"companion": {"features": {"deletionCost": True, "hpaConfiguration": True}}}
"""The shared companion has these and the default ones. Each acts for the policies that ask for it."""
RIGHTS = (*DEFAULT_RIGHTS, "deletion-cost", "hpa-configuration")
COMPANIONS = itertools.count()
"""Numbers the companions, so that each has its own log."""

MakeAdapter = Callable[..., AdapterProcess]
MakeCompanion = Callable[..., CompanionProcess]


class Laws:
    """Short waits, so that a test takes no minutes: settings, and the module that runs commands with other limits."""

    def __init__(self) -> None:
        found = parse_settings(json.dumps(short_laws.SETTINGS))
        self.confirmed = found.kubernetes.watch_silence_seconds
        """How long a watch is believed without proof."""
        self.watch = self.confirmed * 2 / 3
        """How long a watch may last."""
        self.raises_apart = found.companion.hpa_sync_seconds
        self.statuses_apart = found.companion.status_interval_seconds

    def run(self, command: str) -> tuple[str, ...]:
        """The interpreter's arguments for this command."""
        return ("-m", "lab.harness.short_laws", command)

    def over(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """These settings with those of the laws."""
        return merged(short_laws.SETTINGS, settings)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def laws() -> Laws:
    return Laws()


@pytest.fixture(scope="session")
def shared_exporter() -> Iterator[Exporter]:
    with Exporter() as exporter:
        yield exporter


@pytest.fixture(scope="session")
def shared_prometheus(shared_exporter: Exporter) -> Iterator[Prometheus]:
    with Prometheus([shared_exporter]) as server:
        yield server


@pytest.fixture
def page(shared_exporter: Exporter) -> Iterator[Page]:
    """This test's series in the shared Prometheus."""
    page = Page()
    shared_exporter.parts.append(page)
    yield page
    shared_exporter.parts.remove(page)


@pytest.fixture
def load(page: Page, workloads: Workloads) -> Load:
    """The load of this test's services, as the shared adapter and companion read it."""
    return Load(page, workloads)


@pytest.fixture(scope="session")
def adapter_kubeconfig(control_plane: ControlPlane) -> Path:
    """A kubeconfig with the server's rights in the manifests."""
    return account_kubeconfig(control_plane)


@pytest.fixture(scope="session")
def _adapter(
    control_plane: ControlPlane, adapter_kubeconfig: Path, shared_prometheus: Prometheus
) -> Iterator[AdapterProcess]:
    settings = prometheus_settings(shared_prometheus)
    with AdapterProcess(control_plane, settings, external=True, kubeconfig=adapter_kubeconfig) as process:
        yield process


@pytest.fixture
def adapter(_adapter: AdapterProcess) -> AdapterProcess:
    """The shared adapter with the external API; started again if it was ended or unregistered."""
    if not (_adapter.component.running and _adapter.registered):
        _adapter.stop()
        _adapter.start()
    _adapter.wait_available()
    return _adapter


@pytest.fixture
def make_adapter(
    control_plane: ControlPlane, _adapter: AdapterProcess, adapter_kubeconfig: Path
) -> Iterator[MakeAdapter]:
    """Starts an adapter with the test's own settings instead of the shared one, which is restored afterwards."""
    made: list[AdapterProcess] = []

    def make(settings: Mapping[str, Any] | None = None, **more: Any) -> AdapterProcess:
        more = {"external": True, "kubeconfig": adapter_kubeconfig, "name": f"adapter-{len(made)}", **more}
        process = AdapterProcess(control_plane, settings or FAST, **more)
        made.append(process)
        process.start()
        return process

    yield make
    for process in made:
        process.stop()
        control_plane.watched.remove(process.component)
    _adapter.register()


@pytest.fixture(scope="session")
def _companion(control_plane: ControlPlane, shared_prometheus: Prometheus, laws: Laws) -> Iterator[CompanionProcess]:
    """Not started yet."""
    settings = laws.over(prometheus_settings(shared_prometheus) | FEATURES)
    process = CompanionProcess(control_plane, settings, kubeconfig=companion_kubeconfig(control_plane, RIGHTS))
    yield process
    process.stop()


@pytest.fixture
def companion(_companion: CompanionProcess, control_plane: ControlPlane) -> CompanionProcess:
    """The shared companion with FEATURES, which leads."""
    if not _companion.component.running:
        reset_lease(control_plane)
        _companion.start()
    _companion.wait_leading()
    return _companion


@pytest.fixture
def make_companion(control_plane: ControlPlane, _companion: CompanionProcess) -> Iterator[MakeCompanion]:
    """Starts companions with exactly the rights of these features' components, by default the default ones.

    make_companion({"companion": {"features": {"fastScaleUp": True}}}, rights=("status", "fast-scale-up"))
    """
    made: list[CompanionProcess] = []
    _companion.stop()
    reset_lease(control_plane)

    def make(
        settings: Mapping[str, Any] | None = None, *, rights: Iterable[str] = DEFAULT_RIGHTS, **more: Any
    ) -> CompanionProcess:
        more = {
            "kubeconfig": companion_kubeconfig(control_plane, rights),
            "name": f"companion-{next(COMPANIONS)}",
            **more,
        }
        process = CompanionProcess(control_plane, settings or FAST, **more)
        made.append(process)
        process.start()
        return process

    yield make
    for process in made:
        process.stop()
        control_plane.watched.remove(process.component)
