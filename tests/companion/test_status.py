"""What a status says and when it is written, versions and outages among it; and which features write at all."""

import itertools
import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from adapter.companion import findings, status
from adapter.companion.changes import Told
from adapter.companion.state import ActionResult, Context, State, Write, WrittenStatus
from adapter.companion.writer import as_written
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.quantity import NANO
from adapter.load.roster import Roster
from adapter.load.samples import PodUsage, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Bounds, Capacity, Fallback, Metric, Mode, PulledOut, Query, Target
from adapter.policy.conditions import ConditionType
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.snapshot import Problem
from tests.companion.kit import RULE, Leader, context, hpa, judged, status_in
from tests.load.kit import NOW, REGISTRY, TARGET, cpu, out, pod, policy


def planned(case: Context) -> list[Write]:
    return list(status.plan(judged(case)))


def said(case: Context) -> dict[str, Any]:
    """The status that is written."""
    (write,) = planned(case)
    return status_in(write)


def troubled(case: Context, code: int, reason: str, message: str = "what is wrong") -> Context:
    """The same without an assessment, for this problem."""
    view = replace(case.view, assessment=None, problem=Problem(code, reason, message))
    return replace(case, view=view, decision=None)


def taken_over(found: Write, at: float = NOW + 1) -> State:
    """What a new leader reads of a status."""
    return State().having(as_written(json.loads(msgspec.json.encode(status_in(found))), at))


def fences(found: Write) -> dict[str, str]:
    """What has to be so for the status to be written."""
    return {one["path"]: one["value"] for one in found.body if one["op"] == "test"}


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(dict(one) for one in found["conditions"] if one["type"] == kind)


def reason(found: dict[str, Any], kind: str) -> tuple[str, str]:
    return condition(found, kind)["status"], condition(found, kind)["reason"]


def test_a_status_says_what_was_found_and_decided() -> None:
    (action,) = planned(context("1500m", pods=[*(pod(f"p{n}") for n in range(5)), out("o")], current=6))
    found = status_in(action)
    assert fences(action) == {"/metadata/uid": "policy-uid"}
    assert (found["verdict"], found["current"], found["desired"]) == ("Above", 6, 8)
    assert (found["metric"], found["effective"], found["high"], found["low"]) == ("cpu", "1500m", "1200m", "400m")
    assert (found["pods"]["serving"], found["pods"]["pulledOut"]) == (5, 1)
    assert (found["metrics"][0]["sampled"], found["metrics"][0]["windowSeconds"]) == (5, 15.0)
    assert found["decision"].startswith("asks for 8, now 6: cpu: 5 pods use 1500m on average")
    assert (found["lowerBound"], "upperBound" in found) == (8, False)
    assert found["memory"] == {"away": ["pulledOut 2026-01-01T12:00:00.000000Z uid-o"]}
    assert reason(found, "Ready") == ("True", "Decided")


def test_figures_of_a_metric_have_one_unit() -> None:
    found = said(context("1000m", pods=[pod("p0"), out("o")], current=2))
    assert (found["effective"], found["high"], found["low"]) == ("1000m", "1200m", "400m")


def test_a_policy_that_is_not_answered_says_why_and_asks_for_no_count() -> None:
    found = said(context(None))
    assert (found["verdict"], "desired" in found) == ("Error", False)
    assert (reason(found, "Ready"), reason(found, "InputsFresh")[0]) == (("False", "NoDecision"), "False")


def test_a_problem_is_shown_as_the_decision_and_the_memory_stays() -> None:
    memory = {"errorSince": "2026-01-01T00:00:00.000000Z"}
    state = State().having(WrittenStatus(status={"memory": memory, "assessedAt": "2026-01-01T00:00:00Z"}))
    (action,) = planned(troubled(context(state=state), 404, "NotFound", "the HPA does not exist"))
    found = status_in(action)
    assert (found["verdict"], found["decision"], found["memory"]) == ("Error", "the HPA does not exist", memory)
    assert reason(found, "Ready") == ("False", "NotFound")
    assert reason(found, "Active") == ("False", "HPAMissing"), "it does not pass for active"
    assert fences(action)["/status/assessedAt"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("seconds", "writes"),
    [
        (11, 0),
        (59, 0),
        (60, 1),
        pytest.param(-0.5, 0, id="the API server's clock was put back a little"),
        pytest.param(-3600, 1, id="by an hour"),
    ],
)
def test_the_same_is_not_written_again_within_a_minute(seconds: float, writes: int) -> None:
    case = context()
    state = case.state.tried(planned(case)[0], ActionResult.DONE, NOW)
    assert len(planned(replace(case, state=state, now=NOW + seconds))) == writes
    (first,) = planned(case)
    assert len(planned(replace(case, now=NOW + seconds, state=taken_over(first, NOW)))) == writes, "by another leader"


