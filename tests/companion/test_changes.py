"""Events and notifications: each scaling with its author and cause, each trouble once when it has stood long enough."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.companion.changes import SCALINGS_PER_HOUR, ReplicaHistory, Told, observe_count
from adapter.companion.changes import unattributed as new_term
from adapter.companion.findings import routes
from adapter.companion.state import ActionResult, Context, WrittenStatus
from adapter.companion.writer import as_written
from adapter.load.memory import Memory
from adapter.load.spec import Bounds, Fallback, Mode
from adapter.policy.linking import Neighbours
from adapter.settings import CompanionFeatures, CompanionSettings
from adapter.settings.companion import NotificationRoute, Notifications, Production, Severity, Topic
from adapter.snapshot import PolicyView
from tests.companion.kit import KEY, NOTIFYING, ROUTE, RULE, Leader, context, hpa, told
from tests.companion.test_status import NEW, OLD, of, troubled
from tests.load.kit import NOW, REGISTRY, TARGET, out, roster, same, scale

SMALL = Bounds(minimum=1, maximum=4)
SCALED = Bounds(minimum=1, maximum=100, last_scale=NOW + 1)
CONTROLLER = "kube-controller-manager/scale"


def at(seconds: float, load: str | None = "800m", **changes: Any) -> Context:
    return context(load, now=NOW + seconds, **changes)


def blind(seconds: float, **changes: Any) -> Context:
    """No pod has a sample."""
    return at(seconds, None, **changes)


def has_scaled(seconds: float, **changes: Any) -> Context:
    return at(seconds, current=8, bounds=SCALED, **changes)


def about_to_scale() -> Leader:
    """A leader of a policy whose load asks for eight pods."""
    leader = Leader()
    leader.look(context("2400m"))
    return leader


def noticed(leader: Leader, *looks: Context) -> list[str]:
    """The topics of all that is notified in these looks."""
    return [str(notice.topic) for look in looks for notice in leader.notices(look)]


# --- who changed the count, and why


def count(
    seconds: float,
    replicas: int,
    claimed: float | None = None,
    load: str = "800m",
    *,
    step: tuple[int, int] | None = None,
    minimum: int = 1,
    **changes: Any,
) -> Context:
    """A look at a count. The HPA claims to have scaled at second `claimed`, by that step."""
    bounds = Bounds(minimum=minimum, maximum=100, last_scale=None if claimed is None else NOW + claimed)
    follows = hpa(bounds=bounds, last_step=step)
    return context(load, pods=4, current=replicas, now=NOW + seconds, bounds=bounds, hpa=follows, **changes)


def scalings(*looks: Context, status: dict[str, Any] | None = None) -> list[str]:
    """The scalings after these looks, by a leader that found this status."""
    leader, found = Leader(status, at=NOW - 20), list[str]()
    for look in looks:
        names = [body["metadata"]["name"] for body in leader.written(look)]
        assert len(set(names)) == len(names)
        found += [change.text for change in leader.state.of(Told).news if change.reason == "Scaled"]
    return found


FOUR = count(0, 4)
SECOND = Neighbours(hpas="second")
OTHER = replace(TARGET, uid="another")


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([FOUR], [], id="the first look is no scaling"),
        pytest.param([FOUR, count(2, 6)], [], id="the HPA may still claim it"),
        pytest.param([FOUR, count(2, 6), count(5, 6)], ["from 4 to 6 by an unknown client"], id="nobody is known"),
        pytest.param([FOUR, count(2, 6, manager="kubectl")], ["from 4 to 6 by hand (kubectl)"], id="by hand"),
        pytest.param([FOUR, count(2, 6, manager="argocd")], ["from 4 to 6 by argocd"], id="by another manager"),
        pytest.param(
            [FOUR, count(2, 6, manager="effective-load-companion"), count(23, 6)], ["from 4 to 6 by the companion"],
            id="by a fast scale-up",
        ),
        pytest.param(
            [FOUR, *(count(n, 6, manager=CONTROLLER, neighbours=SECOND) for n in (2, 5))],
            ["from 4 to 6 by another HPA"], id="by another HPA",
        ),
        pytest.param(
            [FOUR, *(count(n, 6, manager=CONTROLLER) for n in (2, 5, 22))], ["from 4 to 6 by the HPA"],
            id="by the HPA, whose status is late",
        ),
        pytest.param([FOUR, count(1, 8, 1), count(20, 8, 1)], [], id="one of the HPA waits for its cause"),
        pytest.param([FOUR, count(1, 8, 1), count(21, 8, 1)], ["from 4 to 8 by the HPA"], id="for a poll"),
        pytest.param(
            [FOUR, count(2, 2, manager="argocd"), count(9, 4, 9, step=(2, 4), minimum=4)],
            ["from 4 to 2 by argocd", "from 2 to 4 by the HPA"], id="a tool sets it back and the HPA answers",
        ),
        pytest.param(
            [count(0, 6), count(2, 4, 2, step=(2, 4), minimum=4)],
            ["from 6 to 2 by an unknown client", "from 2 to 4 by the HPA"], id="two changes lie between two looks",
        ),
        pytest.param(
            [FOUR, count(2, 10, manager="argocd"), count(4, 8, 4, step=(4, 8))],
            ["from 4 to 10 by argocd", "from 10 to 8 by the HPA: it began at 4, the count before"],
            id="a tool sets it while the HPA syncs, which writes over it",
        ),
        pytest.param(
            [FOUR, count(2, 8, 2, step=(4, 8), manager="kubectl")], ["from 4 to 8 by hand (kubectl)"],
            id="it was by hand while the HPA synced, which wrote the same count once more",
        ),
        pytest.param(
            [FOUR, count(2, 8, 2, step=(4, 8), manager="vpa-recommender/scale"), count(23, 8, 2, step=(8, 8))],
            ["from 4 to 8 by the HPA"], id="an HPA's controller may have another name",
        ),
        pytest.param(
            [count(n, 6 if n < 2 else 3, 0, step=(5, 6), manager=CONTROLLER, neighbours=SECOND) for n in (0, 2, 6)],
            ["from 6 to 3 by another HPA"], id="the HPA's earlier claim is for its own step",
        ),
        pytest.param(
            [FOUR, count(2, 9, target=OTHER), count(9, 9, target=OTHER)], [], id="another target's count is no scaling"
        ),
    ],
)  # fmt: skip
def test_each_change_of_the_count_has_its_author_and_step(looks: list[Context], expected: list[str]) -> None:
    assert [one.partition(": cpu")[0] for one in scalings(*looks)] == expected


@pytest.mark.parametrize(
    ("looks", "cause"),
    [
        pytest.param([count(0, 4, load="2400m"), count(2, 8, 1)], "cpu: 4 pods use 2400m on average, above", id="told"),
        pytest.param([FOUR, count(1, 8, 1), count(12, 8, 1, "2400m")], "cpu: 4 pods use 2400m", id="by the next poll"),
        pytest.param([count(0, 4, load="2400m"), count(2, 6, 1)], "on the way to 8: cpu", id="a part of it"),
    ],
)
def test_scaling_of_the_hpa_has_the_policys_cause(looks: list[Context], cause: str) -> None:
    (found,) = scalings(*looks)
    assert f" by the HPA: {cause}" in found


def test_same_counts_by_another_author_have_no_former_cause() -> None:
    by_hpa = [count(0, 4, load="2400m"), count(2, 8, 1, "2400m", step=(4, 8))]
    by_hand = [count(40, 4, 1, step=(8, 8), manager="kubectl"), count(60, 8, 1, step=(4, 4), manager="kubectl")]
    found = scalings(*by_hpa, *by_hand)
    assert found[0].startswith("from 4 to 8 by the HPA: cpu: 4 pods use 2400m")
    assert found[1:] == ["from 8 to 4 by hand (kubectl)", "from 4 to 8 by hand (kubectl)"]


def test_new_leader_goes_on_from_the_count_of_the_status() -> None:
    assert scalings(count(0, 6), count(5, 6), status={"current": 4}) == ["from 4 to 6 by an unknown client"]


def test_a_step_that_was_told_is_not_told_again_in_a_next_term_that_finds_an_older_status() -> None:
    leader = Leader({"current": 4}, at=NOW - 20)
    assert leader.events(FOUR) == []
    assert leader.events(count(2, 6, manager="kubectl")) == ["Normal Scaled: from 4 to 6 by hand (kubectl)"]
    older, known = as_written({"current": 4}, NOW - 20), new_term(leader.state.of(ReplicaHistory))
    leader.state = leader.state.having(known, Told(), replace(older, at=NOW - 20))
    assert leader.events(count(9, 6, manager="kubectl")) == []
    assert leader.events(count(12, 7, manager="kubectl")) == ["Normal Scaled: from 6 to 7 by hand (kubectl)"]
    known = new_term(leader.state.of(ReplicaHistory))
    leader.state = leader.state.having(known, Told(), WrittenStatus(is_read=True))
    assert leader.events(count(20, 9)) == [], "another one led, who wrote no status"


def test_count_is_dated_by_its_last_rise_also_by_replicas_that_do_not_lead() -> None:
    def view(replicas: int, uid: str = "target") -> PolicyView:
        return PolicyView(policy=RULE, target=replace(TARGET, uid=uid), scale=scale(replicas))

    known = observe_count(ReplicaHistory(), view(3), NOW)
    for after, replicas in enumerate((3, 5, 4, 4), start=1):
        known = observe_count(known, view(replicas), NOW + after)
    assert (known.since, known.replicas) == (NOW + 2, 4)
    assert observe_count(known, PolicyView(policy=RULE), NOW + 9) is known, "an unknown target keeps its history"
    assert observe_count(known, view(9, "another"), NOW + 9).since == NOW + 9
    assert new_term(replace(known, pending=())) == replace(known, pending=None)


# --- Events


def test_scaling_gets_one_event_about_the_policy_and_one_notification() -> None:
    leader = about_to_scale()
    (body,) = leader.written(has_scaled(2))
    assert told(body).startswith("Normal Scaled: from 4 to 8 by the HPA: cpu: 4 pods use 2400m")
    policy = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "uid": "policy-uid"}
    assert body["regarding"] == policy | {"namespace": KEY.namespace, "name": KEY.name}
    (notice,) = leader.state.of(Told).news
    assert (notice.topic, notice.severity, notice.text) == (Topic.SCALED, Severity.INFO, body["note"])
    assert (notice.fields["from"], notice.fields["to"], notice.fields["why"][:3]) == ("4", "8", "cpu")
    assert [leader.events(has_scaled(seconds)) for seconds in range(3, 700, 10)] == [[]] * 70


def test_the_event_of_a_fallback_says_so() -> None:
    leader, rule = Leader(), replace(RULE, fallback=Fallback(after=60, replicas=8))
    leader.look(blind(0, rule=rule, memory=Memory(error_since=NOW - 600)))
    (event,) = leader.events(has_scaled(2, rule=rule))
    assert event == ("Normal Scaled: from 4 to 8 by the HPA: nothing could be decided for 60 s: the fallback is 8")


def test_a_missing_hpa_gets_one_event_by_condition_ready() -> None:
    leader, found = Leader(), []
    leader.look(at(0))
    for seconds in range(1, 120):
        case = troubled(at(seconds), 404, "NotFound") if seconds < 60 else at(seconds)
        found += [(seconds, event.split(":")[0]) for event in leader.events(case)]
    assert [event for _, event in found] == ["Warning NotFound", "Normal Decided"]
    assert found[0][0] < 60 <= found[1][0]


def test_a_condition_gets_an_event_once_it_has_lasted_and_another_when_it_is_over() -> None:
    leader = Leader()
    looks = {0: at, 10: blind, 21: blind, 71: blind, 90: at, 101: at, 151: at}
    assert [[event.split(":")[0] for event in leader.events(look(second))] for second, look in looks.items()] == [
        [], [], ["Warning NoDecision"], ["Warning InputsMissing"], [], ["Normal Decided"], ["Normal SamplesFresh"]
    ]  # fmt: skip


def test_a_trouble_that_comes_and_goes_is_told_once_in_ten_minutes() -> None:
    leader, found = Leader(), []
    leader.look(at(0))
    for second in range(15, 1500, 15):
        look = blind if second % 300 < 240 else at
        found += [second for event in leader.events(look(second)) if event.startswith("Warning NoDecision")]
    assert found == [30, 630, 1230]


def test_a_policy_gets_only_so_many_events_about_scalings_an_hour() -> None:
    leader, found = Leader(), []
    leader.look(at(0, current=1))
    for n in range(1, SCALINGS_PER_HOUR + 11):
        found += leader.events(at(10 * n, current=n + 1)) + leader.events(at(10 * n + 4, current=n + 1))
    assert len(found) == SCALINGS_PER_HOUR
    leader.look(at(4200, current=100))
    assert leader.events(at(4204, current=100)) == ["Normal Scaled: from 31 to 100 by an unknown client"]


@pytest.mark.parametrize(
    ("outcome", "tries"), [(ActionResult.FAILED, 2), (None, 2), (ActionResult.OVERTAKEN, 1)]
)  # fmt: skip
def test_an_event_that_is_not_there_is_tried_again_under_its_name(outcome: ActionResult | None, tries: int) -> None:
    leader = about_to_scale()
    leader.outcome = outcome
    names = [body["metadata"]["name"] for second in (2, 12) for body in leader.written(has_scaled(second))]
    assert (len(names), len(set(names))) == (tries, 1)


def test_a_new_leader_writes_no_events_for_the_conditions_of_the_status() -> None:
    before = Leader()
    for look in (at(0), blind(10), blind(25)):
        before.look(look)
    successor = Leader(before.status(blind(150)), at=NOW + 150)
    assert [successor.events(blind(second)) for second in (160, 175, 190)] == [[], [], []]


@pytest.mark.parametrize(
    ("change", "later", "reason"),
    [
        ({"mode": Mode.PAUSED}, {"mode": Mode.ACTIVE}, "Paused"),
        ({"mode": Mode.OBSERVE}, {"mode": Mode.ACTIVE}, "Observed"),
        pytest.param({"hold_until": NOW + 60}, {}, "Held", id="a hold, which ends by itself"),
    ],
)
def test_a_mode_of_rest_gets_an_event_at_once_and_another_at_its_end_and_no_warning(
    change: dict[str, Any], later: dict[str, Any], reason: str
) -> None:
    leader, resting = Leader(), replace(RULE, **change)
    leader.look(at(0))
    found = [leader.events(at(second, rule=resting)) for second in (1, 59)]
    assert [[event.split(": ")[:2] for event in events] for events in found] == [[[f"Normal {reason}", "Active"]], []]
    (event,) = leader.events(at(60, rule=replace(resting, **later)))
    assert event == "Normal Deciding: Active: the policy is in mode Active and not held"


def test_while_switched_off_no_event_is_written_nor_later_for_what_was_then() -> None:
    leader, off = Leader(), CompanionSettings(features=CompanionFeatures(events=False))
    leader.look(context("2400m", settings=off))
    assert leader.events(has_scaled(2, settings=off)) == []
    assert leader.events(has_scaled(9)) == []


def test_a_long_note_is_cut_to_what_the_api_takes() -> None:
    leader = Leader()
    leader.look(at(0))
    rule = replace(RULE, metrics=tuple(replace(RULE.metrics[0], name=f"metric-{'ä' * 30}-{n}") for n in range(30)))
    leader.look(blind(10, rule=rule))
    assert 1020 <= max(len(one["note"].encode()) for one in leader.written(blind(25, rule=rule))) <= 1024


# --- notifications


def test_lost_data_are_notified_once_after_a_minute_and_when_they_are_back_for_as_long() -> None:
    leader = Leader()
    leader.look(at(0))
    assert [noticed(leader, blind(second)) for second in (10, 60, 71, 81, 600)] == [[], [], ["dataLost"], [], []]
    assert [noticed(leader, at(second)) for second in (610, 660, 671, 681)] == [[], [], ["dataRecovered"], []]


def test_data_are_not_back_while_other_data_of_the_policy_are_lost() -> None:
    leader, rule = Leader(), replace(RULE, registry=REGISTRY)
    pods = [replace(one, ips=(f"10.0.0.{n}",)) for n, one in enumerate(same(4, None)[0])]
    ips = [pod.ips[0] for pod in pods]

    def looks(begin: int, end: int, load: str | None, registry: bool) -> list[str]:
        heard = {second: roster(*ips, at=NOW + second) if registry else None for second in range(begin, end, 10)}
        return noticed(leader, *(at(one, load, pods=pods, rule=rule, listed=found) for one, found in heard.items()))

    assert looks(0, 10, "800m", True) == []
    assert looks(10, 100, None, False) == ["dataLost", "dataLost"]
    assert looks(100, 300, "800m", False) == []
    assert looks(300, 400, "800m", True) == ["dataRecovered"]


def test_needing_more_than_the_maximum_is_notified_once_after_a_minute() -> None:
    leader = Leader()
    assert leader.notices(at(0, "2400m", bounds=SMALL)) == []
    (notice,) = leader.notices(at(61, "2400m", bounds=SMALL))
    assert notice.topic is Topic.AT_MAXIMUM
    assert notice.text.startswith("AtMaximum: more is needed than the HPA's maximum of 4: cpu")
    assert leader.notices(at(71, "2400m", bounds=SMALL)) == []


SILENT = [troubled(at(second), 503, "WatchSilent") for second in range(10, 200, 10)]


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([at(0), *SILENT, *(at(second) for second in range(200, 400, 10))], id="a silent watch"),
        pytest.param([at(seconds, pods=[], current=0) for seconds in (0, 61, 122)], id="a service without pods"),
        pytest.param(
            [at(seconds, None if seconds % 60 < 50 else "800m") for seconds in range(0, 1200, 10)],
            id="data that are lost for a moment",
        ),
        pytest.param([at(seconds, bounds=SMALL) for seconds in (0, 31, 62)], id="a maximum that is enough"),
        pytest.param([at(0, pods=[*same(8, None)[0], out("a"), out("b")])], id="two of ten pods that are out"),
        pytest.param([at(0, pods=[*same(1, None)[0], out("a")])], id="one of two"),
    ],
)
def test_what_is_no_news_is_not_notified(looks: list[Context]) -> None:
    assert noticed(Leader(), *looks) == []


def test_a_mass_pull_out_is_notified_at_once_also_of_pods_that_are_doubtful_as_all_would_be_out() -> None:
    (notice,) = Leader().notices(at(0, pods=[*same(7, None)[0], *(out(f"out-{n}") for n in range(3))]))
    assert (notice.topic, notice.severity) == (Topic.MASS_PULL_OUT, Severity.CRITICAL)
    assert notice.text == "MassPullOut: 3 of 10 running pods are pulled out; out-0: pulled out by hand"
    pods = [replace(one, ips=(f"10.0.0.{n}",)) for n, one in enumerate(same(4, None)[0])]
    listed = roster(disabled=tuple(one.ips[0] for one in pods))
    (notice,) = Leader().notices(at(0, pods=pods, listed=listed, rule=replace(RULE, registry=REGISTRY)))
    assert "4 of 4 running pods are pulled out, 4 of them are kept as doubtful; web-0: every pod" in notice.text


@pytest.mark.parametrize(
    ("production", "severity"), [((), Severity.WARNING), (("sh*",), Severity.CRITICAL), (("prod-*",), Severity.WARNING)]
)
def test_a_version_mismatch_is_critical_in_production(production: tuple[str, ...], severity: Severity) -> None:
    settings = CompanionSettings(notifications=NOTIFYING.notifications, production=Production(namespaces=production))
    (notice,) = Leader().notices(at(0, pods=of(OLD, 1) + of(NEW, 1), settings=settings))
    assert (notice.topic, notice.severity) == (Topic.VERSION_MISMATCH, severity)


def test_a_new_leader_does_not_take_data_for_back_that_were_just_assessed_for_the_first_time() -> None:
    successor = Leader(Leader().status(at(0)))
    assert noticed(successor, *(at(seconds) for seconds in range(10, 100, 10))) == []


@pytest.mark.parametrize(("handed_over", "again"), [(200, []), (45, ["atMaximum"])], ids=["told", "not told yet"])
def test_a_new_leader_tells_what_the_former_one_did_not(handed_over: int, again: list[str]) -> None:
    before = Leader()
    before.look(at(-200))
    for seconds in range(0, handed_over, 10):
        before.look(at(seconds, "2400m", bounds=SMALL))
    found = dict(before.state.of(WrittenStatus).status)
    successor = Leader(found, at=as_written(found, NOW + handed_over).at or NOW)
    looks = [at(seconds, "2400m", bounds=SMALL) for seconds in range(handed_over + 10, handed_over + 100, 10)]
    assert noticed(successor, *looks) == again


@pytest.mark.parametrize(
    ("names", "shown", "names_it"),
    [
        ((), None, ""),
        (("oncall",), (True, "Known"), ""),
        (("oncall", "nobody"), (False, "UnknownRoute"), "names nobody,"),
        pytest.param(("oncall", "live"), (False, "UnknownRoute"), "names live,", id="one for other namespaces"),
    ],
)
def test_a_route_that_a_policy_names_and_does_not_get_is_a_condition(
    names: tuple[str, ...], shown: tuple[bool, str] | None, names_it: str
) -> None:
    kept = NotificationRoute(name="live", urls=("json://localhost",), namespaces=("prod-*",))
    settings = CompanionSettings(notifications=Notifications(routes=(ROUTE, kept)))
    found = routes(context(rule=replace(RULE, notify=names), settings=settings))
    assert (found and (found.is_true, found.reason)) == shown
    assert names_it in (found.message if found else "")
