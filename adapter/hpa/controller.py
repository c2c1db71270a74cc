"""One sync of the HPA controller after the other: from scale, metrics and pods to the next count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from adapter.hpa.behavior import DEFAULT_DOWN, DEFAULT_UP, History, rules
from adapter.hpa.calculator import CalculationError, Calculator, Proposal, Tolerances
from adapter.hpa.pods import CpuRules, ModelPod, ModelSample, milli
from adapter.load.quantity import approximate_float
from adapter.policy.hpa import Hpa, HpaMetric

_LARGEST = 2**63 - 1
Values = Sequence[int] | Mapping[str, ModelSample] | str
"""What a metric answers: the series' values (milli-units), samples by pod, or the sentence of an error."""


Proposals = tuple[Proposal | str, ...]
"""What each metric proposes, or the sentence why it proposes nothing."""


class Flags(NamedTuple):
    """The controller's flags (seconds, ratio), and whether its gate for scaling to zero is on."""

    tolerance: float = 0.1
    down_window: int = 300
    cpu: CpuRules = CpuRules()
    scale_to_zero: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """What one sync did. `recommendation` is the largest proposal, None where the metrics gave none or were not asked.

    `replicas` is the count afterwards; `reason` why it changed, `limit` the reason of the condition ScalingLimited.
    """

    replicas: int
    recommendation: int | None = None
    reason: str = ""
    limit: str = ""
    proposals: Proposals = ()