def test_a_status_whose_write_was_not_answered_but_made_is_as_old_as_that_write() -> None:
    case = context()  # of an assessment 20 s ago, as while its source has no sample
    (first,) = planned(case)
    state = State(taken_over(first).parts, State().tried(first, ActionResult.FAILED, NOW + 20).attempts)
    assert [len(planned(replace(case, state=state, now=NOW + seconds))) for seconds in (79, 80)] == [0, 1]


def test_changed_count_is_written_but_not_within_ten_seconds() -> None:
    (first,) = planned(context("800m"))
    state = State().tried(first, ActionResult.DONE, NOW)
    assert planned(replace(context("1500m", current=5, now=NOW + 9.9), state=state)) == []
    (second,) = planned(replace(context("1500m", current=5, now=NOW + 10), state=state))
    assert status_in(second)["current"] == 5
    assert fences(second)["/status/assessedAt"] == status_in(first)["assessedAt"]


@pytest.mark.parametrize("minimum", [1, 4])
def test_policy_at_rest_is_written_at_most_once_a_minute(minimum: int) -> None:
    """An hour of samples around the low watermark, whose count the HPA keeps."""
    leader, loads, writes = Leader(), itertools.cycle(("500m", "390m", "100m", "405m", "1230m", "900m")), []
    for second in range(0, 3600, 15):
        case = context(next(loads), now=NOW + second, bounds=Bounds(minimum=minimum, maximum=4))
        writes += [second for action in leader.look(case) if action.kind == "WriteStatus"]
    assert {after - before for before, after in itertools.pairwise(writes)} == {60}


def test_observing_policy_shows_the_count_that_it_would_ask_for() -> None:
    found = said(context("2400m", rule=replace(RULE, mode=Mode.OBSERVE)))
    assert (found["desired"], found["current"]) == (8, 4)
    assert found["decision"].startswith("mode Observe; in mode Active it asks for 8, now 4: cpu: 4 pods")


def test_status_after_a_scale_down_from_sixty_pods_fits_one_screen() -> None:
    leader, bounds = Leader(), Bounds(minimum=2, maximum=100)
    leader.look(context("100m", pods=60, bounds=bounds))
    shown = leader.status(context("300m", pods=2, now=NOW + 600, bounds=bounds))
    assert "memory" not in shown
    assert len(yaml.safe_dump(json.loads(msgspec.json.encode(shown))).splitlines()) <= 90


def test_a_condition_is_as_old_as_its_status_whoever_leads() -> None:
    (first,) = planned(context())
    since, state = condition(status_in(first), "Ready")["lastTransitionTime"], taken_over(first)
    assert condition(said(context("1500m", now=NOW + 500, state=state)), "Ready")["lastTransitionTime"] == since
    assert condition(said(context(None, now=NOW + 600, state=state)), "Ready")["lastTransitionTime"] != since
    (other,) = planned(troubled(context(), 503, "ServiceUnavailable"))
    assert (
        condition(said(context(None, now=NOW + 600, state=taken_over(other))), "Ready")["lastTransitionTime"] == since
    )


def test_a_status_with_a_future_time_counts_as_written_now() -> None:
    case = replace(context("800m"), state=State().having(as_written({"assessedAt": "2999-01-01T00:00:00Z"}, NOW)))
    assert planned(case) == []
    (action,) = planned(replace(case, now=NOW + 10))
    assert fences(action)["/status/assessedAt"] == "2999-01-01T00:00:00Z"


def test_that_a_policy_is_not_accepted_is_written_at_once_and_the_rest_every_ten_seconds() -> None:
    (first,) = planned(context())
    case = replace(context(), now=NOW + 1, state=taken_over(first, at=NOW))
    assert planned(troubled(case, 503, "ServiceUnavailable")) == []
    found = said(troubled(case, 422, "Invalid"))
    assert (reason(found, "Accepted"), reason(found, "Ready")) == (("False", "Refused"), ("False", "Invalid"))
    assert condition(found, "Accepted")["message"] == condition(found, "Ready")["message"] == "what is wrong"
    silent = condition(said(troubled(context(), 503, "WatchSilent")), "Accepted")
    assert silent["status"] == "True"
    assert silent["message"].startswith("the policy is valid by itself; whether the settings have what it names")


