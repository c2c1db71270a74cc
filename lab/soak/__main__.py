"""`python -m lab.soak`: random policies, loads, registry changes and faults, compared with the model."""

import argparse
import sys
import time
from pathlib import Path

from lab.benchmarks import record
from lab.harness import binaries
from lab.soak.defects import DEFECTS, Defect
from lab.soak.plan import services
from lab.soak.run import Run, foremost
from lab.soak.stage import Stage


def main() -> int:
    """The exit status is 1 where an invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m lab.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the services and of the steps; default: 1")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long; default: 5")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first difference")
    parser.add_argument("--documents", type=Path, default=Path("soak-documents"), help="where to save them")
    parser.add_argument("-o", "--out", type=Path, help="store the figures in this file")
    parser.add_argument("--planted", action="store_true", help="plant a defect for each invariant: each must be found")
    parsed = parser.parse_args()
    origin = record.origin()
    binaries.ensure(*binaries.CONTROL_PLANE, "prometheus", "consul")
    planned = services(parsed.seed)
    tell(f"seed {parsed.seed}, {parsed.minutes:g} minutes, {len(planned)} policies")
    for one in planned:
        metrics = ", ".join(str(metric.written()) for metric in one.metrics)
        tell(f"        {one.name}: {one.pods} pods at {one.x}; {metrics}; {one.spec}")
    with Stage(planned, parsed.seed) as stage:
        if parsed.planted:
            found = [find(stage, one, parsed.documents) for one in DEFECTS]
            if parsed.out:
                record.write(parsed.out, {"defects": found}, came_from=origin)
            return 0 if all(one["seconds"] is not None for one in found) else 1
        run = Run(stage, tell, parsed.documents / f"seed-{parsed.seed}", keep_going=parsed.keep_going)
        result = run.play(parsed.seed, parsed.minutes * 60)
    tell(result.summary(parsed.seed))
    if parsed.out:
        record.write(parsed.out, {"seed": parsed.seed, **result.figures()}, came_from=origin)
    return 1 if result.findings else 0


def find(stage: Stage, defect: Defect, folder: Path) -> dict[str, object]:
    """Plants a defect, plays its steps, and tells after how many seconds it was found as what it is."""
    stage.plant(defect.name)
    began = time.time()
    run = Run(stage, lambda _: None, folder, keep_going=True, warm=1.0)
    run.play_group(defect.group)
    run.observer.close()
    stage.plant("")
    found = next((one for one in run.observer.findings if one.invariant == defect.invariant), None)
    after = f"{found.at - began:.1f} s: {found.text}" if found else "not found"
    tell(f"{'found ' if found else 'MISSED'}  {defect.name:16} {defect.what}: {defect.invariant}: {after}")
    for line in () if found else foremost(run.observer.findings):
        tell(line)
    seconds = round(found.at - began, 1) if found else None
    return {"name": defect.name, "what": defect.what, "invariant": defect.invariant, "seconds": seconds}


def tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
