"""KEDA, prometheus-adapter and this adapter on the same Prometheus.

    python -m lab.benchmarks.peers PART [--before FOLDER] [-o FILE]

Each part takes at most five minutes and stores a file of its own, by default `peers_PART.json` in the results.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from lab.benchmarks import record
from lab.benchmarks.peers import faults, freshness, hpas, latency, start

PARTS = {
    "latency": latency.run,
    "hpas": hpas.run,
    "freshness": freshness.run,
    "start": start.run,
    **{fault: partial(faults.run, fault) for fault in faults.FAULTS},
}


def main() -> int:
    """Runs one part."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.peers", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("-o", "--out", type=Path, help="file for the figures (JSON)")
    parser.add_argument("--before", type=Path, help="with `hpas`: ours and that of this other checkout, by turns")
    options = parser.parse_args()
    began = record.origin()
    figures: dict[str, Any] = hpas.run_before(options.before) if options.before else PARTS[options.part]()
    print(json.dumps(figures, indent=1))
    name = f"peers_{options.part}{'_before' if options.before else ''}.json"
    record.write(options.out or record.RESULTS / name, figures, came_from=began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
