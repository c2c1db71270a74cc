"""`python -m lab.benchmarks [NAME ...]`: runs the commands of stored results again, and stores what they measure.

A machine that does nothing else makes the figures comparable. The exit status is 1 if a benchmark stored no result.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from lab.benchmarks.record import RESULTS, ROOT


def main() -> int:
    paths = {path.stem: path for path in sorted(RESULTS.glob("*.json"))}
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(paths)}; default: all")
    names = parser.parse_args().names or list(paths)
    if unknown := set(names) - paths.keys():
        parser.error(f"no result is named {', '.join(sorted(unknown))}; there are {', '.join(paths)}")
    failed = [name for name in names if not run(name, paths[name])]
    for name in failed:
        print(f"{name} stored no result; the former one stays", file=sys.stderr)
    return 1 if failed else 0


def run(name: str, path: Path) -> bool:
    """Runs the command of a stored result; whether it stored a new one."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    _, *arguments = shlex.split(stored["command"])
    print(f"\n== {name}: {stored['command']} (last on {stored['date']}, commit {stored['commit']})", flush=True)
    began, before = time.monotonic(), path.stat().st_mtime_ns
    status = subprocess.run([sys.executable, *arguments, "-o", str(path)], cwd=ROOT, check=False).returncode
    print(f"== {name}: exit status {status} after {time.monotonic() - began:.0f} s", flush=True)
    return path.stat().st_mtime_ns != before  # one that misses an aim stores it, too, and exits with 1


if __name__ == "__main__":
    sys.exit(main())
