"""Whatever fails together, no sentence that people are shown says a thing twice."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from adapter.companion import plan
from adapter.companion.features import status
from adapter.companion.state import Context, State
from adapter.load.explanation import explain, headline
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.quantity import NANO
from adapter.load.roster import Roster
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Bounds, Capacity, Fallback, Metric, Mode, Policy, Query, ResourceMetric
from adapter.snapshot import PolicyView
from tests.companion.kit import KEY, NOTIFYING, judged
from tests.load.kit import NOW, REGISTRY, TARGET, assess_and_decide, cpu, pod, policy, scale

CLAUSE = 6
"""So many words in a row are a clause: shorter runs, as `a fresh sample`, may belong to two facts."""
HALF = Fraction(NANO, 2)
METRICS = (
    cpu("1200m", "400m"),
    Metric(name="memory", resource=ResourceMetric(name="memory", of=Capacity.LIMIT), high=HALF),
    Metric(name="rps", query=Query(name="rps"), high=Fraction(100 * NANO)),
    Metric(name="latency", query=Query(name="p99"), high=Fraction(100 * NANO)),
    Metric(name="queue", query=Query(name="queue"), high=Fraction(100 * NANO)),
)
HPA = (
    "unable to get metric desired_replicas: WatermarkPolicy on shop web/unable to fetch metrics from custom metrics "
    "API: "
)
"""What an HPA writes before the server's own sentence."""


def repeated(sentence: str) -> str:
    """What a sentence says twice: a clause, words twice in a row, or a path or address; empty where nothing is."""
    words = [word.strip(".:,;()'") for word in sentence.split()]
    for length in range(1, CLAUSE):
        for at in range(len(words) - 2 * length + 1):
            if words[at : at + length] == words[at + length : at + 2 * length]:
                return " ".join(words[at : at + length])
    clauses = [" ".join(words[at : at + CLAUSE]) for at in range(len(words) - CLAUSE + 1)]
    places = [word for word in words if re.search(r"\w/\w+/", word)]
    return next((one for one in (*clauses, *places) if (clauses + places).count(one) > 1), "")


@pytest.mark.parametrize(
    ("sentence", "twice"),
    [
        ("metric a: the source cannot be reached at all now; metric b: the source cannot be reached at all now", True),
        ("query rps: query rps has not been answered yet", True),
        ("the scale /a/b/c cannot be read (GET /a/b/c: no answer)", True),
        ("metric a: 1 pod without a fresh sample; metric b: 2 pods without a fresh sample", False),
    ],
)
def test_repetitions_are_found(sentence: str, twice: bool) -> None:
    assert bool(repeated(sentence)) is twice


