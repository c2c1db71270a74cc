"""Flaws of the wiring between a policy and its HPA, one sentence each. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from adapter.load.quantity import NANO, nano_text, percent_text
from adapter.load.spec import Algorithm, Mode, Policy, Strategy
from adapter.policy.behavior import DISABLED
from adapter.policy.conditions import Reason
from adapter.policy.hpa import DESIRED_REPLICAS, Hpa
from adapter.policy.linking import Neighbours

READ_ONLY = ("effective_pods", "pulled_out_pods")
READ_ONLY_PREFIXES = ("effective_", "raw_")
DEFAULT_WINDOW = 300
"""The HPA's default stabilization window for scaling down, in seconds."""


class Flaw(NamedTuple):
    """What is wrong or unwise: the reason for condition HPAConformant, and the sentence."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """A policy and its HPA.

    `has_tolerance`: whether the cluster's HPAs have the field `tolerance`; None where that is unknown. `suppressed`: a
    sentence about the step that the HPA's tolerance suppresses now; empty where it suppresses none.
    """

    policy: Policy
    hpa: Hpa
    neighbours: Neighbours = field(default_factory=Neighbours)
    has_tolerance: bool | None = None
    suppressed: str = ""


def flaws(wiring: Wiring) -> tuple[Flaw, ...]:
    """All flaws, the most harmful first."""
    return (*_refusals(wiring), *_connection(wiring), *_tolerance(wiring), *_instability(wiring))


def _refusals(wiring: Wiring) -> Iterator[Flaw]:
    """Flaws that stop scaling altogether."""
    hpa, target = wiring.hpa, f"{wiring.hpa.target.kind} {wiring.hpa.target.name}"
    if others := wiring.neighbours.policies:
        yield Flaw("PolicyConflict", f"{target} has other policies as well ({others})")
    if others := wiring.neighbours.hpas:
        message = f"{target} is scaled by other HPAs as well ({others}); HPAs that select the same pods do not act"
        yield Flaw("SharedTarget", message)
    if hpa.scaling_active is not None and hpa.scaling_active.reason == "AmbiguousSelector":
        yield Flaw("AmbiguousSelector", f"HPA {hpa.name} does not act: {hpa.scaling_active.message}")
    if hpa.bounds.minimum == 0 and hpa.scale_up.policies and all(p.kind == "Percent" for p in hpa.scale_up.policies):
        message = "minReplicas 0 and only Percent policies in scaleUp: any percentage of 0 is 0; add a Pods policy"
        yield Flaw("StuckAtZero", f"HPA {hpa.name} has {message}")
    if hpa.scale_up.select == DISABLED:
        message = f"HPA {hpa.name} does not scale up at all: its scaleUp.selectPolicy is Disabled; remove it"
        yield Flaw("ScaleUpDisabled", message)


def _connection(wiring: Wiring) -> Iterator[Flaw]:
    """Flaws in how the HPA asks for the replica count."""
    policy, hpa, name = wiring.policy, wiring.hpa, f"HPA {wiring.hpa.name}"
    asked = hpa.asks_for(policy.name)
    if not asked and policy.mode is not Mode.OBSERVE:  # a policy under trial, while another metric scales
        yield Flaw("NotWired", f"{name} does not ask for {DESIRED_REPLICAS} of policy {policy.name}")
    if asked and policy.mode is not Mode.ACTIVE:
        message = (
            f"the policy is in mode {policy.mode.value}, so {name} keeps its count, which its other metrics can only"
        )
        yield Flaw("Resting", f"{message} raise; to scale by the policy, set mode: Active")
    for metric in hpa.desired_metrics:
        if (metric.target, metric.aim) != ("AverageValue", NANO):
            written = metric.target is not None and metric.aim is not None
            given = f"not {metric.target} {nano_text(metric.aim or 0)}" if written else "but gives no target"
            yield Flaw("AverageValue", f'{name} must ask for {DESIRED_REPLICAS} with averageValue "1", {given}')
    for metric in hpa.metrics:
        is_read_only = metric.name in READ_ONLY or metric.name.startswith(READ_ONLY_PREFIXES)
        if is_read_only and (metric.names(policy.name) or metric.describes(hpa.target)):
            message = f"{name} scales on {metric.name}, which is for reading only; use {DESIRED_REPLICAS} instead"
            yield Flaw("ReadOnlyMetric", message)
        if metric.kind in {"Resource", "ContainerResource"} and asked:
            message = f"{name} scales on {metric.name} of all running pods as well: the larger count wins, so that"
            yield Flaw("StockMetric", f"{message} metric can only add pods")


def _tolerance(wiring: Wiring) -> Iterator[Flaw]:
    tolerance = wiring.hpa.bounds.tolerance
    if tolerance is None:
        return
    up, down = map(percent_text, tolerance)
    message = f"HPA {wiring.hpa.name} suppresses steps of up to {up} up and {down} down"
    if wiring.has_tolerance is not False:
        unsure = "" if wiring.has_tolerance else " (if this cluster has that field: Kubernetes 1.35 has)"
        message += f': set tolerance to "0" in behavior.scaleUp and scaleDown{unsure}'
        yield Flaw("Tolerance", message)
    elif wiring.policy.strategy is Strategy.STEP or float(wiring.policy.tolerance) < float(max(tolerance)):
        least = percent_text(max(tolerance)).replace(" ", "")
        message += f", and HPAs have no field tolerance here: write tolerance {least} in the policy, or steps of more"
        yield Flaw("Tolerance", f"{message} pods")
    if wiring.suppressed:
        yield Flaw("Tolerance", wiring.suppressed)


def _instability(wiring: Wiring) -> Iterator[Flaw]:
    """Flaws that make the count flap, or wait for longer than it should."""
    policy, hpa, cooldown = wiring.policy, wiring.hpa, wiring.policy.cooldown
    waits = cooldown.down or any(metric.delay.down for metric in policy.metrics) or policy.velocity.down is not None
    if hpa.scale_down.stabilization == 0 and not waits:
        message = "scaleDown.stabilizationWindowSeconds 0: every dip of the load takes pods away at once"
        yield Flaw("NoStabilization", f"HPA {hpa.name} has {message}")
    ways = ("Up", hpa.scale_up, 0, cooldown.up), ("Down", hpa.scale_down, DEFAULT_WINDOW, cooldown.down)
    for name, rules, default, seconds in ways:
        window = default if rules.stabilization is None else rules.stabilization
        if seconds and window:
            message = f"a scale-{name.lower()} waits for the policy's cooldown ({seconds:g} s) and then for the HPA's"
            end = f"scale{name}.stabilizationWindowSeconds ({window}); keep one of them"
            yield Flaw("WaitsTwice", f"{message} {end}")
    fewest = max(1, hpa.bounds.minimum)
    for metric in policy.metrics:
        if metric.high and metric.low is not None and metric.low / metric.high > Fraction(fewest, fewest + 1):
            yield Flaw(
                "WatermarksTooClose",
                f"metric {metric.name}: with {fewest} or {fewest + 1} pods the same load is above the high watermark "
                f"and then below the low one; lowWatermark must be at most {fewest}/{fewest + 1} of highWatermark, or "
                "minReplicas higher",
            )
    if policy.algorithm is Algorithm.ABSOLUTE:
        message = "algorithm Absolute compares the load of the whole service with watermarks that do not grow with it:"
        yield Flaw("Total", f"{message} the count goes up as long as the load stays above")
