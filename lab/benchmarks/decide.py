"""The cost of `assess` and `decide`, by the number of pods and by the state of their registry.

    python -m lab.benchmarks.decide [--sizes 20,200,1000,10000] [--seconds 2] [--beside COMMIT] [-o FILE]

Processor time of this process, the minimum of several runs, without an event loop or a network. Each assessment has new
samples of every pod (plain CPU, and memory as a share of its limit) and the memory of the previous one; pods, policy
and roster stay the same objects, as between two changes in the cluster. *serving*: the policy names no registry.
*registered*: its registry lists every pod. *doubtful*: its registry has never answered, for more than five minutes.
*first*: registered, without a memory. `decide` is the slowest of several replica counts. Full garbage collections are
off, as in the adapter. `--beside` measures another commit's code as well, in turn, each time in a new process; the
least of ROUNDS counts.
"""

import gc
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from tempfile import TemporaryDirectory

from adapter.load.assess import assess
from adapter.load.assessment import Assessment, AssessmentInputs
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Container, Owner, Pod, PodCondition
from adapter.load.quantity import NANO
from adapter.load.roster import Instance, Roster
from adapter.load.samples import PodUsage, ResourceSamples, Samples
from adapter.load.spec import Bounds, Capacity, Metric, Policy, Registry, Scale, Target
from adapter.load.states import LONG_DOUBT_SECONDS
from lab.benchmarks import record

BEGAN = 1_700_000_000.0
TARGET = Target(api_version="apps/v1", kind="Deployment", name="web", uid="target")
CASES = ("serving", "registered", "doubtful", "first")
ROUNDS = 5
_INTERVAL = 15.0
_MEBI = 2**20 * NANO


@dataclass(slots=True)
class Scene:
    """A target that is assessed repeatedly."""

    inputs: AssessmentInputs
    case: str = ""

    def advance(self, seconds: float = _INTERVAL) -> None:
        """Advances to new samples of every pod."""
        now = self.inputs.now + seconds
        self.inputs = replace(self.inputs, samples=self._samples(now), now=now)
        if self.case == "first":
            self.inputs = replace(self.inputs, memory=Memory())

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
            pod.name: PodUsage(
                at - 5,
                15.0,
                {
                    "app": {
                        "cpu": (300 + (row * 7 + turn) % 90) * NANO // 1000,
                        "memory": (400 + (row * 3 + turn) % 60) * _MEBI,
                    }
                },
            )
            for row, pod in enumerate(self.inputs.pods)
        }
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
            Metric(
                name="cpu",
                resource="cpu",
                high=Fraction(NANO, 2),
                low=Fraction(NANO, 4),
            ),
            Metric(
                name="memory",
                resource="memory",
                relative_to=Capacity.LIMIT,
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
            roster=None if case in {"serving", "doubtful"} else Roster(at=BEGAN, instances=instances),
            scale=Scale(replicas=size, status_replicas=size),
            bounds=Bounds(minimum=1, maximum=2 * size),
            target=TARGET,
            now=BEGAN,
        ),
        case=case,
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
    target.assess()
    if case == "doubtful":
        target.advance(LONG_DOUBT_SECONDS + 1)

    def assessing() -> float:
        target.advance()
        return target.assess()[1]

    assessed = _minimum(assessing, seconds)
    target.advance()
    assessment, _ = target.assess()
    counts = sorted({1, size // 3, size // 2, size * 9 // 10, size - 1, size, size + 1, 2 * size} - {0})
    decided = max(_minimum(partial(_decide, assessment, target.inputs, count), seconds / 40) for count in counts)
    return {"assess": 1000 * assessed, "decide": 1000 * decided}


def _decide(assessment: Assessment, inputs: AssessmentInputs, count: int) -> float:
    """The processor time of one decision, the mean of ten."""
    scale, began = Scale(replicas=count, status_replicas=count), time.process_time()
    for _ in range(10):
        decide(assessment, scale, inputs.bounds, inputs.now)
    return (time.process_time() - began) / 10


def _beside(other: str, case: str, size: int, seconds: float) -> dict[str, dict[str, float]]:
    """The minima of this code and of another commit's, in milliseconds, by turns."""
    code = (
        "import gc, json; from lab.benchmarks.decide import measure; gc.set_threshold(700, 10, 1_000_000); "
        f"print(json.dumps(measure({case!r}, {size}, {seconds / ROUNDS})))"
    )
    with TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", other], cwd=record.ROOT, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        least: dict[str, dict[str, float]] = {}
        for _, (name, root) in itertools.product(range(ROUNDS), {"this": str(record.ROOT), other: folder}.items()):
            command = [sys.executable, "-c", code]
            environment = os.environ | {"PYTHONPATH": root}
            ran = subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.PIPE).stdout
            measured = json.loads(ran)
            before = least.get(name, measured)
            least[name] = {key: min(value, before[key]) for key, value in measured.items()}
    return least


def main() -> None:
    """Measures and prints."""
    parser = record.argument_parser(__doc__)
    parser.add_argument("--sizes", default="20,200,1000,10000")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--beside", metavar="COMMIT")
    options = parser.parse_args()
    gc.set_threshold(700, 10, 1_000_000)
    rows: dict[str, dict[str, float]] = {}
    for size, case in itertools.product(options.sizes.split(","), CASES):
        seconds, size_ = options.seconds, int(size)
        both = _beside(options.beside, case, size_, seconds) if options.beside else {"": measure(case, size_, seconds)}
        for name, row in ((f"{size} {case} {name}".strip(), figures) for name, figures in both.items()):
            rows[name] = row
            print(f"{name:32}{row['assess']:10.4f}{row['decide']:10.4f} ms of processor time", flush=True)
    record.write(options.output, rows)


if __name__ == "__main__":
    main()
