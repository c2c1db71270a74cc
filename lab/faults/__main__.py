"""`python -m lab.faults [NAME ...]`: breaks one thing after the other on the real control plane, a line each."""

import argparse
import sys

from lab.faults.run import play
from lab.faults.scenarios import SCENARIOS, may_run
from lab.faults.scene import Scene
from lab.harness import binaries


def main() -> int:
    """The exit status is 1 where an invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m lab.faults", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    parsed = parser.parse_args()
    if unknown := set(parsed.names) - set(names):
        parser.error(f"no scenario is named {', '.join(sorted(unknown))}; they are: {', '.join(names)}")
    binaries.ensure(*binaries.CONTROL_PLANE, "prometheus", "consul")
    failed = False
    with Scene() as scene:
        for scenario in SCENARIOS:
            if parsed.names and scenario.name not in parsed.names:
                continue
            if not may_run(scenario):
                print(f"skipped {scenario.name:24} needs root")
                continue
            outcome = play(scene, scenario)
            print(outcome.line(), flush=True)
            failed |= bool(outcome.faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
