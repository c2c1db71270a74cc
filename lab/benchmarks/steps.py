"""The work on one large policy that holds the event loop at once; assessments have a thread of their own.

    python -m lab.benchmarks.steps [--sizes 10000,20000] [-o FILE]

Milliseconds of processor time, the minimum of several runs, for a policy whose pods are all registered (*registered*),
doubtful (*doubtful*), or pulled out by hand for one half (*out*). *put*: publishing the labels of the pods, each with
an object of its own. *conditions* and *status*: what the companion does at a look. Full garbage collections are off, as
in the adapter.
"""

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from adapter.companion import plan
from adapter.companion.context import Context
from adapter.companion.features.status import status_of
from adapter.companion.state import State
from adapter.kube.label_index import OwnersByLabels, distinct_labels
from adapter.load.assessment import Assessment
from adapter.load.decide import decide
from adapter.settings import CompanionSettings
from adapter.snapshot import Key, PolicyView
from lab.benchmarks.decide import TARGET, Scene, scene
from lab.benchmarks.record import write

CASES = ("registered", "doubtful", "out")
_KEY = Key("shop", "web")
_RUNS = 7


def _least(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(_RUNS))


def _timed(work: Callable[[], object]) -> float:
    """The processor time of one call (milliseconds)."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def _scene(case: str, size: int) -> Scene:
    target = scene("registered" if case == "out" else case, size)
    pods = [
        replace(pod, labels={"app": "web"}, pulled_out_annotation=case == "out" and index % 2 == 0)
        for index, pod in enumerate(target.inputs.pods)
    ]
    target.inputs = replace(target.inputs, pods=tuple(pods))
    return target


def _context(target: Scene, assessment: Assessment) -> Context:
    inputs = target.inputs
    view = PolicyView(
        policy=inputs.policy, assessment=assessment, inputs=inputs, target=TARGET, scale=inputs.scale,
        bounds=inputs.bounds,
    )  # fmt: skip
    return Context(
        key=_KEY, now=inputs.now, view=view, decision=decide(assessment, inputs.scale, inputs.bounds, inputs.now),
        hpa=None, settings=CompanionSettings(), state=State(),
    )  # fmt: skip


def measure(case: str, size: int) -> dict[str, float]:
    """The time of each kind of work (milliseconds)."""
    target = _scene(case, size)
    target.advance()
    assessment, _ = target.assess()
    context = _context(target, assessment)
    labels = distinct_labels(pod.labels for pod in target.inputs.pods)
    return {
        "put": _least(lambda: _timed(lambda: OwnersByLabels[Key]().put(_KEY, labels))),
        "conditions": _least(lambda: _timed(lambda: plan.conditions(context))),
        "status": _least(lambda: _timed(lambda: status_of(context))),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,20000")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    gc.set_threshold(700, 10, 1_000_000)
    figures: dict[str, dict[str, float]] = {}
    for size in (int(each) for each in options.sizes.split(",")):
        for case in CASES:
            row = figures[f"{size} {case}"] = measure(case, size)
            print(f"{size:6} {case:12}", "  ".join(f"{name} {cost:.2f}" for name, cost in row.items()), flush=True)
    if options.output:
        write(options.output, figures)


if __name__ == "__main__":
    main()
