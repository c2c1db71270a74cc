"""`python -m tests.build`: builds every program that the tests start, once, before they run side by side."""

import shutil
import sys

from tests.cluster import binaries
from tests.registries.servers import eureka, zookeeper

REGISTRIES = ("consul", "polaris")


def main() -> int:
    """Build what is missing; the exit status is 1 where something cannot be built."""
    try:
        binaries.ensure(*binaries.EVERYTHING, *REGISTRIES, *([] if shutil.which("kubectl") else ["kubectl"]))
        eureka.ensure()
        zookeeper.ensure()
    except binaries.BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
