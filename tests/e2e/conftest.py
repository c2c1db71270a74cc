"""Fixtures: adapter and companion processes on the real control plane, with the stock HPA."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapter.settings import parse_settings
from lab.harness import short_laws
from lab.harness.adapter import AdapterProcess, account_kubeconfig, manifests, merged
from lab.harness.companion import DEFAULT_RIGHTS, CompanionProcess, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane

FAST: dict[str, Any] = {"resourceMetrics": {"intervalSeconds": 2}}
"""Short intervals, so that a test waits for metrics-server only."""

COMPANIONS = itertools.count()
"""Numbers the companions, so that each has its own log."""

MakeAdapter = Callable[..., AdapterProcess]
MakeCompanion = Callable[..., CompanionProcess]


class Laws:
    """Short waits, so that a test need not wait for minutes: settings, and the module that runs commands with what is
    no setting.
    """

    settings = short_laws.SETTINGS

    def run(self, command: str) -> tuple[str, ...]:
        """The interpreter's arguments for this command."""
        return ("-m", "lab.harness.short_laws", command)

    def over(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """These settings with those of the laws."""
        return merged(self.settings, settings)

    @property
    def watch(self) -> float:
        """How long a watch may last."""
        return self.confirmed * 2 / 3

    @property
    def confirmed(self) -> float:
        """How long a watch is believed without proof."""
        return parse_settings(json.dumps(self.settings)).kubernetes.watch_silence_seconds

    @property
    def raises_apart(self) -> float:
        """How far apart raises are."""
        return parse_settings(json.dumps(self.settings)).companion.hpa_sync_seconds

    @property
    def statuses_apart(self) -> float:
        """How far apart two writes of a status are."""
        return parse_settings(json.dumps(self.settings)).companion.status_interval_seconds


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def laws() -> Laws:
    return Laws()


@pytest.fixture(scope="session")
def adapter_kubeconfig(control_plane: ControlPlane) -> Path:
    """A kubeconfig with the server's rights in the manifests."""
    if next(manifests("ServiceAccount"), None) is None:
        return control_plane.kubeconfig
    return account_kubeconfig(control_plane)


@pytest.fixture(scope="session")
def _adapter(control_plane: ControlPlane, adapter_kubeconfig: Path) -> Iterator[AdapterProcess]:
    with AdapterProcess(control_plane, FAST, external=True, kubeconfig=adapter_kubeconfig) as process:
        yield process


@pytest.fixture
def adapter(_adapter: AdapterProcess) -> AdapterProcess:
    """The shared adapter with the settings FAST and the external API; started again if it was ended or unregistered."""
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


@pytest.fixture
def make_companion(control_plane: ControlPlane) -> Iterator[MakeCompanion]:
    """Starts companions with exactly the rights of these features' components, by default the default ones.

    make_companion({"companion": {"features": {"fastScaleUp": True}}}, rights=("status", "fast-scale-up"))
    """
    made: list[CompanionProcess] = []
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
