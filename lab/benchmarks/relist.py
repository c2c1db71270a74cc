"""The cost of a list of 20,000 pods, and how long it blocks the event loop.

    python -m lab.benchmarks.relist [--pods 20000] [-o FILE]

A subprocess serves synthetic pods (6.7 KB each, two containers, with managedFields) over TLS. This process runs the
adapter's reflector with the adapter's pod decoder and times every single step of its event loop, in wall and in CPU
time; on a busy machine only the CPU figure is meaningful. Phases: the first list; a list after a 410 without
changes; one with every pod changed; a burst of 20,000 watch events.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import random
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from asyncio.events import Handle
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import trustme
from aiohttp import web

from adapter.kube.credentials import ClusterAccess, TlsContexts
from adapter.kube.pods import PodDecoder
from adapter.kube.reflector import Reflector
from adapter.kube.session import Session
from adapter.load.pods import Pod
from adapter.runtime.garbage import collect_in_steps
from adapter.telemetry.metrics import Metrics
from lab.benchmarks import record

PATH = "/api/v1/pods"


# --- the server ---


def _container(name: str) -> dict[str, Any]:
    amounts = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    return {
        "name": name,
        "image": f"registry.example.com/shop/{name}:1.2.3",
        "env": [{"name": f"SOME_VARIABLE_{n}", "value": f"some-value-of-a-variable-{n}"} for n in range(15)],
        "resources": amounts,
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }


def _container_status(name: str, index: int) -> dict[str, Any]:
    return {
        "name": name,
        "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": f"registry.example.com/shop/{name}:1.2.3",
        "imageID": f"registry.example.com/shop/{name}@sha256:{index:064x}",
        "containerID": f"containerd://{index:064x}",
        "started": True,
    }


def pod(index: int, version: int, ready_since: str = "2026-01-01T00:00:08Z") -> dict[str, Any]:
    """A pod of a workload of 50, ten workloads to a namespace."""
    workload, ip = f"web-{index // 50}", f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}"
    fields = {f"f:field{n}": {"f:name": {}, "f:value": {}} for n in range(45)}
    return {
        "metadata": {
            "name": f"{workload}-7d9c5b6f4c-{index:05x}",
            "generateName": f"{workload}-7d9c5b6f4c-",
            "namespace": f"team-{index // 500}",
            "uid": f"{index:08x}-0000-4000-8000-000000000000",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": workload, "pod-template-hash": "7d9c5b6f4c"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{workload}-7d9c5b6f4c",
                    "uid": f"{index // 50:08x}-1111-4000-8000-000000000000",
                    "controller": True,
                }
            ],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {"containers": [_container("app"), _container("proxy")], "nodeName": f"node-{index % 400}"},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": ready_since}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "hostIP": f"192.168.{index % 400 >> 8}.{index % 400 & 255}",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [_container_status("app", index), _container_status("proxy", index)],
        },
    }


class Server:
    """Lists, watches, and `POST /expire`, `/change`, `/burst` to start the phases."""

    def __init__(self, count: int) -> None:
        self.version = 1_000_000
        self.count = count
        self.pods = [self._encoded(index) for index in range(count)]
        self.watch: asyncio.Queue[bytes] = asyncio.Queue()

    def _encoded(self, index: int, ready_since: str = "2026-01-01T00:00:08Z") -> bytes:
        self.version += 1
        return json.dumps(pod(index, self.version, ready_since), separators=(",", ":")).encode()

    async def list(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        begin, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        meta = {"resourceVersion": str(self.version)}
        if begin + limit < self.count:
            meta["continue"] = str(begin + limit)
        page = b",".join(self.pods[begin : begin + limit])
        body = b'{"kind":"PodList","metadata":' + json.dumps(meta).encode() + b',"items":[' + page + b"]}\n"
        response = web.Response(body=body, content_type="application/json")
        response.enable_compression()  # where the client accepts it, as the API server does
        return response

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while line := await self.watch.get():
            await response.write(line)
        return response

    async def expire(self, _request: web.Request) -> web.StreamResponse:
        await self.watch.put(b'{"type":"ERROR","object":{"kind":"Status","code":410,"metadata":{}}}\n')
        await self.watch.put(b"")
        return web.Response()

    async def change(self, _request: web.Request) -> web.StreamResponse:
        self.pods = [self._encoded(index, "2026-01-01T01:00:00Z") for index in range(self.count)]
        return web.Response()

    async def burst(self, _request: web.Request) -> web.StreamResponse:
        for index in range(self.count):
            line = self._encoded(index, "2026-01-01T02:00:00Z")
            await self.watch.put(b'{"type":"MODIFIED","object":' + line + b"}\n")
        return web.Response()


def serve(folder: Path, count: int) -> None:
    """Serves until terminated; writes its address to a file."""
    server = Server(count)
    app = web.Application()
    app.router.add_get(PATH, server.list)
    for action in (server.expire, server.change, server.burst):
        app.router.add_post(f"/{action.__name__}", action)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")

    async def run() -> None:
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        size = sum(map(len, server.pods)) // count
        partial = folder / "address.part"
        partial.write_text(json.dumps({"url": f"https://127.0.0.1:{runner.addresses[0][1]}", "pod_bytes": size}))
        partial.rename(folder / "address")
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        await runner.cleanup()

    asyncio.run(run())


@contextlib.contextmanager
def server_process(count: int) -> Iterator[dict[str, Any]]:
    """The server in a separate process: its address, and the file of its authority."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
        command = [sys.executable, "-m", "lab.benchmarks.relist", "--serve", name, "--pods", str(count)]
        process = subprocess.Popen(command, cwd=record.ROOT)
        try:
            while not (folder / "address").exists():
                if process.poll() is not None:
                    raise SystemExit("the server did not start")
                time.sleep(0.05)
            yield {**json.loads((folder / "address").read_text()), "ca": str(folder / "ca.pem")}
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# --- the measurement ---


