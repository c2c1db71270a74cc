"""Runs the command line as `lab.faults.shim` does, and looks at its certificate sooner than once a minute."""

import sys

from lab.faults import shim


def main() -> int:
    """As the module says."""

    def prepare() -> None:
        from lab.harness import short_laws

        short_laws.shorten("adapter.apiserver.certificates")

    return shim.main(prepare)


if __name__ == "__main__":
    sys.exit(main())
