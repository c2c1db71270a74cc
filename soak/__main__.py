"""`python -m soak`: random policies, loads, registry changes and faults, compared with the model. A line a group."""

import argparse
import sys
import time
from pathlib import Path

from harness import binaries
from soak.defects import DEFECTS, Defect
from soak.plan import services
from soak.run import Result, Run
from soak.stage import Stage


def main(arguments: list[str] | None = None) -> int:
    """The exit status is 1 where an invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the services and of the steps; default: 1")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long; default: 5")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first difference")
    parser.add_argument("--documents", type=Path, default=Path("soak-documents"), help="where to save them")
    parser.add_argument("--planted", action="store_true", help="plant a defect for each invariant: each must be found")
    parsed = parser.parse_args(arguments)
    binaries.ensure(*binaries.CONTROL_PLANE, "prometheus", "consul")
    planned = services(parsed.seed)
    tell(f"seed {parsed.seed}, {parsed.minutes:g} minutes, {len(planned)} policies")
    for one in planned:
        metrics = ", ".join(str(metric.written()) for metric in one.metrics)
        tell(f"        {one.name}: {one.pods} pods at {one.x}; {metrics}; {one.spec}")
    with Stage(planned, parsed.seed) as stage:
        if parsed.planted:
            return 1 if any([not find(stage, one, parsed.documents) for one in DEFECTS]) else 0
        run = Run(stage, tell, parsed.documents, keep_going=parsed.keep_going)
        result = run.play(parsed.seed, parsed.minutes * 60)
    tell(summary(parsed.seed, result))
    return 1 if result.findings else 0


def find(stage: Stage, defect: Defect, folder: Path) -> bool:
    """Plants a defect, plays its steps, and tells whether it was found as what it is."""
    stage.plant(defect.name)
    began = time.monotonic()
    run = Run(stage, lambda _: None, folder, keep_going=True, warm=1.0)
    run.play_group(defect.group)
    run.observer.close()
    stage.plant("")
    found = [one for one in run.observer.findings if one.invariant == defect.invariant]
    after = f"{found[0].at - time.time() + time.monotonic() - began:.1f} s: {found[0].text}" if found else "not found"
    tell(f"{'found ' if found else 'MISSED'}  {defect.name:16} {defect.what}: {defect.invariant}: {after}")
    return bool(found)


def summary(seed: int, result: Result) -> str:
    """The last lines of a run."""
    faults = ", ".join(f"{name} {count}" for name, count in sorted(result.faults.items()))
    kinds = ", ".join(sorted({one.invariant for one in result.findings}))
    return (
        f"{'FAILED' if result.findings else 'ok'}  seed {seed}: {result.groups} groups, {result.steps} steps in "
        f"{result.seconds / 60:.1f} minutes; {result.documents} documents compared with the model, {result.syncs} looks "
        f"and {result.rescaled} rescales of the controller compared with its answers, {result.answers} answers in at "
        f"most {result.slowest * 1e3:.0f} ms ({result.not_judged} not judged: for {result.stalled:.1f} s in all this machine had "
        f"no processor to spare); growth {result.growth or 'not measured'}\nfaults: {faults or 'none'}\n"
        f"{len(result.findings)} unexplained differences{f': {kinds}' if kinds else ''}"
    )


def tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