@dataclass
class Phase:
    """One phase: seconds, CPU seconds, and the longest single step of the event loop in milliseconds."""

    name: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    steps: int = 0
    longest_wall_ms: float = 0.0
    longest_cpu_ms: float = 0.0
    over_10_ms: int = 0
    longest_gc_ms: float = 0.0
    gc_ms: float = 0.0


class Steps:
    """Times every step of the event loop, and every garbage collection."""

    def __init__(self) -> None:
        self.phase = Phase("start")
        self._collecting = 0.0

    def install(self) -> None:
        run = Handle._run  # noqa: SLF001  the only function that every step passes

        def timed(handle: Handle) -> None:
            wall, cpu = time.perf_counter(), time.thread_time()
            run(handle)
            self._step(time.perf_counter() - wall, time.thread_time() - cpu)

        Handle._run = timed  # type: ignore[method-assign]  # noqa: SLF001
        gc.callbacks.append(self._collection)

    def _step(self, wall: float, cpu: float) -> None:
        phase = self.phase
        phase.steps += 1
        phase.longest_wall_ms = max(phase.longest_wall_ms, wall * 1e3)
        phase.longest_cpu_ms = max(phase.longest_cpu_ms, cpu * 1e3)
        phase.over_10_ms += cpu > 0.010

    def _collection(self, when: str, _info: dict[str, int]) -> None:
        if when == "start":
            self._collecting = time.perf_counter()
            return
        milliseconds = (time.perf_counter() - self._collecting) * 1e3
        self.phase.gc_ms += milliseconds
        self.phase.longest_gc_ms = max(self.phase.longest_gc_ms, milliseconds)

    @contextlib.asynccontextmanager
    async def measured(self, name: str) -> AsyncIterator[Phase]:
        await asyncio.sleep(0)
        self.phase = Phase(name)
        wall, cpu = time.perf_counter(), time.process_time()
        yield self.phase
        await asyncio.sleep(0)
        self.phase.seconds = time.perf_counter() - wall
        self.phase.cpu_seconds = time.process_time() - cpu
        self.phase = Phase("between")


