"""KEDA, prometheus-adapter and this adapter on the same Prometheus.

    python -m benchmarks.peers latency|hpas|freshness|start|faults [-o FILE]

A part takes less than six minutes. Each stores its figures in a file of its own.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

from benchmarks.processes import favour

PARTS = ("latency", "hpas", "freshness", "start", "faults")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.split("\n", 1)[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("-o", "--out", type=Path, help="file for the figures (JSON)")
    options = parser.parse_args()
    favour()
    figures = importlib.import_module(f"benchmarks.peers.{options.part}").run()
    print(json.dumps(figures, indent=1))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
