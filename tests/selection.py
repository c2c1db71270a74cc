"""What `make test` leaves to `make test-all`, and why: each row is a protection that comes a night later.

`make test-all`, the nightly run and the release run everything (`pytest --exhaustive`). A file that is named on the
command line runs whole.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import pytest


class Left(NamedTuple):
    """Tests that are left out. `tests`: a pattern from the beginning of their ids. `keep`: how many of them still run,
    the first, the last and others at even distances.
    """

    tests: str
    why: str
    keep: int = 0


SERVERS = (
    Left(r"e2e/test_upstreams\.py", "KEDA and prometheus-adapter take 12 minutes to build"),
    Left(
        r"(registries/test_eureka_real\.py|e2e/test_registries\.py.*\[eureka|harness/test_registry_servers\.py::test_eureka)",
        "Spring's Eureka needs Java and Maven; the Eureka of Polaris speaks the same protocol",
    ),
    Left(
        r"e2e/test_faults\.py::test_nothing_shrinks.*\[(?!adapter-killed|leader-lost|api-server-restarted|prometheus-gone|"
        r"prometheus-zeros|metrics-server-gone|consul-frozen|consul-emptied|certificate-rotated)",
        "a fault of each input runs; the others of its kind take a quarter of a minute each",
    ),
    Left(
        r"e2e/test_counts\.py::test_a_step_of_one_pod",
        "20 and 100 pods are the ends of what it covers; the arithmetic between them is the literal model's",
        keep=2,
    ),
    Left(r"registries/test_consul_real\.py::.*test_what_stays_critical", "Consul waits for a minute at least"),
    Left(
        r"registries/test_(consul_real\.py::TestDelay|http_example\.py::test_the_delay|nacos_real\.py::test_the_delay)",
        "e2e/test_registries.py times the whole way from a registry to the answer",
    ),
    Left(
        r"apiserver/test_start\.py::test_requests_from_the_first_moment",
        "each start is like the others; what differs is chance",
        keep=2,
    ),
    Left(
        r"e2e/test_windows\.py::test_windows_that_nobody_can_ask",
        "usage/test_windows.py holds the rule; on a real Prometheus it takes three minutes",
    ),
    Left(r"e2e/test_soak\.py", "`make test-all` runs a soak of five minutes besides"),
)
"""Tests of real servers."""

ROWS = (
    Left(
        r"simulation/test_(loops\.py::TestTheLoopsCanFail|windows\.py::test_values_that_count_although)",
        "they test the loops: only another loop changes their answer",
    ),
    Left(
        r"simulation/test_loops\.py::test_(a_memory_written_and_read|the_frequency_of_assessments)",
        "each random loop is like the others",
        keep=4,
    ),
    Left(
        r"simulation/test_(slow_sources\.py::TestSlowSources::test_a_service_shrinks_once|"
        r"lying_sources\.py::TestFrozenSources::test_a_(frozen_source_shrinks|source_whose)|"
        r"windows\.py::test_(one_flaky_target|a_target_that_is_down))",
        "intervals, windows and sources in every combination; random loops draw them besides",
        keep=30,
    ),
    Left(
        r"demo/test_model\.py::(?!test_the_model_tells_each_rescale)",
        "the whole story in the demo's model; tests/replay/scenarios holds the counts of the same rules",
    ),
    Left(
        r"benchmarks/test_control\.py::test_the_quick_model_is_the_replay",
        "it tests the model of a benchmark: only another model changes its answer",
    ),
    Left(r"manifests/test_manifests\.py::test_nothing_is_wrong", "`make check` runs each of these checks"),
    Left(
        r"companion/test_sentences\.py::test_no_sentence",
        "it reads every sentence that can be written: 15 s of wording",
    ),
    Left(r"load/test_tolerance\.py::.*test_every_milli_tolerance", "hypothesis draws tolerances besides", keep=50),
    Left(
        r"fuzz/test_usage\.py::test_a_query_as_long_as",
        "each piece in each frame is alike in the time it takes",
        keep=40,
    ),
    Left(r"fuzz/test_kubernetes\.py::test_an_object_nested_as_deep", "the depths at both ends matter", keep=40),
    Left(
        r"fuzz/test_requests\.py::test_a_long_selector",
        "each piece in each frame is alike in the time it takes",
        keep=20,
    ),
    Left(
        r"security/test_answers\.py::TestCost::.*\[as nobody writes\]",
        "200,000 series in the form that Prometheus writes are decoded",
    ),
    Left(
        r"literal/test_literal\.py::test_the_documents_reach",
        "they test the generator of documents: only a new rule changes their answer",
    ),
)
"""Rows of tests without a server."""

LEFT = (*SERVERS, *ROWS)


def left_out(items: Iterable[pytest.Item], named: Iterable[str]) -> dict[Left, list[pytest.Item]]:
    """What each row leaves out of these tests; files that are `named` on the command line run whole."""
    named = list(named)
    free = [item for item in items if not any(item.nodeid.partition("::")[0] in argument for argument in named)]
    found = {}
    for row in LEFT:
        pattern = re.compile(f"tests/{row.tests}")
        matched = [item for item in free if pattern.match(item.nodeid)]
        kept = set(spread(len(matched), row.keep))
        found[row] = [item for number, item in enumerate(matched) if number not in kept]
    return found


def spread(count: int, keep: int) -> list[int]:
    """So many of the first `count` numbers at even distances, the first and the last among them."""
    if keep < 2 or keep >= count:
        return list(range(min(keep, count)))
    return [round(number * (count - 1) / (keep - 1)) for number in range(keep)]
