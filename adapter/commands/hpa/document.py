"""The `hpa` file: an HPA, the controller's flags and the syncs to play, and what the stock HPA does at each of them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from adapter.hpa.controller import Controller, Flags, Sync, Values
from adapter.hpa.go_numbers import MAX_INT32, milli
from adapter.hpa.pods import CpuRules, ModelPod, ModelSample
from adapter.load.quantity import NANO, QuantityError, milli_text, parse_number
from adapter.policy.hpa import Hpa, HpaMetric, MetricSourceType, MetricTargetType, parse_hpa
from adapter.runtime import document_text
from adapter.runtime.faults import Fault, FaultyDocument, first_faults, path_of
from adapter.runtime.times import parse_time

T = TypeVar("T", bound=BaseModel)

_TITLE = "the HPA cannot be played"
_DEFAULT_METRIC = HpaMetric(kind=MetricSourceType.RESOURCE, name="cpu", target=MetricTargetType.UTILIZATION, aim=80)
"""What the API server sets where an HPA names no metric."""

_WHOLE = {MetricSourceType.OBJECT, MetricSourceType.EXTERNAL}
"""Metrics with one value for the service; others are by pod."""
_MOST_STEPS = 100_000
_POD_LEVEL = re.compile(r"cpu|memory|hugepages-.+")
"""Resources that may be requested for a pod as a whole."""
MOST_PODS = 5_000


def nano(value: object) -> int:
    """A quantity as people write it, in nano-units. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a quantity, such as 500m")  # noqa: TRY004  pydantic reports a ValueError
    try:
        return parse_number(str(value))
    except QuantityError as error:
        raise ValueError(str(error)) from error


def signed_nano(value: object) -> int:
    """As `nano`, of a metric's value, which may be negative. Raises ValueError."""
    text = str(value)
    return -nano(text[1:]) if text.startswith("-") and not isinstance(value, bool) else nano(value)


def _seconds(value: object) -> float:
    if (seconds := parse_time(value)) is not None:
        return seconds
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise ValueError("must be seconds or a time such as 2026-01-01T12:00:00Z")
    return float(value)


