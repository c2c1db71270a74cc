"""A decoded document: times in seconds, quantities as fractions, pods as flat records.

It shares no code with the adapter, so that a fault in one is not a fault in the other.
"""

from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
}  # fmt: skip


def quantity(text: object) -> Fraction:
    """A number with its suffix, or a percentage."""
    written = str(text)
    if written.endswith("%"):
        return Fraction(written[:-1]) / 100
    digits = written.rstrip("numkKMGTi")
    return Fraction(digits) * SUFFIXES[written[len(digits) :]]


def moment(text: str) -> float:
    """Seconds of an RFC 3339 time."""
    return datetime.fromisoformat(text).timestamp()


def maybe_moment(text: str | None) -> float | None:
    return moment(text) if text else None


def seconds(text: object) -> Fraction:
    """A duration as metrics.k8s.io writes it: 15s, 1m0s, 1.5s; absent is 0."""
    total, digits = Fraction(0), ""
    for sign in str(text or "0s"):
        if sign in "0123456789.":
            digits += sign
        else:
            total += Fraction(digits) * {"h": 3600, "m": 60, "s": 1}[sign]
            digits = ""
    return total


@dataclass
class Pod:
    """One pod of the target."""

    name: str
    uid: str
    created: float
    started: float | None
    restarted: float | None
    """The last start of a container that had run before."""
    deleting: bool
    phase: str
    ready: bool | None
    """None: it has no Ready condition."""
    ready_changed: float | None
    containers_ready: bool
    gate_is_false: bool
    crash_looping: bool
    annotated_out: bool
    endpoint_out: bool
    endpoint_silent: bool
    deletion_cost: int
    ip: str
    replica_set: str
    running: list[str]
    limits: dict[str, dict[str, Fraction]]
    requests: dict[str, dict[str, Fraction]]
    pod_limits: dict[str, Fraction]
    pod_requests: dict[str, Fraction]


def read_pod(given: dict[str, Any], serving_endpoints: dict[str, bool], *, silent: bool) -> Pod:
    meta, spec, status = given["metadata"], given.get("spec", {}), given.get("status", {})
    annotations = meta.get("annotations", {})
    conditions = {one["type"]: one for one in status.get("conditions", [])}
    ready = conditions.get("Ready")
    gates = [gate["conditionType"] for gate in spec.get("readinessGates", [])]
    statuses = status.get("containerStatuses", [])
    owners = [one["name"] for one in meta.get("ownerReferences", []) if one["kind"] == "ReplicaSet"]
    return Pod(
        name=meta["name"],
        uid=meta.get("uid", meta["name"]),
        created=moment(meta["creationTimestamp"]),
        started=maybe_moment(status.get("startTime")),
        restarted=max(
            (moment(one["state"]["running"]["startedAt"]) for one in statuses if one.get("restartCount")), default=None
        ),
        deleting="deletionTimestamp" in meta,
        phase=status.get("phase", "Running"),
        ready=None if ready is None else ready["status"] == "True",
        ready_changed=None if ready is None else maybe_moment(ready.get("lastTransitionTime")),
        containers_ready=conditions.get("ContainersReady", {}).get("status") == "True",
        gate_is_false=any(conditions.get(gate, {}).get("status") != "True" for gate in gates),
        crash_looping=any(
            one.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff" for one in statuses
        ),
        annotated_out=annotations.get("effective-load.io/pulled-out") == "true",
        endpoint_out=serving_endpoints.get(meta["name"], True) is False,
        endpoint_silent=silent,
        deletion_cost=int(annotations.get("controller.kubernetes.io/pod-deletion-cost", "0")),
        ip=status.get("podIP") or next((one["ip"] for one in status.get("podIPs", [])), ""),
        replica_set=owners[0] if owners else "",
        running=[one["name"] for one in statuses if "running" in one.get("state", {})],
        limits={one["name"]: amounts(one.get("resources", {}).get("limits")) for one in spec["containers"]},
        requests={one["name"]: amounts(one.get("resources", {}).get("requests")) for one in spec["containers"]},
        pod_limits=amounts(spec.get("resources", {}).get("limits")),
        pod_requests=amounts(spec.get("resources", {}).get("requests")),
    )


def amounts(given: dict[str, Any] | None) -> dict[str, Fraction]:
    return {name: quantity(value) for name, value in (given or {}).items()}


def endpoints(slices: list[dict[str, Any]]) -> dict[str, bool]:
    """By pod name: whether some endpoint of it serves."""
    serving: dict[str, bool] = {}
    for one in slices:
        for endpoint in one.get("endpoints", []):
            name = endpoint["targetRef"]["name"]
            conditions = endpoint.get("conditions", {})
            serves = conditions.get("serving", conditions.get("ready", True))
            serving[name] = serving.get(name, False) or bool(serves)
    return serving


@dataclass
class Metric:
    """One metric of the policy, with the source's whole answer in `by_pod` or `total`."""

    name: str
    high: Fraction | None
    low: Fraction | None
    target: Fraction | None
    resource: str
    """`cpu` or `memory` of metrics.k8s.io; empty for a query."""
    containers: list[str]
    of: str
    of_resource: str
    floor: bool = False
    delay_up: int = 0
    delay_down: int = 0
    answered: float | None = None
    """When the source answered; None where it never did."""
    max_age: float = 90
    by_pod: dict[str, "Answer"] = field(default_factory=dict)
    total: "Answer | None" = None
    reads: list[str] = field(default_factory=list)
    """The pods with a sample among those that the total reads."""

    @property
    def is_total(self) -> bool:
        return self.total is not None


