"""Snapshots for tests: policies with simple numbers."""

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction

from adapter.load.assessment import Assessment, MetricAssessment
from adapter.load.pods import Container, Pod, PodAssessment, PodState
from adapter.load.quantity import NANO
from adapter.load.samples import Point
from adapter.load.spec import Bounds, Metric, Policy, Scale, Target
from adapter.snapshot import Key, PodStore, PolicyView, Problem, Snapshot
from adapter.usage.query_results import NamedQueryResult, Series

NOW = 1_800_000_000.0
SAMPLED = NOW - 12
SCALE_PATH = "/apis/apps/v1/namespaces/shop/deployments/web/scale"


def pod(name: str, namespace: str = "shop", *, labels: Mapping[str, str] | None = None) -> Pod:
    return Pod(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        created_at=NOW - 3600,
        labels={"app": "web"} if labels is None else labels,
        containers=(Container(name="app", running=True),),
    )


def assessed(name: str, state: PodState = PodState.SERVING) -> PodAssessment:
    return PodAssessment(pod=pod(name), state=state, reason="said so")


def measured(name: str = "cpu", usage: Fraction | int | None = 1500, **more: object) -> MetricAssessment:
    """A metric's assessment; `usage` in milli-units."""
    nano = None if usage is None else Fraction(usage) * NANO / 1000
    fields: dict[str, object] = {"raw": nano, "sampled_at": SAMPLED, "window": 30.0, **more}
    return MetricAssessment(metric=Metric(name=name), usage=nano, **fields)  # type: ignore[arg-type]


def metric(name: str = "cpu") -> Metric:
    return Metric(name=name, resource="cpu", high=Fraction(1200 * NANO, 1000))


def policy(name: str = "checkout", namespace: str = "shop", metrics: Iterable[Metric] = ()) -> Policy:
    return Policy(namespace=namespace, name=name, hpa=name, metrics=tuple(metrics) or (metric(),))


def view(
    name: str = "checkout",
    *,
    namespace: str = "shop",
    target: str = "web",
    metrics: Iterable[Metric] = (),
    assessments: Iterable[MetricAssessment] | None = None,
    pods: Iterable[PodAssessment] = (),
    problem: Problem | None = None,
    is_assessed: bool = True,
    at: float = NOW - 1,
) -> PolicyView:
    rules = policy(name, namespace, metrics)
    states = tuple(pods)
    named = {each.name: each for each in rules.metrics}
    given = (measured(),) if assessments is None else tuple(assessments)
    assessment = Assessment(
        policy=rules,
        target=f"Deployment {target}",
        at=at,
        pods=states,
        counts={state: sum(1 for each in states if each.state is state) for state in PodState},
        metrics=tuple(each._replace(metric=named.get(each.name, each.metric)) for each in given),
    )
    return PolicyView(
        policy=rules,
        target=Target(api_version="apps/v1", kind="Deployment", name=target),
        target_resource="deployments.apps",
        scale_path=SCALE_PATH,
        scale=Scale(replicas=5, status_replicas=5, selector="app=web"),
        bounds=Bounds(minimum=1, maximum=50),
        assessment=assessment if is_assessed else None,
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
