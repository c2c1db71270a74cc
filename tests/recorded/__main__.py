"""`python -m tests.recorded`: what differs from the recorded names; `--write` records those of now."""

import argparse
import sys

from tests.recorded.collect import LISTS, collected, file_of, recorded


def main() -> int:
    """Compare, or record; 1 where something differs and is not recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.recorded", description=__doc__)
    parser.add_argument("--write", action="store_true", help="record the names as they are now")
    write, differs = parser.parse_args().write, False
    for name in LISTS:
        before, now = recorded(name) if file_of(name).is_file() else [], collected(name)
        for line in sorted(set(before) ^ set(now)):
            print(f"{name}: {'-' if line in before else '+'} {line}")
        differs |= before != now
        if write:
            file_of(name).write_text("".join(f"{line}\n" for line in now), encoding="utf-8")
    return int(differs and not write)


if __name__ == "__main__":
    sys.exit(main())
