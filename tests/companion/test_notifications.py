"""What people are told: each trouble once when it has stood for long enough, and scalings."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.companion import findings, status
from adapter.companion.state import Context, WrittenStatus
from adapter.load.spec import Bounds
from adapter.policy.conditions import Reason
from adapter.settings import CompanionSettings
from adapter.settings.companion import NotificationRoute, Notifications, Production, Severity, Topic
from adapter.snapshot import Problem
from tests.companion.kit import NOTIFYING, ROUTE, RULE, Leader, context, judged, topics
from tests.companion.test_versions import NEW, OLD, of
from tests.load.kit import NOW, REGISTRY, out, roster, same

SMALL = Bounds(minimum=1, maximum=4)


def at(seconds: float, load: str | None = "800m", **changes: Any) -> Context:
    return context(load, now=NOW + seconds, **changes)


def told(leader: Leader, *looks: Context) -> list[str]:
    """The topics of all that is notified in these looks."""
    return [topic for look in looks for topic in topics(leader.notices(look))]


def test_a_scaling_is_notified_with_from_to_and_why() -> None:
    leader = Leader()
    leader.look(context("2400m"))
    (notice,) = leader.notices(at(2, current=8, bounds=Bounds(minimum=1, maximum=100, last_scale=NOW + 1)))
    assert (notice.topic, notice.severity) == (Topic.SCALED, Severity.INFO)
    assert notice.text.startswith("from 4 to 8 by the HPA: cpu: 4 pods use 2400m")
    assert (notice.fields["from"], notice.fields["to"]) == ("4", "8")
    assert notice.fields["why"].startswith("cpu: 4 pods use 2400m")
    assert leader.notices(at(12, current=8)) == []


def test_lost_data_are_notified_once_after_a_minute_and_when_they_are_back_for_as_long() -> None:
    leader = Leader()
    leader.look(at(0))
    assert [topics(leader.notices(at(seconds, None))) for seconds in (10, 60, 71, 81, 600)] == [
        [], [], ["dataLost"], [], []
    ]  # fmt: skip
    assert [topics(leader.notices(at(seconds))) for seconds in (610, 660, 671, 681)] == [[], [], ["dataRecovered"], []]


def test_data_are_not_back_while_other_data_of_the_policy_are_lost() -> None:
    leader, rule = Leader(), replace(RULE, registry=REGISTRY)
    pods = [replace(one, ips=(f"10.0.0.{n}",)) for n, one in enumerate(same(4, None)[0])]
    ips = [pod.ips[0] for pod in pods]

    def looks(begin: int, end: int, load: str | None, registry: bool) -> list[str]:
        heard = [roster(*ips, at=NOW + second) if registry else None for second in range(begin, end, 10)]
        return told(leader, *(at(begin + 10 * n, load, pods=pods, rule=rule, listed=it) for n, it in enumerate(heard)))

    assert looks(0, 10, "800m", True) == []
    assert looks(10, 100, None, False) == ["dataLost", "dataLost"]
    assert looks(100, 300, "800m", False) == []
    assert looks(300, 400, "800m", True) == ["dataRecovered"]


def test_a_registry_that_is_not_trusted_is_lost_data() -> None:
    leader, rule = Leader(), replace(RULE, registry=REGISTRY)
    leader.look(at(0, rule=rule))
    (notice,) = leader.notices(at(61, rule=rule))
    assert notice.topic is Topic.DATA_LOST
    assert "registry nacos has not given a valid answer" in notice.text


def test_a_silent_watch_is_not_notified_for_each_policy() -> None:
    def silent(seconds: float) -> Context:
        case = at(seconds)
        problem = Problem(503, Reason.WATCH_SILENT, "pods are silent")
        return replace(case, view=replace(case.view, assessment=None, problem=problem), decision=None)

    looks = [at(0), *(silent(seconds) for seconds in range(10, 200, 10)), *(at(s) for s in range(200, 400, 10))]
    assert told(Leader(), *looks) == []


def test_needing_more_than_the_maximum_is_notified_after_a_minute() -> None:
    leader = Leader()
    assert leader.notices(at(0, "2400m", bounds=SMALL)) == []
    (notice,) = leader.notices(at(61, "2400m", bounds=SMALL))
    assert notice.topic is Topic.AT_MAXIMUM
    assert notice.text.startswith("AtMaximum: more is needed than the HPA's maximum of 4: cpu")
    assert leader.notices(at(71, "2400m", bounds=SMALL)) == []


def test_a_trouble_that_comes_and_goes_is_notified_every_ten_minutes_at_most() -> None:
    looks = [at(s, "2400m" if s % 200 < 100 else "800m", bounds=SMALL) for s in range(0, 3000, 10)]
    assert 2 <= len(told(Leader(), *looks)) <= 5


def test_a_trouble_that_is_back_and_stays_is_notified_though_it_was_told_before() -> None:
    leader = Leader()
    first = [at(s, "2400m" if s < 100 else "800m", bounds=SMALL) for s in range(0, 300, 10)]
    assert told(leader, *first) == ["atMaximum"]
    assert told(leader, *(at(s, "2400m", bounds=SMALL) for s in range(300, 660, 10))) == []
    assert told(leader, *(at(s, "2400m", bounds=SMALL) for s in range(660, 2000, 10))) == ["atMaximum"]


@pytest.mark.parametrize(
    "looks",
    [
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
    assert told(Leader(), *looks) == []


def test_a_mass_pull_out_is_notified_at_once() -> None:
    leader = Leader()
    pods = [*same(7, None)[0], *(out(f"out-{n}") for n in range(3))]
    (notice,) = leader.notices(at(0, pods=pods))
    assert (notice.topic, notice.severity) == (Topic.MASS_PULL_OUT, Severity.CRITICAL)
    assert notice.text == "MassPullOut: 3 of 10 running pods are pulled out; out-0: pulled out by hand"
    assert [one["type"] for one in status_of(leader, at(0, pods=pods)) if one["status"] == "True"][-1] == "MassPullOut"


def status_of(leader: Leader, case: Context) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = status.status_of(judged(replace(case, state=leader.state)))["conditions"]
    return conditions


def test_pods_that_are_doubtful_because_all_would_be_out_are_a_mass_pull_out() -> None:
    leader = Leader()
    pods = [replace(one, ips=(f"10.0.0.{n}",)) for n, one in enumerate(same(4, None)[0])]
    listed = roster(disabled=tuple(one.ips[0] for one in pods))
    (notice,) = leader.notices(at(0, pods=pods, listed=listed, rule=replace(RULE, registry=REGISTRY)))
    assert notice.text.startswith(
        "MassPullOut: 4 of 4 running pods are pulled out, 4 of them are kept as doubtful; web-0: every pod"
    )


@pytest.mark.parametrize(
    ("production", "severity"),
    [((), Severity.WARNING), (("sh*",), Severity.CRITICAL), (("prod-*",), Severity.WARNING)],
)
def test_a_version_mismatch_is_critical_in_production(production: tuple[str, ...], severity: Severity) -> None:
    settings = CompanionSettings(notifications=NOTIFYING.notifications, production=Production(namespaces=production))
    (notice,) = Leader().notices(at(0, pods=of(OLD, 1) + of(NEW, 1), settings=settings))
    assert (notice.topic, notice.severity) == (Topic.VERSION_MISMATCH, severity)
    assert notice.text.startswith("VersionsConsistent: the serving pods run 2 versions: ")


@pytest.mark.parametrize(("handed_over", "again"), [(200, []), (45, ["atMaximum"])], ids=["told", "not told yet"])
def test_a_new_leader_tells_what_the_former_one_did_not(handed_over: int, again: list[str]) -> None:
    before = Leader()
    before.look(at(-200))
    for seconds in range(0, handed_over, 10):
        before.look(at(seconds, "2400m", bounds=SMALL))
    found = before.state.of(WrittenStatus)
    successor = Leader(dict(found.status), at=found.at or NOW)
    looks = [at(seconds, "2400m", bounds=SMALL) for seconds in range(handed_over + 10, handed_over + 100, 10)]
    assert told(successor, *looks) == again


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
    found = findings.routes(context(rule=replace(RULE, notify=names), settings=settings))
    assert (found and (found.is_true, found.reason)) == shown
    assert names_it in (found.message if found else "")
