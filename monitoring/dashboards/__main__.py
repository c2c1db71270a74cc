"""`python -m monitoring.dashboards`: whether the committed files are what the code makes; `--write` writes them."""

import argparse
import sys

from monitoring.dashboards.files import FOLDER, differing, write


def main() -> int:
    """The exit status is 1 where a file differs and is not written."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.dashboards", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the JSON files anew")
    if parser.parse_args().write:
        write()
        return 0
    paths = differing()
    for path in paths:
        sys.stderr.write(f"{path.name} in {FOLDER} is not what the code makes; run with --write\n")
    return int(bool(paths))


if __name__ == "__main__":
    sys.exit(main())
