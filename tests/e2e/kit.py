"""A service with its load in Prometheus: quick to change, and exact."""

from collections.abc import Mapping
from typing import Any

from lab.harness.prometheus import Page, Prometheus
from lab.harness.workloads import Workloads, until

PULLED_OUT = "effective-load.io/pulled-out"
CALM = {way: {"selectPolicy": "Disabled", "tolerance": "0"} for way in ("scaleUp", "scaleDown")}
"""The behavior of an HPA that does not scale: a test reads its metric, or scales by hand."""
FAST: dict[str, Any] = {"resourceMetrics": {"intervalSeconds": 2}}
"""Settings with short intervals, so that a test waits for metrics-server only."""


def prometheus_settings(server: Prometheus) -> dict[str, Any]:
    """Settings with the queries `load` (a series a pod) and `queue` (one number), asked every second."""
    return {
        **FAST,
        "prometheus": {
            "servers": [{"name": "main", "url": server.url}],
            "queries": [
                {
                    "name": "load",
                    "server": "main",
                    "query": "sum by (namespace, pod) (load)",
                    "intervalSeconds": 1,
                    "maxAgeSeconds": 10,
                },
                {
                    "name": "queue",
                    "server": "main",
                    "query": 'sum(queue{namespace="$namespace", workload="$workload"})',
                    "scope": "Service",
                    "intervalSeconds": 1,
                    "maxAgeSeconds": 10,
                },
            ],
        },
    }


def query_watermarks(name: str, high: str | None = None, low: str | None = None, **query: Any) -> dict[str, Any]:
    """A policy's metric from a named query."""
    marks = {"highWatermark": high, "lowWatermark": low}
    return {"name": name, "query": {"name": name, **query}} | {key: mark for key, mark in marks.items() if mark}


def scaled(workloads: Workloads, replicas: int, syncs: int = 1) -> None:
    """Scales web by its load per pod, 400m to 1200m, and waits until the HPA acts and keeps this many pods."""
    workloads.policy("web", [query_watermarks("load", "1200m", "400m")])
    workloads.hpa("web")
    workloads.wait_condition("web", "ScalingActive")
    workloads.hold_replicas("web", replicas, syncs=syncs)


def policy_path(workloads: Workloads, name: str = "web") -> str:
    return f"/apis/effective-load.io/v1alpha1/namespaces/{workloads.namespace}/watermarkpolicies/{name}"


def status(workloads: Workloads, name: str = "web") -> dict[str, Any]:
    """A policy's status, empty before its first."""
    return dict(workloads.client.get(policy_path(workloads, name)).get("status") or {})


def condition(workloads: Workloads, kind: str, name: str = "web") -> dict[str, Any]:
    """A condition of a policy, empty if it has none."""
    found = (one for one in status(workloads, name).get("conditions", ()) if one["type"] == kind)
    return dict(next(found, {}))


def wait_finding(
    workloads: Workloads, kind: str, reason: str, says: str = "", *, name: str = "web", seconds: float = 60
) -> dict[str, Any]:
    """Waits until a policy's condition has this reason, with `says` in its message."""

    def found() -> bool:
        now = condition(workloads, kind, name)
        return now.get("reason") == reason and says in now["message"]

    until(found, seconds, lambda: f"{kind} of {name} is not {reason} {says!r}: {status(workloads, name)}")
    return condition(workloads, kind, name)


def wait_desired(workloads: Workloads, count: int, name: str = "web", seconds: float = 90) -> dict[str, Any]:
    """Waits until a policy's status asks for this count; returns the status."""
    found = lambda: status(workloads, name)  # noqa: E731
    until(lambda: found().get("desired") == count, seconds, lambda: f"the status of {name} says {found()}")
    return found()


def wait_asked(workloads: Workloads, name: str, contains: str, seconds: float = 60) -> str:
    """Waits until the answer about a policy is this count, or an error with this text; returns the answer."""

    def holds() -> bool:
        found = workloads.asked(name)
        return found == contains if contains.isdecimal() else contains in found

    until(holds, seconds, lambda: f"{name} is answered {workloads.asked(name)} instead of {contains}", 0.1)
    return workloads.asked(name)


class Load:
    """Sets the load series of each pod of some workloads; pods without a load have no series."""

    def __init__(self, page: Page, workloads: Workloads) -> None:
        self._page = page
        self._workloads = workloads
        self._pods: dict[str, float] = {}
        self._queues: dict[str, float] = {}

    def serve(
        self,
        pods: int,
        *,
        each: float | None = None,
        queue: float = 0,
        marks: tuple[str, str] = ("100", "40"),
        name: str = "web",
        hpa: Mapping[str, Any] | None = None,
        **policy: Any,
    ) -> None:
        """Creates a service of so many pods with this load, of each or as a whole, its policy, and its HPA."""
        self._workloads.deployment(name, pods)
        if each is None:
            self.queue(name, queue)
        else:
            self.each(name, each)
        self._workloads.policy(name, [query_watermarks("queue" if each is None else "load", *marks)], **policy)
        self._workloads.hpa(name, **(hpa or {}))

    def each(self, name: str, value: float, *, but: Mapping[str, float | None] | None = None) -> None:
        """Sets the same load on every pod of a workload except those in `but`; None removes a pod's series."""
        wanted = dict.fromkeys(self._workloads.pod_names(name), value) | dict(but or {})
        self._pods.update({pod: load for pod, load in wanted.items() if load is not None})
        for pod in [pod for pod, load in wanted.items() if load is None]:
            self._pods.pop(pod, None)
        self._tell()

    def queue(self, name: str, value: float) -> None:
        """The number for a whole service."""
        self._queues[name] = value
        self._tell()

    def _tell(self) -> None:
        namespace = self._workloads.namespace
        pods = {f'load{{namespace="{namespace}",pod="{pod}"}}': value for pod, value in self._pods.items()}
        queues = {f'queue{{namespace="{namespace}",workload="{name}"}}': v for name, v in self._queues.items()}
        self._page.set(pods | queues)
