"""Scale: `python -m lab.benchmarks.scale PART`, each part within six minutes, stored beside the others.

    steady    2,000 policies, 50,000 pods and three registries on the real API server: start, rest, churn
    relists   the same without registries: lists of all pods
    cluster   both
    growth    the faithful watch server with --pods (by default 1,000 doubled up to 200,000): rows of the table
    all       all but the relists, in about 25 minutes

`--source` names another repository to measure the adapter of.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.benchmarks import growth, record
from lab.benchmarks.cluster import Cluster
from lab.benchmarks.processes import favour

ROOT = Path(__file__).resolve().parents[2]
SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 200_000)


def _parts(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if given.part in {"all", "cluster", "steady", "relists"}:
        cluster = Cluster(given.policies, int(given.pods or 50_000), given.namespaces, given.python)
        yield from cluster.run(min(given.seconds, 20), "steady" if given.part == "all" else given.part)
    if given.part in {"all", "growth"}:
        for pods in [int(one) for one in given.pods.split(",") if one] or SIZES:
            yield {"growth": {str(pods): growth.measure(pods, given.python, given.source, given.seconds)}}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """The parts measured so far with the new ones in their places."""
    growth_of_both = {"growth": {**base.get("growth", {}), **over["growth"]}} if "growth" in over else {}
    return {**base, **over, **growth_of_both}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("all", "cluster", "steady", "relists", "growth"))
    parser.add_argument("--policies", type=int, default=2000)
    parser.add_argument("--pods", default="", help="number of pods; of growth, several with commas between")
    parser.add_argument("--namespaces", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30, help="duration of one measurement (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the servers (default: this one)")
    parser.add_argument("--source", type=Path, default=ROOT, help="repository of the adapter (default: this one)")
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    favour()
    for figures in _parts(given):
        if not given.out:
            print(json.dumps(figures, indent=1))
            continue
        known = json.loads(given.out.read_text()) if given.out.exists() else {}
        others = known.keys() - figures.keys() - set(record.KEYS)
        record.write(given.out, merged(known, figures), "python -m lab.benchmarks.scale all" if others else None)


if __name__ == "__main__":
    main()
