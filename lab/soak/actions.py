"""Takes the steps of a plan on a stage. The name of a step is that of a method."""

import contextlib
import time
from collections.abc import Collection
from typing import Any

from lab.faults.scene import BROKEN, NAMESPACE, address
from lab.harness.client import ApiError, condition_true
from lab.soak.plan import Step
from lab.soak.stage import Stage, Truth

PATIENCE = 60.0
"""Seconds for which a step is tried again: the server that it needs may be what is broken."""
MOST_OUT = 2
"""Pods of a service that are out at a time, at most."""
_POLICIES = f"/apis/effective-load.io/v1alpha1/namespaces/{NAMESPACE}/watermarkpolicies"


class Actions:
    """The changes that a plan may ask for, but for faults."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def take(self, step: Step) -> bool:
        """Takes a step, again until it works; whether it did."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(*BROKEN):
                self._take(step)
                return True
            time.sleep(0.5)
        return False

    def _take(self, step: Step) -> None:
        act = getattr(self, step.kind)
        if step.service:
            act(self._stage.truths[step.service], **step.arguments)
        else:
            act(**step.arguments)

    # --- load ---

    def load(self, truth: Truth, x: float) -> None:
        truth.x = x

    def skew(self, truth: Truth, seed: int) -> None:
        truth.skew = seed

    # --- pods ---

    def delete_pod(self, truth: Truth, pick: float) -> None:
        if pod := self._picked(truth, pick):
            self._stage.cluster.client.delete(f"{self._stage.workloads.pods_path}/{pod}", grace=0)

    def unready(self, truth: Truth, pick: float) -> None:
        if pod := self._picked(truth, pick):
            self._stage.workloads.set_conditions(pod, Ready=False)

    def annotate(self, truth: Truth, pick: float) -> None:
        """Pulls a pod out by hand."""
        if pod := self._picked_in(truth, pick):
            truth.by_hand.add(pod)
            truth.out.add(pod)
            self._stage.workloads.annotate(pod, {"effective-load.io/pulled-out": "true"})

    def heal(self, truth: Truth) -> None:
        """Every pod is Ready again, and none is pulled out by hand."""
        for pod in self._stage.workloads.pods(truth.service.name):
            name = pod["metadata"]["name"]
            with contextlib.suppress(ApiError):  # it may be gone by now
                if not condition_true(pod, "Ready"):
                    self._stage.workloads.set_conditions(name, Ready=True)
                if pod["metadata"].get("annotations", {}).get("effective-load.io/pulled-out"):
                    self._stage.workloads.annotate(name, {"effective-load.io/pulled-out": None})
                    truth.out.discard(name)
                    truth.by_hand.discard(name)

    def scale(self, truth: Truth, by: int) -> None:
        """Somebody changes the count by hand."""
        name = truth.service.name
        count = self._stage.workloads.replicas(name) + by
        minimum, maximum = truth.bounds
        self._stage.workloads.scale(name, min(max(count, minimum), maximum))

    def rollout(self, truth: Truth) -> None:
        self._stage.workloads.rollout(truth.service.name)

    # --- the registry ---

    def pull_out(self, truth: Truth, pick: float) -> None:
        if pod := self._picked_in(truth, pick):
            self._stage.consul.maintenance(pod, on=True)
            truth.out.add(pod)

    def put_back(self, truth: Truth) -> None:
        for pod in truth.in_maintenance:
            self._stage.consul.request("PUT", f"/v1/agent/service/maintenance/{pod}?enable=false")
        truth.out -= truth.in_maintenance

    def deregister(self, truth: Truth, pick: float) -> None:
        if pod := self._picked_in(truth, pick):
            truth.absent.add(pod)
            self._stage.consul.deregister(pod)
            truth.out.add(pod)

    def register(self, truth: Truth) -> None:
        addresses = {pod["metadata"]["name"]: address(pod) for pod in self._stage.pods_of(truth.service.name)}
        for pod in sorted(truth.absent):
            if addresses.get(pod):
                self._stage.consul.register(truth.service.name, pod, addresses[pod])
        truth.out -= truth.absent
        truth.absent.clear()

    # --- objects and settings ---

    def edit_policy(self, truth: Truth, change: dict[str, Any]) -> None:
        self._stage.cluster.client.patch(f"{_POLICIES}/{truth.service.name}", {"spec": change})

    def edit_hpa(self, truth: Truth, minimum: int, maximum: int) -> None:
        truth.bounds = minimum, maximum
        self._stage.cluster.client.patch(
            self._stage.workloads.hpa_path(truth.service.name),
            {"spec": {"minReplicas": minimum, "maxReplicas": maximum}},
        )

    def reload(self, seconds: int) -> None:
        self._stage.interval = seconds
        self._stage.adapter.configure(self._stage._settings())

    def rest(self) -> None:
        """Nothing happens."""

    # --- which pod ---

    def _picked(self, truth: Truth, pick: float) -> str:
        return _share_of(self._stage.ready_pods(truth.service.name), pick)

    def _picked_in(self, truth: Truth, pick: float) -> str:
        """A pod that is in, where more may go out."""
        truth.out &= {pod["metadata"]["name"] for pod in self._stage.pods_of(truth.service.name)}
        truth.absent &= truth.out
        truth.by_hand &= truth.out
        left = self._stage.ready_pods(truth.service.name).keys() - truth.out
        return _share_of(left, pick) if len(truth.out) < MOST_OUT else ""


def _share_of(names: Collection[str], pick: float) -> str:
    """The name at this share of the sorted ones; the last one is left alone."""
    return sorted(names)[int(pick * len(names))] if len(names) > 1 else ""
