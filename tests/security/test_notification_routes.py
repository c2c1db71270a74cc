"""A route tells of those namespaces only that it names, and no tenant makes it tell without end or silences others."""

from typing import Any

import pytest

from adapter.companion.state import Notice
from adapter.settings import SettingsError, parse
from adapter.settings.notifications import NotificationRoute, RateLimit, Severity, Topic
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
        parse(routes(route))
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
    [route] = parse(routes(f", namespaces: {namespaces}")).companion.notifications.routes
    assert {name for name in ("shop", "prod-a", "") if route.serves(name)} - {""} == serves


def test_a_name_that_is_empty_is_a_fault() -> None:
    with pytest.raises(SettingsError, match=r"routes\[0\].namespaces\[0\].*may not be empty"):
        parse(routes(", namespaces: ['']"))


@pytest.mark.parametrize("changes", [{"default": True}, {"default": False}])
async def test_a_route_that_names_no_namespace_tells_nobody(stand: Stand, changes: dict[str, bool]) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        nobody = NotificationRoute(name="team", urls=("json://team",), **changes)
        stand.configure(nobody, NotificationRoute(name="all", default=True, namespaces=("*",), urls=("json://all",)))
        notifier.take(telling(routes=["team"]))
        await stand.ended("sent", route="all")
    assert [url for url, *_ in sent.all] == ["json://all"]


async def test_a_policy_that_names_the_route_of_other_namespaces_does_not_reach_it(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        theirs = NotificationRoute(name="theirs", namespaces=("prod-*",), urls=("json://theirs",))
        stand.configure(theirs, NotificationRoute(name="all", default=True, namespaces=("*",), urls=("json://all",)))
        notifier.take(telling(routes=["theirs"], key=Key("tenant", "web")))
        await stand.ended("sent", route="all")
    assert [url for url, *_ in sent.all] == ["json://all"]


# --- critical ones ---


def critical(number: int, **changes: Any) -> Notice:
    text = f"{number} of 10 running pods are pulled out"
    return notice(number, topic=Topic.MASS_PULL_OUT, severity=Severity.CRITICAL, text=text, **changes)


async def test_critical_ones_have_a_limit_and_the_next_one_says_how_many_were_held_back(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", critical_rate_limit=RateLimit(count=2, seconds=60))
        notifier.take(telling(*(critical(number) for number in range(1, 6))))
        await stand.ended("limited", 3)
        stand.time += 60
        notifier.take(telling(critical(6, at=stand.time), critical(7, at=stand.time)))
        await stand.ended("sent", 4)
    assert stand.count("limited") == 3
    assert [body.partition(" of 10")[0] for body in sent.bodies] == [
        "1",
        "2",
        "after 3 that this route's limits held back: 6",
        "7",
    ]
    said = capsys.readouterr().out
    assert said.count("notifications are held back by the route's limits") == 1
    assert said.count("held=3") == 1


async def test_the_critical_ones_of_one_namespace_silence_no_other(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        for number in range(1, 301):
            notifier.take(telling(critical(number), key=Key("tenant", f"web-{number}")))
        await stand.ended("limited", 180)
        notifier.take(telling(critical(1), key=Key("shop", "web")))
        await stand.ended("sent", 121)
    assert sum("shop/web" in title for _, title, *_ in sent.all) == 1


async def test_a_hundred_policies_that_turn_critical_at_once_are_all_told(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        for number in range(1, 101):
            notifier.take(telling(critical(number), key=Key("shop", f"web-{number}")))
        await stand.ended("sent", 100)
    assert stand.count("limited") == 0


async def test_all_namespaces_together_have_six_hundred_an_hour(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", queue=1000)
        for number in range(1, 651):
            notifier.take(telling(critical(number), key=Key(f"tenant-{number % 10}", f"web-{number}")))
        await stand.ended("limited", 50)
        await stand.ended("sent", 600)
        stand.time += 3600
        notifier.take(telling(critical(1, at=stand.time)))
        await stand.ended("sent", 601)
    assert sent.bodies[-1].startswith("after 50 that this route's limits held back: ")
