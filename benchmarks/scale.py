"""Scale: `python -m benchmarks.scale PART`, each part within six minutes, stored beside the others.

    steady    2,000 policies, 50,000 pods and three registries on the real API server: start, rest, churn, then relists
    relists   the same without the rest
    growth    the faithful watch server with --pods (1,000 doubled up to 200,000): one row of the table
    memory    what the pipeline keeps with --pods, by kind of object

`--source` names another repository to measure the adapter of, `--label` the name under which that is stored. `--prompt`
waits for a line on standard input once all servers are ready.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import growth, record
from benchmarks.cluster import Cluster
from benchmarks.processes import favour

ROOT = Path(__file__).resolve().parent.parent


def _parts(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    def wait() -> None:
        if given.prompt:
            print("ready", flush=True)
            sys.stdin.readline()

    sizes = [int(one) for one in given.pods.split(",")]
    if given.part in {"steady", "relists"}:
        yield from Cluster(given.policies, sizes[0], given.namespaces, given.python, wait).run(
            given.seconds, given.part
        )
        return
    for pods in sizes:
        if given.part == "growth":
            yield {"growth": {str(pods): growth.measure(pods, given.python, given.source, given.seconds)}}
        else:
            yield {"memory": {given.label: growth.inventory(pods, given.python, given.source)}}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """The parts measured so far with the new ones in their places."""
    return {**base, **over, **{key: {**base.get(key, {}), **over[key]} for key in ("growth", "memory") if key in over}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("steady", "relists", "growth", "memory"))
    parser.add_argument("--policies", type=int, default=2000)
    parser.add_argument("--pods", default="50000", help="number of pods; of growth, several with commas between")
    parser.add_argument("--namespaces", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30, help="duration of one measurement (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers (default: this one)")
    parser.add_argument("--source", type=Path, default=ROOT, help="repository of the adapter (default: this one)")
    parser.add_argument("--label", default="after")
    parser.add_argument("--prompt", action="store_true")
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    favour()
    for figures in _parts(given):
        if not given.out:
            print(json.dumps(figures, indent=1))
            continue
        known = json.loads(given.out.read_text()) if given.out.exists() else {}
        record.write(given.out, merged(known, figures), "python -m benchmarks.scale steady|growth|memory")


if __name__ == "__main__":
    main()