class Controller:
    """The HPA controller for one HPA. `behavior` of the HPA may be absent altogether, which has rules of its own."""

    def __init__(self, hpa: Hpa, flags: Flags | None = None) -> None:
        self._hpa = hpa
        self._flags = flags or Flags()
        self._history = History()
        self._scaled_to_zero = False
        self._up = rules(hpa.scale_up, DEFAULT_UP, 0)
        self._down = rules(hpa.scale_down, DEFAULT_DOWN, self._flags.down_window)
        given, own = self._flags.tolerance, (hpa.scale_up.tolerance, hpa.scale_down.tolerance)
        self.tolerances = Tolerances(*(given if one is None else approximate_float(one) for one in own))
        """Those of the HPA, or of the flags where it sets none."""

    def sync(
        self,
        now: float,
        replicas: int,
        values: Sequence[Values],
        pods: tuple[ModelPod, ...],
        status_replicas: int | None = None,
        begun_at: float | None = None,
        written_at: float | None = None,
    ) -> Sync:
        """One sync at `now` (seconds), when its metrics were answered. `values` are the answers, in the HPA's order.

        `status_replicas` is the scale's status, `replicas` where it is None. `begun_at` is when the sync began, which
        dates the first recommendation, and `written_at` when a new count was written, which rate limits count from;
        `now` where they are None.
        """
        written = now if written_at is None else written_at
        minimum, maximum = self._hpa.bounds.minimum, self._hpa.bounds.maximum
        self._history.begin(replicas, now if begun_at is None else begun_at)
        # At a count of 0 metrics are asked only where the HPA scaled to zero itself, with the gate on.
        if replicas == 0 and not (self._scaled_to_zero and (minimum != 0 or self._speaks_at_zero())):
            return Sync(replicas=0)
        if replicas > maximum:
            reason = "Current number of replicas above Spec.MaxReplicas"
            return self._rescale(Sync(replicas=maximum, reason=reason), replicas, written)
        if 0 < replicas < minimum:
            reason = "Current number of replicas below Spec.MinReplicas"
            return self._rescale(Sync(replicas=minimum, reason=reason), replicas, written)
        proposals = self._proposals(now, replicas, values, pods, status_replicas)
        recommended = self._recommended(replicas, proposals)
        if recommended is None:
            return Sync(replicas=replicas, proposals=proposals)
        return self._rescale(self._normalized(replicas, recommended, proposals, now), replicas, written)

    def _proposals(
        self,
        now: float,
        replicas: int,
        values: Sequence[Values],
        pods: tuple[ModelPod, ...],
        status_replicas: int | None,
    ) -> Proposals:
        calculator = Calculator(pods=pods, now=now, tolerances=self.tolerances, cpu=self._flags.cpu)
        status = replicas if status_replicas is None else status_replicas
        proposals: list[Proposal | str] = []
        for metric, answer in zip(self._hpa.metrics, values, strict=True):
            try:
                proposals.append(_calculated(calculator, metric, answer, replicas, status))
            except CalculationError as error:
                proposals.append(str(error))
        return tuple(proposals)

    def _normalized(self, replicas: int, recommended: tuple[int, str], proposals: Proposals, now: float) -> Sync:
        """The count after stabilization, limits and bounds."""
        (desired, metric), bounds = recommended, self._hpa.bounds
        least, most = bounds.minimum, bounds.maximum
        if self._hpa.has_behavior:
            limited = self._history.limited(replicas, desired, least, most, self._up, self._down, now)
        else:
            limited = self._history.legacy(replicas, desired, least, most, self._flags.down_window, now)
        count, reason = limited.replicas, ""
        if desired > replicas:
            reason = f"{metric} above target"
        elif desired < replicas:
            reason = "All metrics below target"
        if replicas == 0 and count < least:
            count, reason = least, reason or "Current number of replicas below Spec.MinReplicas"
        return Sync(replicas=count, recommendation=desired, reason=reason, limit=limited.limit, proposals=proposals)

    def _speaks_at_zero(self) -> bool:
        return any(metric.kind in {"Object", "External"} for metric in self._hpa.metrics)

    def _recommended(self, replicas: int, proposals: Proposals) -> tuple[int, str] | None:
        """The largest proposal, and its metric.

        None where no metric has one, or one fails and the others would scale down.
        """
        largest, winner = 0, ""
        failed = sum(isinstance(proposal, str) for proposal in proposals)
        for metric, proposal in zip(self._hpa.metrics, proposals, strict=True):
            # A 0 is replaced by whatever comes next, a negative number included, as in the controller.
            if isinstance(proposal, Proposal) and (largest == 0 or proposal.replicas > largest):
                largest, winner = proposal.replicas, f"{metric.kind} metric {metric.name}"
        if failed and (failed == len(proposals) or largest < replicas):
            return None
        return max(0, largest), winner

    def _rescale(self, sync: Sync, before: int, now: float) -> Sync:
        """Carry out what a sync decided: the change is remembered for rate limits, and one to zero for the way back."""
        if sync.replicas == before:
            return replace(sync, reason="")
        if self._hpa.has_behavior:
            self._history.changed(before, sync.replicas, self._up, self._down, now)
        to_zero = before > 0 and sync.replicas == 0 and self._hpa.bounds.minimum == 0 and self._speaks_at_zero()
        self._scaled_to_zero = self._flags.scale_to_zero and to_zero
        return sync


def _calculated(calculator: Calculator, metric: HpaMetric, answer: Values, replicas: int, status: int) -> Proposal:
    if isinstance(answer, str):
        raise CalculationError(answer)
    if metric.aim is None:
        raise CalculationError("the metric has no target")
    by_percent = metric.target == "Utilization"
    target = metric.aim if by_percent else milli(metric.aim)
    if isinstance(answer, Mapping):
        if not answer:
            raise CalculationError("no metrics returned")
        if by_percent:
            return calculator.utilization(replicas, target, answer, metric.name, metric.container)
        resource = "" if metric.kind == "Pods" else metric.name
        return calculator.average(replicas, target, answer, resource)
    if not answer:
        raise CalculationError("no metrics returned from external metrics API")
    if metric.kind != "External" and len(answer) != 1:
        raise CalculationError(f"returned {len(answer)} results when we asked for exactly one")
    if metric.target == "AverageValue":
        # The controller takes a negative sum for an overflow, and so for the largest number.
        overflows = metric.kind == "External" and sum(answer) < 0
        return calculator.share(status, target, [_LARGEST] if overflows else answer)
    return calculator.value(replicas, target, answer)
