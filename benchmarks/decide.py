"""The cost of `assess` and `decide`, by the number of pods and by the state of their registry.

    python -m benchmarks.decide [--sizes 20,1000,10000] [--seconds 2] [-o FILE]

Processor time of this process, the minimum of several runs, without an event loop or a network. Each assessment has new
samples of every pod (plain CPU, and memory as a share of its limit) and the memory of the previous one; pods, policy
and roster stay the same objects, as between two changes in the cluster. *serving*: the policy names no registry.
*registered*: its registry lists every pod. *doubtful*: its registry has never answered.

`--against FILE` compares with the figures of another run, written by `-o`.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from adapter.load.assessment import Assessment, AssessmentInputs
from adapter.load.pipeline import assess, decide
from adapter.load.pods import Container, Owner, Pod, PodCondition
from adapter.load.quantity import NANO
from adapter.load.roster import Instance, Roster
from adapter.load.samples import PodUsage, ResourceSamples, Samples
from adapter.load.spec import Bounds, Capacity, Metric, Policy, Registry, ResourceMetric, Scale, Target

BEGAN = 1_700_000_000.0
TARGET = Target(api_version="apps/v1", kind="Deployment", name="web", uid="target")
CASES = ("serving", "registered", "doubtful")
_INTERVAL = 15.0
_MEBI = 2**20 * NANO


@dataclass(slots=True)
class Scene:
    """A target that is assessed repeatedly."""

    inputs: AssessmentInputs

    def advance(self) -> None:
        """Advances by an interval, to new samples of every pod."""
        now = self.inputs.now + _INTERVAL
        self.inputs = replace(self.inputs, samples=self._samples(now), now=now)

    def assess(self) -> tuple[Assessment, float]:
        """Assesses once and keeps the memory; returns the assessment and its processor time (seconds)."""
        began = time.process_time()
        assessment = assess(self.inputs)
        spent = time.process_time() - began
        self.inputs = replace(self.inputs, memory=assessment.memory)
        return assessment, spent

    def _samples(self, at: float) -> Samples:
        """Samples of every pod, as the decoder makes them."""
        turn = int((at - BEGAN) / _INTERVAL)
        usage = {
            pod.name: PodUsage(at - 5, 15.0, {"app": {"cpu": (300 + (index * 7 + turn) % 90) * NANO // 1000,
                                                      "memory": (400 + (index * 3 + turn) % 60) * _MEBI}})
            for index, pod in enumerate(self.inputs.pods)
        }  # fmt: skip
        return Samples(resources=ResourceSamples(pods=usage, fetched_at=at - 1))


def scene(case: str, size: int) -> Scene:
    """The pods of one Deployment, Ready for hours, in one of the CASES."""
    containers = (Container("app", {"cpu": NANO // 2}, {"memory": 512 * _MEBI}, running=True),)
    pods = tuple(
        Pod(
            namespace="shop",
            name=f"web-{index}",
            uid=f"uid-{index}",
            created_at=BEGAN - 90_000,
            started_at=BEGAN - 90_000,
            ready=PodCondition(status=True, since=BEGAN - 80_000),
            containers_ready=True,
            ips=(f"10.{index // 65536}.{index // 256 % 256}.{index % 256}",),
            owner=Owner("ReplicaSet", "web-abc", "rs"),
            template_hash="abc",
            containers=containers,
        )
        for index in range(size)
    )
    instances = tuple(Instance(ip=pod.ips[0], port=8080, registered_at=BEGAN - 80_000) for pod in pods)
    policy = Policy(
        namespace="shop",
        name="web",
        hpa="web",
        metrics=(
            Metric(name="cpu", resource=ResourceMetric(name="cpu"), high=Fraction(NANO, 2), low=Fraction(NANO, 4)),
            Metric(
                name="memory",
                resource=ResourceMetric(name="memory", of=Capacity.LIMIT),
                high=Fraction(NANO * 95, 100),
                low=Fraction(NANO * 40, 100),
            ),
        ),
        registry=None if case == "serving" else Registry(name="nacos", service="web"),
    )
    return Scene(
        AssessmentInputs(
            policy=policy,
            pods=pods,
            roster=Roster(at=BEGAN, instances=instances) if case == "registered" else None,
            scale=Scale(replicas=size, status_replicas=size),
            bounds=Bounds(minimum=1, maximum=2 * size),
            target=TARGET,
            now=BEGAN,
        )
    )


def _minimum(step: Callable[[], float], seconds: float) -> float:
    """The minimum time (seconds) of at least five steps."""
    until, times = time.process_time() + seconds, []
    while len(times) < 5 or time.process_time() < until:
        times.append(step())
    return min(times)


def measure(case: str, size: int, seconds: float) -> dict[str, float]:
    """Milliseconds of processor time of one assessment, and of one decision on it."""
    target = scene(case, size)

    def assessing() -> float:
        target.advance()
        return target.assess()[1]

    assessed = _minimum(assessing, seconds)
    target.advance()
    assessment, _ = target.assess()
    inputs = target.inputs

    def deciding() -> float:
        began = time.process_time()
        for _ in range(10):
            decide(assessment, inputs.scale, inputs.bounds, inputs.now)
        return (time.process_time() - began) / 10

    return {"assess": 1000 * assessed, "decide": 1000 * _minimum(deciding, seconds / 4)}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="20,1000,10000")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--against", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    before = json.loads(options.against.read_text()) if options.against else {}
    print(f"{'ms of processor time':24}{'assess':>10}{'decide':>10}" + ("   assess before, ratio" if before else ""))
    costs = {}
    for size in (int(each) for each in options.sizes.split(",")):
        for case in CASES:
            name = f"{size} {case}"
            cost = costs[name] = measure(case, size, options.seconds)
            previous = before.get(name)
            beside = f"{previous['assess']:12.3f}{cost['assess'] / previous['assess']:8.2f}" if previous else ""
            print(f"{name:24}{cost['assess']:10.3f}{cost['decide']:10.4f}{beside}", flush=True)
    if options.output:
        options.output.write_text(json.dumps(costs, indent=2) + "\n")


if __name__ == "__main__":
    main()
