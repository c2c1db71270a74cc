"""What `make test` leaves to `make test-all`, and `make test-unit` to `make test`, and why.

A row of the first is a protection that comes a night later.

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
    Left(r"e2e/test_upstreams\.py", "prometheus-adapter takes two minutes to build"),
    Left(
        r"(registries/test_(eureka_real\.py|contract\.py::.*SpringEureka)|e2e/test_registries\.py.*\[eureka)",
        "Spring's Eureka needs Java and Maven; the Eureka of Polaris speaks the same protocol",
    ),
    Left(
        r"e2e/test_faults\.py::test_nothing_shrinks.*\[(?!adapter-killed|leader-lost|api-server-restarted|prometheus-gone|"
        r"prometheus-zeros|metrics-server-gone|consul-frozen|consul-emptied|certificate-rotated)",
        "a fault of each input runs; the others of its kind take a quarter of a minute each",
    ),
    Left(
        r"e2e/test_counts\.py::test_a_step_of_one_pod",
        "a step at 20 pods shows that the real HPA makes it; the arithmetic of the others is the reference model's",
        keep=1,
    ),
    Left(
        r"e2e/test_counts\.py::test_memory_is_compared",
        "usage/test_real_metrics_server.py reads memory, and vectors compare it with its limit",
    ),
    Left(
        r"registries/test_contract\.py::test_the_delay",
        "e2e/test_registries.py times the whole way from a registry to the answer",
    ),
    Left(
        r"apiserver/test_start\.py::test_requests_from_the_first_moment",
        "each start is like the others; what differs is chance",
        keep=2,
    ),
    Left(
        r"e2e/test_windows\.py::test_windows_that_nobody_can_ask",
        "load/test_bounds.py holds the rule; on a real Prometheus it takes three minutes",
    ),
    Left(r"e2e/test_soak\.py", "`make test-all` runs a soak of five minutes besides"),
    Left(
        r"replay/hpa/test_real_controller\.py",
        "only another model of the HPA changes its answer; it takes a minute of processor time",
    ),
    Left(
        r"e2e/test_alerts\.py", "promtool tests each alert with series; a fault of each on a cluster takes 1.5 minutes"
    ),
    Left(
        r"e2e/test_registries\.py::test_(an_outage|a_pod_that_is_pulled_out.*\[nacos)",
        "outages and empty answers are in each registry's own tests on its server; a Nacos that pushes runs besides",
    ),
    Left(
        r"e2e/test_windows\.py::test_(an_adapter_that_starts|missed_scrapes_leave|pods_that_are_replaced|a_rolling_update|"
        r"the_total_of_a_new|a_target_that_is_up|one_missed_scrape|a_total_that_lacks)",
        "a restart after a gap and a wiped shard run; usage/test_real_prometheus.py and the loops have each gap",
    ),
    Left(
        r"e2e/test_blast_radius\.py::test_(a_kind_without_policies|a_kind_that_is_removed|"
        r"a_revoked_right_on_one_kind|a_shared_watch.*\[(?!pods))",
        "each watch of an input is treated alike: pods, EndpointSlices and a right of all run; engine/ has every input",
    ),
    Left(
        r"e2e/test_companion\.py::test_(four_absent_pods|a_row_shows|a_share_of_a_limit|a_policy_that_names|"
        r"a_status_is_written_when|a_missing_right)",
        "status and memory are written and read by unit tests; that rows are written at all is seen by the others",
    ),
    Left(
        r"e2e/test_companion\.py::test_with_all_features_off",
        "manifests/test_companion.py asks the API server for each right that it then has not",
    ),
    Left(
        r"e2e/test_companion_deletion_cost\.py::test_(pulled_out_pods.*\[1-4|a_stateful_set|without_the_right)",
        "whom it marks is held by unit tests: marking, unmarking and two ReplicaSets run on the real controller",
    ),
    Left(
        r"e2e/test_companion_telling\.py::test_(modes_are_seen|versions_that_serve|a_new_leader_notifies|without_the_right|"
        r"each_problem)",
        "an event, a notification and a receiver that hangs run; what is told when is held by unit tests",
    ),
    Left(
        r"e2e/test_companion_wiring\.py::test_(a_manager_that_applies|a_client_that_replaces|the_policys_velocity|"
        r"a_companion_without|a_rollout_does_not_ratchet.*\[0\])",
        "who wins a field is the same rule for each client: setting, repairing, leaving and a rollout run",
    ),
    Left(
        r"e2e/test_companion_fast_scale_up\.py::test_(another_leader|a_count_raised)",
        "the raise and the missing right run; the loops hold spikes, and test_companion.py the change of leaders",
    ),
    Left(r"e2e/test_pacing\.py::test_(a_schedule|an_idle|new_pods)", "vectors hold them; velocity and cooldown run"),
    Left(
        r"e2e/test_forms\.py::test_(the_count_is_the_same.*\[scale|the_rights_of_the_manifests)",
        "the shared adapter has the rights of the manifests in every test; two of the three forms run",
    ),
    Left(
        r"e2e/test_namespaces\.py::.*\[by_chart",
        "the chart renders the same rights as kustomize, by chart/test_equality.py",
    ),
    Left(
        r"chart/test_installed\.py::test_(deleting_what_kustomize|check_names_the_settings)",
        "the objects are those of the chart, whose removal runs; e2e/test_operation.py has settings that wait",
    ),
    Left(
        r"demo/test_e2e\.py",
        "it tests the demo: the replacement of pulled-out pods is in e2e/test_counts.py and test_registries.py",
    ),
    Left(r"e2e/test_migrate\.py::test_migrated", "migrate's outputs are recorded; a stored HPA is replaced"),
    Left(
        r"usage/test_real_prometheus\.py::TestWindows::test_after_a_gap",
        "they wait for gaps and windows; load/test_bounds.py holds the rule",
        keep=1,
    ),
    Left(
        r"registries/test_consul_real\.py::.*test_failed_agents_of_every",
        "it waits for half a minute; a failed agent runs, and test_consul.py has a fake's others",
    ),
)
"""Tests of real servers."""

ROWS = (
    Left(
        r"demo/test_model\.py::test_(the_model_tells_the_recorded|every_step)",
        "the whole story in the demo's model; tests/replay/scenarios holds the counts of the same rules",
    ),
    Left(
        r"engine/test_companion_conditions\.py::test_a_broken_input.*\[(HPAs are|Prometheus two|metrics.* for shop|"
        r"pods are|deployments fall|statefulsets|widgets are gone|widgets fall)",
        "engine/test_blast_radius.py breaks every input; a silent and a refused watch and each kind of source run",
    ),
    Left(r"replay/test_simulation\.py::test_a_replayed_policy_does.*\[1-", "one history is like the other"),
    Left(r"load/test_tolerance\.py::.*test_every_milli_tolerance", "hypothesis draws tolerances besides", keep=50),
)
"""Rows of tests without a server."""

LEFT = (*SERVERS, *ROWS)

QUICK = (
    Left(r"engine/test_.*::test_a_broken_input", "one input after the other fails: each is like the others", keep=3),
    Left(r"engine/test_blast_radius\.py::test_after_each_fault", "faults and their ends"),
    Left(
        r"(engine/test_scale_target\.py::test_three_hundred|apiserver/test_lists\.py::.*ten_thousand)",
        "crowds of clients, and what they may take of the memory and the loop",
    ),
    Left(
        r"(replay/(fleet/test_signals|test_(aim|skipping|outputs)\.py|"
        r"test_simulation\.py::test_a_replayed_policy|scenarios/test_report\.py::test_the_doc)|"
        r"demo/test_(model|building))",
        "days of load are replayed",
    ),
    Left(
        r"(fuzz/test_(policies\.py::test_a_document|dubbo|kubernetes\.py::test_an_object_with|settings|"
        r"registries\.py::test_an_answer)|document/test_fuzz|migrate/test_nothing_is_dropped\.py::test_every_field)",
        "strange values at many places",
        keep=30,
    ),
    Left(
        r"(release/test_release\.py::test_the_commands_load|"
        r"terminal/test_command_line\.py::test_ctrl_c|kube/test_leader_election\.py::test_no_two_act)",
        "they read all that is installed, start processes or play hours",
    ),
)
"""What `make test-unit` leaves to `make test`: a third of the processor time of the tests that need no server."""


def left_out(
    items: Iterable[pytest.Item], named: Iterable[str], rows: Iterable[Left] = LEFT
) -> dict[Left, list[pytest.Item]]:
    """What each row leaves out of these tests; files that are `named` on the command line run whole."""
    rows = tuple(rows)
    named = list(named)
    of_a_row = re.compile("|".join(f"tests/{row.tests}" for row in rows))  # most are of none: once over all is enough
    free = [(name, item) for item in items if of_a_row.match(name := item.nodeid)]
    free = [(name, item) for name, item in free if not any(name.partition("::")[0] in one for one in named)]
    found = {}
    for row in rows:
        pattern = re.compile(f"tests/{row.tests}")
        matched = [item for name, item in free if pattern.match(name)]
        kept = set(spread(len(matched), row.keep))
        found[row] = [item for number, item in enumerate(matched) if number not in kept]
    return found


def spread(count: int, keep: int) -> list[int]:
    """So many of the first `count` numbers at even distances, the first and the last among them."""
    if keep < 2 or keep >= count:
        return list(range(min(keep, count)))
    return [round(number * (count - 1) / (keep - 1)) for number in range(keep)]
