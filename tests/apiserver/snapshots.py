"""Snapshots for tests: policies with simple numbers."""

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from adapter.load.assessment import Assessment, MetricAssessment
from adapter.load.pod_samples import PodSample, Sizes
from adapter.load.pods import Container, Pod, PodAssessment, PodState
from adapter.load.quantity import NANO
from adapter.load.samples import Point
from adapter.load.spec import Bounds, Capacity, Metric, Policy, Query, Scale, Target
from adapter.snapshot import (
    Key,
    PodStore,
    PolicyView,
    Problem,
    Snapshot,
)
from adapter.usage.query_results import NamedQueryResult, Series

NOW = 1_800_000_000.0
SAMPLED = NOW - 12
SCALE_PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"


def pod(
    name: str, namespace: str = "shop", *, labels: Mapping[str, str] | None = None, limit: int | None = None
) -> Pod:
    limits = {} if limit is None else {"memory": limit * NANO}
    return Pod(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        created_at=NOW - 3600,
        labels={"app": "web"} if labels is None else labels,
        containers=(Container(name="app", limits=limits, running=True),),
    )


class Reading(NamedTuple):
    """A pod's assessment, and what it uses by metric (nano-units)."""

    assessed: PodAssessment
    usage: Mapping[str, int]

    def sample(self, metric: Metric) -> PodSample | None:
        """Its sample of a metric, if it has one."""
        if (usage := self.usage.get(metric.name)) is None:
            return None
        limits = self.assessed.pod.containers[0].limits
        size = limits.get(metric.name) if metric.relative_to else 1
        sizes = None if size is None else Sizes(size, size)
        return PodSample(self.assessed.pod, usage, "", usage, sizes, 0, usage, SAMPLED, 30.0, NOW - 3600)


def reading(name: str, state: PodState = PodState.SERVING, *, limit: int | None = None, **usage: int) -> Reading:
    """A pod's assessment with its usage in milli-units."""
    nano = {metric: value * NANO // 1000 for metric, value in usage.items()}
    return Reading(PodAssessment(pod=pod(name, limit=limit), state=state, reason="said so"), nano)


def measured(name: str = "cpu", usage: Fraction | int | None = 1500, **more: object) -> MetricAssessment:
    """A metric's assessment; `usage` in milli-units."""
    nano = None if usage is None else Fraction(usage) * NANO / 1000
    fields: dict[str, object] = {"raw": nano, "sampled_at": SAMPLED, "window": 30.0, **more}
    return MetricAssessment(metric=Metric(name=name), usage=nano, **fields)  # type: ignore[arg-type]


def metric(name: str = "cpu", *, relative_to: Capacity | None = None) -> Metric:
    return Metric(
        name=name,
        resource="memory" if relative_to else "cpu",
        relative_to=relative_to,
        high=Fraction(1200 * NANO, 1000),
    )


def rps() -> Metric:
    return Metric(name="rps", query=Query(name="requests"), high=Fraction(100 * NANO))


def policy(name: str = "checkout", namespace: str = "shop", metrics: Iterable[Metric] = ()) -> Policy:
    return Policy(namespace=namespace, name=name, hpa=name, metrics=tuple(metrics) or (metric(),))


def view(
    name: str = "checkout",
    *,
    namespace: str = "shop",
    target: str = "web",
    metrics: Iterable[Metric] = (),
    assessments: Iterable[MetricAssessment] | None = None,
    pods: Iterable[Reading] = (),
    problem: Problem | None = None,
    assessed: bool = True,
    at: float = NOW - 1,
) -> PolicyView:
    rules = policy(name, namespace, metrics)
    readings = tuple(pods)
    states = tuple(each.assessed for each in readings)
    named = {each.name: each for each in rules.metrics}
    given = (measured(),) if assessments is None else tuple(assessments)
    given = tuple(each._replace(metric=named.get(each.name, each.metric)) for each in given)
    assessed_metrics = tuple(
        each._replace(samples=[sample for one in readings if (sample := one.sample(each.metric)) is not None])
        for each in given
    )
    assessment = Assessment(
        policy=rules,
        target=f"Deployment {target}",
        at=at,
        pods=states,
        counts={state: sum(1 for each in states if each.state is state) for state in PodState},
        metrics=assessed_metrics,
    )
    return PolicyView(
        policy=rules,
        target=Target(api_version="apps/v1", kind="Deployment", name=target),
        target_resource="deployments.apps",
        scale_path=SCALE_PATH,
        scale=Scale(replicas=5, status_replicas=5, selector="app=web"),
        bounds=Bounds(minimum=1, maximum=50),
        assessment=assessment if assessed else None,
        problem=problem,
    )


def query(
    name: str = "requests", *series: Series, by_pod: bool = True, fetched_at: float | None = NOW - 3, **more: object
) -> NamedQueryResult:
    by = str(more.get("pod_label", "pod")) if by_pod else ""
    fields: dict[str, object] = {"series": {"shop": series_by_pod(by, series)}, **more}
    return NamedQueryResult(name=name, by_pod=by_pod, fetched_at=fetched_at, **fields)  # type: ignore[arg-type]


def series_by_pod(pod_label: str, series: Iterable[Series]) -> dict[str, list[Series]]:
    """Series of the namespace `shop` as an answer has them."""
    found: dict[str, list[Series]] = {}
    for each in series:
        found.setdefault(each.labels.get(pod_label, ""), []).append(each)
    return found


def series(value: int, *, at: float = SAMPLED, **labels: str) -> Series:
    """A series in the namespace `shop`; `value` in milli-units."""
    text = json.dumps({"namespace": "shop", **labels}).encode()
    return Series(text, Point(at, value * NANO // 1000))


def snapshot(
    *views: PolicyView,
    queries: Iterable[NamedQueryResult] = (),
    pods: Iterable[Pod] = (),
    synced: bool = True,
) -> Snapshot:
    by_namespace: dict[str, PodStore] = {}
    for each in pods:
        by_namespace.setdefault(each.namespace, PodStore()).put(each)
    return Snapshot(
        policies={Key(each.policy.namespace, each.policy.name): each for each in views},
        queries={each.name: each for each in queries},
        pods=by_namespace,
        synced=synced,
    )
