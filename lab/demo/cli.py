"""`python -m lab.demo`: tells the story in the model, plays it on a real control plane, and compares both."""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from adapter.commands.terminal.waiting import Interrupted, ended_by_signals
from lab.demo.curve import FULL, Curve
from lab.demo.model import ModelStage
from lab.demo.objects import OURS, PULLED_OUT
from lab.demo.play import Player
from lab.demo.stage import Stage, started
from lab.demo.story import Narrator, agree, closing, comparison, tidy
from lab.demo.timeline import dump
from lab.harness import binaries
from lab.harness.binaries import BuildError
from lab.harness.client import ApiError
from lab.harness.control_plane import ControlPlane
from lab.harness.kwok import USAGE_CPU
from lab.harness.processes import ComponentError

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 after a complete story, 1 after an error or other counts than the model's, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.demo",
        description="The stock HPA on effective load beside a stock CPU HPA: a rise, two pods pulled out, a fall."
        " Told in a model at once, then played on a real control plane within 4 minutes, and compared; the first run"
        " builds the control plane, 8 to 15 minutes on 2 cores.",
    )
    parser.add_argument("--keep", action="store_true", help="keep the cluster after the story, to explore it")
    parser.add_argument("--out", type=Path, metavar="DIR", default=ROOT / "demo-out", help="folder for the results")
    options = parser.parse_args(arguments)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        with ended_by_signals():
            return demo(options.out, keep=options.keep)
    except Interrupted as stopped:
        say("\nstopped; the demo has removed everything it started")
        return stopped.status
    except (ApiError, BuildError, ComponentError, OSError) as error:
        first, *others = (str(error).strip() or type(error).__name__).splitlines()
        log = options.out / "failure.log"
        log.write_text(f"{error}\n")
        say(f"demo: {first.rstrip(':.')}" + (f"; the full message is in {_shown(log)}" if others else ""))
        return 1


def demo(out: Path, *, keep: bool) -> int:
    """Tells the story in the model, where no time passes, plays it, and compares; the exit code."""
    say("The story in a model of metrics-server, the adapter and the HPA controller:")
    model = _played(ModelStage(), FULL).timeline
    say("", "Now the same story on a real control plane:", "")
    kubectl = ["kubectl"] if keep and not shutil.which("kubectl") else []
    binaries.ensure(*binaries.CONTROL_PLANE, *kubectl, announce=say)
    with started(say) as cluster:
        timeline = run(Stage(cluster), FULL, out, cluster=cluster if keep else None).timeline
        say(*comparison(model, timeline))
        if keep:
            stay(cluster)
    return 0 if agree(model, timeline) else 1


def run(stage: Stage, curve: Curve, out: Path, *, cluster: ControlPlane | None = None) -> Player:
    """Plays a curve in a cluster, narrates it on the terminal, and writes timeline and decisions to `out`.

    `cluster` is said to be looked at meanwhile, where there is one.
    """
    began = time.monotonic()
    stage.set_up(curve.demand(0), say)
    if cluster:
        say("to look on from another terminal:", f"  export KUBECONFIG={cluster.kubeconfig}", f"  {_EXPLAIN} --watch")
    player = _played(stage, curve)
    leave(player, out)
    say(f"finished in {time.monotonic() - began:.0f} s")
    return player


def _played(stage: Stage | ModelStage, curve: Curve) -> Player:
    narrator = Narrator(colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    say("", *narrator.opening())
    player = Player(stage, curve, narrator, lambda lines: say(*lines))
    say("", *closing(player.play()), "")
    return player


def leave(player: Player, out: Path) -> None:
    """Writes the results: the timeline, and a document for each decision."""
    (out / "timeline.json").write_text(dump(player.timeline))
    for old in out.glob("decision-*.yaml"):
        old.unlink()
    for number, (rescale, reason) in enumerate(player.kept, 1):
        header = "".join(f"# {tidy(sentence)}\n" for sentence in reason.sentences)
        text = yaml.safe_dump(reason.document, sort_keys=False, width=120)
        path = out / f"decision-{number}-from-{rescale.before}-to-{rescale.after}.yaml"
        path.write_text(f"{header}# effective-load decide {path.name} -o text\n{text}")
    say(f"decisions, as input of `effective-load decide`: {_shown(out)}/decision-*.yaml")


def stay(cluster: ControlPlane) -> None:
    """Prints commands to try by hand, and waits until Ctrl-C."""
    kubectl = "kubectl" if shutil.which("kubectl") else str(binaries.path_of("kubectl"))
    there = f"{kubectl} -n demo"
    say(
        "",
        "The cluster stays until Ctrl-C. In another terminal:",
        "",
        f"  export KUBECONFIG={cluster.kubeconfig}",
        f"  {_EXPLAIN}",
        f"  {there} get hpa,wmp,deploy,pods",
        f"  {there} describe hpa {OURS}",
        "",
        "the HPA's request; other metrics: effective_cpu, raw_cpu, effective_pods, pulled_out_pods",
        f"  {kubectl} get --raw {Stage(cluster).figure_path('desired_replicas')}",
        "",
        "put the pulled-out pods back, then raise the pods' load, and watch the HPA act",
        f"  {there} annotate pods -l app={OURS} {PULLED_OUT}-",
        f"  {there} annotate pods -l app={OURS} --overwrite {USAGE_CPU}=1500m",
        "",
        "the adapter's log",
        f"  less {cluster.kubeconfig.parent / 'adapter.log'}",
        "",
    )
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            signal.pause()


_EXPLAIN = f".venv/bin/effective-load explain {OURS} -n demo"


def _shown(path: Path) -> str:
    """A path relative to the current folder where possible."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def say(*lines: str) -> None:
    """Prints lines at once, also into a pipe."""
    for line in lines:
        print(line, flush=True)
