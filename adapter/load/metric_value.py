"""From the count wanted to the value that makes the stock HPA set it."""


def served_value(desired: int, status_replicas: int) -> int:
    """The metric value in milli-units for a target AverageValue of 1.

    With tolerance 0 the HPA sets exactly ⌈value⌉. Towards fewer replicas the lower edge of that step is served: where
    the tolerance could not be set to 0, it reaches every count that any value can reach.
    """
    if desired >= status_replicas or desired == 0:
        return 1000 * desired
    return 1000 * (desired - 1) + 1
