"""The reasons of the adapter's counts, in its own sentences: `effective-load decide` on the observed objects.

The adapter gives the HPA only a number; the sentences come from the same pipeline on a document. Each document can be
kept, changed, and decided again by hand.
"""

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

import yaml

from adapter.commands.decide.decision import decision_json
from adapter.commands.decide.reader import DocumentError, read_document
from lab.demo.objects import OURS, PULLED_OUT, Object, scaling
from lab.demo.observe import Observation

_STATUS = ("phase", "startTime", "conditions", "containerStatuses")
_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "labels", "ownerReferences")


@dataclass(frozen=True)
class Reason:
    """One decision: its input document, the answer of `decide`, and the sentences about its metric."""

    current: int
    desired: int | None
    document: Object
    sentences: tuple[str, ...]
    answer: Object


@dataclass
class Reasoner:
    """Decides on each observation, as the adapter does, and passes the memory on to the next decision."""

    namespace: str
    _memory: Object | None = None
    _reasons: list[Reason] = field(default_factory=list)

    def consider(self, observation: Observation) -> Reason | None:
        """The decision on an observation; None if data are missing."""
        document = self.document(observation)
        try:
            decision = decision_json(read_document(yaml.dump(document, Dumper=_DUMPER)))
        except (DocumentError, KeyError):
            return None
        self._memory = decision["memory"]
        reason = Reason(decision["current"], decision["desiredReplicas"], document, _sentences(decision), decision)
        self._reasons = [*self._reasons[-20:], reason]
        return reason

    def behind(self, before: int, after: int) -> Reason | None:
        """The latest decision for `after` replicas at a current count of `before`."""
        for reason in reversed(self._reasons):
            if (reason.current, reason.desired) == (before, after):
                return reason
        return None

    def document(self, observation: Observation) -> Object:
        """The input document of `decide`, without fields that it does not read."""
        policy = scaling(self.namespace)[0]
        deployment = observation.deployments[OURS]
        status = deployment.get("status", {})
        scale = {
            "spec": {"replicas": observation.count(OURS)},
            "status": {"replicas": status.get("replicas", 0), "selector": f"app={OURS}"},
        }
        names = {pod["metadata"]["name"] for pod in observation.pods[OURS]}
        inputs = {
            "now": observation.now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "policy": policy,
            "hpa": lean(observation.hpas[OURS]),
            "scale": scale,
            "target": {**lean(deployment), "spec": {"replicas": observation.count(OURS)}},
            "pods": [lean_pod(pod) for pod in observation.pods[OURS]],
            "usage": [lean(item) for item in observation.usage if item["metadata"]["name"] in names],
        }
        return inputs | ({"memory": self._memory} if self._memory else {})


def lean(item: Object) -> Object:
    """An object without managed fields and other metadata that a decision ignores."""
    metadata = {key: value for key, value in item["metadata"].items() if key in _METADATA}
    notes = {key: text for key, text in (item["metadata"].get("annotations") or {}).items() if key == PULLED_OUT}
    return {**item, "metadata": metadata | ({"annotations": notes} if notes else {})}


def lean_pod(pod: Object) -> Object:
    """A pod with only the fields that a decision uses."""
    containers = [{"name": one["name"], "resources": one.get("resources", {})} for one in pod["spec"]["containers"]]
    status = {key: pod["status"][key] for key in _STATUS if key in pod["status"]}
    return {**lean(pod), "spec": {"containers": containers}, "status": status}


def _sentences(decision: dict[str, Any]) -> tuple[str, ...]:
    """The answer's sentences about the metric, and the names of pulled-out pods."""
    out = [pod["name"] for pod in decision["pods"] if pod["state"] == "pulledOut"]
    pods = (f"pulled out: {', '.join(out)}",) if out else ()
    return (*pods, *(line for line in decision["explanation"] if line.startswith("cpu")))


_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
