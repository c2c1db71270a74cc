"""Deployments, HPAs and load in one namespace, for tests and the demo."""

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from lab.harness import objects
from lab.harness.client import ApiError, Client, Object, brief, pause_after
from lab.harness.control_plane import ControlPlane
from lab.harness.hpa_log import Sync
from lab.harness.kwok import READY_AFTER, USAGE_CPU, USAGE_MEMORY, usage_key

_UNITS = {
    **{unit: Fraction(10) ** power for unit, power in zip(["n", "u", "m", "", *"kMGT"], range(-9, 13, 3), strict=True)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGT", start=1)},
}


def number(quantity: str) -> Fraction:
    """The exact value of "1500m", "2", "64Mi" or "1e3", independent of the adapter under test."""
    digits = quantity.rstrip("numkKMGTi")
    return Fraction(digits) * _UNITS[quantity[len(digits) :]]


class Workloads:
    """Creates, changes and inspects the workloads of one namespace."""

    def __init__(self, cluster: ControlPlane, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.client: Client = cluster.client
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"

    def make_namespace(self) -> None:
        """Makes the namespace and waits for its default account, without which the API server rejects pods.

        It is applied: a create that the API server executes and answers too late would be refused the second time.
        """
        self.client.apply(objects.namespace(self.namespace))
        self.client.wait_for(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default", timeout=30)

    def remove_namespace(self) -> None:
        """Removes it: HPAs first, or they would scale what is being deleted; the rest goes with it, without waiting."""
        for path in ("autoscaling/v2/namespaces/{}/horizontalpodautoscalers", "apps/v1/namespaces/{}/deployments"):
            self.client.delete(f"/apis/{path.format(self.namespace)}")
        self.client.delete(f"/api/v1/namespaces/{self.namespace}")

    def path(self, name: str) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}"

    def hpa_path(self, name: str) -> str:
        return f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers/{name}"

    def asked(self, policy: str) -> str:
        """The aggregated API's answer for `desired_replicas`: the count, or the error's message."""
        where = f"namespaces/{self.namespace}/watermarkpolicies.effective-load.io/{policy}"
        answer = self.client.raw(f"/apis/custom.metrics.k8s.io/v1beta2/{where}/desired_replicas")
        # The API server refuses for an adapter that is not there in plain text.
        return str(answer.json()["items"][0]["value"]) if answer.status == 200 else ApiError(answer, policy).message

    # -- creation

    def deployment(
        self,
        name: str,
        replicas: int = 1,
        *,
        cpu_request: str = "1",
        cpu_limit: str | None = None,
        memory_request: str = "256Mi",
        memory_limit: str | None = None,
        usage_cpu: str | None = None,
        usage_memory: str | None = None,
        max_surge: str | int = "25%",
        max_unavailable: str | int = "25%",
        ready_after: str | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        containers: list[Object] | None = None,
        pod: Object | None = None,
        wait: bool = True,
    ) -> Object:
        """A Deployment of simulated pods. `pod` is merged into the pod's spec; `containers` replaces its one."""
        notes = {**(annotations or {}), **({READY_AFTER: ready_after} if ready_after else {})}
        self.set_usage(name, cpu=usage_cpu, memory=usage_memory)
        limits = {key: value for key, value in (("cpu", cpu_limit), ("memory", memory_limit)) if value}
        one = container("app", {"cpu": cpu_request, "memory": memory_request}, limits)
        template = {
            "metadata": {"labels": {"app": name, **(labels or {})}, "annotations": notes},
            "spec": {"containers": containers or [one], **(pod or {})},
        }
        surge = {"maxSurge": max_surge, "maxUnavailable": max_unavailable}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": surge},
            "template": template,
        }
        made = self.client.create(self.item("apps/v1", "Deployment", name, spec))
        if wait:
            self.wait_ready(name, replicas)
        return made

    def item(self, version: str, kind: str, name: str, spec: Object, **metadata: Any) -> Object:
        """An object of this namespace."""
        head = {"name": name, "namespace": self.namespace, **metadata}
        return {"apiVersion": version, "kind": kind, "metadata": head, "spec": spec}

    def hpa(
        self,
        name: str,
        *,
        metrics: list[Object] | None = None,
        target: tuple[str, str, str] | None = None,
        minimum: int = 1,
        maximum: int = 100,
        tolerance: str | None = "0",
        up_window: int = 0,
        down_window: int = 0,
        behavior: Object | None = None,
    ) -> Object:
        """An HPA; by default with the metric that README shows, on the policy of the same name.

        `target` is (apiVersion, kind, name), by default the Deployment of the same name; tolerance None means 10 %.
        """
        version, kind, scaled = target or ("apps/v1", "Deployment", name)
        extra = {} if tolerance is None else {"tolerance": tolerance}
        calm = {
            "scaleUp": {"stabilizationWindowSeconds": up_window, **extra},
            "scaleDown": {"stabilizationWindowSeconds": down_window, **extra},
        }
        spec = {
            "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": scaled},
            "minReplicas": minimum,
            "maxReplicas": maximum,
            "behavior": behavior or calm,
            "metrics": metrics or [policy_metric(name)],
        }
        return self.client.create(self.item("autoscaling/v2", "HorizontalPodAutoscaler", name, spec))

    def policy(self, name: str, metrics: list[Object], **spec: Any) -> Object:
        """A WatermarkPolicy; further fields of its spec by name."""
        made = self.item("effective-load.io/v1alpha1", "WatermarkPolicy", name, {"metrics": metrics, **spec})
        return self.client.create(made)

    def scale(self, name: str, replicas: int) -> None:
        self.client.patch(self.path(name), {"spec": {"replicas": replicas}})

    def rollout(self, name: str) -> None:
        """Starts a rollout by changing the pod template."""
        note = {"tests.effective-load.io/rollout": str(time.time_ns())}
        self.client.patch(self.path(name), {"spec": {"template": {"metadata": {"annotations": note}}}})

    # -- pods

    def pods(self, name: str | None = None, *, labels: str | None = None) -> list[Object]:
        """The pods of a workload, oldest first, then by name; includes those being deleted."""
        selector = labels if labels is not None else (f"app={name}" if name else "")
        pods = self.client.list(self.pods_path, labels=selector)
        return sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def pod_names(self, name: str) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods(name)]

    def annotate(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        """Sets annotations of a pod; None removes one."""
        self.client.patch(f"{self.pods_path}/{pod}", {"metadata": {"annotations": dict(annotations)}})

    def set_usage(self, target: str | Iterable[str], *, cpu: str | None = None, memory: str | None = None) -> None:
        """Sets the usage of every pod of a workload (by its name), future ones included, or only of the named pods.

        A pod's own setting takes precedence over its workload's; setting the workload's removes the pods' own.
        """
        given = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}
        own = {"cpu": USAGE_CPU, "memory": USAGE_MEMORY}
        if not isinstance(target, str):
            for name in target:
                self.annotate(name, {own[key]: value for key, value in given.items()})
            return
        notes = {usage_key(key, self.namespace, target): value for key, value in given.items()}
        for index in range(self.cluster.nodes):
            self.client.patch(f"/api/v1/nodes/node-{index}", {"metadata": {"annotations": notes}})
        for pod in self.pods(target):
            ours = {own[key]: None for key in given if own[key] in pod["metadata"].get("annotations", {})}
            if ours:
                self.annotate(pod["metadata"]["name"], dict(ours))

    def set_conditions(self, pod: str, **conditions: bool) -> None:
        """Sets conditions of a pod's status, by type: `set_conditions(pod, Ready=False)`."""
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        entries = [{"type": kind, "status": str(on), "lastTransitionTime": now} for kind, on in conditions.items()]
        self.client.patch_status(f"{self.pods_path}/{pod}", {"conditions": entries}, "strategic")

    def usage(self, name: str) -> dict[str, dict[str, Fraction]]:
        """The usage of a workload's pods in metrics.k8s.io: {pod: {"cpu": cores, "memory": bytes}}."""
        names = set(self.pod_names(name))
        usage_by_pod: dict[str, dict[str, Fraction]] = {}
        for item in self.cluster.pod_metrics(self.namespace):
            if item["metadata"]["name"] in names:
                usages = [entry["usage"] for entry in item["containers"]]
                sums = {key: sum((number(use[key]) for use in usages), Fraction(0)) for key in ("cpu", "memory")}
                usage_by_pod[item["metadata"]["name"]] = sums
        return usage_by_pod

    def wait_usage(self, name: str, *, cpu: str | None = None, memory: str | None = None) -> None:
        """Waits until metrics-server shows this usage of every live pod: up to two of its scrapes, about 20 s."""
        wanted = {key: number(value) for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}

        def matches() -> bool:
            live = {pod["metadata"]["name"] for pod in self.pods(name) if "deletionTimestamp" not in pod["metadata"]}
            usages = self.usage(name)
            near = [
                abs(usages[pod][key] - want) <= want * 0.02
                for pod in live & set(usages)
                for key, want in wanted.items()
            ]
            return bool(live) and live <= set(usages) and all(near)

        what = f"metrics.k8s.io does not show {cpu or memory} for {name}"
        until(matches, 60, lambda: f"{what}: {self.usage(name)}", 0.5)

    # -- replicas

    def replicas(self, name: str) -> int:
        """spec.replicas of the target, which the HPA writes."""
        return int(self.client.get(self.path(name))["spec"]["replicas"])

    def wait_replicas(self, name: str, count: int, timeout: float = 60) -> None:
        """Waits until spec.replicas is `count`; the error shows the HPA's status and last syncs."""
        until(lambda: self.replicas(name) == count, timeout, lambda: self._describe(name, f"not {count}"))

    def wait_ready(self, name: str, count: int, timeout: float = 60) -> None:
        """Waits until a Deployment has `count` ready replicas and no others."""

        def ready() -> bool:
            status = self.client.get(self.path(name)).get("status", {})
            counts = [status.get(key, 0) for key in ("replicas", "readyReplicas", "updatedReplicas")]
            return counts == [count] * 3

        until(ready, timeout, lambda: self._describe(name, f"has no {count} ready pods"))
        if {"kwok", "metrics-server"} <= set(self.cluster.wanted):
            until(lambda: self.cluster.counts_usage_of(self.pod_names(name)), timeout, lambda: "kwok lists no usage")

    def hold_replicas(
        self, name: str, count: int, seconds: float = 0, *, syncs: int = 3, hpa: str | None = None
    ) -> list[Sync]:
        """Asserts that the count stays through at least `syncs` syncs of its HPA and `seconds`; returns those syncs."""
        log = self.cluster.hpa_log
        since, began = log.mark(), time.monotonic()
        patience = max(seconds, 3 * syncs * self.cluster.hpa_sync) + 15
        while True:
            assert self.replicas(name) == count, self._describe(name, f"moved away from {count}")
            seen = log.syncs(self.namespace, f"Deployment/{name}", hpa=hpa, since=since)
            # The log may show the step to this count only now.
            moved = [s.line for s in seen if s.outcome == "rescaled" and f"desiredReplicas={count} " not in s.line]
            assert not moved, f"{name} was rescaled: {moved}"
            passed = time.monotonic() - began
            if len(seen) >= syncs and passed >= seconds:
                return seen
            if passed > patience:
                raise TimeoutError(f"the HPA of {name} synced only {len(seen)} times in {passed:.0f} s")
            time.sleep(0.2)

    # -- the HPA's status

    def hpa_status(self, name: str) -> Object:
        return self.client.get(self.hpa_path(name)).get("status", {})

    def hpa_condition(self, name: str, kind: str) -> Object | None:
        """A condition of the HPA (AbleToScale, ScalingActive, ScalingLimited), or None before its first sync."""
        conditions = self.hpa_status(name).get("conditions") or []
        return next((entry for entry in conditions if entry["type"] == kind), None)

    def wait_condition(
        self, name: str, kind: str, *, status: str = "True", contains: str = "", timeout: float = 60
    ) -> Object:
        """Waits for a condition of the HPA with this status and with `contains` in its message."""

        def holds(item: Object) -> bool:
            conditions = [entry for entry in item.get("status", {}).get("conditions") or [] if entry["type"] == kind]
            return any(entry["status"] == status and contains in entry.get("message", "") for entry in conditions)

        self.client.wait_for(self.hpa_path(name), holds, timeout, f"HPA {name}: {kind}={status} {contains!r}")
        return self.hpa_condition(name, kind) or {}

    def syncs(self, name: str, since: int = 0) -> list[Sync]:
        return self.cluster.hpa_log.syncs(self.namespace, f"Deployment/{name}", since=since)

    def rescaled(self, name: str, since: int = 0) -> list[int | None]:
        """The counts that the HPA of a workload has set, in order."""
        return [sync.desired for sync in self.syncs(name, since) if sync.outcome == "rescaled"]

    def wait_syncs(self, name: str, count: int = 1, timeout: float = 60) -> list[Sync]:
        """Waits until the HPA of a workload has synced `count` times from now on."""
        since = self.cluster.hpa_log.mark()
        until(lambda: len(self.syncs(name, since)) >= count, timeout, lambda: f"the HPA of {name} does not sync")
        return self.syncs(name, since)

    def events(self, name: str) -> list[str]:
        """Reason and message of the events about an object of this name, oldest first."""
        events = self.client.list(f"/api/v1/namespaces/{self.namespace}/events", fields=f"involvedObject.name={name}")
        return [f"{event['reason']}: {event['message']}" for event in events]

    def _describe(self, name: str, what: str) -> str:
        """The state for an error message: the target's count, the HPA, its last syncs."""
        hpa = self.client.find(self.hpa_path(name))
        status = brief(hpa.get("status") if hpa else None)
        last = "\n".join(sync.line for sync in self.syncs(name)[-3:])
        return f"{name} {what}: spec.replicas is {self.replicas(name)}\n{status}\n{last}"