RESOURCES = {
    "well": ResourceSamples(
        pods={f"p{n}": PodUsage(NOW - 5, 15.0, {"app": {"cpu": 800 * 10**6, "memory": 300 * NANO}}) for n in range(3)},
        fetched_at=NOW - 1,
    ),
    "down": ResourceSamples(
        error="503 ServiceUnavailable: the server is currently unable to handle the request "
        "(last answer at 2026-01-01T00:00:00Z)",
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
    "(last answer at 2026-01-01T00:00:0{}Z)"
)


def _queries(*errors: str | None) -> dict[str, QuerySamples]:
    names = ("rps", "latency", "queue")
    return {name: QuerySamples(error=error) for name, error in zip(names, errors, strict=True)}


QUERIES = {
    "well": {
        "rps": QuerySamples(pods={f"p{n}": Point(NOW - 5, 50 * NANO) for n in range(4)}, fetched_at=NOW - 1),
        "latency": QuerySamples(pods={"p0": Point(NOW - 5, 50 * NANO)}, fetched_at=NOW - 1),
        "queue": QuerySamples(total=Point(NOW - 5, 500 * NANO), fetched_at=NOW - 1),
    },
    "down": _queries(*(_DOWN.format(second) for second in (3, 4, 5))),
    "unknown": _queries(*["the settings define no such query (they have none yet)"] * 3),
    "silent": _queries(None, None, None),
    "absent": {},
}
_CAUSE = "http://consul:8500/v1/health/service/web: HTTP 500: No cluster leader"
ROSTERS: dict[str, Roster | None] = {
    "none": None,
    "well": Roster(at=NOW - 1),
    "failing": Roster(at=NOW - 60, error=_CAUSE),
    "old": Roster(at=NOW - 2000, error=_CAUSE),
    "invalid": Roster(at=NOW, valid=False, error="the answer is incomplete"),
}
RULES = {
    "plain": policy(*METRICS),
    "registered": policy(*METRICS, registry=REGISTRY),
    "falls back": policy(*METRICS, registry=REGISTRY, fallback=Fallback(after=0, replicas=9)),
    "paused": policy(*METRICS, mode=Mode.PAUSED),
}
PODS = {
    "ready": [pod(f"p{n}", limits={"memory": "1000"}) for n in range(4)],
    "unready": [pod(f"p{n}", ready=False, ready_for=600) for n in range(2)],
    "without limits": [pod("p0")],
    "none": [],
}


def contexts() -> Iterator[Context]:
    """Everything that may fail, with everything else that may."""
    rules, pods = RULES.values(), PODS.values()
    for rule, those, heard, asked, roster in itertools.product(
        rules, pods, RESOURCES.values(), QUERIES.values(), ROSTERS.values()
    ):
        for current in {0, len(those), 4}:
            yield _context(rule, those, Samples(resources=heard, queries=asked), roster, current)


def _context(
    rule: Policy, pods: list[Pod], samples: Samples, roster: Roster | None, current: int, now: float = NOW
) -> Context:
    bounds = Bounds(minimum=0, maximum=100)
    memory = Memory(error_since=NOW - 600)
    assessment, decision = assess_and_decide(
        rule,
        pods,
        samples,
        current=current,
        bounds=bounds,
        listed=roster if rule.registry else None,
        memory=memory,
        now=now,
    )
    view = PolicyView(policy=rule, target=TARGET, scale=scale(current), bounds=bounds, assessment=assessment)
    case = Context(key=KEY, now=now, view=view, decision=decision, hpa=None, settings=NOTIFYING, state=State())
    return judged(case)


def sentences(case: Context) -> Iterator[str]:
    """Every sentence that is made of a case."""
    assessment, decision = case.view.assessment, case.decision
    assert assessment is not None
    assert decision is not None
    assert case.view.bounds is not None
    found = status.status_of(case)
    yield found["decision"]
    yield headline(assessment, decision)
    yield from (one["message"] for one in found["conditions"])
    yield from (metric["error"] for metric in found["metrics"] if "error" in metric)
    yield from explain(assessment, decision, case.view.bounds, NOW)
    if decision.error is not None:
        yield HPA + decision.error
    later = replace(case, now=NOW + 61, state=plan.observe(case))
    yield from (notice.text for notice in plan.observe(later).notifications.due)


def test_no_sentence_says_a_thing_twice() -> None:
    seen = {sentence for case in contexts() for sentence in sentences(case)}
    assert len(seen) > 300  # else this shows nothing
    assert {sentence: twice for sentence in seen if (twice := repeated(sentence))} == {}


def test_no_sentence_of_an_outage_changes_while_it_lasts() -> None:
    """Each change of an HPA's error would be a write to the HPA's status and an Event, for every HPA."""
    failing, outage = [one for name, one in RESOURCES.items() if name != "well"], QUERIES["down"]
    for rule, heard, roster in itertools.product(RULES.values(), failing, (ROSTERS["none"], ROSTERS["old"])):
        told = []
        for now in (NOW + 100, NOW + 137):
            case = _context(rule, PODS["ready"], Samples(resources=heard, queries=outage), roster, 4, now)
            assert case.decision is not None
            conditions = [one["message"] for one in status.status_of(case)["conditions"]]
            told.append([case.decision.error, status.status_of(case)["decision"], *conditions])
        assert told[0] == told[1]


def test_no_sentence_of_an_explanation_is_part_of_another() -> None:
    for case in contexts():
        assert case.view.assessment is not None
        assert case.decision is not None
        assert case.view.bounds is not None
        told = explain(case.view.assessment, case.decision, case.view.bounds, NOW)
        for one, other in itertools.permutations(told, 2):
            assert one not in other


def test_a_source_that_fails_several_metrics_is_named_once() -> None:
    case = _context(
        RULES["plain"], PODS["ready"], Samples(resources=RESOURCES["down"], queries=QUERIES["down"]), None, 4
    )
    assert case.decision is not None
    assert case.decision.error == (
        "metric cpu, metric memory: metrics.k8s.io: 503 ServiceUnavailable: the server is currently unable to handle "
        "the request (last answer at 2026-01-01T00:00:00Z); "
        "query rps, metric latency: query p99, query queue: Prometheus main: Cannot connect to host prometheus:9090 "
        "ssl:default [Connection refused] (last answer at 2026-01-01T00:00:03Z)"
    )


def test_a_notification_of_lost_data_uses_the_words_of_the_condition() -> None:
    samples = Samples(resources=RESOURCES["down"], queries=QUERIES["well"])
    case = _context(RULES["plain"], PODS["ready"], samples, None, 4)
    later = replace(case, now=NOW + 61, state=plan.observe(case))
    (lost,) = [one.text for one in plan.observe(later).notifications.due if one.topic.value == "dataLost"]
    assert lost.startswith("metric cpu, metric memory: metrics.k8s.io: 503 ServiceUnavailable")
