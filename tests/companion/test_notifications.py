"""What people are told: each trouble once when it has stood for long enough, and scalings."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.companion.features import notifications
from adapter.companion.state import Context, Notify
from adapter.load.spec import Bounds
from adapter.settings import CompanionSettings
from adapter.settings.companion import NotificationRoute, Notifications, Production, Severity, Topic
from tests.companion.kit import NOTIFYING, ROUTE, RULE, Leader, context, topics
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
    assert (notice.topic, notice.severity, notice.target) == (Topic.SCALED, Severity.INFO, "Deployment web")
    assert notice.text.startswith("scaled from 4 to 8 by the HPA: cpu: 4 pods use 2400m")
    assert (notice.fields["from"], notice.fields["to"]) == ("4", "8")
    assert notice.fields["why"].startswith("cpu: 4 pods use 2400m")
    assert leader.notices(at(12, current=8)) == []


def test_where_nobody_listens_nothing_is_noted() -> None:
    leader, silent = Leader(), CompanionSettings()
    leader.look(context("2400m", settings=silent))
    leader.look(at(9, None, current=8, settings=silent))
    assert leader.notices(at(99, None, current=8, settings=silent)) == []
    assert "notified" not in leader.status(at(250, None, settings=silent))


def test_lost_data_are_notified_once_after_a_minute_and_when_they_are_back() -> None:
    leader = Leader()
    leader.look(at(0))
    assert [topics(leader.notices(at(seconds, None))) for seconds in (10, 60, 71, 81, 600)] == [
        [], [], ["dataLost"], [], []
    ]  # fmt: skip
    assert [topics(leader.notices(at(seconds))) for seconds in (610, 630, 641, 651)] == [[], [], ["dataRecovered"], []]


def test_a_registry_that_is_not_trusted_is_lost_data() -> None:
    leader, rule = Leader(), replace(RULE, registry=REGISTRY)
    leader.look(at(0, rule=rule))
    (notice,) = leader.notices(at(61, rule=rule))
    assert notice.topic is Topic.DATA_LOST
    assert "registry nacos has not given a valid answer" in notice.text


def test_needing_more_than_the_maximum_is_notified_after_a_minute() -> None:
    leader = Leader()
    assert leader.notices(at(0, "2400m", bounds=SMALL)) == []
    (notice,) = leader.notices(at(61, "2400m", bounds=SMALL))
    assert notice.topic is Topic.AT_MAXIMUM
    assert notice.text.startswith("more is needed than the HPA's maximum of 4: cpu")
    assert leader.notices(at(71, "2400m", bounds=SMALL)) == []


def test_a_trouble_that_returns_soon_is_not_notified_again() -> None:
    short = (at(s, "2400m" if s % 200 < 100 else "800m", bounds=SMALL) for s in range(0, 3000, 10))
    assert told(Leader(), *short) == ["atMaximum"]
    long = (at(s, "800m" if s in {100, 401} else "2400m", bounds=SMALL) for s in (0, 61, 100, 401, 500, 561))
    assert told(Leader(), *long) == ["atMaximum", "atMaximum"]


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
    assert notice.text == "3 of 10 running pods are pulled out; out-0: pulled out by hand"


def test_pods_that_are_doubtful_because_all_would_be_out_are_a_mass_pull_out() -> None:
    leader = Leader()
    pods = [replace(one, ips=(f"10.0.0.{n}",)) for n, one in enumerate(same(4, None)[0])]
    listed = roster(disabled=tuple(one.ips[0] for one in pods))
    (notice,) = leader.notices(at(0, pods=pods, listed=listed, rule=replace(RULE, registry=REGISTRY)))
    assert notice.text.startswith(
        "4 of 4 running pods are pulled out, 4 of them are kept as doubtful; web-0: every pod"
    )


@pytest.mark.parametrize(
    ("production", "severity"),
    [((), Severity.WARNING), (("sh*",), Severity.CRITICAL), (("prod-*",), Severity.WARNING)],
)
def test_a_version_mismatch_is_critical_in_production(production: tuple[str, ...], severity: Severity) -> None:
    settings = CompanionSettings(notifications=NOTIFYING.notifications, production=Production(namespaces=production))
    (notice,) = Leader().notices(at(0, pods=of(OLD, 1) + of(NEW, 1), settings=settings))
    assert (notice.topic, notice.severity) == (Topic.VERSION_MISMATCH, severity)
    assert notice.text.startswith("the serving pods run 2 versions: ")


def test_what_was_told_stands_in_the_status_and_a_new_leader_does_not_tell_it_again() -> None:
    before = Leader()
    assert told(before, at(0, "2400m", bounds=SMALL), at(61, "2400m", bounds=SMALL)) == ["atMaximum"]
    status = before.status(at(200, "2400m", bounds=SMALL))
    assert status["notified"] == ["atMaximum"]
    successor = Leader(status, at=NOW + 200)
    assert told(successor, at(210, "2400m", bounds=SMALL), at(280, "2400m", bounds=SMALL)) == []


def test_a_notification_names_the_routes_of_the_policy() -> None:
    leader, rule = Leader(), replace(RULE, notify=("team",))
    leader.look(context("2400m", rule=rule))
    leader.look(at(2, current=8, rule=rule))
    (action,) = [one for one in leader.look(at(9, current=8, rule=rule)) if isinstance(one, Notify)]
    assert action.routes == ("team",)


@pytest.mark.parametrize(
    ("names", "reason", "names_it"),
    [
        ((), None, ""),
        (("oncall",), "Known", ""),
        (("oncall", "nobody"), "UnknownRoute", "names nobody,"),
        pytest.param(("oncall", "live"), "RouteNotForNamespace", "names live,", id="one for other namespaces"),
    ],
)
def test_a_route_that_a_policy_names_and_does_not_get_is_a_condition(
    names: tuple[str, ...], reason: str | None, names_it: str
) -> None:
    kept = NotificationRoute(name="live", urls=("json://localhost",), namespaces=("prod-*",))
    settings = CompanionSettings(notifications=Notifications(routes=(ROUTE, kept)))
    found = list(notifications.conditions(context(rule=replace(RULE, notify=names), settings=settings)))
    assert [one.reason for one in found] == ([reason] if reason else [])
    for one in found:
        assert (one.type, one.is_true) == ("NotificationRoutesResolved", reason == "Known")
        assert names_it in one.message
