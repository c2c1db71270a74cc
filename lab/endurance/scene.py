"""The services of the long run on the scene of `faults`: a registry with access control, loads in waves, new pods."""

import contextlib
import math
import os
import random
import time
from pathlib import Path
from typing import Any

from lab.faults.scene import BROKEN, NAMESPACE, Scene, address, load_series, replaced
from lab.harness.adapter import ACCOUNT
from lab.harness.adapter import NAMESPACE as ADAPTER_NAMESPACE
from lab.harness.companion import DEFAULT_RIGHTS, CompanionProcess, account_of
from lab.harness.processes import Component
from lab.harness.registries.consul import Consul

KINDS = ("cpu", "load", "roster")
OF_EACH = 3
PODS = 8
WAVE_SECONDS = 300.0
USAGE_SECONDS = 15.0
"""How often metrics-server's kubelets are told of new usage."""
TOKEN_SECONDS = 600
"""The shortest life that the API server gives a token; the processes read their kubeconfig every 300 s."""
READER = 'service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }'


class LongScene(Scene):
    """Use it as a context manager. What runs beside the disturbances are `set_load` and `replace_pod`."""

    watched = ()

    def __init__(self) -> None:
        super().__init__()
        self.services = {f"{kind}-{number}": kind for kind in KINDS for number in range(OF_EACH)}
        self._random = random.Random(0)
        self._began = time.monotonic()
        self._usage_at = -math.inf
        self._guests = 0
        self._reader = ""
        self.shims: dict[str, Path] = {}

    # --- what there is ---

    def _registry(self) -> Consul:
        return Consul(deny=True)

    def _begin_services(self) -> None:
        for name in self.services:
            self.workloads.deployment(name, PODS, usage_cpu="1", wait=False)
        for name in self.services:
            self.workloads.wait_ready(name, PODS, 120)
        self.consul_token = self.folder / "consul-token"
        self.renew_registry_token()
        self._set_load()

    def _settings(self) -> dict[str, Any]:
        settings = super()._settings()
        settings["registries"][0]["tokenFile"] = str(self.consul_token)
        return settings

    def _companion(self, name: str, rights: Path) -> CompanionProcess:
        shim = self.shims[name] = self.folder / name
        shim.mkdir()
        command = (*self.command, str(shim), "companion")
        kubeconfig = self._through_proxy(rights, rights.name)
        return CompanionProcess(self.cluster, self.settings, kubeconfig=kubeconfig, name=name, command=command)

    def _begin_policies(self) -> None:
        for name, kind in self.services.items():
            self._begin_policy(name, kind)

    def _begin_policy(self, name: str, kind: str) -> None:
        self.policy(name, by_cpu=kind == "cpu", registered=name if kind == "roster" else "")
        self.workloads.hpa(name, maximum=30)

    @property
    def processes(self) -> dict[str, tuple[Component, Path]]:
        """Each measured process and the folder of its shim."""
        companions = {one.name: (one.component, self.shims[one.name]) for one in self.companions}
        return {"adapter": (self.adapter.component, self.shim), **companions}

    # --- load, pods, registrations ---

    def _set_load(self) -> None:
        """The serving pods of each service share its load, which goes up and down in waves."""
        pods = [pod for pod in self.workloads.pods() if "deletionTimestamp" not in pod["metadata"]]
        tells_usage = time.monotonic() - self._usage_at > USAGE_SECONDS
        series: dict[str, float | str] = {}
        for number, (name, kind) in enumerate(self.services.items()):
            mine = {pod["metadata"]["name"]: address(pod) for pod in pods if pod["metadata"]["labels"]["app"] == name}
            phase = 2 * math.pi * ((time.monotonic() - self._began) / WAVE_SECONDS + number / len(self.services))
            each = PODS * (1 + 0.4 * math.sin(phase)) / max(1, len(mine.keys() - self.out))
            for pod in mine:
                series[load_series(pod)] = 0 if pod in self.out else round(each, 3)
            if kind == "roster":
                self.keep_registered(name, mine)
            if kind == "cpu" and tells_usage:
                self.workloads.set_usage(name, cpu=f"{round(each * 1000)}m")
        if tells_usage:
            self._usage_at = time.monotonic()
        self.exporter.set(series)

    def replace_pod(self) -> str:
        """Deletes a pod; its Deployment makes another one. Returns its name, or nothing where that failed."""
        with contextlib.suppress(*BROKEN):
            name = self._random.choice(self.workloads.pod_names(self._random.choice(list(self.services))))
            self.cluster.client.delete(f"{self.workloads.pods_path}/{name}")
            return name
        return ""

    def pull_out(self) -> None:
        """Two pods of each service with a registry go into maintenance."""
        for service in (name for name, kind in self.services.items() if kind == "roster"):
            for pod in [pod for pod in self.registered_in() if self.registered[pod] == service][:2]:
                self.consul.maintenance(pod, on=True)
                self.out.add(pod)

    def take_back(self) -> None:
        """All pods leave maintenance, as far as they are still there."""
        for pod in sorted(self.out):
            with contextlib.suppress(*BROKEN):
                self.consul.maintenance(pod, on=False)
            self.out.discard(pod)

    # --- objects and credentials ---

    def invite(self) -> str:
        """A new service with policy and HPA, under a name that was never there; returns it."""
        self._guests += 1
        name = f"guest-{self._guests}"
        self.workloads.deployment(name, 2, usage_cpu="1", wait=False)
        self._begin_policy(name, "cpu")
        return name

    def dismiss(self, name: str) -> None:
        """Removes such a service."""
        policies = f"/apis/effective-load.io/v1alpha1/namespaces/{NAMESPACE}/watermarkpolicies"
        for path in (self.workloads.hpa_path(name), f"{policies}/{name}", self.workloads.path(name)):
            self.cluster.client.delete(path)

    def renew_tokens(self) -> None:
        """New tokens of ten minutes for adapter and companions, in the kubeconfigs that they read."""
        companion = account_of(DEFAULT_RIGHTS)
        for account, name in ((ACCOUNT, "kubeconfig"), (companion, f"kubeconfig-{companion}")):
            token = self.cluster.token(ADAPTER_NAMESPACE, account, seconds=TOKEN_SECONDS)
            self._through_proxy(self.cluster.kubeconfig_with_token(token, "kubeconfig-new"), name)

    def renew_registry_token(self) -> None:
        """A new token of the registry; the former one is deleted."""
        accessor, secret = self.consul.token(READER)
        replaced(self.consul_token, secret)
        former, self._reader = self._reader, accessor
        if former:
            time.sleep(10)  # the file is read again when it changes; a token is deleted after that
            self.consul.call("DELETE", f"/v1/acl/token/{former}")

    # --- what is seen ---

    def rise(self, seconds: float) -> None:
        """Nothing: the load changes all the time."""

    def wrong(self) -> str:
        """Which services are not answered with a number."""
        return ", ".join(name for name in self.services if not self.answered(name))

    def answered(self, service: str) -> bool:
        """Whether the adapter answers a request for this service's count with a number."""
        try:
            return self.ask(service).status == 200
        except OSError:
            return False

    def figures(self) -> dict[str, dict[str, float]]:
        """What each process uses now; one that has ended is left out."""
        found = {}
        for name, (component, shim) in self.processes.items():
            with contextlib.suppress(OSError, ValueError):
                found[name] = {
                    **used_by(component.pid or 0),
                    "tasks": int((shim / "tasks").read_text()),
                    "blocks": int((shim / "blocks").read_text()),
                    "log": component.log.stat().st_size,
                }
        return found


def used_by(pid: int) -> dict[str, float]:
    """The resident memory of a process in MiB, its sockets and threads."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(os.readlink(link))  # noqa: PTH115 - the text, also where it leads nowhere
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "memory": round(int(status["VmRSS"].split()[0]) / 1024, 2),
        "sockets": sum(link.startswith("socket:") for link in links),
        "threads": int(status["Threads"]),
    }
