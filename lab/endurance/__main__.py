"""`python -m lab.endurance`: an hour on the real control plane; exit status 1 where memory or anything else grows."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from lab.benchmarks import record
from lab.endurance.run import SAMPLE_SECONDS, LongRun
from lab.endurance.scene import LongScene
from lab.endurance.verdict import judge_all, together
from lab.harness import binaries

WARM_UP = 20.0
"""Minutes. A pod that went is remembered for 15, which is longest, and the next full collection comes within 5."""


def main() -> int:
    """Runs, prints a line for each quantity of each process, and stores the verdict."""
    parser = argparse.ArgumentParser(prog="python -m lab.endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="default: %(default)g")
    parser.add_argument(
        "--warm-up", type=float, default=WARM_UP, help="minutes that do not count (default: %(default)g)"
    )
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path, help="for the verdict (JSON)")
    options = parser.parse_args()
    if (options.minutes - options.warm_up) * 60 < 12 * SAMPLE_SECONDS:
        parser.error(f"after the warm-up there must be {12 * SAMPLE_SECONDS / 60:g} minutes for a verdict")
    origin = record.origin()
    binaries.ensure(*binaries.CONTROL_PLANE, "prometheus", "consul")
    with LongScene() as scene:
        recorded = LongRun(scene, options.minutes, lambda line: print(line, flush=True)).run()
    # The one that leads has more tasks and connections than the other; which one leads changes.
    companions = together([rows for name, rows in recorded.series.items() if name != "adapter"])
    verdicts = judge_all({"adapter": recorded.series["adapter"], "companions": companions}, options.warm_up)
    for verdict in verdicts:
        print(verdict.line())
    for fault in recorded.faults:
        print(f"FAILED  {fault}")
    names = {one["name"] for one in recorded.disturbances}
    print(
        f"{len(recorded.disturbances)} disturbances of {len(names)} kinds, {recorded.pods_replaced} pods replaced, "
        f"{recorded.numbers} numbers and {recorded.errors} errors answered"
    )
    if options.output:
        scale = {"minutes": options.minutes, "warm_up_minutes": options.warm_up}
        rows = [{**asdict(one), "flat": one.flat} for one in verdicts]
        figures = {
            **scale,
            "verdicts": rows,
            **asdict(recorded),
            "tasks": recorded.tasks[:: max(1, len(recorded.tasks) // 12)],
        }
        record.write(options.output, figures, came_from=origin)
    return 0 if all(one.flat for one in verdicts) and not recorded.faults else 1


if __name__ == "__main__":
    sys.exit(main())
