"""`python -m tests.cluster.build [NAME ...]`: builds the control plane's programs into the cache and says where."""

import argparse
import sys

from tests.cluster import binaries


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.build", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(binaries.RECIPES)}; default: all needed"
    )
    names = parser.parse_args(arguments).names
    unknown = [name for name in names if name not in binaries.RECIPES]
    if unknown:
        parser.error(f"no recipe for {', '.join(unknown)}; there are: {', '.join(binaries.RECIPES)}")
    try:
        found = binaries.ensure(*names)
    except binaries.BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for name, path in found.items():
        print(f"{name:26} {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
