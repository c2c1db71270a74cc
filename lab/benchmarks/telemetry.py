"""The cost of the page /metrics: `python -m lab.benchmarks.telemetry [--policies 1000] [--rounds 20] [-o FILE]`.

Processor time of this process to render the page for so many policies of 20 pods, CPU and memory, with a registry, and
the longest step of the event loop meanwhile; the median of the rounds.
"""

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from adapter.evaluation.policy_metrics import policy_rows
from adapter.snapshot import PolicyView
from adapter.telemetry.metrics import Metrics
from lab.benchmarks import decide, record
from lab.harness.snapshots import snapshot


def views(policies: int) -> list[PolicyView]:
    """Policies with the same assessment, each under its own name."""
    scene = decide.scene("registered", 20)
    assessment, _ = scene.assess()
    inputs = scene.inputs
    return [
        PolicyView(
            policy=replace(inputs.policy, name=f"web-{number}"),
            labels={},
            target=decide.TARGET,
            target_resource="deployments.apps",
            target_labels={},
            scale_path="",
            scale=inputs.scale,
            bounds=inputs.bounds,
            assessment=assessment,
            problem=None,
        )
        for number in range(policies)
    ]


async def measure(policies: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of processor time, and what was rendered."""
    content = snapshot(*views(policies))
    metrics = Metrics(policy_rows=lambda: policy_rows(content, decide.BEGAN))
    page = await metrics.exposition()
    whole, longest = [], []
    for _ in range(rounds):
        steps = await _steps(metrics)
        whole.append(1000 * sum(steps))
        longest.append(1000 * max(steps))
    return {
        "policies": policies,
        "series": sum(not line.startswith(b"#") for line in page.splitlines()),
        "mib": round(len(page) / 2**20, 2),
        "page_ms": round(statistics.median(whole), 2),
        "longest_step_ms": round(statistics.median(longest), 2),
        "steps": len(steps),
    }


async def _steps(metrics: Metrics) -> list[float]:
    """Renders the page once; the processor time (seconds) of each step between two passes of the event loop."""
    rendering, steps = metrics.exposition(), []
    while True:
        began = time.process_time()
        try:
            waits_for = rendering.send(None)
        except StopIteration:
            steps.append(time.process_time() - began)
            return steps
        steps.append(time.process_time() - began)
        if waits_for is not None:
            done = asyncio.Event()
            waits_for.add_done_callback(lambda _, done=done: done.set())
            await done.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path)
    options = parser.parse_args()
    figures = asyncio.run(measure(options.policies, options.rounds))
    print(json.dumps(figures, indent=1))
    if options.output:
        record.write(options.output, figures)


if __name__ == "__main__":
    main()
