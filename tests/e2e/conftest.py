"""Fixtures: adapter and companion processes on the real control plane, with the stock HPA."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from adapter.companion.features import fast_scale_up, status
from adapter.kube import reflector
from lab.harness import short_laws
from lab.harness.adapter import AdapterProcess, account_kubeconfig, manifests
from lab.harness.companion import DEFAULT_RIGHTS, CompanionProcess, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane

FAST: dict[str, Any] = {"resourceMetrics": {"intervalSeconds": 2}}
"""Short intervals, so that a test waits for metrics-server only."""

COMPANIONS = itertools.count()
"""Numbers the companions, so that each has its own log."""

MakeAdapter = Callable[..., AdapterProcess]
MakeCompanion = Callable[..., CompanionProcess]


class Laws(NamedTuple):
    """How long a watch may last and be believed, how far apart raises and writes of a status are, and the module that
    runs commands so.
    """

    watch: float
    confirmed: float
    raises_apart: float
    statuses_apart: float
    module: str

    def run(self, command: str) -> tuple[str, ...]:
        """The interpreter's arguments for this command."""
        return ("-m", self.module, command)


REAL_LAWS = Laws(
    reflector.SILENCE_SECONDS * 2 / 3,
    reflector.SILENCE_SECONDS,
    fast_scale_up.APART_SECONDS,
    status.SHORTEST_SECONDS,
    "adapter.cli",
)
SHORT_LAWS = Laws(
    short_laws.SILENCE_SECONDS * 2 / 3,
    short_laws.SILENCE_SECONDS,
    short_laws.RAISES_APART_SECONDS,
    short_laws.STATUSES_APART_SECONDS,
    "lab.harness.short_laws",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def laws(exhaustive: bool) -> Laws:
    """Short ones, so that a test need not wait for minutes; `make test-all` takes the adapter's own."""
    return REAL_LAWS if exhaustive else SHORT_LAWS


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
