"""`python -m lab.demo`: plays the story on a real control plane, and compares the counts with those of the load."""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence

from lab.demo.curve import FULL, Curve
from lab.demo.objects import OURS, PULLED_OUT
from lab.demo.play import Player
from lab.demo.stage import Stage, started
from lab.demo.story import Narrator, agree, closing, comparison
from lab.demo.timeline import Timeline
from lab.harness import binaries
from lab.harness.binaries import BuildError
from lab.harness.client import ApiError
from lab.harness.control_plane import ControlPlane
from lab.harness.kwok import USAGE_CPU
from lab.harness.processes import ComponentError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 after a complete story, 1 after an error or other counts than the story's, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.demo",
        description="The stock HPA on effective load beside a stock CPU HPA: a rise, two pods pulled out, a fall."
        " Played on a real control plane within 4 minutes; the first run builds it, 8 to 15 minutes on 2 cores.",
    )
    parser.add_argument("--keep", action="store_true", help="keep the cluster after the story, to explore it")
    options = parser.parse_args(arguments)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return demo(keep=options.keep)
    except KeyboardInterrupt:
        say("\nstopped; the demo has removed everything it started")
        return 130
    except (ApiError, BuildError, ComponentError, OSError) as error:
        say(f"demo: {str(error).strip() or type(error).__name__}")
        return 1


def demo(*, keep: bool) -> int:
    """Plays the story, and compares its counts; the exit code."""
    kubectl = ["kubectl"] if keep and not shutil.which("kubectl") else []
    binaries.ensure(*binaries.CONTROL_PLANE, *kubectl, announce=say)
    with started(say) as cluster:
        timeline = run(Stage(cluster), FULL, cluster if keep else None)
        say(*comparison(timeline))
        if keep:
            stay(cluster)
    return 0 if agree(timeline) else 1


def run(stage: Stage, curve: Curve, cluster: ControlPlane | None = None) -> Timeline:
    """Plays a curve in a cluster and narrates it on the terminal.

    `cluster` is said to be looked at meanwhile, where there is one.
    """
    began = time.monotonic()
    stage.set_up(curve.demand(0), say)
    if cluster:
        say("to look on from another terminal:", f"  export KUBECONFIG={cluster.kubeconfig}", f"  {_EXPLAIN} --watch")
    narrator = Narrator(colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    say("", *narrator.opening())
    timeline = Player(stage, curve, narrator, lambda lines: say(*lines)).play()
    say("", *closing(timeline), "", f"finished in {time.monotonic() - began:.0f} s")
    return timeline


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


def say(*lines: str) -> None:
    """Prints lines at once, also into a pipe."""
    for line in lines:
        print(line, flush=True)