def test_no_text_is_longer_than_the_schema_allows() -> None:
    found = said(troubled(context(), 503, "ServiceUnavailable", "x" * 100_000))
    assert len(found["decision"]) == 1024
    assert max(len(one["message"]) for one in found["conditions"]) <= 32768


# --- outages: sentences stay as they are while one lasts, and name a source once

METRICS = (
    cpu("1200m", "400m"),
    Metric(name="memory", resource="memory", relative_to=Capacity.LIMIT, high=Fraction(NANO, 2)),
    *(Metric(name=name, query=Query(name=name), high=Fraction(100 * NANO)) for name in ("rps", "p99")),
)
USED = PodUsage(NOW - 400, 15.0, {"app": {"cpu": 1, "memory": 1}})
REFUSED = "503 ServiceUnavailable: the server is currently unable to handle the request (last answer at 12:00Z)"
DOWN = "Prometheus main: Cannot connect to host prometheus:9090 (last answer at 12:00Z)"
RESOURCES = (
    ResourceSamples(error=REFUSED, fetched_at=NOW - 200),
    ResourceSamples(error="no answer within 5 s (no answer so far)"),
    ResourceSamples(),
    ResourceSamples(fetched_at=NOW - 1),
    ResourceSamples(pods={f"p{n}": USED for n in range(4)}, fetched_at=NOW),
)


def during(resources: ResourceSamples, now: float = NOW, listed: Roster | None = None) -> Context:
    queries = {name: QuerySamples(error=DOWN) for name in ("rps", "p99")}
    rule = policy(*METRICS, registry=REGISTRY, fallback=Fallback(after=0, replicas=9))
    pods = [pod(f"p{n}", limits={"memory": "1000"}) for n in range(4)]
    samples, bounds = Samples(resources=resources, queries=queries), Bounds(minimum=0, maximum=100)
    memory = Memory(error_since=NOW - 600)
    return judged(context(rule=rule, pods=pods, samples=samples, listed=listed, memory=memory, bounds=bounds, now=now))


def test_no_sentence_of_an_outage_changes_while_it_lasts() -> None:
    """Each change of an HPA's error would be a write to the HPA's status and an Event, for every HPA."""
    old = Roster(at=NOW - 2000, error="http://consul:8500/v1/health/service/web: HTTP 500: No cluster leader")
    for resources, listed in itertools.product(RESOURCES, (None, old)):
        cases = [during(resources, now, listed) for now in (NOW + 100, NOW + 137)]
        found = [status.status_of(case) for case in cases]
        told = [[one["decision"], *(each["message"] for each in one["conditions"])] for one in found]
        assert told[0] == told[1]
        assert len({case.decision.error for case in cases if case.decision is not None}) == 1


def test_answers_without_fresh_samples_change_no_sentence_within_a_minute() -> None:
    cases = [during(ResourceSamples(fetched_at=now - 1), now) for now in (NOW + 62, NOW + 77, NOW + 92)]
    (told,) = {case.conditions["InputsFresh"].message for case in cases}
    assert "metrics.k8s.io has no fresh sample (last answer at 2026-01-01T12:01Z)" in told


def test_a_source_that_fails_several_metrics_is_named_once() -> None:
    told = during(RESOURCES[0]).conditions["InputsFresh"].message
    assert told.startswith(f"metric cpu, metric memory: metrics.k8s.io: {REFUSED}; query rps, query p99: {DOWN}")


# --- versions: serving pods run one, but while a rollout moves on

OLD, NEW = "6c5d4f", "7b9c8d"
LABEL = "app.kubernetes.io/version"


def of(revision: str, count: int, *, age: float = 3600.0, **changes: Any) -> list[Pod]:
    return [pod(f"web-{revision}-{n}", age=age, template_hash=revision, **changes) for n in range(count)]


def versions(pods: list[Pod], target: Target = TARGET) -> tuple[bool, str, str]:
    found = findings.versions(context(pods=pods, target=target))
    assert found is not None
    return found


def test_two_templates_that_serve_side_by_side_for_long_are_named_with_their_counts() -> None:
    pods = of(OLD, 3, labels={LABEL: "1.4.1"}) + of(NEW, 7, age=1200.0, labels={"version": "1.4.2"})
    listed = "the serving pods run 2 versions: 1.4.2 (7b9c8d, 7 pods), 1.4.1 (6c5d4f, 3 pods)"
    assert versions(pods) == (False, "VersionMismatch", f"{listed}; no rollout has progressed for 600 s")


STALLED, PAST_DEADLINE = (replace(TARGET, progressing=why) for why in ("DeploymentPaused", "ProgressDeadlineExceeded"))


