"""`python -m lab.harness.replay_picture`: takes the pictures of docs/replay.md from a made-up week, in Chromium.

The week is always the same: a web shop's days, busier before the weekend, with a sale, and two mornings on which pods
are pulled out.
"""

import asyncio
import math
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from adapter.cli import main as effective_load
from lab.harness.chromium import chromium_tab, find_chromium

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
PARTS = {"replay.png": ("header", "#chart-out"), "replay-suggestions.png": (".suggestions", ".suggestions .scroll")}
"""The pictures: the first and the last element of each."""
STEP, BEGIN, DAYS = 15, 1_788_134_400, 7  # Monday, 31 August 2026
_BUSY = (1.0, 0.97, 1.0, 1.05, 1.2, 0.9, 0.75)
_OUTAGES = ((1, 9.5, 2.5, 8), (3, 10.2, 1.2, 12))
"""Pull-outs: day, hour, length in hours, pods."""
_SALE = 4
"""The day of the sale."""
MANIFESTS = """\
apiVersion: effective-load.io/v1alpha1
kind: WatermarkPolicy
metadata: {namespace: shop, name: checkout}
spec:
  metrics:
    - {name: cpu, resource: {name: cpu}, highWatermark: 1200m, lowWatermark: 900m}
  cooldown: {scaleDownSeconds: 300}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {namespace: shop, name: checkout}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: checkout}
  minReplicas: 4
  maxReplicas: 80
  behavior:
    scaleUp: {tolerance: "0", stabilizationWindowSeconds: 0}
    scaleDown: {tolerance: "0", stabilizationWindowSeconds: 300}
  metrics:
    - type: Object
      object:
        describedObject: {apiVersion: effective-load.io/v1alpha1, kind: WatermarkPolicy, name: checkout}
        metric: {name: desired_replicas}
        target: {type: AverageValue, averageValue: "1"}
"""


def history(days: int = DAYS) -> Iterator[str]:
    """The lines of a CSV file with a week of a service's CPU in cores, and its pulled-out pods."""
    rng = random.Random(13)
    yield "time,cpu,pulled_out"
    drift = 0.0
    for index in range(days * 86_400 // STEP):
        day, hour = divmod(index * STEP / 3600, 24)
        drift = 0.995 * drift + rng.gauss(0, 0.006)
        wave = 0.5 - 0.42 * math.cos((hour - 3.5) / 24 * 2 * math.pi) + 0.16 * math.exp(-(((hour - 19.5) / 1.6) ** 2))
        sale = 0.55 * math.exp(-max(0.0, hour - 12) / 1.5) if day == _SALE and hour >= 12 else 0.0
        cores = 38 * _BUSY[int(day) % 7] * (wave + sale) * (1 + drift) * rng.gauss(1, 0.012)
        out = sum(pods for at, since, length, pods in _OUTAGES if day == at and since <= hour < since + length)
        yield f"{BEGIN + index * STEP},{max(0.2, cores):.3f},{out}"


async def take(program: str, page: Path) -> None:
    """Writes the pictures of the page: of each the part from the top of one element to the bottom of another."""
    async with chromium_tab(program) as tab:
        await tab.open(page.as_uri(), width=1180)
        for name, (first, last) in PARTS.items():
            (PICTURES / name).write_bytes(await tab.picture(first, last))


def main() -> int:
    """Replays the week with suggestions and writes the pictures; the exit status is 1 without Chromium."""
    program = find_chromium()
    if program is None:
        sys.stderr.write("no Chromium is installed; install one, such as Debian's package chromium\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        policy, table, page = (Path(folder, name) for name in ("checkout.yaml", "week.csv", "replay.html"))
        policy.write_text(MANIFESTS, encoding="utf-8")
        table.write_text("\n".join(history()) + "\n", encoding="utf-8")
        command = ["replay", str(policy), "--csv", str(table), "--capacity", "cpu=1500m", "--price", "0.045"]
        if status := effective_load([*command, "--html", str(page), "--suggest"]):
            return status
        asyncio.run(take(program, page))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
