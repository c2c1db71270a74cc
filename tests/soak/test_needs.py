"""The fewest pods that a known load allows: never more than what `decide` asks for of fresh samples."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.commands.decide import decision, reader
from lab.soak.needs import Known, Metric, Rules, fewest_since, most_since
from lab.soak.plan import pacing, services

BAND = Metric("load", high=1200, low=600)


def known(at: float, x: float, metric: Metric = BAND, maximum: int = 100, **spec: Any) -> Known:
    return Known(at, x, Rules((metric,), {"strategy": "Watermark", **spec}), 1, maximum)


AIM, WATERMARK = Metric("load", target=1000), {"strategy": "Watermark"}


@pytest.mark.parametrize(
    ("metrics", "spec", "x", "fewest", "most"),
    [
        ((BAND,), WATERMARK, 6.0, 10, 5),  # pods go until those left have the low watermark
        ((BAND,), WATERMARK, 5.9, 9, 5),
        ((BAND,), WATERMARK, 0.0, 1, 1),
        ((BAND,), {**WATERMARK, "multipleOf": 2}, 6.0, None, 6),
        ((BAND,), {**WATERMARK, "convergeTowards": "High"}, 6.0, 5, None),
        ((BAND,), {**WATERMARK, "convergeTowards": "Low"}, 6.0, None, 10),
        ((BAND,), {**WATERMARK, "fallback": {"replicas": 7}}, 6.0, None, 7),
        ((AIM,), {"strategy": "Ratio"}, 4.2, 5, None),
        ((AIM,), {"strategy": "Step", "stepTolerance": 25}, 4.2, 4, None),
        ((AIM,), {"strategy": "Step", "stepUp": 2}, 6.2, None, 9),
        ((BAND, Metric("floor", high=100)), WATERMARK, 1.2, 2, None),  # a floor bounds no fall, since it may fail
        ((BAND, Metric("floor", high=500)), WATERMARK, 6.0, None, 6),
    ],
)
def test_a_load_allows_a_fall_and_a_rise_to_what_its_strategy_needs(
    metrics: tuple[Metric, ...], spec: dict[str, Any], x: float, fewest: int | None, most: int | None
) -> None:
    rules = Rules(metrics, spec)
    assert fewest is None or rules.fewest(x) == fewest
    assert most is None or rules.most(x) == most


def test_a_load_bounds_the_count_while_samples_reach_back() -> None:
    history = [known(0, 6.0), known(100, 3.0), known(110, 9.0)]
    assert most_since(history, 109, lambda _: 20) == 5
    assert most_since(history, 111, lambda _: 20) == 8
    assert fewest_since(history, 99, lambda _: 20) == 10
    assert fewest_since(history, 109, lambda _: 20) == 5
    assert fewest_since(history, 125, lambda _: 20) == 5
    assert fewest_since(history, 131, lambda _: 20) == 15
    assert fewest_since([known(0, 6.0, maximum=4)], 10, lambda _: 5) == 4


def test_each_metric_reaches_back_by_itself() -> None:
    both = Rules((Metric("cpu", high=1200, low=600), BAND), {"strategy": "Watermark"})
    history = [Known(0, 3.0, both, 1, 100), Known(50, 6.0, both, 1, 100)]
    assert fewest_since(history, 80, lambda source: 60 if source == "cpu" else 10) == 10


@given(st.integers(0, 60), st.integers(1, 12), st.integers(10, 3000), st.data())
def test_decide_asks_for_neither_fewer_nor_more_of_fresh_true_samples(
    seed: int, count: int, each: int, data: Any
) -> None:
    x = count * each / 1000
    service = data.draw(st.sampled_from([one for one in services(seed) if not one.registry and len(one.metrics) == 1]))
    if service.metrics[0].source in {"total", "memory"}:
        return
    change = pacing(Random(seed), service.spec["strategy"])
    spec = {"strategy": service.spec["strategy"], **change}
    made = document(service.metrics[0], spec, count, each)
    answer = decision.decision_json(reader.read_document(json.dumps(made)))
    rules = Rules(service.metrics, spec)
    assert answer["desiredReplicas"] >= min(count, rules.fewest(x))
    assert answer["desiredReplicas"] <= max(count, rules.most(x))


def document(metric: Metric, spec: dict[str, Any], count: int, each: int) -> dict[str, Any]:
    """So many pods with so many thousandths of load each, long Ready, with fresh samples."""
    value = f"{each}m"
    names = [f"web-{index}" for index in range(count)]
    old, fresh = "2026-01-01T10:00:00Z", "2026-01-01T11:59:59Z"
    made: dict[str, Any] = {
        "now": "2026-01-01T12:00:00Z",
        "policy": {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"metrics": [metric.written()], **spec}},
        "hpa": {
            "metadata": {"name": "web"},
            "spec": {"maxReplicas": 100, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        },
        "scale": {"spec": {"replicas": count}, "status": {"replicas": count}},
        "pods": [
            {
                "metadata": {"name": name, "creationTimestamp": old},
                "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "4", "memory": "200Mi"}}}]},
                "status": {
                    "startTime": old,
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": old}],
                    "containerStatuses": [{"name": "app", "state": {"running": {}}}],
                },
            }
            for name in names
        ],
    }
    if metric.is_resource:
        usage = [{"name": "app", "usage": {"cpu": value}}]
        made["usage"] = [{"metadata": {"name": name}, "timestamp": fresh, "containers": usage} for name in names]
    else:
        made["samples"] = {metric.source: {"at": fresh, "pods": dict.fromkeys(names, value)}}
    return made
