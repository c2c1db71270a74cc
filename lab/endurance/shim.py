"""Runs the command line as `lab.faults.shim` does, and writes how many memory blocks are in use to FOLDER/blocks.

`python -m lab.endurance.shim FOLDER serve ...`. The number of Python's own blocks follows every object that is kept,
long before it shows in the resident memory.
"""

import sys
import threading
from pathlib import Path

from lab.faults import shim

PERIOD = 5.0


def main() -> int:
    folder = Path(sys.argv[1])
    threading.Thread(target=_count, args=(folder / "blocks",), daemon=True).start()
    return shim.main()


def _count(file: Path) -> None:
    whole, never = file.with_suffix(".new"), threading.Event()
    while not never.wait(PERIOD):
        whole.write_text(str(sys.getallocatedblocks()))
        whole.replace(file)


if __name__ == "__main__":
    sys.exit(main())
