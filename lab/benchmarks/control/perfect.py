"""What perfect knowledge needs: the fewest pod-hours for a load that is known beforehand, each start-up paid.

The k-th pod carries what is beyond the k - 1 others, so the pods are independent: each is on for stretches of time,
pays for its start and its end once a stretch, and while it is off its part of the load fails. At a price of failed
load, the cheapest stretches are a choice between two states at each step; the price that gives the shortfall is found
by bisection.
"""

from collections.abc import Sequence
from math import ceil, exp, log
from typing import NamedTuple

_PRICES = 0.02, 500.0
"""Of the load that a pod carries, in pods: between these lies every price of interest."""
_ROUNDS = 9


class Cost(NamedTuple):
    """Seconds of pods, those of starting and stopping included, and failed load in pods' capacities times seconds."""

    pods: float
    lost: float


def pod_hours(loads: Sequence[float], step: float, starts_and_stops: float, minimum: int, shortfall: float) -> float:
    """The fewest pod-hours at which this share of the load fails.

    `loads` in pods' capacities, each for `step` seconds; `starts_and_stops`: what a pod lives without carrying.
    """
    whole = sum(loads) * step
    least, most = (log(price) for price in _PRICES)
    found = _at(loads, step, starts_and_stops, minimum, exp(most))
    for _ in range(_ROUNDS):
        middle = (least + most) / 2
        cost = _at(loads, step, starts_and_stops, minimum, exp(middle))
        if cost.lost <= shortfall * whole:
            most, found = middle, cost
        else:
            least = middle
    return found.pods / 3600


def _at(loads: Sequence[float], step: float, starts_and_stops: float, minimum: int, price: float) -> Cost:
    pods, lost = minimum * step * len(loads), 0.0
    above = list(enumerate(loads))
    for others in range(minimum, ceil(max(loads))):
        above = [(index, load) for index, load in above if load > others]
        one = _pod([(index, min(1.0, load - others)) for index, load in above], step, starts_and_stops, price)
        pods, lost = pods + one.pods, lost + one.lost
    return Cost(pods, lost)


def _pod(parts: Sequence[tuple[int, float]], step: float, starts_and_stops: float, price: float) -> Cost:
    """One pod's cheapest stretches, from the steps at which there is load for it (index, load).

    Each state carries its whole cost, its pod-seconds and its failed load.
    """
    off, on = (0.0, 0.0, 0.0), (starts_and_stops, starts_and_stops, 0.0)
    after = 0
    for index, part in parts:
        idle = (index - after) * step
        if idle:  # a pod that is on stays on, or goes off
            off, on = min(on, off), (on[0] + idle, on[1] + idle, on[2])
        after = index + 1
        begun = (off[0] + starts_and_stops, off[1] + starts_and_stops, off[2])
        next_on = min(on, begun)
        next_off = min(on, off)
        failed = part * step
        on = (next_on[0] + step, next_on[1] + step, next_on[2])
        off = (next_off[0] + price * failed, next_off[1], next_off[2] + failed)
    best = min(on, off)
    return Cost(best[1], best[2])
