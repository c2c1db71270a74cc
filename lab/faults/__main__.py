"""`python -m lab.faults [NAME ...]`: breaks one thing after the other on the real control plane, a line each."""

import argparse
import random
import sys

from lab.faults.run import play_all
from lab.faults.scenarios import SCENARIOS, may_run
from lab.faults.scene import Scene
from lab.harness import binaries


def main(arguments: list[str] | None = None) -> int:
    """The exit status is 1 where an invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m lab.faults", description=__doc__)
    names = [one.name for one in SCENARIOS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--seed", type=int, default=0, help="of the order after the first round, and of delays")
    parser.add_argument("--rounds", type=int, default=1, help="how often; after the first in random order")
    parser.add_argument("--stretch", type=float, default=1.0, help="factor on how long each fault lasts")
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.names) - set(names):
        parser.error(f"no scenario is named {', '.join(sorted(unknown))}; they are: {', '.join(names)}")
    chosen = [one for one in SCENARIOS if (not parsed.names or one.name in parsed.names) and may_run(one)]
    binaries.ensure(*binaries.CONTROL_PLANE, "prometheus", "consul")
    shuffle = random.Random(parsed.seed).shuffle
    failed = 0
    with Scene(parsed.seed) as scene:
        for number in range(parsed.rounds):
            if number:
                shuffle(chosen)
            outcomes = play_all(scene, chosen, lambda line: print(line, flush=True), parsed.stretch)
            failed += sum(bool(one.faults) for one in outcomes)
    for skipped in (one for one in SCENARIOS if not may_run(one)):
        print(f"skipped {skipped.name:24} needs root")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
