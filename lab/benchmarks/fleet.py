"""What 300 HPAs of the stock controller cost, beside another commit: `python -m lab.benchmarks.fleet`.

A real etcd, kube-apiserver and HPA controller (a sync of each HPA every 15 s), and a real Prometheus. Each policy reads
the same query, whose answer has 20,000 series by pod and is polled every 15 s; 6,000 of these pods belong to policies,
and their usage changes with each scrape, within the watermarks. This checkout and the other commit take turns, twice
each, in the same cluster. Each turn installs the resource definitions of its commit, starts its adapter with the same
settings, and measures after it has settled: processor time of adapter and Prometheus, and the adapter's resident
memory. The interpreter and its packages are the same. With `--peer`, prometheus-adapter has two turns as well, in which
the HPAs scale on the same series themselves, as its users' do. Eight minutes, or twelve.

Exits with status 1 if this checkout needs more of anything, beyond what two runs of the same code differ by. A turn in
which HPAs got no answers measures nothing, and ends the program.
"""

import itertools
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from lab.benchmarks import record, scene
from lab.benchmarks.processes import cpu_seconds, memory
from lab.benchmarks.stage import Stage, first_answer, request
from lab.harness.adapter import AdapterProcess, as_in_a_pod, established
from lab.harness.binaries import print_to_stderr
from lab.harness.client import condition_true, tls_context
from lab.harness.control_plane import ControlPlane
from lab.harness.objects import api_service
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.prometheus_adapter import NAMESPACE, SERVICE, PrometheusAdapter

SYNC_SECONDS = 15
TURNS = 2
NOISE = 0.05
"""Runs of the same code differ by so much."""
AIMS = {"cpu_percent": "adapter, % of a processor", "prometheus_percent": "Prometheus, %", "mib": "adapter, MiB"}
_METRIC = "requests"
_CONTROLLERS = "horizontal-pod-autoscaler-controller,serviceaccount-controller"
_SETTLED_SCHEMA_SECONDS = 3.0


def policy(service: scene.Service) -> scene.Object:
    """A policy of the query alone, valid for the definitions of both commits."""
    metric = {"name": _METRIC, "query": {"name": _METRIC}, "highWatermark": "1200", "lowWatermark": "400"}
    return scene.policy(service) | {"spec": {"metrics": [metric]}}


