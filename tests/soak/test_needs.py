"""The fewest pods that a known load allows: never more than what the literal model asks for of fresh samples."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lab.soak.needs import Known, Metric, Rules, fewest_since, most_since
from lab.soak.plan import pacing, services
from tests.literal import model
from tests.literal.memory import Memory

BAND = Metric("load", high=1200, low=600)


def known(at: float, x: float, metric: Metric = BAND, maximum: int = 100, **spec: Any) -> Known:
    return Known(at, x, Rules((metric,), {"strategy": "Watermark", **spec}), 1, maximum)


def test_a_band_lets_pods_go_until_those_left_have_its_low_watermark() -> None:
    assert known(0, 6.0).rules.fewest(6.0) == 10
    assert known(0, 5.9).rules.fewest(5.9) == 9
    assert known(0, 0.0).rules.fewest(0.0) == 1


def test_a_target_lets_pods_go_until_those_left_have_it_and_a_step_until_its_tolerance() -> None:
    aim = Metric("load", target=1000)
    assert Rules((aim,), {"strategy": "Ratio"}).fewest(4.2) == 5
    assert Rules((aim,), {"strategy": "Step", "stepTolerance": 25}).fewest(4.2) == 4


def test_converging_lets_pods_go_until_those_left_have_the_high_watermark() -> None:
    assert Rules((BAND,), {"strategy": "Watermark", "convergeTowards": "High"}).fewest(6.0) == 5


def test_a_count_needs_what_the_load_needed_at_the_least_while_samples_reach_back() -> None:
    history = [known(0, 6.0), known(100, 3.0), known(110, 9.0)]
    assert fewest_since(history, 99, lambda _: 20) == 10
    assert fewest_since(history, 109, lambda _: 20) == 5
    assert fewest_since(history, 125, lambda _: 20) == 5
    assert fewest_since(history, 131, lambda _: 20) == 15


def test_a_count_needs_no_more_than_its_hpa_allows() -> None:
    assert fewest_since([known(0, 6.0, maximum=4)], 10, lambda _: 5) == 4


def test_each_metric_reaches_back_by_itself() -> None:
    both = Rules((Metric("cpu", high=1200, low=600), BAND), {"strategy": "Watermark"})
    history = [Known(0, 3.0, both, 1, 100), Known(50, 6.0, both, 1, 100)]
    assert fewest_since(history, 80, lambda source: 60 if source == "cpu" else 10) == 10


def test_a_load_asks_for_what_its_watermark_target_step_or_floor_needs() -> None:
    assert Rules((BAND,), {"strategy": "Watermark"}).most(6.0) == 5
    assert Rules((BAND,), {"strategy": "Watermark", "multipleOf": 2}).most(6.0) == 6
    assert Rules((BAND,), {"strategy": "Watermark", "convergeTowards": "Low"}).most(6.0) == 10
    assert Rules((Metric("load", target=1000),), {"strategy": "Step", "stepUp": 2}).most(6.2) == 9
    assert Rules((BAND, Metric("floor", high=500)), {"strategy": "Watermark"}).most(6.0) == 6
    assert Rules((BAND,), {"strategy": "Watermark", "fallback": {"replicas": 7}}).most(6.0) == 7


def test_a_count_may_be_what_the_load_asked_for_at_the_most_while_samples_reach_back() -> None:
    history = [known(0, 6.0), known(100, 3.0), known(110, 9.0)]
    assert most_since(history, 109, lambda _: 20) == 5
    assert most_since(history, 111, lambda _: 20) == 8


def test_a_floor_bounds_nothing_since_it_may_fail() -> None:
    rules = Rules((BAND, Metric("floor", high=100)), {"strategy": "Watermark"})
    assert rules.fewest(1.2) == 2


@given(st.integers(0, 60), st.integers(1, 12), st.integers(10, 3000), st.data())
def test_the_model_asks_for_neither_fewer_nor_more_of_fresh_true_samples(
    seed: int, count: int, each: int, data: Any
) -> None:
    x = count * each / 1000
    service = data.draw(st.sampled_from([one for one in services(seed) if not one.registry and len(one.metrics) == 1]))
    if service.metrics[0].source in {"total", "memory"}:
        return
    change = pacing(Random(seed), service.spec["strategy"])
    spec = {"strategy": service.spec["strategy"], **change}
    answer, _ = model.answer(document(service.metrics[0], spec, count, each), Memory())
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
        "policy": {"spec": {"metrics": [metric.written()], **spec}},
        "hpa": {"spec": {"maxReplicas": 100, "scaleTargetRef": {"kind": "Deployment"}}},
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
