"""The HPAs of a comparison, and what it is judged by: derived from a policy and the HPA that it has."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from adapter.commands.replay.service import Judge, Setup
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
HIGHEST = Fraction(140, 100)
"""The highest level that is tried, as a share of a watermark."""


def hpa_following(policy: Policy, hpa: Hpa | None) -> Hpa:
    """The HPA that follows a policy, with the bounds and the behavior of this one."""
    metadata = {"name": policy.hpa, "namespace": policy.namespace}
    target = CrossVersionReference("apps/v1", "Deployment", policy.hpa)
    calm = {direction: {"tolerance": "0"} for direction in DIRECTIONS}
    written = hpa_manifest(metadata, policy.name, target, Bounds(minimum=1, maximum=DEFAULT_MAXIMUM), calm)
    following = parse_hpa(written)
    if hpa is None:
        return following
    rules = (hpa.scale_up, hpa.scale_down)
    up, down = (DEFAULT_TOLERANCE if rule.tolerance is None else rule.tolerance for rule in rules)
    within = HpaTolerance(up, down) if up or down else None
    metrics = hpa.metrics if hpa.desired_metrics else following.metrics
    return replace(hpa, metrics=metrics, bounds=replace(hpa.bounds, tolerance=within, last_scale=None))


def stock_hpa_for(policy: Policy, hpa: Hpa | None, setup: Setup, totals: Collection[str] = ()) -> Hpa:
    """The stock HPA that a policy is compared with: on the policy's metrics, at their high watermarks or targets.

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
        scale_up=replace(native.scale_up, tolerance=None),
        scale_down=replace(native.scale_down, tolerance=None),
        bounds=replace(native.bounds, tolerance=None),
    )


def scaled_targets(hpa: Hpa, share: Fraction) -> Hpa:
    """The HPA with this share of each of its targets."""
    metrics = [
        replace(metric, aim=None if metric.aim is None else max(1, round(metric.aim * share))) for metric in hpa.metrics
    ]
    return replace(hpa, metrics=tuple(metrics))


def _stock_metric(metric: Metric, aim: Fraction, policy: Policy, setup: Setup, *, total: bool) -> HpaMetric:
    if total or policy.algorithm is Algorithm.ABSOLUTE:
        target = MetricTargetType.VALUE if policy.algorithm is Algorithm.ABSOLUTE else MetricTargetType.AVERAGE_VALUE
        return HpaMetric(kind=MetricSourceType.EXTERNAL, name=metric.name, target=target, aim=int(aim))
    name = metric.name
    if metric.resource is not None and metric.relative_to is Capacity.REQUEST and metric.resource.name == name:
        percent = max(1, int(aim * 100 / NANO))
        return HpaMetric(kind=MetricSourceType.RESOURCE, name=name, target=MetricTargetType.UTILIZATION, aim=percent)
    is_resource = metric.resource is not None and metric.resource.name == name
    return HpaMetric(
        kind=MetricSourceType.RESOURCE if is_resource else MetricSourceType.PODS,
        name=name,
        target=MetricTargetType.AVERAGE_VALUE,
        aim=int(_plain(metric, aim, setup)),
    )


def _plain(metric: Metric, mark: Fraction, setup: Setup) -> Fraction:
    """A watermark in plain usage of a pod (nano-units)."""
    if metric.relative_to is None:
        return mark
    return mark * shared_amount(metric, setup) / NANO


def resource_of(metric: Metric) -> str:
    """The resource that a metric measures or is a share of; empty for a query without one."""
    return metric.resource.name if metric.resource else metric.query.resource if metric.query else ""


def shared_amount(metric: Metric, setup: Setup) -> int:
    """The limit or request of a pod (nano-units), for a metric with `relativeTo`; 0 if it is unknown."""
    amounts = setup.limits if metric.relative_to is Capacity.LIMIT else setup.requests
    return amounts.get(resource_of(metric), 0)


def throttles_of(metrics: Iterable[Metric], setup: Setup) -> Mapping[str, int]:
    """The most that a pod's samples show of each CPU metric (nano-units): its limit, else what it can carry."""
    most = {
        metric.name: setup.limits.get("cpu") or setup.capacity.get(metric.name)
        for metric in metrics
        if resource_of(metric) == "cpu" and not metric.floor
    }
    return {name: amount for name, amount in most.items() if amount}


def highest_level(setup: Setup, metric: str, tolerance: Fraction, unit: Fraction) -> Fraction:
    """The highest target or watermark that samples can pass by its tolerance, as a share of `unit`; at most 1.4."""
    throttle = setup.throttles.get(metric)
    return HIGHEST if throttle is None else min(HIGHEST, throttle / (1 + tolerance) / unit)


def judge_of(policy: Policy, setup: Setup, minimum: int = 1) -> Judge:
    """What a policy's runs are judged by: what a pod may carry before the policy scales up."""
    if policy.algorithm is Algorithm.ABSOLUTE:
        return Judge({}, minimum)
    limits = {metric: policy.limits_of(metric).high for metric in policy.metrics if not metric.floor}
    high = {
        metric.name: plain
        for metric, limit in limits.items()
        if limit is not None and (plain := _plain(metric, limit, setup))
    }
    return Judge(high, minimum)
