"""`python -m lab.soak`: random policies, loads, registry changes and faults."""

import argparse
import sys
from pathlib import Path

from lab.harness import binaries
from lab.soak.plan import services
from lab.soak.run import Run
from lab.soak.stage import Stage


def main() -> int:
    """The exit status is 1 where a decision differs from its document, decided again."""
    parser = argparse.ArgumentParser(prog="python -m lab.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the services and of the steps; default: 1")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long; default: 5")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first difference")
    parser.add_argument("--documents", type=Path, default=Path("soak-documents"), help="where to save them")
    parsed = parser.parse_args()
    binaries.ensure(*binaries.CONTROL_PLANE, "prometheus", "consul")
    planned = services(parsed.seed)
    tell(f"seed {parsed.seed}, {parsed.minutes:g} minutes, {len(planned)} policies")
    for one in planned:
        metrics = ", ".join(str(metric.written()) for metric in one.metrics)
        tell(f"        {one.name}: {one.pods} pods at {one.x}; {metrics}; {one.spec}")
    with Stage(planned, parsed.seed) as stage:
        run = Run(stage, tell, parsed.documents / f"seed-{parsed.seed}", keep_going=parsed.keep_going)
        run.play(parsed.seed, parsed.minutes * 60)
    tell(run.summary(parsed.seed))
    return 1 if run.differences else 0


def tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
