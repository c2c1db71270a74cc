"""One size of the growth benchmark: the adapter on the faithful watch server, its time, memory, and longest step."""

import contextlib
import http.client
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trustme
import yaml

from lab.benchmarks import scene
from lab.benchmarks.probed import Probed
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
    """The watch server with a scene, and the adapter on it, both as processes. `source`: the adapter's repository."""

    def __init__(self, pods: int, python: str, source: Path = ROOT) -> None:
        self.pods = pods
        self.counts = (pods // PODS_PER_POLICY, pods, max(1, pods // PODS_PER_NAMESPACE))
        self.services = scene.services(*self.counts)
        self._python, self._source = python, source

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
        stack.callback(self.adapter.component.stop, 5)

    def _certificates(self) -> None:
        cluster, front_proxy = trustme.CA(), trustme.CA()
        self._cluster = cluster.cert_pem.bytes()
        cluster.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(self.folder / "server.pem"))
        front_proxy.cert_pem.write_to_path(str(self.folder / "front-proxy.pem"))
        client = front_proxy.issue_cert(common_name="front-proxy-client")
        for name, pair in (("client", client), ("serving", cluster.issue_cert("localhost"))):
            pair.private_key_pem.write_to_path(str(self.folder / f"{name}.key"))
            pair.cert_chain_pems[0].write_to_path(str(self.folder / f"{name}.crt"))

    def _adapter(self) -> Probed:
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
        return Probed.elsewhere("adapter", command, self.folder, self._source)

    # --- requests ---

    def control(self, path: str) -> None:
        """Changes the watch server."""
        host, port = self.url.removeprefix("https://").split(":")
        context = ssl.create_default_context(cadata=self._cluster.decode())
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=_PATIENCE)
        connection.request("POST", f"/control/{path}")
        assert connection.getresponse().read() is not None
        connection.close()

    def start(self) -> dict[str, float]:
        """Starts the adapter; the seconds and processor time until the first correct answer."""
        wanted = request(self.services[len(self.services) // 2], "effective_cpu")
        context = tls_context(None, self.folder / "client.crt", self.folder / "client.key")
        seconds = first_answer(self.adapter.component, self.port, context, wanted, _PATIENCE)
        return {"seconds": round(seconds, 2), "cpu_seconds": cpu_seconds(self.adapter.pid)}


def measure(pods: int, python: str, source: Path, rest: float) -> dict[str, Any]:
    """All figures of one size."""
    with Watched(pods, python, source) as watched:
        adapter = watched.adapter
        figures: dict[str, Any] = {"pods": pods, "policies": watched.counts[0], "namespaces": watched.counts[2]}
        figures["start"] = watched.start()
        time.sleep(12)
        figures["rest"] = {"cpu_share": share_of_processor(adapter.pid, rest), "mib": memory(adapter.pid)["now"]}
        figures["rest"]["loop"] = adapter.timed(lambda: time.sleep(rest / 2))
        share = figures["rest"]["cpu_share"]
        for name, what in (("relist", "expire"), ("relist_changed", "expire?change=1")):
            figures[name] = _relist(watched, what, share)
            time.sleep(3)
        return {**figures, "mib": memory(adapter.pid)}


def _relist(watched: Watched, what: str, rest: float) -> dict[str, Any]:
    """A list of all pods after their watch expired; the processor time without that at rest."""
    adapter = watched.adapter
    figures: dict[str, Any] = {}
    adapter.component.new_log_lines()

    def relisted() -> None:
        before, began = cpu_seconds(adapter.pid), time.monotonic()
        watched.control(what)
        while not any(one.get("event") == "listed" for one in adapter.component.new_log_lines()):
            if time.monotonic() - began > _PATIENCE:
                raise TimeoutError("no list")
            time.sleep(0.05)
        time.sleep(0.5)
        seconds = time.monotonic() - began
        figures["seconds"] = round(seconds, 2)
        figures["cpu_seconds"] = round(cpu_seconds(adapter.pid) - before - rest * seconds, 2)

    figures["loop"] = adapter.timed(relisted)
    return figures
