"""A process that runs under the probe (`lab.benchmarks.probe`)."""

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from lab.harness.processes import Component

_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 120.0


class Probed:
    """A component whose process runs with the probe, which writes into the folder `out`."""

    def __init__(self, component: Component, out: Path) -> None:
        self.component, self._out = component, out

    @classmethod
    def of(cls, component: Component, folder: Path) -> Self:
        """Adds the probe to a component that runs `python -m MODULE …` from this repository."""
        out = Path(tempfile.mkdtemp(prefix="probe-", dir=folder))
        python, flag, module, *arguments = component.command
        component.command = [python, flag, "lab.benchmarks.probe", str(out), module, *arguments]
        return cls(component, out)

    @classmethod
    def elsewhere(cls, name: str, command: Sequence[str], folder: Path, source: Path) -> Self:
        """A component that runs `python -m MODULE …` from the repository `source`, with the probe of this one."""
        root = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
        # The working directory is first in the path: packages of two repositories.
        for package, repository in (("adapter", source), ("lab", _ROOT)):
            (root / package).symlink_to(repository / package)
        inherited = {key: value for key, value in os.environ.items() if key not in {"KUBECONFIG", "PYTHONPATH"}}
        return cls.of(Component(name, command, folder / f"{name}.log", env=inherited, cwd=root), folder)

    @property
    def pid(self) -> int:
        return self.component.pid or 0

    def timed(self, work: Callable[[], object]) -> dict[str, Any]:
        """The event loop's steps while `work` runs here."""
        os.kill(self.pid, signal.SIGUSR1)
        work()
        path = self._out / "loop.json"
        path.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        until = time.monotonic() + _PATIENCE
        while not path.exists():
            if time.monotonic() > until or not self.component.running:
                raise TimeoutError(f"no {path.name}{self.component.tail()}")
            time.sleep(0.05)
        return dict(json.loads(path.read_text()))
