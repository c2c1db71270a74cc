"""The `hpa` file as it is written: shapes and units of its parts, checked by pydantic."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from adapter.load.quantity import NANO, QuantityError, parse_number
from adapter.replay.hpa.controller import Flags
from adapter.replay.hpa.machine import MAX_INT32, milli
from adapter.replay.hpa.pods import CpuRules, ModelPod
from adapter.runtime.times import parse_time

_MOST_STEPS = 100_000
MOST_PODS = 5_000


def nano(value: object) -> int:
    """A quantity as people write it, in nano-units. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a quantity, such as 500m")  # noqa: TRY004  pydantic reports a ValueError
    try:
        return parse_number(str(value))
    except QuantityError as error:
        raise ValueError(str(error)) from error


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

    value: _Nano
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
        ready = next((one for one in self.status.conditions if one.type == "Ready"), None)
        sidecars = [one for one in self.spec.init_containers if one.restart_policy == "Always"]
        return ModelPod(
            name=self.metadata.name,
            phase=self.status.phase,
            deleting=self.metadata.deletion_timestamp is not None,
            ready="" if ready is None else ready.status,
            ready_since=0.0 if ready is None or ready.since is None else ready.since,
            started=self.status.started,
            requests={name: milli(nano) for name, nano in self.spec.resources.requests.items()},
            containers={
                one.name: {name: milli(nano) for name, nano in one.resources.requests.items()}
                for one in (*self.spec.containers, *sidecars)
            },
        )
