"""The reasons of the adapter's counts, in its own sentences: `effective-load decide` on the observed objects.

The adapter gives the HPA only a number; the sentences come from the same pipeline on a document. Each document can be
kept, changed, and decided again by hand.
"""

import datetime as dt
from dataclasses import dataclass, field

import yaml

from adapter.commands.decide.reader import DocumentError, decision_json, read_document
from lab.demo.objects import OURS, PULLED_OUT, Object, scaling
from lab.demo.observe import Observation

_STATUS = ("phase", "startTime", "conditions", "containerStatuses")
_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "labels", "ownerReferences")
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True)
class Reason:
    """One decision: its input document, the answer of `decide`, and the sentences about its metric."""

    document: Object
    answer: Object

    @property
    def sentences(self) -> tuple[str, ...]:
        """The names of pulled-out pods, and the answer's sentences about the metric."""
        out = [pod["name"] for pod in self.answer["pods"] if pod["state"] == "pulledOut"]
        pods = (f"pulled out: {', '.join(out)}",) if out else ()
        return (*pods, *(line for line in self.answer["explanation"] if line.startswith("cpu")))


@dataclass
class Reasoner:
    """Decides on each observation, as the adapter does, and passes the memory on to the next decision."""

    namespace: str
    _memory: Object | None = None
    _reasons: list[Reason] = field(default_factory=list)

    def consider(self, observation: Observation) -> Reason | None:
        """The decision on an observation; None if data are missing."""
        document = self._document(observation)
        try:
            answer = decision_json(read_document(yaml.dump(document, Dumper=_DUMPER)))
        except (DocumentError, KeyError):
            return None
        self._memory = answer["memory"]
        reason = Reason(document, answer)
        self._reasons = [*self._reasons[-20:], reason]
        return reason

    def behind(self, before: int, after: int) -> Reason | None:
        """The latest decision for `after` replicas at a current count of `before`."""
        reasons = (
            reason
            for reason in reversed(self._reasons)
            if (reason.answer["current"], reason.answer["desiredReplicas"]) == (before, after)
        )
        return next(reasons, None)

    def _document(self, observation: Observation) -> Object:
        """The input document of `decide`, without fields that it does not read."""
        deployment, count = observation.deployments[OURS], {"replicas": observation.count(OURS)}
        status = {"replicas": deployment.get("status", {}).get("replicas", 0), "selector": f"app={OURS}"}
        pods = observation.pods[OURS]
        names = {pod["metadata"]["name"] for pod in pods}
        inputs = {
            "now": observation.now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "policy": scaling(self.namespace)[0],
            "hpa": _lean(observation.hpas[OURS]),
            "scale": {"spec": count, "status": status},
            "target": {**_lean(deployment), "spec": count},
            "pods": [_lean_pod(pod) for pod in pods],
            "usage": [_lean(item) for item in observation.usage if item["metadata"]["name"] in names],
        }
        return inputs | ({"memory": self._memory} if self._memory else {})


def _lean(item: Object) -> Object:
    """An object without managed fields and other metadata that a decision ignores."""
    metadata = {key: value for key, value in item["metadata"].items() if key in _METADATA}
    notes = {key: text for key, text in (item["metadata"].get("annotations") or {}).items() if key == PULLED_OUT}
    return {**item, "metadata": metadata | ({"annotations": notes} if notes else {})}


def _lean_pod(pod: Object) -> Object:
    containers = [{"name": one["name"], "resources": one.get("resources", {})} for one in pod["spec"]["containers"]]
    status = {key: pod["status"][key] for key in _STATUS if key in pod["status"]}
    return {**_lean(pod), "spec": {"containers": containers}, "status": status}
