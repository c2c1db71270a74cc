"""Sentences of an outage: they stay as they are while it lasts, and name a source once."""

import itertools
from fractions import Fraction

from adapter.companion import status
from adapter.companion.state import Context
from adapter.load.memory import Memory
from adapter.load.quantity import NANO
from adapter.load.roster import Roster
from adapter.load.samples import PodUsage, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Bounds, Capacity, Fallback, Metric, Query
from tests.companion.kit import context, judged
from tests.load.kit import NOW, REGISTRY, cpu, pod, policy

HALF = Fraction(NANO, 2)
METRICS = (
    cpu("1200m", "400m"),
    Metric(name="memory", resource="memory", relative_to=Capacity.LIMIT, high=HALF),
    Metric(name="rps", query=Query(name="rps"), high=Fraction(100 * NANO)),
    Metric(name="latency", query=Query(name="p99"), high=Fraction(100 * NANO)),
    Metric(name="queue", query=Query(name="queue"), high=Fraction(100 * NANO)),
)


RESOURCES = {
    "down": ResourceSamples(
        error="503 ServiceUnavailable: the server is currently unable to handle the request "
        "(last answer at 2026-01-01T00:00Z)",
        fetched_at=NOW - 200,
    ),
    "never": ResourceSamples(error="no answer within 5 s (no answer so far)"),
    "silent": ResourceSamples(),
    "empty": ResourceSamples(fetched_at=NOW - 1),
    "old": ResourceSamples(
        pods={f"p{n}": PodUsage(NOW - 400, 15.0, {"app": {"cpu": 1, "memory": 1}}) for n in range(4)}, fetched_at=NOW
    ),
}
_DOWN = (
    "Prometheus main: Cannot connect to host prometheus:9090 ssl:default [Connection refused] "
    "(last answer at 2026-01-01T00:00Z)"
)


QUERIES = {name: QuerySamples(error=_DOWN) for name in ("rps", "latency", "queue")}
OLD = Roster(at=NOW - 2000, error="http://consul:8500/v1/health/service/web: HTTP 500: No cluster leader")
RULE = policy(*METRICS, registry=REGISTRY, fallback=Fallback(after=0, replicas=9))
PODS = [pod(f"p{n}", limits={"memory": "1000"}) for n in range(4)]


def _context(resources: ResourceSamples, now: float = NOW, roster: Roster | None = None) -> Context:
    samples = Samples(resources=resources, queries=QUERIES)
    bounds, memory = Bounds(minimum=0, maximum=100), Memory(error_since=NOW - 600)
    return judged(context(rule=RULE, pods=PODS, samples=samples, listed=roster, memory=memory, bounds=bounds, now=now))


def test_no_sentence_of_an_outage_changes_while_it_lasts() -> None:
    """Each change of an HPA's error would be a write to the HPA's status and an Event, for every HPA."""
    for resources, roster in itertools.product(RESOURCES.values(), (None, OLD)):
        told = []
        for now in (NOW + 100, NOW + 137):
            case = _context(resources, now, roster)
            assert case.decision is not None
            conditions = [one["message"] for one in status.status_of(case)["conditions"]]
            told.append([case.decision.error, status.status_of(case)["decision"], *conditions])
        assert told[0] == told[1]


def test_answers_without_fresh_samples_change_no_sentence_within_a_minute() -> None:
    contexts = [_context(ResourceSamples(fetched_at=now - 1), now) for now in (NOW + 62, NOW + 77, NOW + 92)]
    told = {case.conditions["InputsFresh"].message for case in contexts}
    assert len(told) == 1
    assert "metrics.k8s.io has no fresh sample (last answer at 2026-01-01T12:01Z)" in str(told)


def test_a_source_that_fails_several_metrics_is_named_once() -> None:
    errors = _context(RESOURCES["down"]).conditions["InputsFresh"].message
    assert errors.startswith(
        "metric cpu, metric memory: metrics.k8s.io: 503 ServiceUnavailable: the server is currently unable to handle "
        "the request (last answer at 2026-01-01T00:00Z); "
        "query rps, metric latency: query p99, query queue: Prometheus main: Cannot connect to host prometheus:9090 "
        "ssl:default [Connection refused] (last answer at 2026-01-01T00:00Z)"
    )