_Nano = Annotated[int, BeforeValidator(nano)]
_Time = Annotated[float, BeforeValidator(_seconds)]
_Count = Annotated[int, Field(ge=0, le=MAX_INT32, strict=True)]
_FewPods = Annotated[int, Field(ge=0, le=MOST_PODS, strict=True)]
_Duration = Annotated[int, Field(ge=0, le=7 * 86_400, strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FlagsForm(_Part):
    """Flags of the kube-controller-manager; every one has its default."""

    tolerance: _Nano = 100_000_000
    cpu_initialization: _Duration = Field(default=300, alias="cpuInitializationSeconds")
    initial_readiness: _Duration = Field(default=30, alias="initialReadinessDelaySeconds")
    downscale_stabilization: _Duration = Field(default=300, alias="downscaleStabilizationSeconds")
    scale_to_zero: bool = Field(default=False, alias="scaleToZero")

    def flags(self) -> Flags:
        """As the controller takes them."""
        return Flags(
            tolerance=self.tolerance / NANO,  # a flag is parsed as a float
            down_window=self.downscale_stabilization,
            cpu=CpuRules(float(self.cpu_initialization), float(self.initial_readiness)),
            scale_to_zero=self.scale_to_zero,
        )


class PodCounts(_Part):
    """Pods by number: they are named `ready-0` and so on, and have been what they are for ever."""

    ready: _FewPods = 0
    not_ready: _FewPods = Field(default=0, alias="notReady")
    pending: _FewPods = 0
    failed: _FewPods = 0
    terminating: _FewPods = 0
    requests: dict[str, _Nano] = {}


class SampleForm(_Part):
    """A pod's sample with its time and window."""

    value: Annotated[int, BeforeValidator(signed_nano)]
    at: _Time | None = None
    window: float = Field(default=0.0, alias="windowSeconds", ge=0, le=86_400)


class StepForm(_Part):
    """One sync."""

    at: _Time
    metrics: dict[str, Any] = {}
    pods: list[dict[str, Any]] | PodCounts | None = None
    replicas: _Count | None = None
    status_replicas: _Count | None = Field(default=None, alias="statusReplicas")


class File(_Part):
    """The whole document."""

    hpa: dict[str, Any]
    controller: FlagsForm = FlagsForm()
    replicas: _Count
    steps: list[StepForm] = Field(min_length=1, max_length=_MOST_STEPS)


class _Loose(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Resources(_Loose):
    requests: dict[str, _Nano] = {}


class _Container(_Loose):
    name: str
    restart_policy: str | None = Field(default=None, alias="restartPolicy")
    resources: _Resources = _Resources()


class _Metadata(_Loose):
    name: str
    deletion_timestamp: str | None = Field(default=None, alias="deletionTimestamp")


class _Spec(_Loose):
    containers: list[_Container] = []
    init_containers: list[_Container] = Field(default=[], alias="initContainers")
    resources: _Resources = _Resources()
    overhead: dict[str, _Nano] = {}

    def pod_requests(self) -> dict[str, int]:
        """What the controller counts for a pod with pod-level requests (milli-units); empty for one without.

        `PodRequests` of `k8s.io/component-helpers/resource`: resources that the pod level lacks are those of the
        containers, at least what the init containers need, and 0 where nobody requests any; then the overhead.
        """
        whole = {name: amount for name, amount in self.resources.requests.items() if _POD_LEVEL.fullmatch(name)}
        if not whole:
            return {}

        def of_containers(resource: str) -> int:
            running = sum(one.resources.requests.get(resource, 0) for one in self.containers)
            sidecars = most = 0
            for container in self.init_containers:
                amount = container.resources.requests.get(resource, 0)
                most = max(most, sidecars + amount)
                sidecars += amount if container.restart_policy == "Always" else 0
            return max(running + sidecars, most)

        parts = (*self.containers, *self.init_containers)
        names = {"cpu", "memory", *whole, *self.overhead, *(name for part in parts for name in part.resources.requests)}
        return {name: milli(whole.get(name, of_containers(name)) + self.overhead.get(name, 0)) for name in names}


class _Condition(_Loose):
    type: str
    status: str
    since: _Time | None = Field(default=None, alias="lastTransitionTime")


class _Status(_Loose):
    phase: str = "Running"
    started: _Time | None = Field(default=None, alias="startTime")
    conditions: list[_Condition] = []


class PodForm(_Loose):
    """A Pod object, as far as the replica calculator looks at it."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def model(self) -> ModelPod:
        """As the replica calculator takes it."""
        ready = next((condition for condition in self.status.conditions if condition.type == "Ready"), None)
        sidecars = [container for container in self.spec.init_containers if container.restart_policy == "Always"]
        return ModelPod(
            name=self.metadata.name,
            phase=self.status.phase,
            deleting=self.metadata.deletion_timestamp is not None,
            ready="" if ready is None else ready.status,
            ready_since=0.0 if ready is None or ready.since is None else ready.since,
            started=self.status.started,
            requests=self.spec.pod_requests(),
            containers={
                container.name: {name: milli(nano) for name, nano in container.resources.requests.items()}
                for container in (*self.spec.containers, *sidecars)
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaStep:
    """One sync: its time (seconds), the metrics' answers in the HPA's order, the pods, and a count set by hand.

    `pods` is None where the document names none: then as many pods run as the count says.
    """

    at: float
    values: tuple[Values, ...]
    pods: tuple[ModelPod, ...] | None = None
    replicas: int | None = None
    status_replicas: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaDocument:
    """An HPA and what it is to live through."""

    hpa: Hpa
    flags: Flags
    replicas: int
    steps: tuple[HpaStep, ...]


class Played(NamedTuple):
    """One sync with the count before it."""

    at: float
    before: int
    sync: Sync


def read(text: str) -> HpaDocument:
    """Read one YAML or JSON document. Raises FaultyDocument with every fault in it."""
    try:
        data = document_text.read_document(text)
    except document_text.TextError as error:
        raise FaultyDocument(first_faults(error.faults), _TITLE) from error
    faults: list[Fault] = []
    file = _validated(File, data, (), faults)
    if file is None:
        raise FaultyDocument(first_faults(faults), _TITLE)
    try:
        hpa = parse_hpa(file.hpa)
    except FaultyDocument as error:
        within = [fault.within("hpa") for fault in error.faults]
        raise FaultyDocument(first_faults(within), _TITLE) from error
    hpa = hpa if hpa.metrics else replace(hpa, metrics=(_DEFAULT_METRIC,))
    faults += _pace_faults(hpa)
    steps = tuple(_steps(file, hpa, faults))
    if faults:
        raise FaultyDocument(first_faults(faults), _TITLE)
    return HpaDocument(hpa=hpa, flags=file.controller.flags(), replicas=file.replicas, steps=steps)


def play(document: HpaDocument) -> Iterator[Played]:
    """Play the document: each step is a sync that finds the count the one before it left, or the one set by hand."""
    controller, replicas = Controller(document.hpa, document.flags), document.replicas
    for step in document.steps:
        before = replicas if step.replicas is None else step.replicas
        pods = step.pods
        if pods is None:
            pods = tuple(ModelPod(name=f"ready-{number}") for number in range(min(before, MOST_PODS)))
        running = [pod for pod in pods if pod.phase == "Running"]
        values = tuple(  # a single value of a metric that is by pod is that of every running pod
            {pod.name: ModelSample(answer[0], pod.ready_since) for pod in running}
            if metric.kind not in _WHOLE and not isinstance(answer, str | Mapping)
            else answer
            for metric, answer in zip(document.hpa.metrics, step.values, strict=True)
        )
        sync = controller.sync(step.at, before, values, pods, step.status_replicas)
        replicas = sync.replicas
        yield Played(step.at, before, sync)


def as_data(document: HpaDocument, played: Played) -> dict[str, Any]:
    """One sync as JSON-able data."""
    sync, metrics = played.sync, list[dict[str, Any]]()
    for metric, proposal in zip(document.hpa.metrics, sync.proposals, strict=False):
        metrics.append({"type": metric.kind.value, "name": metric.name})
        if isinstance(proposal, str):
            metrics[-1]["error"] = proposal
        else:
            usage = milli_text(proposal.usage)
            metrics[-1] |= {"proposal": proposal.replicas, "usage": usage, "utilization": proposal.utilization}
    return {
        "at": played.at,
        "before": played.before,
        "replicas": sync.replicas,
        "recommendation": sync.recommendation,
        "stabilized": sync.stabilized,
        "reason": sync.reason or None,
        "metrics": metrics,
        "conditions": {
            kind: {"status": str(condition.status), "reason": condition.reason, "message": condition.message}
            for kind, condition in sorted(sync.conditions.items())
        },
    }


def lines(document: HpaDocument) -> Iterator[str]:
    """The syncs as a table: time, count, recommendation, and the conditions that say what limited it."""
    yield f"{'AT':>10} {'COUNT':>12} {'WANTED':>7}  CONDITIONS"
    start = document.steps[0].at
    for played in play(document):
        sync = played.sync
        count = f"{played.before} → {sync.replicas}" if sync.replicas != played.before else str(sync.replicas)
        wanted = "-" if sync.recommendation is None else str(sync.recommendation)
        reasons = ", ".join(f"{kind}={one.status} {one.reason}" for kind, one in sorted(sync.conditions.items()))
        failed = next((proposal for proposal in sync.proposals if isinstance(proposal, str)), "")
        yield f"{played.at - start:>9g}s {count:>12} {wanted:>7}  {reasons}{'; ' if failed else ''}{failed}"


def _validated(kind: type[T], data: object, at: tuple[str | int, ...], faults: list[Fault]) -> T | None:
    """The part of the document, or None with its faults noted."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            place = [step for step in fault["loc"] if step not in _UNION_STEPS]
            advice = fault["msg"].removeprefix("Value error, ")
            faults.append(Fault(path_of((*at, *place)), None if fault["type"] == "missing" else fault["input"], advice))
        return None


_UNION_STEPS = {"list[dict[str,any]]", "PodCounts"}
"""What pydantic adds to the path of a value that may be one of several things."""


def _pace_faults(hpa: Hpa) -> Iterator[Fault]:
    """What the API server refuses in `behavior`, and a policy has no use for."""
    for name, pace in (("scaleUp", hpa.scale_up), ("scaleDown", hpa.scale_down)):
        at = f"hpa.spec.behavior.{name}"
        if pace.select not in {"", "Max", "Min", "Disabled"}:
            yield Fault(f"{at}.selectPolicy", pace.select, "must be Max, Min or Disabled")
        for index, policy in enumerate(pace.policies):
            if policy.kind not in {"Pods", "Percent"}:
                yield Fault(f"{at}.policies[{index}].type", policy.kind, "must be Pods or Percent")
            if policy.value < 1:
                yield Fault(f"{at}.policies[{index}].value", policy.value, "must be at least 1")
            if policy.period < 1:
                yield Fault(f"{at}.policies[{index}].periodSeconds", policy.period, "must be from 1 to 1800")


def _steps(file: File, hpa: Hpa, faults: list[Fault]) -> Iterator[HpaStep]:
    before, names = float("-inf"), Counter(metric.name for metric in hpa.metrics)
    for index, step in enumerate(file.steps):
        at: tuple[str | int, ...] = ("steps", index)
        if step.at <= before:
            faults.append(Fault(path_of((*at, "at")), step.at, "must be later than the step before"))
        before = step.at
        pods = _pods(step, (*at, "pods"), faults)
        keys = []
        for metric in hpa.metrics:
            of_container = f"{metric.name}/{metric.container}"
            shares_name = metric.container and names[metric.name] > 1
            keys.append(of_container if shares_name or of_container in step.metrics else metric.name)
        for unknown in step.metrics.keys() - set(keys):
            advice = f"is no metric of the HPA; it has {', '.join(sorted(names))}"
            faults.append(Fault(path_of((*at, "metrics", unknown)), None, advice))
        values = tuple(
            _values(metric, step.metrics.get(key), step.at, (*at, "metrics", key), faults)
            for metric, key in zip(hpa.metrics, keys, strict=True)
        )
        yield HpaStep(
            at=step.at, values=values, pods=pods, replicas=step.replicas, status_replicas=step.status_replicas
        )


def _values(metric: HpaMetric, given: object, now: float, at: tuple[str | int, ...], faults: list[Fault]) -> Values:
    if given is None:
        return f"the step has no value of {metric.name}"
    if isinstance(given, Mapping):
        if metric.kind in _WHOLE:
            faults.append(Fault(path_of(at), given, "must be one value; only Pods and resource metrics are by pod"))
            return ""
        samples: dict[str, ModelSample] = {}
        for pod, value in given.items():
            place = (*at, str(pod))
            if isinstance(value, Mapping):
                if (form := _validated(SampleForm, value, place, faults)) is not None:
                    samples[str(pod)] = ModelSample(milli(form.value), now if form.at is None else form.at, form.window)
            elif value is not None:
                samples[str(pod)] = ModelSample(milli(_quantity(value, place, faults)), now)
        return samples
    if isinstance(given, list) and metric.kind is MetricSourceType.EXTERNAL:
        found = [_quantity(value, (*at, index), faults) for index, value in enumerate(given)]
        return [milli(value) for value in found]
    return [milli(_quantity(given, at, faults))]


def _quantity(given: object, at: tuple[str | int, ...], faults: list[Fault]) -> int:
    try:
        return signed_nano(given)
    except ValueError as error:
        faults.append(Fault(path_of(at), given, str(error)))
        return 0


def _pods(step: StepForm, at: tuple[str | int, ...], faults: list[Fault]) -> tuple[ModelPod, ...] | None:
    if step.pods is None:
        return None
    if isinstance(step.pods, PodCounts):
        counts = step.pods
        requests = {name: milli(nano) for name, nano in counts.requests.items()}
        kinds: tuple[tuple[str, int, dict[str, Any]], ...] = (
            ("ready", counts.ready, {}),
            ("notReady", counts.not_ready, {"ready": "False"}),
            ("pending", counts.pending, {"ready": "", "phase": "Pending"}),
            ("failed", counts.failed, {"ready": "False", "phase": "Failed"}),
            ("terminating", counts.terminating, {"deleting": True}),
        )
        return tuple(
            ModelPod(name=f"{kind}-{number}", requests=requests, **state)
            for kind, count, state in kinds
            for number in range(count)
        )
    if len(step.pods) > MOST_PODS:
        faults.append(Fault(path_of(at), None, f"has {len(step.pods)} pods; {MOST_PODS} are the most"))
        return ()
    pods = (_validated(PodForm, pod, (*at, index), faults) for index, pod in enumerate(step.pods))
    return tuple(pod.model() for pod in pods if pod is not None)
