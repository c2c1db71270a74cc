"""From the wanted count to the metric value that makes the stock HPA set it, whatever its tolerance."""

from adapter.load.assessment import HeldBy, Limited
from adapter.load.quantity import approximate_float, percent_text
from adapter.load.spec import Bounds, HpaTolerance, Scale


def served_value(desired: int, status_replicas: int) -> int:
    """The metric value (milli-units) for a target AverageValue of 1.

    With tolerance 0 the HPA sets exactly ⌈value⌉. Below the pods that exist, the smallest value of that step is served:
    where the tolerance is not 0, it reaches every count that any value can reach.
    """
    if desired >= status_replicas or desired == 0:
        return 1000 * desired
    return 1000 * (desired - 1) + 1


def within_hpa_tolerance(limited: Limited, scale: Scale, bounds: Bounds) -> Limited | str:
    """The count to serve: the wanted one where the HPA would set it, else the current one.

    A sentence where no value keeps the HPA at the current count: it would set the number of existing pods.
    """
    current = scale.replicas
    # Outside its bounds the HPA does not read metrics.
    if bounds.tolerance is None or not bounds.minimum <= current <= bounds.maximum:
        return limited
    if _hpa_sets(limited.desired, scale, bounds, bounds.tolerance) == limited.desired:
        return limited
    if _hpa_sets(current, scale, bounds, bounds.tolerance) == current:
        return Limited(current, HeldBy.HPA_TOLERANCE)
    what = "rollout in progress" if scale.status_replicas > current else "pods are still being made"
    percents = " up and ".join(map(percent_text, bounds.tolerance))
    return (
        f"{what}: {current} replicas are asked for and {scale.status_replicas} pods exist, which the HPA, with its "
        f"tolerance of {percents} down, would make the count"
    )


def _hpa_sets(desired: int, scale: Scale, bounds: Bounds, tolerance: HpaTolerance) -> int:
    """The count that the HPA sets for the served value of a count, without its `behavior`."""
    served, pods = served_value(desired, scale.status_replicas), scale.status_replicas
    count = -(-served // 1000)
    # In floats, as the HPA computes: rounding decides at the edges of the tolerance.
    down, up = approximate_float(tolerance.down), approximate_float(tolerance.up)
    if pods and 1.0 - down <= served / (1000.0 * pods) <= 1.0 + up:
        count = pods
    return max(bounds.minimum, min(bounds.maximum, count))
