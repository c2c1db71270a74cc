"""`python -m lab.harness.build [NAME ...]`: builds the programs of tests and demo, and prints their paths.

Without names it builds those that `make test` needs.
"""

import argparse
import signal
import sys
from types import FrameType

from lab.harness import binaries
from lab.harness.registries import eureka, zookeeper

JAVA = {"eureka": eureka.ensure, "zookeeper": zookeeper.ensure}
TESTED = ("consul", "polaris", "kubectl", "prometheus-adapter", "zookeeper", "eureka")
KNOWN = [*binaries.RECIPES, *JAVA]


def main(arguments: list[str] | None = None) -> int:
    """Builds missing programs; the exit status is 1 if one cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m lab.harness.build", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(KNOWN)}")
    parsed = parser.parse_args(arguments)
    names = parsed.names or [*binaries.EVERYTHING, *TESTED]
    if unknown := [name for name in names if name not in KNOWN]:
        parser.error(f"no recipe for {', '.join(unknown)}; the recipes are: {', '.join(KNOWN)}")
    recipes = [name for name in names if name not in JAVA]
    try:
        programs = binaries.ensure(*recipes) if recipes else {}  # without names it builds everything
        programs |= {name: JAVA[name]() for name in names if name in JAVA}
    except binaries.BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for name, path in programs.items():
        print(f"{name:26} {path}")
    return 0


def _stop(number: int, _frame: FrameType | None) -> None:
    """Ends by an exception, so that a build which is stopped leaves no unfinished folder behind."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    raise SystemExit(main())
