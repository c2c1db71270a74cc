"""The data of a replay: how a service behaves, what an autoscaler sees and says, and what a run leaves behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.hpa.pods import ModelPod
from adapter.load.pods import Pod
from adapter.runtime.faults import Fault, FaultyDocument

TITLE = "this cannot be replayed"
Amounts = Mapping[str, int]
"""Nano-units by resource or by metric."""


def fault(path: str, value: object, advice: str) -> FaultyDocument:
    """The error of one argument, or of one place in a file."""
    return FaultyDocument([Fault(path, value, advice)], TITLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a service and its controllers behave in a replay; durations are in seconds.

    `replicas` is the count at the first tick. A new pod serves `pod_startup` after its creation; a deleted one is gone
    at once. The HPA syncs every `sync`. A sample is `sample_age` old and covers `window` (0: a single moment).
    `capacity` is what one pod can carry, by metric; `requests` and `limits` are those of a pod, by resource; a pod's
    samples never show more than `throttles`, by metric.
    A load is known until the next tick, but for at most `lasts` or two and a half steps of the history.
    """

    replicas: int = 0
    pod_startup: float = 30.0
    sync: float = 15.0
    sample_age: float = 0.0
    window: float = 0.0
    capacity: Amounts = field(default_factory=dict)
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    throttles: Amounts = field(default_factory=dict)
    lasts: float = 90.0


class View(NamedTuple):
    """What an autoscaler sees at a sync; times in seconds, amounts in nano-units.

    `replicas` is the scale's spec, and its status: the ReplicaSet controller acts at once. `models` are the pods for
    the model of the HPA. `samples` are by metric and pod name, `load` is that of the service by metric; both end at
    `sampled_at` and cover the `window` before.
    """

    now: float
    replicas: int
    pods: Sequence[Pod]
    models: tuple[ModelPod, ...]
    samples: Mapping[str, Amounts]
    load: Amounts
    sampled_at: float
    window: float


Ranges = Mapping[str, tuple[float, float]]
"""By metric the smallest and the largest load of a serving pod (nano-units) at which an autoscaler keeps the count."""


class Autoscaler:
    """Anything that sets the count of a service; it may remember what it saw. `name` is how reports call it."""

    name = ""
    deletes_pulled_out_first = False

    def sync(self, view: View) -> int:
        """The count that it sets now, the current one where it changes nothing."""
        raise NotImplementedError

    def watch(self, view: View) -> None:
        """The count was changed: autoscalers that watch the pods learn of it before their next sync."""

    def resting(self, view: View) -> Ranges | None:  # noqa: ARG002  for those that override it
        """The loads at which further syncs keep the count while no pod changes; None where that is not certain."""
        return None


class Change(NamedTuple):
    """A change of the count at a time (seconds since the epoch)."""

    at: float
    before: int
    after: int


class Moment(NamedTuple):
    """How many pods there are from `at` on."""

    at: float
    replicas: int
    serving: int
    out: int
