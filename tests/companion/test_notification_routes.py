"""A route notifies only about the namespaces that it names; no tenant can flood it or suppress others."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapter.companion.actions import Notification
from adapter.companion.notifier import Notifier
from adapter.settings import SettingsError, parse_settings
from adapter.settings.companion import NotificationRoute, RateLimit, Severity, Topic
from adapter.snapshot import Key
from tests.companion.telling import Sent, Stand, notice, notifying, telling

ALL = NotificationRoute(name="all", default=True, namespaces=("*",), urls=("json://all",))


@pytest.fixture
async def stand() -> Stand:
    return Stand()


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
async def notifier(stand: Stand, sent: Sent) -> AsyncIterator[Notifier]:
    async with notifying(stand, sent) as found:
        yield found


def routes(route: str) -> str:
    return f"companion: {{notifications: {{routes: [{{name: oncall, urlFile: /f{route}}}]}}}}"


@pytest.mark.parametrize(
    ("route", "says"),
    [
        ("", "companion.notifications.routes[0].namespaces: is missing and has no default; write one"),
        (", default: true", "companion.notifications.routes[0].namespaces: is missing and has no default; write one"),
        (", namespaces: []", "companion.notifications.routes[0].namespaces: []: may not be empty"),
        (", namespaces: ['']", "companion.notifications.routes[0].namespaces[0]: '': may not be empty"),
    ],
)
def test_a_route_without_namespaces_is_one_fault_that_says_what_to_write(route: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_settings(routes(route))
    [fault] = refused.value.faults
    assert str(fault) == says


@pytest.mark.parametrize(
    ("namespaces", "serves"),
    [("['*']", {"shop", "prod-a"}), ("[shop]", {"shop"}), ("[prod-*]", {"prod-a"}), ("['?hop']", {"shop"})],
)
def test_a_route_serves_the_namespaces_that_it_names(namespaces: str, serves: set[str]) -> None:
    [route] = parse_settings(routes(f", namespaces: {namespaces}")).companion.notifications.routes
    assert {name for name in ("shop", "prod-a", "") if route.serves(name)} - {""} == serves


@pytest.mark.parametrize(
    ("route", "tells"),
    [
        pytest.param({"default": True, "namespaces": ("prod-*",)}, {}, id="a default route of other namespaces"),
        pytest.param({"namespaces": ("prod-*",)}, {"key": Key("tenant", "web")}, id="a route of other namespaces"),
    ],
)
async def test_a_policy_that_names_the_route_of_other_namespaces_does_not_reach_it(
    stand: Stand, sent: Sent, notifier: Notifier, route: dict[str, Any], tells: dict[str, Any]
) -> None:
    stand.configure(NotificationRoute(name="theirs", urls=("json://theirs",), **route), ALL)
    notifier.add(telling(routes=["theirs"], **tells))
    await stand.ended("sent", route="all")
    assert [url for url, *_ in sent.all] == ["json://all"]


# --- critical ones ---


def critical(number: int, **changes: Any) -> Notification:
    text = f"{number} of 10 running pods are pulled out"
    return notice(number, topic=Topic.MASS_PULL_OUT, severity=Severity.CRITICAL, text=text, **changes)


def flood(notifier: Notifier, count: int, *namespaces: str) -> None:
    """A critical notice of each of so many policies, of these namespaces in turns."""
    for number in range(1, count + 1):
        notifier.add(telling(critical(number), key=Key(namespaces[number % len(namespaces)], f"web-{number}")))


async def test_critical_notices_have_a_limit_and_the_next_one_counts_those_held_back(
    stand: Stand, sent: Sent, notifier: Notifier, capsys: pytest.CaptureFixture[str]
) -> None:
    stand.route("json://a", critical_rate_limit=RateLimit(count=2, seconds=60))
    notifier.add(telling(*(critical(number) for number in range(1, 6))))
    await stand.ended("limited", 3)
    stand.time += 60
    notifier.add(telling(critical(6, at=stand.time), critical(7, at=stand.time)))
    await stand.ended("sent", 4)
    assert stand.count("limited") == 3
    bodies = [body.partition(" of 10")[0] for body in sent.bodies]
    assert bodies == ["1", "2", "(this route's limits held back 3 before this) 6", "7"]
    said = capsys.readouterr().out
    assert said.count("notifications_rate_limited") == said.count("held=3") == 1


async def test_critical_notices_of_one_namespace_suppress_no_others(
    stand: Stand, sent: Sent, notifier: Notifier
) -> None:
    stand.route("json://a")
    flood(notifier, 300, "tenant")
    await stand.ended("limited", 180)
    notifier.add(telling(critical(1), key=Key("shop", "web")))
    await stand.ended("sent", 121)
    assert sum("shop/web" in title for _, title, *_ in sent.all) == 1


async def test_a_hundred_policies_that_turn_critical_at_once_are_all_notified(stand: Stand, notifier: Notifier) -> None:
    stand.route("json://a")
    flood(notifier, 100, "shop")
    await stand.ended("sent", 100)
    assert stand.count("limited") == 0


async def test_all_namespaces_together_send_at_most_six_hundred_an_hour(
    stand: Stand, sent: Sent, notifier: Notifier
) -> None:
    stand.route("json://a", queue=1000)
    flood(notifier, 650, *(f"tenant-{number}" for number in range(10)))
    await stand.ended("limited", 50)
    await stand.ended("sent", 600)
    stand.time += 3600
    notifier.add(telling(critical(1, at=stand.time)))
    await stand.ended("sent", 601)
    assert sent.bodies[-1].startswith("(this route's limits held back 50 before this) ")
