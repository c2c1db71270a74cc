"""`python -m tests.replay.scenarios --write`: records the results of the shipped scenarios; without it shows changes."""

import argparse
import difflib
import sys

from tests.replay.scenarios.recorded import FILE, text

parser = argparse.ArgumentParser(prog="python -m tests.replay.scenarios", description=__doc__)
parser.add_argument("--write", action="store_true", help=f"write {FILE.name}, to be committed by itself")
is_written = parser.parse_args().write
before, after = (FILE.read_text(encoding="utf-8") if FILE.exists() else ""), text()
if is_written:
    FILE.write_text(after, encoding="utf-8")
print("\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), "recorded", "now", lineterm="")))
sys.exit(0 if is_written or before == after else 1)
