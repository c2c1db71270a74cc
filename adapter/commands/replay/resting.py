"""Where a decision surely stays what it is: the range of loads in which a policy keeps the count."""

from fractions import Fraction
from typing import NamedTuple

from adapter.load.metric import band_of
from adapter.load.quantity import NANO
from adapter.load.spec import Average, Metric, Policy, Strategy
from adapter.load.totals import SATURATED

UNBOUNDED = 1 << 100
"""A load beyond any quantity (nano-units)."""

_KNOWN = {Strategy.WATERMARK, Strategy.RATIO, Strategy.STEP}
"""Strategies that keep the count inside the band, and ask for no more pods at a smaller load."""


class RestingRange(NamedTuple):
    """Loads of a service in nano-units. From `least` to `most` the metric keeps the count.

    From `floor` to below `least` it asks for less, the less the smaller the load is. Below `floor` nothing is sure,
    since zeros are doubted.
    """

    floor: int
    least: int
    most: int


def resting_range(
    policy: Policy,
    metric: Metric,
    replicas: int,
    pods: int,
    capacity: int | None,
    *,
    total: bool,
    limit: int | None = None,
    may_fall: bool,
    may_rise: bool,
) -> RestingRange | None:
    """The loads at which a metric surely keeps the count; None where nothing is sure.

    Of the `replicas`, these `pods` serve and carry equal shares, and none is doubtful; `capacity` is what a pod's usage
    is divided by (nano-units; None: the metric is no utilization), `limit` the limit that caps it. `total`: the metric
    is one number for the service. The range is a little smaller than it might be: the pods' shares are rounded. Where
    the count is at its minimum (not `may_fall`) or at its maximum (not `may_rise`), the range has no such end.
    """
    if not pods or policy.strategy not in _KNOWN or policy.converge_towards is not None:
        return None
    if metric.floor:
        return _range_of_floor(metric, replicas, may_rise=may_rise)
    if metric.delay.up or metric.delay.down:  # even at its bounds: how long usage has been beyond is remembered
        may_fall = may_rise = True
    if policy.average is Average.TOTAL and not total:
        return None
    band = band_of(policy, metric, total=total)
    share = 1 if policy.average is Average.TOTAL else pods
    unit = 1 if metric.of is None else capacity
    if not unit:
        return None
    carried = Fraction(share * unit, 1 if metric.of is None else NANO)
    floor = least = pods + 1
    most = UNBOUNDED
    if band.low_minus is not None and may_fall:
        least = max(floor, int(band.low_minus * carried) + 1 + pods)
    if band.high_plus is not None and may_rise:
        most = int(band.high_plus * carried) - 1 - pods
        if band.saturation is not None and limit is not None:
            most = min(most, int(SATURATED * limit * pods) - 1 - pods)
    return RestingRange(floor, least, most) if least <= most else None


def _range_of_floor(metric: Metric, replicas: int, *, may_rise: bool) -> RestingRange | None:
    """A floor never keeps the count from falling by itself; it asks for less, or for as much as it needs."""
    one_pod = metric.high if metric.target is None else metric.target
    if one_pod is None:
        return None
    return RestingRange(0, UNBOUNDED, int(one_pod * replicas) if may_rise else UNBOUNDED)
