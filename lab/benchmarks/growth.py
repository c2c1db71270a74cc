"""How time and memory grow with the number of pods: `python -m lab.benchmarks.growth`, on the faithful watch server.

A policy has 25 pods, a namespace 500, and there are no registries. The watch server's processor time does not count.
"""

import contextlib
import http.client
import os
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trustme
import yaml

from lab.benchmarks import record, scene
from lab.benchmarks.processes import cpu_seconds, favour, memory, share_of_processor
from lab.benchmarks.stage import first_answer, request
from lab.harness import objects
from lab.harness.client import tls_context
from lab.harness.processes import Component, Scenery, free_ports

ROOT = Path(__file__).resolve().parents[2]
PODS_PER_POLICY = 25
PODS_PER_NAMESPACE = 500
_PATIENCE = 180.0


class Watched(Scenery):
    """The watch server with a scene, and the adapter on it, both as processes."""

    def __init__(self, pods: int, python: str) -> None:
        self.pods = pods
        self.counts = (pods // PODS_PER_POLICY, pods, max(1, pods // PODS_PER_NAMESPACE))
        self.services = scene.services(*self.counts)
        self._python = python

    def _start(self, stack: contextlib.ExitStack) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="effective-load-scale-")))
        self._certificates()
        command = [sys.executable, "-m", "lab.benchmarks.watch_server", str(self.folder), *map(str, self.counts)]
        server = Component("watch-server", command, self.folder / "server.log", cwd=ROOT)
        server.ready = (self.folder / "address").exists
        stack.callback(server.stop, 2)
        server.start()
        favour(server.pid or 0)
        server.wait_ready(_PATIENCE)
        self.url = (self.folder / "address").read_text()
        self.port, self.metrics_port = free_ports(2)
        self.adapter = self._adapter()
        stack.callback(self.adapter.stop, 5)

    def _certificates(self) -> None:
        cluster, front_proxy = trustme.CA(), trustme.CA()
        self._cluster = cluster.cert_pem.bytes()
        cluster.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(self.folder / "server.pem"))
        front_proxy.cert_pem.write_to_path(str(self.folder / "front-proxy.pem"))
        client = front_proxy.issue_cert(common_name="front-proxy-client")
        for name, pair in (("client", client), ("serving", cluster.issue_cert("localhost"))):
            pair.private_key_pem.write_to_path(str(self.folder / f"{name}.key"))
            pair.cert_chain_pems[0].write_to_path(str(self.folder / f"{name}.crt"))

    def _adapter(self) -> Component:
        kubeconfig = objects.kubeconfig(self.folder / "kubeconfig", self.url, self._cluster, "token")
        files = {"certFile": str(self.folder / "serving.crt"), "keyFile": str(self.folder / "serving.key")}
        tls = {"mode": "Files", **files, "injectCABundle": False}
        settings = {
            "server": {"address": "127.0.0.1", "port": self.port, "tls": tls},
            "telemetry": {"address": "127.0.0.1", "port": self.metrics_port},
        }
        path = self.folder / "settings.yaml"
        path.write_text(yaml.safe_dump(settings))
        command = [self._python, "-m", "adapter.cli", "serve", "--kubeconfig", str(kubeconfig), "--settings", str(path)]
        inherited = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        inherited["MALLOC_MMAP_THRESHOLD_"] = "131072"  # as in the image
        return Component("adapter", command, self.folder / "adapter.log", env=inherited, cwd=ROOT)

    @property
    def pid(self) -> int:
        return self.adapter.pid or 0

    # --- what is measured ---

    def start(self) -> dict[str, float]:
        """Starts the adapter; the seconds and processor time until the first correct answer."""
        wanted = request(self.services[len(self.services) // 2], "effective_cpu")
        context = tls_context(None, self.folder / "client.crt", self.folder / "client.key")
        seconds = first_answer(self.adapter, self.port, context, wanted, _PATIENCE)
        return {"seconds": round(seconds, 2), "cpu_seconds": cpu_seconds(self.pid)}

    def relist(self, rest: float) -> dict[str, float]:
        """A list of all pods after their watch expired; the processor time without that at rest."""
        self.adapter.new_log_lines()
        before, began = cpu_seconds(self.pid), time.monotonic()
        self._expire()
        while not any(line.get("event") == "resource_listed" for line in self.adapter.new_log_lines()):
            if time.monotonic() - began > _PATIENCE:
                raise TimeoutError("no list")
            time.sleep(0.05)
        time.sleep(0.5)
        seconds = time.monotonic() - began
        return {"seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds(self.pid) - before - rest * seconds, 2)}

    def _expire(self) -> None:
        host, port = self.url.removeprefix("https://").split(":")
        context = ssl.create_default_context(cadata=self._cluster.decode())
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=_PATIENCE)
        connection.request("POST", "/control/expire")
        assert connection.getresponse().status == 200
        connection.close()


def measure(pods: int, python: str, seconds: float) -> dict[str, Any]:
    """All figures of one size; `seconds` of the measurement at rest."""
    with Watched(pods, python) as watched:
        start = watched.start()
        time.sleep(12)
        rest = {"cpu_share": share_of_processor(watched.pid, seconds), "mib": memory(watched.pid)["now"]}
        figures = {"pods": pods, "start": start, "rest": rest, "relist": watched.relist(rest["cpu_share"])}
        return {**figures, "mib": memory(watched.pid)}


def main() -> None:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--pods", type=int, nargs="+", default=[1_000, 4_000, 16_000, 50_000])
    parser.add_argument("--seconds", type=float, default=30, help="at rest (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the adapter (default: this one)")
    given = parser.parse_args()
    favour()
    record.write(given.output, {"sizes": [measure(pods, given.python, given.seconds) for pods in given.pods]})


if __name__ == "__main__":
    main()