@dataclass
class Answer:
    """A sample as the source gave it: one value for a query, one by container for metrics.k8s.io."""

    at: float
    window: Fraction
    value: Fraction | None = None
    containers: dict[str, dict[str, Fraction]] = field(default_factory=dict)
    c: int | None = None
    """How many samples its window holds; None: that does not matter."""
    u: int | None = None
    """How many a window without a gap holds; None: not known yet."""


def read_metric(given: dict[str, Any], document: dict[str, Any], now: float) -> Metric:
    of_query = given.get("query", {})
    of_resource = given.get("resource", {})
    source = of_resource or of_query
    metric = Metric(
        name=given["name"],
        high=quantity(given["highWatermark"]) if "highWatermark" in given else None,
        low=quantity(given["lowWatermark"]) if "lowWatermark" in given else None,
        target=quantity(given["target"]) if "target" in given else None,
        resource=of_resource.get("name", ""),
        containers=source.get("containers", []),
        of=source.get("of", ""),
        of_resource=of_resource.get("name") or of_query.get("resource", ""),
        floor=given.get("floor", False),
    )
    if not metric.floor:
        delay = document["policy"]["spec"].get("delay", {}) | given.get("delay", {})
        metric.delay_up, metric.delay_down = delay.get("scaleUpSeconds", 0), delay.get("scaleDownSeconds", 0)
    source_said: dict[str, Any] = {}
    if of_resource:
        source_said = document.get("usageSource", {})
        for one in document.get("usage", []):
            metric.by_pod[one["metadata"]["name"]] = Answer(
                at=moment(one["timestamp"]),
                window=seconds(one.get("window")),
                containers={each["name"]: amounts(each["usage"]) for each in one["containers"]},
            )
        if metric.by_pod:
            metric.answered = min(now, max(answer.at for answer in metric.by_pod.values()))
    elif given["name"] in document.get("samples", {}):
        source_said = samples = document["samples"][given["name"]]
        if "at" in samples:
            metric.answered = min(now, moment(samples["at"]))
        for name, value in samples.get("pods", {}).items():
            metric.by_pod[name] = read_answer(value, samples)
        if "total" in samples:
            metric.total = read_answer(samples["total"], samples)
            metric.reads = samples.get("readsPods", [])
    if "answeredAt" in source_said:
        metric.answered = min(now, moment(source_said["answeredAt"]))
    metric.max_age = source_said.get("maxAgeSeconds", 90)
    return metric


def read_answer(given: Any, samples: dict[str, Any]) -> Answer:
    """A value of a query: it has the time of all, or, where a server wrote the document, one of its own."""
    window = Fraction(samples.get("windowSeconds", 0))
    if isinstance(given, dict):
        at = given["at"] if "at" in given else samples["at"]
        c, u = given.get("windowSamples"), given.get("fullWindow")
        return Answer(moment(at), window, quantity(given["value"]), c=c, u=u)
    return Answer(moment(samples["at"]), window, quantity(given))


@dataclass
class Facts:
    """A whole document. A server assessed at `now`, when `watched` was the count it knew, and decided later."""

    now: float
    decided: float
    watched: int
    observing_since: float | None
    spec: dict[str, Any]
    metrics: list[Metric]
    pods: list[Pod]
    current: int
    status_replicas: int
    hpa_min: int
    hpa_max: int
    last_scale: float | None
    swallows_up: Fraction
    swallows_down: Fraction
    kind: str
    rollout_reason: str | None
    """The reason of condition Progressing, None where there is no such condition."""
    rollout_updated: float | None
    roster: dict[str, Any] | None
    remembered_for: float
    """For how long those who left or came back matter: 900 s, or the longest window and 300 s (or a sample's age)
    more."""


def read(document: dict[str, Any]) -> Facts:
    spec, hpa, assessed = document["policy"]["spec"], document["hpa"], document.get("assessed", {})
    now = moment(assessed.get("at", document["now"]))
    serving = endpoints(document.get("endpointSlices", []))
    behavior = hpa["spec"].get("behavior", {})
    scale = document["scale"]
    asked = document.get("samples", {}).values()
    conditions = document.get("target", {}).get("status", {}).get("conditions", [])
    progressing = [one for one in conditions if one["type"] == "Progressing"]
    asks_for_replicas = any(
        one.get("object", {}).get("metric", {}).get("name") == "desired_replicas"
        for one in hpa["spec"].get("metrics", [])
    )
    return Facts(
        now=now,
        decided=moment(document["now"]),
        watched=assessed.get("scale", scale)["spec"]["replicas"],
        observing_since=maybe_moment(assessed.get("observingSince")),
        spec=spec,
        metrics=[read_metric(one, document, now) for one in spec["metrics"]],
        pods=[read_pod(one, serving, silent=assessed.get("endpointSlicesSilent", False)) for one in document["pods"]],
        current=scale["spec"]["replicas"],
        status_replicas=scale["status"]["replicas"],
        hpa_min=hpa["spec"].get("minReplicas", 1),
        hpa_max=hpa["spec"]["maxReplicas"],
        last_scale=maybe_moment(hpa.get("status", {}).get("lastScaleTime")),
        swallows_up=quantity(behavior.get("scaleUp", {}).get("tolerance", 0)) if asks_for_replicas else Fraction(0),
        swallows_down=quantity(behavior.get("scaleDown", {}).get("tolerance", 0)) if asks_for_replicas else Fraction(0),
        kind=hpa["spec"]["scaleTargetRef"]["kind"],
        rollout_reason=progressing[0]["reason"] if progressing else None,
        rollout_updated=maybe_moment(progressing[0].get("lastUpdateTime")) if progressing else None,
        roster=document.get("roster"),
        remembered_for=max(
            900.0, *(one.get("windowSeconds", 0) + max(300.0, one.get("maxAgeSeconds", 90)) for one in asked), 0
        ),
    )
