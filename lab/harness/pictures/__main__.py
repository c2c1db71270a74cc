"""`python -m lab.harness.pictures`: makes the pictures of the documentation that show what programs do, or those named.

Terminals show what commands really print, some of them in the cluster of a demo that this command runs; the page of a
replay and the dashboards are taken in Chromium. Diagrams of ideas (`concept-*.svg`) are drawn by hand.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lab.harness import binaries
from lab.harness.pictures.terminal import ROOT, WIDTH, Lines, Steady, draw, printing

OUT = ROOT / "docs" / "pictures"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A picture of a terminal, whose command is written as a reader would type it.

    The picture shows the lines from the first one that matches `since` to the next one that matches `to`. `before` is a
    command that is not shown. `expects` must be in what was printed. A moving picture plays the lines.
    """

    name: str
    command: str
    expects: str
    before: str = ""
    since: str = ""
    to: str = "(?!)"
    moving: bool = False
    width: int = WIDTH

    def write(self, printed: Lines, out: Path, steady: Steady) -> None:
        """Draws the lines to show; the first one begins at 0 s."""
        lines = [(at, steady.text(line)) for at, line in printed]
        first = next((at for at, (_, line) in enumerate(lines) if re.search(self.since, line)), 0)
        last = next((at for at in range(first + 1, len(lines)) if re.search(self.to, lines[at][1])), len(lines) - 1)
        kept = lines[first : last + 1]
        while kept and not kept[-1][1].strip():
            kept.pop()
        kept = [(at - kept[0][0], line) for at, line in kept]
        svg = draw(self.name, self.command, kept, moving=self.moving, width=self.width)
        (out / self.name).write_text(svg, encoding="utf-8")


OFFLINE = (
    Scene(
        name="terminal-decide.svg",
        command="effective-load decide tests/vectors/08-overloaded-and-out.yaml -o text",
        expects="asks for 12",
    ),
    Scene(
        name="terminal-migrate.svg",
        command="effective-load migrate manifests/examples/migrate/scaledobject.yaml",
        expects="WatermarkPolicy",
        since="^# The adapter",
        to="target:",
    ),
)
DEMO = Scene(
    name="terminal-demo.svg",
    command="make demo DEMO_ARGS=--keep",
    expects="The cluster stays",
    since="on a real control plane:",
    to="replicas at the end",
    moving=True,
)
_SERVING = '{{range .items}}{{if not (index .metadata.annotations "effective-load.io/pulled-out")}}{{.metadata.name}} {{end}}{{end}}'  # noqa: E501
_BUSY = (
    f"kubectl -n demo annotate pods $(kubectl -n demo get pods -l app=checkout -o go-template='{_SERVING}')"
    " --overwrite kwok.x-k8s.io/usage-cpu=1150m; sleep 30"
)
"""The pods that serve get busy, within the band, and metrics-server has measured it."""
IN_CLUSTER = (
    Scene(
        name="terminal-hpa.svg",
        before=_BUSY,
        command="kubectl -n demo get hpa,wmp",
        expects="checkout-stock",
        width=152,
    ),
    Scene(name="terminal-explain.svg", command="effective-load explain checkout -n demo", expects="checkout"),
    Scene(name="terminal-check.svg", command="effective-load check", expects="nothing wrong"),
    Scene(
        name="terminal-render.svg",
        command="kubectl -n demo get hpa checkout-stock -o yaml | effective-load render --from-hpa -",
        expects="WatermarkPolicy",
    ),
)
_OF_DEMO = {"demo.svg": "demo.svg", "demo.json": "timeline.json"}
"""What the demo draws and keeps by itself, in its folder `demo-out`."""
_PROGRAMS = {
    "lab.harness.replay_picture": ("replay.png", "replay-suggestions.png"),
    "monitoring.picture": ("dashboard-fleet.png", "dashboard-policy.png"),
}
"""Pictures that a program of its own makes."""
NAMES = [
    *(scene.name for scene in (*OFFLINE, DEMO, *IN_CLUSTER)),
    *_OF_DEMO,
    *(name for names in _PROGRAMS.values() for name in names),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a picture cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m lab.harness.pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"beginnings of names, by default all: {NAMES}")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="default: docs/pictures")
    options = parser.parse_args(arguments)
    wanted = {name for name in NAMES if name.startswith(tuple(options.names or [""]))}
    if not wanted:
        parser.error("no picture's name begins so")
    options.out.mkdir(parents=True, exist_ok=True)
    return 0 if all(list(_made(wanted, options.out))) else 1


def _made(wanted: set[str], out: Path) -> Iterator[bool]:
    """Makes the pictures; each yields whether it could be made."""
    steady = Steady()
    for scene in OFFLINE:
        if scene.name in wanted:
            yield _shown(scene, out, steady, {})
    in_cluster = [scene for scene in IN_CLUSTER if scene.name in wanted]
    if in_cluster or wanted & {DEMO.name, *_OF_DEMO}:
        with _kept_demo(out, steady) as kubeconfig:
            for scene in in_cluster:
                yield _shown(scene, out, steady, {"KUBECONFIG": kubeconfig})
    for module, names in _PROGRAMS.items():
        if wanted & {*names} and find_spec(module.split(".")[0]):
            print(f"{', '.join(names)}: python -m {module}", flush=True)
            yield subprocess.run([sys.executable, "-m", module], cwd=ROOT, check=False).returncode == 0


@contextmanager
def _kept_demo(out: Path, steady: Steady) -> Iterator[str]:
    """Plays the demo, draws it, and keeps its cluster: the kubeconfig. Raises RuntimeError if it fails."""
    print(f"{DEMO.name}: {DEMO.command} (4 minutes)", flush=True)
    command = f"exec {sys.executable} -m lab.demo --keep"
    with printing(command, _environment({}), seconds=900) as arriving:
        printed = []
        for at, line in arriving:
            printed.append((at, line))
            if line.rstrip().endswith("adapter.log"):
                break
        exported = [line.split("=", 1)[1].strip() for _, line in printed if "export KUBECONFIG=" in line]
        if not any(DEMO.expects in line for _, line in printed):
            raise RuntimeError(f"the demo ended: {printed[-10:]}")
        DEMO.write(printed, out, steady)
        for name, drawn in _OF_DEMO.items():
            shutil.copyfile(ROOT / "demo-out" / drawn, out / name)
        yield exported[-1]


def _shown(scene: Scene, out: Path, steady: Steady, environment: dict[str, str]) -> bool:
    """Runs and draws a scene; False where its command failed."""
    print(f"{scene.name}: {scene.command}", flush=True)
    environment = _environment(environment)
    if scene.before:
        subprocess.run(["sh", "-ec", scene.before], env=os.environ | environment, check=True)
    with printing(scene.command, environment, width=scene.width) as arriving:
        printed = list(arriving)
    if not any(scene.expects in line for _, line in printed):
        print("  it printed:", *(line for _, line in printed), sep="\n", flush=True)
        return False
    scene.write(printed, out, steady)
    return True


def _environment(more: dict[str, str]) -> dict[str, str]:
    """The programs' folders come first; kubectl's own folder serves where the machine has none."""
    programs = [Path(sys.executable).parent, *([] if shutil.which("kubectl") else [binaries.path_of("kubectl").parent])]
    return {"PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]), **more}


if __name__ == "__main__":
    raise SystemExit(main())
