"""`python -m lab.harness.pictures`: makes every picture of the documentation, or those that are named.

Diagrams are drawn from the numbers in their captions; terminals show what commands really print, some of them in the
cluster of a demo that this command runs; the page of a replay and the dashboards are taken in Chromium.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from lab.harness import binaries
from lab.harness.pictures.concepts import CONCEPTS
from lab.harness.pictures.scenes import DEMO, IN_CLUSTER, OFFLINE, Scene
from lab.harness.pictures.terminal import ROOT, Recording, Steady, draw, following, record

OUT = ROOT / "docs" / "pictures"
_DEMO_SECONDS = 600.0
_OF_DEMO = {"demo.svg": "demo.svg", "demo.json": "timeline.json"}
"""What the demo draws and keeps by itself, in its folder `demo-out`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a picture cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m lab.harness.pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="file names, or their beginnings; default: all")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="default: docs/pictures")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="of a demo that was kept and runs already")
    options = parser.parse_args(arguments)
    if options.list:
        _say("\n".join(all_names()))
        return 0
    unknown = [name for name in options.names if not any(one.startswith(name) for one in all_names())]
    if unknown:
        _say(f"there is no picture {', '.join(unknown)}; --list names all")
        return 1
    wanted = {one for one in all_names() if not options.names or one.startswith(tuple(options.names))}
    options.out.mkdir(parents=True, exist_ok=True)
    return 0 if _make(wanted, options.out, options.kubeconfig) else 1


def all_names() -> list[str]:
    """The pictures' file names, in the order in which they are made."""
    scenes = (*OFFLINE, DEMO, *IN_CLUSTER)
    return [
        *CONCEPTS,
        *(scene.name for scene in scenes),
        *_OF_DEMO,
        *(name for names, _ in _PROGRAMS for name in names),
    ]


_PROGRAMS = (
    (("replay.png", "replay-suggestions.png"), "lab.harness.replay_picture"),
    (("dashboard-fleet.png", "dashboard-policy.png"), "monitoring.picture"),
)
"""Pictures that a program of its own makes."""


def _make(wanted: set[str], out: Path, kubeconfig: Path | None) -> bool:
    for name in wanted & CONCEPTS.keys():
        (out / name).write_text(CONCEPTS[name](), encoding="utf-8")
    steady = Steady()
    done = [_shown(scene, out, steady, {}) for scene in OFFLINE if scene.name in wanted]
    in_cluster = [scene for scene in IN_CLUSTER if scene.name in wanted]
    if kubeconfig:
        done += [_shown(scene, out, steady, {"KUBECONFIG": str(kubeconfig)}) for scene in in_cluster]
    elif in_cluster or wanted & {DEMO.name, *_OF_DEMO}:
        done += _with_demo(in_cluster, out, steady)
    for names, module in _PROGRAMS:
        if wanted & set(names) and find_spec(module.split(".")[0]):
            _say(f"{', '.join(names)}: python -m {module}")
            done.append(subprocess.run([sys.executable, "-m", module], cwd=ROOT, check=False).returncode == 0)
    return all(done)


def _with_demo(scenes: Iterable[Scene], out: Path, steady: Steady) -> Iterator[bool]:
    """Plays the demo, draws what it printed, and then the scenes in its cluster."""
    _say(f"{DEMO.name}: {DEMO.command} (4 minutes)")
    recording = Recording()
    with _kept_demo(recording) as kubeconfig:
        _write(DEMO, out, recording, steady)
        for name, drawn in _OF_DEMO.items():
            shutil.copyfile(ROOT / "demo-out" / drawn, out / name)
        yield True
        for scene in scenes:
            yield _shown(scene, out, steady, {"KUBECONFIG": kubeconfig})


@contextmanager
def _kept_demo(recording: Recording) -> Iterator[str]:
    """The kubeconfig of a demo that has told its story and keeps its cluster. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "lab.demo", "--keep"]
    with following(command, _environment({})) as pieces:
        recording.listen(pieces, _DEMO_SECONDS, until=lambda text: text.rstrip().endswith("adapter.log"))
        lines = recording.text.splitlines()
        kept = [line.split("=", 1)[1].strip() for line in lines if line.strip().startswith("export KUBECONFIG=")]
        if not kept:
            raise RuntimeError(f"the demo ended: {recording.text[-500:]}")
        yield kept[0]


def _shown(scene: Scene, out: Path, steady: Steady, environment: dict[str, str]) -> bool:
    """Runs and draws a scene; False where its command failed."""
    _say(f"{scene.name}: {scene.command}")
    environment = _environment(environment)
    if scene.before:
        before = record(["sh", "-ec", f"{scene.before}; echo done"], environment, scene.seconds)
        if not before.text.rstrip().endswith("done"):
            _say(f"  what comes before it fails:\n{before.text[-2000:]}")
            return False
    recording = record(["sh", "-ec", scene.command], environment, scene.seconds, scene.width)
    if scene.expects not in recording.text:
        _say(f"  it printed:\n{recording.text[-2000:]}")
        return False
    _write(scene, out, recording, steady)
    return True


def _write(scene: Scene, out: Path, recording: Recording, steady: Steady) -> None:
    lines = scene.cut(steady.lines(recording.lines()))
    svg = draw(scene.name, scene.command, lines, moving=scene.moving, width=scene.width)
    (out / scene.name).write_text(svg, encoding="utf-8")


def _environment(more: dict[str, str]) -> dict[str, str]:
    """The programs' folders come first; kubectl's own folder serves where the machine has none."""
    programs = [Path(sys.executable).parent, *([] if shutil.which("kubectl") else [binaries.path_of("kubectl").parent])]
    return {"PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]), **more}


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