def container(name: str, requests: Object, limits: Object | None = None, **more: Any) -> Object:
    """A container spec; KWOK never runs it."""
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    return {"name": name, "image": "example.invalid/app:1", "resources": resources, **more}


def policy_metric(policy: str) -> Object:
    """The policy object's metric, taken as the count."""
    return _object_metric({"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "name": policy})


def target_metric(kind: str, name: str) -> Object:
    """The same metric on the scale target itself."""
    return _object_metric({"apiVersion": "apps/v1", "kind": kind, "name": name})


def _object_metric(described: Object) -> Object:
    metric = {"describedObject": described, "metric": {"name": "desired_replicas"}, "target": _average("1")}
    return {"type": "Object", "object": metric}


def external_metric(policy: str, metric: str = "desired_replicas", **labels: str) -> Object:
    """The External form, selected by the policy's name."""
    selector = {"matchLabels": {"policy": policy, **labels}}
    return {"type": "External", "external": {"metric": {"name": metric, "selector": selector}, "target": _average("1")}}


def pods_metric(metric: str, average: str) -> Object:
    """The Pods form: the HPA averages over the pods itself."""
    return {"type": "Pods", "pods": {"metric": {"name": metric}, "target": _average(average)}}


def _average(value: str) -> Object:
    return {"type": "AverageValue", "averageValue": value}


def resource_metric(name: str, *, utilization: int | None = None, average: str = "") -> Object:
    """The stock HPA's own resource metric."""
    target = {"type": "Utilization", "averageUtilization": utilization} if utilization else _average(average)
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def cpu_watermarks(high: str, low: str, **resource: Any) -> Object:
    """A policy's CPU metric."""
    return {"name": "cpu", "resource": {"name": "cpu", **resource}, "highWatermark": high, "lowWatermark": low}


def memory_watermarks(high: str, low: str, **resource: Any) -> Object:
    """A policy's memory metric; `relativeTo="Limit"` makes it utilization."""
    return {"name": "memory", "resource": {"name": "memory", **resource}, "highWatermark": high, "lowWatermark": low}


def until(
    holds: Callable[[], object], timeout: float, otherwise: Callable[[], str], every: float | None = None
) -> None:
    """Polls until `holds` is true, by default ever less often; calls `otherwise` for the message only on a timeout."""
    began = time.monotonic()
    while not holds():
        passed = time.monotonic() - began
        if passed > timeout:
            raise TimeoutError(f"after {timeout:g} s: {otherwise()}")
        time.sleep(every or pause_after(passed))