class Fleet(Stage):
    """The cluster with its HPAs, and Prometheus; adapters come and go."""

    policy = staticmethod(policy)

    def __init__(self, hpas: int, pods: int, series: int) -> None:
        super().__init__(hpas, hpas * pods, max(1, hpas // 10), sys.executable)
        self._series, self._scrapes = series, itertools.count()
        owned = [(one.namespace, pod, one.milli) for one in self.services for pod in one.pod_names]
        others = (("others", f"pod-{number:05}", 700) for number in itertools.count())
        self._pods = list(itertools.islice(itertools.chain(owned, others), series))

    def _start(self, stack: ExitStack) -> None:
        off = dict.fromkeys(("scheduler", "kwok", "metrics_server"), False)
        self.cluster = ControlPlane(
            nodes=0, hpa_sync=SYNC_SECONDS, controllers=_CONTROLLERS, prepared=lambda _: self._fill(), **off
        )
        stack.enter_context(self.cluster)
        self._begin_churn()
        exporter = stack.enter_context(Exporter())
        exporter.set_page(self._page)
        self.prometheus = stack.enter_context(Prometheus([exporter], interval=f"{SYNC_SECONDS}s"))
        self.prometheus.wait_value(f"count({_METRIC})", self._series)

    def _page(self) -> str:
        beat = next(self._scrapes)
        return "".join(
            f'{_METRIC}{{namespace="{namespace}",pod="{pod}"}} {usage + (index + beat) % 50}.5\n'
            for index, (namespace, pod, usage) in enumerate(self._pods)
        )

    @property
    def _settings(self) -> dict[str, Any]:
        query = {"name": _METRIC, "server": "main", "query": f"sum by (namespace, pod) ({_METRIC})"}
        server = {"name": "main", "url": self.prometheus.url}
        return {"prometheus": {"servers": [server], "queries": [query | {"intervalSeconds": SYNC_SECONDS}]}}

    def turn(self, name: str, root: Path, settle: float, seconds: float) -> dict[str, float]:
        """The figures of the adapter in the folder of a checkout."""
        for path in sorted((root / "manifests" / "crd").glob("*.yaml")):
            for item in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                if item.get("kind") == "CustomResourceDefinition":
                    established(self.cluster, item)
        time.sleep(_SETTLED_SCHEMA_SECONDS)  # a changed schema ends the watches of its objects
        adapter = as_in_a_pod(AdapterProcess(self.cluster, self._settings, name=f"adapter-{name}"))
        adapter.component.cwd = root  # `-m` imports the package from here
        adapter.register()
        pair = self.cluster.front_proxy_cert()
        context = tls_context(None, pair.cert_file, pair.key_file)
        try:
            wanted = request(self.services[-1], "desired_replicas")
            started = first_answer(adapter.component, adapter.port, context, wanted, 60)
            adapter.wait_available()
            time.sleep(settle)
            return {"first_answer_seconds": round(started, 2), **self._measured(adapter, seconds)}
        finally:
            adapter.close()

    def peer_turn(self, settle: float, seconds: float) -> dict[str, float]:
        """The figures of prometheus-adapter, as its chart sets it up. The HPAs keep its metric."""
        client, target = self.cluster.client, {"type": "AverageValue", "averageValue": "900"}
        metric = {"type": "Pods", "pods": {"metric": {"name": _METRIC}, "target": target}}
        base = "/apis/autoscaling/v2/namespaces/{0.namespace}/horizontalpodautoscalers/{0.name}"
        paths = [base.format(service) for service in self.services]
        with PrometheusAdapter(self.cluster, self.prometheus.url, _METRIC, external="none", relist="1m") as peer:
            for version in ("v1beta1", "v1beta2"):
                client.apply(api_service("custom.metrics.k8s.io", version, (NAMESPACE, SERVICE, peer.port)))
            for path in paths:
                client.patch(path, {"spec": {"metrics": [metric]}})
            time.sleep(settle + SYNC_SECONDS)
            pid = peer.component.pid or 0
            own, prometheus = _percent([pid, self.prometheus.component.pid or 0], seconds)
            active = sum(condition_true(client.get(path), "ScalingActive") for path in paths)
            if active <= 0.9 * len(paths):
                raise RuntimeError(f"only {active} of {len(paths)} HPAs got answers{peer.component.tail()}")
            return {"cpu_percent": own, "prometheus_percent": prometheus, "mib": memory(pid)["now"]}

    def _measured(self, adapter: AdapterProcess, seconds: float) -> dict[str, float]:
        pids = [adapter.component.pid or 0, self.prometheus.component.pid or 0]
        answered = _answers(adapter)
        own, prometheus = _percent(pids, seconds)
        figures = {"cpu_percent": own, "prometheus_percent": prometheus, "mib": memory(pids[0])["now"]}
        answered = _answers(adapter) - answered
        if answered <= 0.9 * len(self.services) * (seconds / SYNC_SECONDS - 1):  # the first or last sync may be cut
            raise RuntimeError(f"only {answered:.0f} answers in {seconds:g} s{adapter.logs()}")
        return {**figures, "peak_mib": memory(pids[0])["peak"], "answers": answered}


def _percent(pids: list[int], seconds: float) -> list[float]:
    """What processes use of one processor during the next seconds."""
    before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return [round(100 * (cpu_seconds(pid) - was) / passed, 2) for pid, was in zip(pids, before, strict=True)]


def _mean(turns: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.mean(turn[key] for turn in turns), 2) for key in turns[0]}


def _answers(adapter: AdapterProcess) -> float:
    """Metrics of policies that it has served."""
    counts = [line for line in adapter.metrics().splitlines() if "api_request_duration_seconds_count{" in line]
    wanted = ('code="200"', 'resource_kind="policy"')
    return sum(float(line.rpartition(" ")[2]) for line in counts if all(label in line for label in wanted))


def main() -> int:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--beside", metavar="COMMIT", default="1535c4a2", help="default: %(default)s")
    parser.add_argument("--hpas", type=int, default=300)
    parser.add_argument("--pods", type=int, default=20, help="of each HPA (default: %(default)s)")
    parser.add_argument("--series", type=int, default=20_000)
    parser.add_argument("--settle", type=float, default=30, help="seconds before each measurement")
    parser.add_argument("--peer", action="store_true", help="measure prometheus-adapter, too")
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement (default: %(default)s)")
    given = parser.parse_args()
    turns: dict[str, list[dict[str, float]]] = {"this": [], given.beside: []}
    with TemporaryDirectory() as folder, Fleet(given.hpas, given.pods, given.series) as fleet:
        archive = ["git", "archive", given.beside, "adapter", "manifests"]
        packed = subprocess.run(archive, cwd=record.ROOT, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        [alone] = _percent([fleet.prometheus.component.pid or 0], given.seconds)
        for _, (name, root) in itertools.product(range(TURNS), zip(turns, (record.ROOT, Path(folder)), strict=True)):
            turns[name].append(fleet.turn(name, root, given.settle, given.seconds))
            print_to_stderr(f"{name}: {turns[name][-1]}")
        peer = [fleet.peer_turn(given.settle, given.seconds) for _ in range(TURNS if given.peer else 0)]
    ours, theirs = map(_mean, turns.values())
    ratios = {key: round(ours[key] / max(theirs[key], 0.01), 3) for key in (*AIMS, "peak_mib", "first_answer_seconds")}
    print(f"{'':28}{'this':>10}{given.beside:>12}{'ratio':>8}   (Prometheus without an adapter: {alone} %)")
    for key, ratio in ratios.items():
        print(f"{AIMS.get(key, key):28}{ours[key]:10.2f}{theirs[key]:12.2f}{ratio:8.2f}")
    if peer:
        print(f"prometheus-adapter: {_mean(peer)}")
    scene_ = {"hpas": given.hpas, "pods": given.hpas * given.pods, "series": given.series}
    record.write(
        given.output,
        {"scene": scene_, "prometheus_alone_percent": alone, "ratios": ratios, "turns": turns, "peer": peer},
    )
    return int(any(ratios[key] > 1 + NOISE for key in AIMS))


if __name__ == "__main__":
    sys.exit(main())
