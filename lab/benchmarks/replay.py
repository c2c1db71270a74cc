"""How long a replay of a week takes: 40,320 ticks of 15 s with days, surges, noise and pull-outs.

`python -m lab.benchmarks.replay --folder week` leaves `checkout.yaml`, `week.csv` and the page of docs/replay.md.
"""

import contextlib
import math
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from adapter.cli import main
from lab.benchmarks.record import argument_parser, write

_BEGIN, _STEP, _TICKS = 1_767_225_600, 15, 40_320
_POLICY = """\
apiVersion: effective-load.io/v1alpha1
kind: WatermarkPolicy
metadata: {name: checkout, namespace: shop}
spec:
  metrics:
  - {name: cpu, resource: {name: cpu}, highWatermark: 1000m, lowWatermark: 800m}
"""


def week() -> Iterator[str]:
    """The lines of the history."""
    rng, out, surge, height = random.Random(7), 0, 0, 1.0
    yield "time,cpu,pulled_out"
    for index in range(_TICKS):
        day = index * _STEP / 86_400
        load = 14 + 9 * math.sin(2 * math.pi * (day - 0.3)) + 3 * math.sin(4 * math.pi * day)
        if surge:
            surge -= 1
        elif rng.random() < 0.0006:
            surge, height = rng.randrange(8, 60), rng.uniform(1.2, 1.8)
        if rng.random() < 0.002:
            out = rng.choice((0, 0, 1, 3))
        load *= (0.7 if day >= 5 else 1.0) * (height if surge else 1.0) * rng.gauss(1, 0.02)
        yield f"{_BEGIN + index * _STEP},{load:.3f},{out}"


if __name__ == "__main__":
    parser = argument_parser(__doc__)
    parser.add_argument("--folder", type=Path, help="keep the files here")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "checkout.yaml").write_text(_POLICY)
        (folder / "week.csv").write_text("\n".join(week()))
        began = time.monotonic()
        with contextlib.chdir(folder):
            main(["replay", "checkout.yaml", "--csv", "week.csv", "--capacity", "cpu=1250m", "--html", "week.html"])
        write(options.output, {"ticks": _TICKS, "seconds": round(time.monotonic() - began, 1)})
