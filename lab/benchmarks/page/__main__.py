"""`python -m lab.benchmarks.page`: checks docs/performance.md against the stored results, writes it, or measures anew.

`--run` runs the command of each stored result again, or of those that are named, one after the other; each result is
replaced, and the page is written at the end. A machine that does nothing else makes the figures comparable.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from lab.benchmarks.page.rendering import faults, used, write
from lab.benchmarks.record import RESULTS, ROOT

_PYTHON = ["python", "-m"]


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1: the page is not what the results say, or a benchmark stored no result."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.page", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument(
        "--run", nargs="*", metavar="NAME", help="run the benchmarks of these results, by default of all on the page"
    )
    options = parser.parse_args(arguments)
    failed = run(options.run) if options.run is not None else []
    if options.write or options.run is not None:
        write()
    sentences = [*faults(), *(f"{name} stored no result; the former one stays" for name in failed)]
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    return 1 if sentences else 0


def run(names: list[str]) -> list[str]:
    """Runs the commands of these stored results (none: of all on the page); returns those that stored nothing."""
    paths = {path.stem: path for path in sorted(RESULTS.glob("*.json"))}
    if unknown := set(names) - paths.keys():
        raise SystemExit(f"no result is named {', '.join(sorted(unknown))}; there are {', '.join(paths)}")
    return [name for name in names or used() if not _run(name, paths[name])]


def _run(name: str, path: Path) -> bool:
    stored = json.loads(path.read_text(encoding="utf-8"))
    command = shlex.split(stored["command"])
    if command[:2] != _PYTHON:
        raise SystemExit(f"{path.name}: the command {stored['command']!r} does not begin with `python -m`")
    print(f"\n== {name}: {stored['command']} (last on {stored['date']}, commit {stored['commit']})", flush=True)
    began, before = time.monotonic(), path.stat().st_mtime_ns
    status = subprocess.run([sys.executable, *command[1:], "-o", str(path)], cwd=ROOT, check=False).returncode
    print(f"== {name}: exit status {status} after {time.monotonic() - began:.0f} s", flush=True)
    return path.stat().st_mtime_ns != before  # one that misses an aim stores it, too, and exits with 1


if __name__ == "__main__":
    sys.exit(main())
