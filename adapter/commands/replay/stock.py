"""The HPAs of a comparison and the amounts that runs are judged by, derived from a policy and its HPA."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

import msgspec

from adapter.commands.replay.model import Setup
from adapter.load.quantity import NANO
from adapter.load.spec import Algorithm, Bounds, Capacity, HpaTolerance, Metric, Policy
from adapter.policy.behavior import hpa_manifest
from adapter.policy.hpa import (
    DEFAULT_TOLERANCE,
    DIRECTIONS,
    CrossVersionReference,
    Hpa,
    HpaMetric,
    MetricSourceType,
    MetricTargetType,
    parse_hpa,
)

DEFAULT_MAXIMUM = 1000


def hpa_following(policy: Policy, hpa: Hpa | None) -> Hpa:
    """The HPA that follows a policy, with the bounds and the behavior of this one."""
    metadata = {"name": policy.hpa, "namespace": policy.namespace}
    target = CrossVersionReference("apps/v1", "Deployment", policy.hpa)
    exact = {direction: {"tolerance": "0"} for direction in DIRECTIONS}
    following = parse_hpa(
        hpa_manifest(metadata, policy.name, target, Bounds(minimum=1, maximum=DEFAULT_MAXIMUM), exact)
    )
    if hpa is None:
        return following
    up, down = (
        DEFAULT_TOLERANCE if rule.tolerance is None else rule.tolerance for rule in (hpa.scale_up, hpa.scale_down)
    )
    within = HpaTolerance(up, down) if up or down else None
    metrics = hpa.metrics if hpa.desired_metrics else following.metrics
    return replace(hpa, metrics=metrics, bounds=replace(hpa.bounds, tolerance=within, last_scale=None))


def stock_hpa_for(policy: Policy, hpa: Hpa | None, setup: Setup, totals: Collection[str] = ()) -> Hpa:
    """The stock HPA on the policy's metrics, at their high watermarks or targets.

    Bounds and behavior are those of `hpa`, but with the controller's default tolerance.
    """
    native = hpa_following(policy, hpa)
    metrics = [
        _stock_metric(metric, aim, policy, setup, total=metric.name in totals)
        for metric in policy.metrics
        if not metric.floor and (aim := metric.high if metric.target is None else metric.target) is not None
    ]
    return replace(
        native,
        metrics=tuple(metrics),
        scale_up=msgspec.structs.replace(native.scale_up, tolerance=None),
        scale_down=msgspec.structs.replace(native.scale_down, tolerance=None),
        bounds=replace(native.bounds, tolerance=None),
    )


def scaled_targets(hpa: Hpa, share: float) -> Hpa:
    """The HPA with this share of each of its targets."""
    metrics = [
        replace(metric, aim=None if metric.aim is None else max(1, round(metric.aim * share))) for metric in hpa.metrics
    ]
    return replace(hpa, metrics=tuple(metrics))


def _stock_metric(metric: Metric, aim: Fraction, policy: Policy, setup: Setup, *, total: bool) -> HpaMetric:
    is_absolute = policy.algorithm is Algorithm.ABSOLUTE
    if total or is_absolute:
        target = MetricTargetType.VALUE if is_absolute else MetricTargetType.AVERAGE_VALUE
        return HpaMetric(kind=MetricSourceType.EXTERNAL, name=metric.name, target=target, aim=int(aim))
    is_resource = metric.resource is not None and metric.resource.name == metric.name
    kind = MetricSourceType.RESOURCE if is_resource else MetricSourceType.PODS
    if is_resource and metric.relative_to is Capacity.REQUEST:
        percent = max(1, int(aim * 100 / NANO))
        return HpaMetric(kind=kind, name=metric.name, target=MetricTargetType.UTILIZATION, aim=percent)
    plain = int(plain_usage(metric, aim, setup))
    return HpaMetric(kind=kind, name=metric.name, target=MetricTargetType.AVERAGE_VALUE, aim=plain)


def plain_usage(metric: Metric, mark: Fraction, setup: Setup) -> Fraction:
    """A watermark in plain usage of a pod (nano-units); 0 where a pod's capacity is unknown."""
    return mark if metric.relative_to is None else mark * capacity_of(metric, setup) / NANO


def capacity_of(metric: Metric, setup: Setup) -> int:
    """The limit or request of a pod (nano-units), for a metric with `relativeTo`; 0 if it is unknown."""
    amounts = setup.limits if metric.relative_to is Capacity.LIMIT else setup.requests
    return amounts.get(metric.resource_name, 0)


def throttles_of(metrics: Iterable[Metric], setup: Setup) -> Mapping[str, int]:
    """The most that a pod's samples show of each CPU metric (nano-units): its limit, else what it can carry."""
    most = {
        metric.name: setup.limits.get("cpu") or setup.capacity.get(metric.name, 0)
        for metric in metrics
        if metric.resource_name == "cpu" and not metric.floor
    }
    return {name: amount for name, amount in most.items() if amount}


def judged_by(policy: Policy, setup: Setup) -> dict[str, float]:
    """What a pod may carry of each metric before the policy scales up (nano-units); nothing for Absolute."""
    if policy.algorithm is Algorithm.ABSOLUTE:
        return {}
    limits = {metric: policy.limits_of(metric).high for metric in policy.metrics if not metric.floor}
    return {
        metric.name: float(plain)
        for metric, limit in limits.items()
        if limit is not None and (plain := plain_usage(metric, limit, setup))
    }