@pytest.mark.parametrize(
    ("newer", "target", "reason"),
    [
        pytest.param(of(NEW, 2, age=1200.0) + of(NEW, 1, age=590.0), TARGET, "RollingOut", id="the last pod turned"),
        pytest.param(of(NEW, 2, age=1200.0) + of(NEW, 1, age=620.0), TARGET, "VersionMismatch", id="ready long ago"),
        pytest.param(
            [*of(NEW, 2, age=1200.0), replace(of(OLD, 1, age=60.0)[0], uid="young")], TARGET, "VersionMismatch",
            id="a young pod of the old template is no progress",
        ),
        *(
            pytest.param(of(NEW, 2, age=age), replace(target, progressing_since=NOW - ago), reason, id=says)
            for target, ago, age, reason, says in (
                (STALLED, 601, 3600.0, "RollingOut", "paused for long"),
                (PAST_DEADLINE, 599, 60.0, "RollingOut", "past its deadline lately"),
                (PAST_DEADLINE, 601, 60.0, "VersionMismatch", "past its deadline for long"),
                (PAST_DEADLINE, 10, 620.0, "VersionMismatch", "past its deadline, its last pod ready long ago"),
            )
        ),
    ],
)  # fmt: skip
def test_a_rollout_that_has_not_progressed_for_ten_minutes_is_a_mismatch(
    newer: list[Pod], target: Target, reason: str
) -> None:
    assert versions(of(OLD, 3) + newer, target)[1] == reason


def test_only_pods_that_serve_count_and_a_stateful_sets_by_their_controller_revision() -> None:
    gone = [replace(one, deleting=True) for one in of(OLD, 3)]
    away = [replace(one, uid=f"{one.uid}-out", pulled_out_annotation=True) for one in of(OLD, 3)]
    assert versions(gone + away + of(NEW, 3))[1] == "OneVersion"
    labels = ({"controller-revision-hash": f"web-{n}"} for n in (1, 2))
    pods = [pod(f"web-{n}", template_hash="", owner=None, labels=one) for n, one in enumerate(labels)]
    found = versions(pods, replace(TARGET, kind="StatefulSet"))
    assert found[2].startswith("the serving pods run 2 versions: web-1 (1 pod), web-2 (1 pod)")


# --- which features write

EVERY = {"RaiseScale", "MarkPod", "WireHpa", "WriteStatus", "WriteEvent"}


def kinds(*, silent: bool = False, **switched: bool) -> set[str]:
    """The kinds of writes for a policy of which everything is due that is switched on."""
    features = dict.fromkeys(CompanionFeatures.model_fields, True) | switched
    settings = CompanionSettings(features=CompanionFeatures(**features))
    rule = replace(RULE, fast_scale_up=True, hpa_configuration="Manage", pulled_out=PulledOut(delete_first=True))
    pods, leader, done = [*(pod(f"web-{n}") for n in range(4)), out("out-0")], Leader(), set[str]()
    given = {"pods": pods, "rule": rule, "settings": settings, "hpa": hpa(), "has_tolerance": True}
    for second in range(0, 180, 15):
        case = context("2400m", now=NOW + second, scale_path="/scale", **given)
        case = troubled(case, 503, "WatchSilent") if silent else case
        done |= {write.kind for write in leader.look(case)}
    return done


def test_each_feature_has_a_switch() -> None:
    assert kinds() == EVERY
    for switch, kind in {
        "status": "WriteStatus", "events": "WriteEvent", "fast_scale_up": "RaiseScale", "deletion_cost": "MarkPod",
        "hpa_configuration": "WireHpa",
    }.items():  # fmt: skip
        assert kinds(**{switch: False}) == EVERY - {kind}


def test_while_a_watch_is_silent_only_its_status_and_events_are_written() -> None:
    assert kinds(silent=True) == {"WriteStatus", "WriteEvent"}


def test_the_docs_have_a_row_for_every_type_of_condition() -> None:
    docs = Path(__file__).parents[2] / "docs" / "conditions.md"
    table = re.findall(r"^\| `(\w+)` \|", docs.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(ConditionType) <= set(table)


def test_a_condition_of_another_version_in_the_status_stops_nothing() -> None:
    leader = Leader(status={"conditions": [{"type": "OfALaterVersion", "status": "False", "reason": "Odd"}]})
    for second in (0, 11):
        leader.look(context(now=NOW + second))
    assert [change.reason for change in leader.state.of(Told).news] == ["OfALaterVersionOver"]
