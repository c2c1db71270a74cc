"""`python -m tests.recorded --write` records the names as they are now; the test and git show what differs."""

import sys

from tests.recorded.collect import LISTS, collected, file_of

if sys.argv[1:] != ["--write"]:
    sys.exit(__doc__)
for name in LISTS:
    file_of(name).write_text("".join(f"{line}\n" for line in collected(name)), encoding="utf-8")
