"""What clusters of several sizes cost: `python -m lab.benchmarks.scale`, on a real API server.

2,000, 20,000 and 50,000 pods by default, 25 for each policy and 500 in a namespace. For each size: the start to the
first correct answer, processor and memory at rest, and latencies: of a metric at the stock controller's rate, alone and
while `/metrics` is scraped each second, of `desired_replicas` and the live read behind it at 100 requests a second, and
of both by the aggregator. The *constant server* is an aiohttp server that returns constant bytes over the same TLS. It
takes a quarter of an hour.
"""

import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from aiohttp import web

from lab.benchmarks import record
from lab.benchmarks.load import Plan
from lab.benchmarks.measure import Measured, measure
from lab.benchmarks.processes import cpu_seconds, favour, memory, share_of_processor
from lab.benchmarks.stage import Stage, request
from lab.harness import objects
from lab.harness.binaries import print_to_stderr
from lab.harness.processes import LocalServer, free_ports

PODS_OF_A_POLICY, PODS_OF_A_NAMESPACE = 25, 500
SYNC_SECONDS = 15.0
"""How often the stock controller asks for each policy."""
_RATE, _CONSTANT_GROUP = 100.0, "constant.example.com"


def run(pods: int, python: str, seconds: float) -> dict[str, Any]:
    """The figures of one size; `seconds` of each measurement."""
    policies, namespaces = max(1, pods // PODS_OF_A_POLICY), max(1, pods // PODS_OF_A_NAMESPACE)
    with Stage(policies, pods, namespaces, python) as stage:
        figures = {
            "scene": {"policies": policies, "pods": pods, "namespaces": namespaces},
            "start": start(stage),
            "rest": {"cpu_share": share_of_processor(stage.pid, seconds), "mib": memory(stage.pid)["now"]},
            "requests": {**_at_the_stock_rate(stage, seconds), **_live(stage, seconds / 2)},
            "by the aggregator": _through_aggregator(stage, seconds),
            "mib": memory(stage.pid),
        }
    print_to_stderr(f"{pods} pods: {figures}")
    return figures


def start(stage: Stage) -> dict[str, float]:
    """Starts the adapter; the seconds and processor time until its first correct answer."""
    seconds = stage.first_answer(180)
    cpu = cpu_seconds(stage.pid)
    time.sleep(5)  # then every path once, which fills the cache of access reviews
    for metric in ("effective_cpu", "desired_replicas"):
        plan = stage.plan(metric, seconds=max(1, len(stage.services) / 250), rate=250)
        measure(replace(plan, tolerant=True), stage.pid)
    time.sleep(5)
    return {"seconds": round(seconds, 2), "cpu_seconds": cpu}


def _at_the_stock_rate(stage: Stage, seconds: float) -> dict[str, Any]:
    """A metric at the rate of the stock controller's requests, each case twice in turn with the constant server."""
    rate = max(5.0, len(stage.services) / SYNC_SECONDS)
    plan = replace(stage.plan("effective_cpu", seconds=seconds, rate=rate), tolerant=True)
    runs: dict[str, list[Measured]] = {"constant": [], "effective_cpu": [], "effective_cpu, scraped": []}
    with Constant(plan) as constant:
        fixed = replace(plan, port=constant.port, requests=[("/", "constant")])
        for _ in range(2):
            runs["constant"].append(measure(fixed, constant.component.pid or 0))
            runs["effective_cpu"].append(measure(plan, stage.pid))
            with _scraped(stage):
                runs["effective_cpu, scraped"].append(measure(plan, stage.pid))
    both = {name: Measured(tuple(it for run in each for it in run.latencies)) for name, each in runs.items()}
    return {name: {"rate": round(rate), **each.summary} for name, each in both.items()}


@contextmanager
def _scraped(stage: Stage) -> Iterator[None]:
    """`/metrics` is read each second meanwhile."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1):
            with suppress(OSError):
                stage.adapter.metrics()

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Constant(LocalServer):
    """The constant server, with the adapter's certificates."""

    name, cwd = "constant", record.ROOT

    def __init__(self, plan: Plan) -> None:
        self._pair = plan.certificate, plan.key

    def command(self) -> list[str]:
        [self.port] = free_ports(1)
        return [sys.executable, "-m", __spec__.name, "--serve", str(self.port), *self._pair]

    def is_ready(self) -> bool:
        socket.create_connection(("127.0.0.1", self.port), 1).close()
        return True


def serve_constant(port: str, certificate: str, key: str) -> None:
    """Runs the constant server."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"value": "constant"})

    app, context = web.Application(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    app.router.add_get("/{path:.*}", answer)
    web.run_app(app, host="127.0.0.1", port=int(port), ssl_context=context, print=None, access_log=None)


def _live(stage: Stage, seconds: float) -> dict[str, Any]:
    """`desired_replicas`, and the live read behind it alone."""
    base = "/apis/apps/v1/namespaces"
    reads = [
        (f"{base}/{service.namespace}/deployments/{service.name}/scale", f'"replicas":{service.replicas}')
        for service in stage.services
    ]
    asked = measure(stage.plan("desired_replicas", seconds=seconds, rate=_RATE), stage.pid)
    read = measure(stage.plan_through_api_server(reads, seconds=seconds, rate=_RATE), stage.pid)
    return {
        "desired_replicas": {"rate": _RATE, **asked.summary, "cpu_ms": round(1000 / asked.per_cpu_second, 2)},
        "the live read alone": {"rate": _RATE, **read.summary},
    }


def _through_aggregator(stage: Stage, seconds: float) -> dict[str, Any]:
    """Both kinds of metric and the constant server behind the API server, in turn."""
    plans = {
        metric: stage.plan_through_api_server(
            [request(service, metric) for service in stage.services], seconds=seconds, rate=_RATE
        )
        for metric in ("effective_cpu", "desired_replicas")
    }
    with Constant(stage.plan("effective_cpu", seconds=seconds, rate=_RATE)) as constant:
        client = stage.cluster.client
        client.apply(objects.external_service("constant", "kube-system", constant.port))
        client.apply(objects.api_service(_CONSTANT_GROUP, "v1", ("kube-system", "constant", constant.port)))
        stage.cluster.wait_api_service(f"v1.{_CONSTANT_GROUP}")
        plans["constant"] = replace(plans["effective_cpu"], requests=[(f"/apis/{_CONSTANT_GROUP}/v1", "constant")])
        runs = [(name, measure(plan, stage.pid)) for _ in range(2) for name, plan in plans.items()]
    both = {name: Measured(tuple(it for key, run in runs if key == name for it in run.latencies)) for name in plans}
    return {name: {"rate": _RATE, **each.summary} for name, each in both.items()}


def main() -> None:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--pods", type=int, nargs="+", default=[2_000, 20_000, 50_000])
    parser.add_argument("--seconds", type=float, default=20, help="duration of one measurement (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the adapter (default: this one)")
    parser.add_argument("--serve", nargs=3, metavar=("PORT", "CERTIFICATE", "KEY"), help="be the constant server only")
    given = parser.parse_args()
    if given.serve:
        serve_constant(*given.serve)
        return
    favour()
    record.write(given.output, {"sizes": [run(pods, given.python, given.seconds) for pods in given.pods]})


if __name__ == "__main__":
    main()
