"""A route notifies only about the namespaces that it names; no tenant can flood it or suppress others."""

from typing import Any

import pytest

from adapter.companion.state import Notification
from adapter.settings import SettingsError, parse_settings
from adapter.settings.companion import NotificationRoute, RateLimit, Severity, Topic
from adapter.snapshot import Key
from tests.companion.telling import Sent, Stand, notice, notifying, telling


@pytest.fixture
async def stand() -> Stand:
    return Stand()


def routes(route: str) -> str:
    return f"companion: {{notifications: {{routes: [{{name: oncall, urlFile: /f{route}}}]}}}}"


@pytest.mark.parametrize("route", ["", ", default: true", ", namespaces: []"])
def test_a_route_without_namespaces_is_one_fault_that_says_what_to_write(route: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_settings(routes(route))
    [fault] = refused.value.faults
    assert str(fault) == (
        "companion.notifications.routes[0].namespaces: names nobody; list the namespaces whose policies it is told of, "
        'or write ["*"] for all of them'
    )


@pytest.mark.parametrize(
    ("namespaces", "serves"),
    [("['*']", {"shop", "prod-a"}), ("[shop]", {"shop"}), ("[prod-*]", {"prod-a"}), ("['?hop']", {"shop"})],
)
def test_a_route_serves_the_namespaces_that_it_names(namespaces: str, serves: set[str]) -> None:
    [route] = parse_settings(routes(f", namespaces: {namespaces}")).companion.notifications.routes
    assert {name for name in ("shop", "prod-a", "") if route.serves(name)} - {""} == serves


def test_a_name_that_is_empty_is_a_fault() -> None:
    with pytest.raises(SettingsError, match=r"routes\[0\].namespaces\[0\].*may not be empty"):
        parse_settings(routes(", namespaces: ['']"))


@pytest.mark.parametrize("changes", [{"default": True}, {"default": False}])
async def test_a_route_that_names_no_namespace_sends_nothing(stand: Stand, changes: dict[str, bool]) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        nobody = NotificationRoute(name="team", urls=("json://team",), **changes)
        stand.configure(nobody, NotificationRoute(name="all", default=True, namespaces=("*",), urls=("json://all",)))
        notifier.add(telling(routes=["team"]))
        await stand.ended("sent", route="all")
    assert [url for url, *_ in sent.all] == ["json://all"]


async def test_a_policy_that_names_the_route_of_other_namespaces_does_not_reach_it(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        theirs = NotificationRoute(name="theirs", namespaces=("prod-*",), urls=("json://theirs",))
        stand.configure(theirs, NotificationRoute(name="all", default=True, namespaces=("*",), urls=("json://all",)))
        notifier.add(telling(routes=["theirs"], key=Key("tenant", "web")))
        await stand.ended("sent", route="all")
    assert [url for url, *_ in sent.all] == ["json://all"]


# --- critical ones ---


def critical(number: int, **changes: Any) -> Notification:
    text = f"{number} of 10 running pods are pulled out"
    return notice(number, topic=Topic.MASS_PULL_OUT, severity=Severity.CRITICAL, text=text, **changes)


async def test_critical_notices_have_a_limit_and_the_next_one_counts_those_held_back(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", critical_rate_limit=RateLimit(count=2, seconds=60))
        notifier.add(telling(*(critical(number) for number in range(1, 6))))
        await stand.ended("limited", 3)
        stand.time += 60
        notifier.add(telling(critical(6, at=stand.time), critical(7, at=stand.time)))
        await stand.ended("sent", 4)
    assert stand.count("limited") == 3
    assert [body.partition(" of 10")[0] for body in sent.bodies] == [
        "1",
        "2",
        "(this route's limits held back 3 before this) 6",
        "7",
    ]
    said = capsys.readouterr().out
    assert said.count("notifications are held back by the route's limits") == 1
    assert said.count("held=3") == 1


async def test_critical_notices_of_one_namespace_suppress_no_others(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        for number in range(1, 301):
            notifier.add(telling(critical(number), key=Key("tenant", f"web-{number}")))
        await stand.ended("limited", 180)
        notifier.add(telling(critical(1), key=Key("shop", "web")))
        await stand.ended("sent", 121)
    assert sum("shop/web" in title for _, title, *_ in sent.all) == 1


async def test_a_hundred_policies_that_turn_critical_at_once_are_all_notified(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        for number in range(1, 101):
            notifier.add(telling(critical(number), key=Key("shop", f"web-{number}")))
        await stand.ended("sent", 100)
    assert stand.count("limited") == 0


async def test_all_namespaces_together_send_at_most_six_hundred_an_hour(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", queue=1000)
        for number in range(1, 651):
            notifier.add(telling(critical(number), key=Key(f"tenant-{number % 10}", f"web-{number}")))
        await stand.ended("limited", 50)
        await stand.ended("sent", 600)
        stand.time += 3600
        notifier.add(telling(critical(1, at=stand.time)))
        await stand.ended("sent", 601)
    assert sent.bodies[-1].startswith("(this route's limits held back 50 before this) ")