class ChangeCounter:
    """Counts the reflector's changes; `wait` returns after a number of them."""

    def __init__(self) -> None:
        self.count = 0
        self.wanted = 0
        self.reached = asyncio.Event()

    def __call__(self, _old: Pod | None, _new: Pod | None) -> None:
        self.count += 1
        if self.count >= self.wanted:
            self.reached.set()

    async def wait(self, more: int) -> None:
        self.wanted = self.count + more
        self.reached.clear()
        await self.reached.wait()


def resident_mib() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


async def measure(address: dict[str, Any], count: int, steps: Steps) -> dict[str, Any]:
    context = TlsContexts().context(address["ca"], None, None, verify=True)

    async def load() -> ClusterAccess:
        return ClusterAccess(server=address["url"], tls=context)

    metrics, counter = Metrics(), ChangeCounter()
    before = resident_mib()
    gc.disable()  # as the adapter does until then
    phases: list[Phase] = []
    async with Session(load, metrics=metrics) as session:
        reflector: Reflector[Pod] = Reflector(
            session, PATH, PodDecoder(), name="pods", on_event=counter, metrics=metrics
        )
        async with steps.measured("first list") as phase:
            task = asyncio.create_task(reflector.run())
            await reflector.synced.wait()
        phases.append(phase)
        after_list = resident_mib()
        garbage = asyncio.create_task(collect_in_steps())  # as the adapter does after its first assessments
        async with steps.measured("list, nothing changed") as phase:
            await _relisted(session, reflector)
        phases.append(phase)
        await session.request("POST", "/change", timeout=300)
        async with steps.measured("list, all changed") as phase:
            await asyncio.gather(counter.wait(count), _relisted(session, reflector))
        phases.append(phase)
        async with steps.measured("burst of events") as phase:
            await asyncio.gather(counter.wait(count), session.request("POST", "/burst", timeout=300))
        phases.append(phase)
        assert len(reflector.items) == count
        assert random.choice(list(reflector.items.values())).containers
        task.cancel()
        garbage.cancel()
        await asyncio.gather(task, garbage, return_exceptions=True)
    return {
        "pods": count,
        "pod_bytes": address["pod_bytes"],
        "rss_mib_before": before,
        "rss_mib_after_list": after_list,
        "rss_mib_at_end": resident_mib(),
        "phases": [asdict(phase) for phase in phases],
    }


async def _relisted(session: Session, reflector: Reflector[Pod]) -> None:
    """Lets the watch expire and waits until the new list is done and a new watch is connected."""
    position = reflector._resume_from  # noqa: SLF001  the benchmark reads internals
    await session.request("POST", "/expire", timeout=300)
    while reflector._resume_from is not None and reflector._resume_from == position:  # noqa: SLF001, ASYNC110
        await asyncio.sleep(0.005)
    while reflector._resume_from is None:  # noqa: SLF001, ASYNC110
        await asyncio.sleep(0.005)


def show(result: dict[str, Any]) -> None:
    print(f"{result['pods']} pods of {result['pod_bytes']} bytes")
    print(
        f"{'phase':24}{'s':>7}{'CPU s':>8}{'steps':>8}{'longest ms':>12}{'in CPU':>11}{'>10 ms':>8}{'longest gc':>12}"
    )
    for phase in result["phases"]:
        print(
            f"{phase['name']:24}{phase['seconds']:7.2f}{phase['cpu_seconds']:8.2f}{phase['steps']:8}"
            f"{phase['longest_wall_ms']:12.1f}{phase['longest_cpu_ms']:11.1f}{phase['over_10_ms']:8}"
            f"{phase['longest_gc_ms']:12.1f}"
        )
    print(
        f"resident: {result['rss_mib_before']:.0f} MiB before, {result['rss_mib_after_list']:.0f} after the first "
        f"list, {result['rss_mib_at_end']:.0f} at the end"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("-o", "--output", type=Path, help="the file for the figures")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.pods)
        return
    with server_process(options.pods) as address:
        steps = Steps()
        steps.install()
        result = asyncio.run(measure(address, options.pods, steps))
    show(result)
    if options.output:
        record.write(options.output, result)


if __name__ == "__main__":
    main()
