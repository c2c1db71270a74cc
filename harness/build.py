"""`python -m harness.build [NAME ...]`: builds the programs of tests, demo and benchmarks, and prints their paths.

Without names it builds all of them. A program that only a few tests need may fail: those are skipped then.
"""

import argparse
import shutil
import signal
import sys
from types import FrameType

from harness import binaries
from harness.registries import eureka, zookeeper

REGISTRIES = ("consul", "polaris")
JAVA = {"eureka": eureka.ensure, "zookeeper": zookeeper.ensure}


def main(arguments: list[str] | None = None) -> int:
    """Builds missing programs; the exit status is 1 if one cannot be built."""
    kubectl = () if shutil.which("kubectl") else ("kubectl",)
    needed = (*binaries.EVERYTHING, *REGISTRIES, *kubectl, *JAVA)
    parser = argparse.ArgumentParser(prog="python -m harness.build", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join({**binaries.RECIPES, **JAVA})}")
    chosen = parser.parse_args(arguments).names
    names, dispensable = (chosen, ()) if chosen else (needed, binaries.NEIGHBOURS)
    if unknown := [name for name in names if name not in binaries.RECIPES and name not in JAVA]:
        parser.error(f"no recipe for {', '.join(unknown)}; the recipes are: {', '.join({**binaries.RECIPES, **JAVA})}")
    try:
        programs = binaries.ensure(*(name for name in names if name not in JAVA))
        for name in names:
            if name in JAVA:
                programs[name] = JAVA[name]()
    except binaries.BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for name, path in (programs | binaries.ensure_possible(*dispensable)).items():
        print(f"{name:26} {path}")
    return 0


def _stop(number: int, _frame: FrameType | None) -> None:
    """Ends by an exception, so that a build which is stopped leaves no unfinished folder behind."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    raise SystemExit(main())
