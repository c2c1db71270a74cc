"""Cost of a start, and of a relist: `python -m lab.benchmarks.start [--before FOLDER] [--rounds 3] [--relists 1]`.

A real etcd and kube-apiserver hold 1,000 policies and 20,000 pods. The adapter runs as its command line does in a pod,
compiled as in the image and with its service account, until its first correct answer. With `--before`, the adapter of
another working copy (its `.venv` runs it) takes turns with this one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.processes import cpu_seconds, favour, memory
from lab.benchmarks.stage import ROOT, Moments, Stage
from lab.harness.adapter import ACCOUNT, NAMESPACE

_IN_POD = ROOT / "lab" / "benchmarks" / "start_in_pod.py"
_RELIST_SECONDS = 20
_SETTLE_SECONDS = 8

Figures = dict[str, Any]


def announce(text: str) -> None:
    print(text, flush=True)


class Version:
    """An adapter's working copy, its interpreter and its compiled modules."""

    def __init__(self, name: str, folder: Path, python: Path, compiled: Path) -> None:
        self.name, self.folder, self.python = name, folder, python
        self.compiled = compiled / f"compiled-{name}"

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPYCACHEPREFIX": str(self.compiled)}

    def compile(self) -> None:
        """Compiles the package, and what it imports: the image holds both compiled."""
        line = [self.python, "-m", "compileall", "-q", "adapter"]
        subprocess.run(line, cwd=self.folder, env=self.environment(), check=True)
        packages = "adapter.assembly, adapter.apiserver.server, adapter.companion.companion"
        line = [self.python, "-c", f"import {packages}, kubernetes.aio.config.kube_config"]
        subprocess.run(line, cwd=self.folder, env=self.environment(), check=True)


class Starts:
    """Starts versions of the adapter in turn on one stage."""

    def __init__(self, stage: Stage, scratch: Path) -> None:
        self.stage = stage
        command = stage.adapter.component.command
        self._settings = command[command.index("--settings") :]
        self._account = scratch / "account"
        self._account.mkdir()
        (self._account / "token").write_text(stage.cluster.token(NAMESPACE, ACCOUNT))
        (self._account / "ca.crt").write_text(Path(stage.cluster.pki.cluster.file).read_text())
        self._environment = dict(stage.adapter.component.env or {})

    def choose(self, version: Version) -> None:
        component = self.stage.adapter.component
        component.command = [str(version.python), str(_IN_POD), "serve", *self._settings]
        component.cwd = version.folder
        component.env = {
            **{key: value for key, value in self._environment.items() if key != "PYTHONDONTWRITEBYTECODE"},
            **{key: value for key, value in version.environment().items() if key.startswith("PYTHONPYCACHE")},
            "START_ACCOUNT": str(self._account),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.stage.forwarder.port),
        }

    def start(self, version: Version) -> Figures:
        """One start; the adapter stays up."""
        self.choose(version)
        server = self.stage.cluster.components["kube-apiserver"].pid or 0
        before = cpu_seconds(server)
        seconds = self.stage.first_answer()
        cpu, served = cpu_seconds(self.stage.pid), cpu_seconds(server) - before
        return {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu, 2),
            "api_server_cpu_seconds": round(served, 2),
            "rss_mib": memory(self.stage.pid)["now"],
            "peak_mib": memory(self.stage.pid)["peak"],
        }

    def stop(self) -> None:
        self.stage.adapter.stop()
        time.sleep(2)

    def relist(self, *, changed: bool) -> Figures:
        """One relist of all pods at an API server that has just started; the adapter is at rest otherwise."""
        pid = self.stage.pid

        def measured(roll: Callable[[], Moments | None]) -> Figures:
            before = cpu_seconds(pid)
            began, ended = roll() or (0.0, 0.0)
            time.sleep(0.5)  # its assessments
            return {
                "seconds": round(ended - began, 2),
                "cpu_seconds": round(cpu_seconds(pid) - before, 2),
                **memory(pid),
            }

        return self.stage.relist(measured, changed=changed, patience=_RELIST_SECONDS)


def run(stage: Stage, versions: list[Version], scratch: Path, given: argparse.Namespace) -> Figures:
    starts = Starts(stage, scratch)
    figures: Figures = {version.name: {"starts": [], "relists": {}} for version in versions}
    for _ in range(given.rounds):
        for version in versions:
            done = starts.start(version)
            starts.stop()
            announce(f"{version.name}: {json.dumps(done)}")
            figures[version.name]["starts"].append(done)
    for version in versions if given.relists else ():
        starts.start(version)
        time.sleep(_SETTLE_SECONDS)
        for changed in (False, True):
            name = "every pod changed" if changed else "nothing changed"
            each = [starts.relist(changed=changed) for _ in range(given.relists)]
            announce(f"{version.name}, {name}: {json.dumps(each)}")
            figures[version.name]["relists"][name] = each
        starts.stop()
    return {name: _summary(each) for name, each in figures.items()}


def _summary(figures: Figures) -> Figures:
    """Medians."""
    starts = figures["starts"]
    result: Figures = {
        key: _median([one[key] for one in starts])
        for key in ("seconds", "cpu_seconds", "api_server_cpu_seconds", "rss_mib", "peak_mib")
    }
    result["relists"] = {
        name: {key: _median([one[key] for one in each]) for key in each[0]} for name, each in figures["relists"].items()
    }
    result["starts"] = starts
    return result


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 2)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.start", description=__doc__)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--namespaces", type=int, default=20)
    parser.add_argument("--before", type=Path, help="the folder of another version, with its .venv")
    parser.add_argument("--rounds", type=int, default=3, help="starts of each version (default: %(default)s)")
    parser.add_argument("--relists", type=int, default=0, help="relists of each kind (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of this version (default: this one)")
    parser.add_argument("-o", "--output", type=Path, help="the file for the figures")
    given = parser.parse_args()
    favour()
    scene = {name: getattr(given, name) for name in ("policies", "pods", "namespaces")}
    with tempfile.TemporaryDirectory() as folder, Stage(**scene, python=given.python, announce=announce) as stage:
        scratch = Path(folder)
        versions = [Version("after", ROOT, Path(given.python), scratch)]
        if given.before:
            versions.insert(0, Version("before", given.before, given.before / ".venv/bin/python", scratch))
        for version in versions:
            version.compile()
        done = run(stage, versions, scratch, given)
    figures = {"scene": scene, "versions": done}
    print(json.dumps(figures, indent=1))
    if given.output:
        record.write(given.output, figures)


if __name__ == "__main__":
    main()
