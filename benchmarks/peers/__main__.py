"""KEDA, prometheus-adapter and this adapter on the same Prometheus.

    python -m benchmarks.peers latency|hpas|freshness|start|hung|down|no_samples [-o FILE]

Each part takes less than six minutes and stores a file of its own, by default `peers_PART.json` in the results.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.peers import faults, freshness, hpas, latency, start

PARTS = {"latency": latency.run, "hpas": hpas.run, "freshness": freshness.run, "start": start.run}


def main() -> int:
    """Runs one part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("part", choices=[*PARTS, *faults.FAULTS])
    parser.add_argument("-o", "--out", type=Path, help="file for the figures (JSON)")
    options = parser.parse_args()
    began = record.origin()
    figures: dict[str, Any] = PARTS[options.part]() if options.part in PARTS else faults.run(options.part)
    print(json.dumps(figures, indent=1))
    record.write(options.out or record.RESULTS / f"peers_{options.part}.json", figures, came_from=began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
