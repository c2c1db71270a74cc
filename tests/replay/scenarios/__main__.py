"""`python -m tests.replay.scenarios`: shows what changed in the scenarios' results; `--write` records it."""

import argparse
import difflib
import sys

from tests.replay.scenarios.recorded import FILE, PAGE, page, text

parser = argparse.ArgumentParser(prog="python -m tests.replay.scenarios", description=__doc__)
parser.add_argument(
    "--write",
    action="store_true",
    help=f"write {FILE.name} and the table of {PAGE.name}, to be committed by themselves",
)
is_written = parser.parse_args().write
before, after = (FILE.read_text(encoding="utf-8") if FILE.exists() else ""), text()
if is_written:
    FILE.write_text(after, encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
print("\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), "recorded", "now", lineterm="")))
sys.exit(0 if is_written or before == after else 1)
