"""The cluster of a run: the services of a plan on the scene of `faults`, and what is true of each now."""

import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from lab.faults.scene import Scene, address, load_series
from lab.harness.client import condition_true
from lab.soak.plan import LIMIT_MEBIBYTES, MOST_PODS, Service

QUERIES = {
    "load": "sum by (namespace, pod) (load)",
    "smooth": "sum by (namespace, pod) (avg_over_time(load[3s]))",
    "total": 'sum(total{service="$workload"})',
    "floor": 'sum(forecast{service="$workload"})',
}
MAX_AGE = {"query": 10, "resource": 30}
_PROMPT = {
    "stabilizationWindowSeconds": 0,
    "tolerance": "0",
    "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 15}],
}
BEHAVIOR = {"scaleUp": _PROMPT, "scaleDown": _PROMPT}


@dataclass
class Truth:
    """What is true of a service now."""

    service: Service
    x: float
    bounds: tuple[int, int] = (1, MOST_PODS)
    """The HPA's minimum and maximum."""
    skew: int = 0
    out: set[str] = field(default_factory=set)
    """Pods that are pulled out, by whatever way, and have no load."""
    absent: set[str] = field(default_factory=set)
    """Of those, the ones that the registry does not list."""
    by_hand: set[str] = field(default_factory=set)
    """Of those, the ones that are annotated: nothing that happens in the registry puts them back."""

    @property
    def in_maintenance(self) -> set[str]:
        """Pods that are out because the registry says so."""
        return self.out - self.absent - self.by_hand


class Stage(Scene):
    """The scene with the services of a plan."""

    watched = ()

    def __init__(self, planned: tuple[Service, ...], seed: int = 0) -> None:
        super().__init__(seed)
        self.truths = {one.name: Truth(one, one.x) for one in planned}
        self.interval = 1
        self._pods: list[dict[str, Any]] = []
        self._used: dict[str, tuple[float, int]] = {}
        self._lock = threading.RLock()
        self.workers = ThreadPoolExecutor(1)
        """Runs the faults. A process that a fault starts ends with the thread that started it."""

    # --- what there is ---

    def _start(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(self.workers)
        super()._start(stack)

    def _begin_services(self) -> None:
        for name, truth in self.truths.items():
            each = truth.x / truth.service.pods
            self.workloads.deployment(
                name,
                truth.service.pods,
                cpu_limit="4",
                memory_request="100Mi",
                memory_limit=f"{LIMIT_MEBIBYTES}Mi",
                usage_cpu=_cores(each),
                usage_memory=_mebibytes(each),
                wait=False,
            )
        for name, truth in self.truths.items():
            self.workloads.wait_ready(name, truth.service.pods)
        self._look()
        self._set_load()

    def _settings(self) -> dict[str, Any]:
        queries = [
            {
                "name": name,
                "server": "main",
                "query": text,
                "intervalSeconds": self.interval,
                "maxAgeSeconds": MAX_AGE["query"],
                "scope": "Service" if name in {"total", "floor"} else "Pods",
            }
            for name, text in QUERIES.items()
        ]
        settings = super()._settings()
        settings["prometheus"]["queries"] = queries
        settings["resourceMetrics"] = {"intervalSeconds": 2, "maxAgeSeconds": MAX_AGE["resource"]}
        return settings

    def _begin_policies(self) -> None:
        for name, truth in self.truths.items():
            registry = {
                "name": "consul",
                "service": name,
                "registrationGraceSeconds": 20,
                "absenceConfirmationSeconds": 5,
            }
            spec = {**truth.service.spec, **({"registry": registry} if truth.service.registry else {})}
            self.workloads.policy(name, [metric.written() for metric in truth.service.metrics], **spec)
            self.workloads.hpa(name, minimum=1, maximum=MOST_PODS, behavior=BEHAVIOR)

    # --- load and registrations ---

    def _look(self) -> None:
        """The pods as they are, those that go left out; the last ones where the API server does not answer."""
        pods = self.workloads.pods()
        self._pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def pods_of(self, name: str) -> list[dict[str, Any]]:
        return [pod for pod in self._pods if pod["metadata"]["labels"]["app"] == name]

    def ready_pods(self, name: str) -> dict[str, str]:
        """The Ready pods of a service and their addresses."""
        return {pod["metadata"]["name"]: address(pod) for pod in self.pods_of(name) if condition_true(pod, "Ready")}

    def _set_load(self) -> None:
        """The serving pods share the service's load, those that were pulled out or are not Ready have none."""
        with contextlib.suppress(Exception):  # the API server may be what is broken
            self._look()
        with self._lock:
            series: dict[str, float | str] = {}
            for name, truth in self.truths.items():
                series[f'total{{service="{name}"}}'] = truth.x
                series[f'forecast{{service="{name}"}}'] = round(truth.x / 2, 3)
                shares = self._shares(truth)
                for pod in self.pods_of(name):
                    series[load_series(pod["metadata"]["name"])] = shares.get(pod["metadata"]["name"], 0)
                self._register(truth)
            self.exporter.set(series)
        for name, truth in self.truths.items():
            if any(metric.is_resource for metric in truth.service.metrics):
                self._set_usage(name, truth)

    def _shares(self, truth: Truth) -> dict[str, float]:
        """The load of each pod that serves, in pods' worth; it adds up to the service's."""
        names = list(self.ready_pods(truth.service.name))
        serving = [name for name in names if name not in truth.out] or names
        weights = {name: weight(truth.skew, name) for name in serving}
        total = sum(weights.values())
        return {name: truth.x * share / total for name, share in weights.items()}

    def _set_usage(self, name: str, truth: Truth) -> None:
        """Tells metrics-server's kubelets what a pod uses, where that changed."""
        state = (truth.x, max(1, len(self._shares(truth))))
        if self._used.get(name) != state:
            each = state[0] / state[1]
            with contextlib.suppress(Exception):  # as above
                self.workloads.set_usage(name, cpu=_cores(each), memory=_mebibytes(each))
                self._used[name] = state

    def _register(self, truth: Truth) -> None:
        """A pod registers when it gets Ready, and its registration goes with it."""
        name = truth.service.name
        if truth.service.registry:
            pods = dict.fromkeys((pod["metadata"]["name"] for pod in self.pods_of(name)), "")
            self.keep_registered(name, pods | self.ready_pods(name), truth.absent)

    def register_again(self) -> None:
        with self._lock:
            self.registered.clear()
            for truth in self.truths.values():
                self._register(truth)
                for pod in truth.in_maintenance if truth.service.registry else ():
                    with contextlib.suppress(RuntimeError):
                        self.consul.maintenance(pod, on=True)

    def registered_in(self) -> list[str]:
        out = {pod for truth in self.truths.values() for pod in truth.out}
        return sorted(self.registered.keys() - out)

    # --- what is seen ---

    def rise(self, seconds: float) -> None:
        """Nothing: the load of a run changes by its own steps."""

    def wrong(self) -> str:
        """Which policies are not answered with a number."""
        return ", ".join(name for name in self.truths if self.ask(name).status != 200)


def weight(skew: int, pod: str) -> float:
    """A pod's share of the load: equal without skew; else from a tenth to double."""
    return 1.0 if not skew else random.Random(f"{skew} {pod}").choice([0.1, 0.5, 1.0, 1.0, 2.0])


def _cores(each: float) -> str:
    return f"{round(each * 1000)}m"


def _mebibytes(each: float) -> str:
    return f"{round(each * LIMIT_MEBIBYTES * 1024 / 2)}Ki"
