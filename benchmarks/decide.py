"""The cost of `assess` and `decide`, by the number of pods and by the state of their registry.

    python -m benchmarks.decide [--sizes 20,1000,10000] [--seconds 2] [-o FILE]

Processor time of this process, the minimum of several runs, without an event loop or a network. Each assessment has new
samples of every pod (plain CPU, and memory as a share of its limit) and the memory of the previous one; pods, policy
and roster stay the same objects, as between two changes in the cluster. *serving*: the policy names no registry.
*registered*: its registry lists every pod. *doubtful*: its registry has never answered, for more than five minutes.
*doubtful, busy* and *idle*: so that CPU is far above or below the band, where scenarios differ. *changed*: as
registered, and one pod is another object each time. *step* is the longest step of an assessment, and `decide` the
slowest of several replica counts. Full garbage collections are off, as in the adapter.

`--against FILE` compares with the figures of another run, written by `-o`.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from adapter.load.assessment import Assessment, AssessmentInputs
from adapter.load.pipeline import assess, assess_in_steps, decide
from adapter.load.pod_groups import LONG_DOUBT_SECONDS
from adapter.load.pods import Container, Owner, Pod, PodCondition
from adapter.load.quantity import NANO
from adapter.load.roster import Instance, Roster
from adapter.load.samples import ResourceSamples, Samples
from adapter.load.spec import Bounds, Capacity, Metric, Policy, Registry, ResourceMetric, Scale, Target
from adapter.load.steps import finish
from adapter.load.usage_columns import NO_USAGE, UsageColumns, UsageColumnsBuilder

BEGAN = 1_700_000_000.0
TARGET = Target(api_version="apps/v1", kind="Deployment", name="web", uid="target")
CASES = ("serving", "registered", "doubtful", "doubtful, busy", "doubtful, idle", "changed")
_WATERMARKS = {"doubtful, busy": (200, 100), "doubtful, idle": (900, 700)}
"""Of CPU in millicores, by case."""
_INTERVAL = 15.0
_MEBI = 2**20 * NANO


@dataclass(slots=True)
class Scene:
    """A target that is assessed repeatedly."""

    inputs: AssessmentInputs
    changes: bool = False
    _usage: UsageColumns = field(default_factory=lambda: NO_USAGE)

    def advance(self, seconds: float = _INTERVAL) -> None:
        """Advances to new samples of every pod."""
        now = self.inputs.now + seconds
        self.inputs = replace(self.inputs, samples=self._samples(now), now=now)
        if self.changes:
            first, *others = self.inputs.pods
            self.inputs = replace(self.inputs, pods=(*others, replace(first)))

    def assess(self) -> tuple[Assessment, float]:
        """Assesses once and keeps the memory; returns the assessment and its processor time (seconds)."""
        began = time.process_time()
        assessment = assess(self.inputs)
        spent = time.process_time() - began
        self.inputs = replace(self.inputs, memory=assessment.memory)
        return assessment, spent

    def longest_step(self) -> float:
        """Assesses once more and keeps the memory; returns the processor time of the longest step (seconds)."""
        steps, longest = assess_in_steps(self.inputs), 0.0
        while True:
            began = time.process_time()
            try:
                next(steps)
            except StopIteration as end:
                assessment: Assessment = end.value
                self.inputs = replace(self.inputs, memory=assessment.memory)
                return max(longest, time.process_time() - began)
            longest = max(longest, time.process_time() - began)

    def _samples(self, at: float) -> Samples:
        """Samples of every pod, as the decoder makes them."""
        turn = int((at - BEGAN) / _INTERVAL)
        builder = UsageColumnsBuilder(self._usage)
        rows = [builder.add(pod.name, at - 5, 15.0, ("app",)) for pod in self.inputs.pods]
        builder.fill("app", "cpu", rows, [(300 + (row * 7 + turn) % 90) * NANO // 1000 for row in rows])
        builder.fill("app", "memory", rows, [(400 + (row * 3 + turn) % 60) * _MEBI for row in rows])
        self._usage = finish(builder.columns())
        return Samples(resources=ResourceSamples(pods=self._usage, fetched_at=at - 1))


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
    high, low = _WATERMARKS.get(case, (500, 250))
    policy = Policy(
        namespace="shop",
        name="web",
        hpa="web",
        metrics=(
            Metric(
                name="cpu",
                resource=ResourceMetric(name="cpu"),
                high=Fraction(high * NANO, 1000),
                low=Fraction(low * NANO, 1000),
            ),
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
            roster=Roster(at=BEGAN, instances=instances) if case in {"registered", "changed"} else None,
            scale=Scale(replicas=size, status_replicas=size),
            bounds=Bounds(minimum=1, maximum=2 * size),
            target=TARGET,
            now=BEGAN,
        ),
        changes=case == "changed",
    )


def _minimum(step: Callable[[], float], seconds: float) -> float:
    """The minimum time (seconds) of at least five steps."""
    until, times = time.process_time() + seconds, []
    while len(times) < 5 or time.process_time() < until:
        times.append(step())
    return min(times)


def measure(case: str, size: int, seconds: float) -> dict[str, float]:
    """Milliseconds of processor time of one assessment, of its longest step, and of one decision on it."""
    target = scene(case, size)
    target.assess()
    if case.startswith("doubtful"):
        target.advance(LONG_DOUBT_SECONDS + 1)

    def assessing() -> float:
        target.advance()
        return target.assess()[1]

    def stepping() -> float:
        target.advance()
        return target.longest_step()

    assessed, longest = _minimum(assessing, seconds), _minimum(stepping, seconds / 2)
    target.advance()
    assessment, _ = target.assess()
    inputs = target.inputs

    def deciding(count: int) -> float:
        scale, began = Scale(replicas=count, status_replicas=count), time.process_time()
        for _ in range(10):
            decide(assessment, scale, inputs.bounds, inputs.now)
        return (time.process_time() - began) / 10

    counts = sorted({1, size // 3, size // 2, size - 1, size, size + 1, 2 * size})
    decided = max(_minimum(partial(deciding, count), seconds / 40) for count in counts)
    return {"assess": 1000 * assessed, "step": 1000 * longest, "decide": 1000 * decided}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="20,1000,10000")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--against", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    before = json.loads(options.against.read_text()) if options.against else {}
    gc.set_threshold(700, 10, 1_000_000)
    columns = "".join(f"{title:>10}" for title in ("assess", "step", "decide"))
    more = "".join(f"{title:>14}" for title in ("assess before", "ratio", "decide before")) if before else ""
    print(f"{'ms of processor time':24}{columns}{more}")
    costs = {}
    for size in (int(each) for each in options.sizes.split(",")):
        for case in CASES:
            name = f"{size} {case}"
            cost = costs[name] = measure(case, size, options.seconds)
            previous = before.get(name)
            beside = ""
            if previous:
                ratio = cost["assess"] / previous["assess"]
                beside = f"{previous['assess']:14.3f}{ratio:14.2f}{previous['decide']:14.4f}"
            print(f"{name:24}{cost['assess']:10.3f}{cost['step']:10.3f}{cost['decide']:10.4f}{beside}", flush=True)
    if options.output:
        options.output.write_text(json.dumps(costs, indent=2) + "\n")


if __name__ == "__main__":
    main()
