"""Which route is told what, how often, by whom, and from which addresses."""

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from adapter.companion.notifier import MAX_AGE_SECONDS, Notifier
from adapter.settings.companion import NotificationRoute, Production, RateLimit, Severity, Topic
from adapter.snapshot import Key
from tests.companion.telling import Sent, Stand, in_threads, notice, notifying, telling
from tests.load.kit import NOW

# --- who is told what ---


async def test_templates_put_in_what_is_known_and_execute_nothing(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route(
            "json://a",
            title="$cluster $$5 {0.__class__} %s",
            template="$event $severity $namespace $policy $target $at $from $to $why ${text}!",
        )
        notifier.add(telling(notice(7, text="$policy {policy}")))
        await stand.ended("sent")
    ((_, title, body, _),) = sent.all
    assert title == "north $5 {0.__class__} %s"
    assert body == "scaled info shop web Deployment web 2026-01-01T12:00:00Z 4 7 cpu is high $policy {policy}!"


async def test_a_title_is_one_line_whatever_is_put_in(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", title="$policy:\n $text")
        notifier.add(telling(notice(text="refused\r\nBcc: all@shop.test")))
        await stand.ended("sent")
    assert sent.all[0][1] == "web: refused Bcc: all@shop.test"


@pytest.mark.parametrize(
    ("route", "told"),
    [
        ({}, True),
        ({"default": False}, False),
        ({"default": False, "name": "team"}, True),
        ({"namespaces": ("sh*",)}, True),
        ({"namespaces": ()}, False),
        ({"namespaces": ("prod-*",)}, False),
        ({"events": (Topic.SCALED,)}, True),
        ({"events": (Topic.DATA_LOST,)}, False),
        ({"severities": (Severity.INFO,)}, True),
        ({"severities": (Severity.CRITICAL,)}, False),
    ],
)
async def test_a_route_gets_the_notifications_that_it_selects(stand: Stand, route: dict[str, Any], told: bool) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        made = NotificationRoute(
            **{"name": "oncall", "default": True, "namespaces": ("*",), "urls": ("json://it",), **route}
        )
        stand.configure(made, NotificationRoute(name="all", default=True, namespaces=("*",), urls=("json://all",)))
        notifier.add(telling(routes=["team"]))
        await stand.ended("sent", route="all")
        if told:
            await stand.ended("sent", route=made.name)
    assert ("json://it" in [url for url, *_ in sent.all]) is told


@pytest.mark.parametrize(
    ("production", "labels", "severity"),
    [
        (Production(), {}, Severity.WARNING),
        (Production(namespaces=("sh*",)), {}, Severity.CRITICAL),
        (Production(namespaces=("prod-*",)), {}, Severity.WARNING),
        (Production(label="stage=production"), {"stage": "production"}, Severity.CRITICAL),
        (Production(label="stage=production"), {"stage": "test"}, Severity.WARNING),
        (Production(label="production"), {"production": "yes"}, Severity.CRITICAL),
        (Production(label="production"), {"production": "false"}, Severity.WARNING),
        (Production(label="production"), {}, Severity.WARNING),
        (Production(label="production"), None, Severity.WARNING),
    ],
)
async def test_in_production_a_version_mismatch_is_critical(
    stand: Stand, production: Production, labels: dict[str, str] | None, severity: Severity
) -> None:
    sent, stand.labels = Sent(), labels
    mismatch = notice(topic=Topic.VERSION_MISMATCH, severity=Severity.WARNING, severity_in_production=Severity.CRITICAL)
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", production=production)
        notifier.add(telling(mismatch, notice(2)))
        await stand.ended("sent", 2)
    assert [one[3] for one in sent.all] == [severity, Severity.INFO]


async def test_a_label_that_cannot_be_read_counts_as_it_last_was(stand: Stand) -> None:
    sent, stand.labels = Sent(), {"production": "yes"}
    mismatch = notice(topic=Topic.VERSION_MISMATCH, severity=Severity.WARNING, severity_in_production=Severity.CRITICAL)
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", production=Production(label="production"))
        notifier.add(telling(mismatch))
        await stand.ended("sent")
        stand.time, stand.labels = stand.time + 301, None
        notifier.add(telling(mismatch))
        await stand.ended("sent", 2)
    assert stand.asked == 2
    assert [one[3] for one in sent.all] == [Severity.CRITICAL, Severity.CRITICAL]


async def test_the_label_of_a_namespace_is_cached(stand: Stand) -> None:
    sent, made = Sent(), Production(label="production")
    stand.route("json://a", production=made)
    async with notifying(stand, sent) as notifier:
        for number in range(1, 4):
            notifier.add(telling(notice(number, severity_in_production=Severity.CRITICAL)))
            await stand.ended("sent", number)
        assert stand.asked == 1
        stand.time += 301
        notifier.add(telling(notice(9, severity_in_production=Severity.CRITICAL)))
        await stand.ended("sent", 4)
    assert stand.asked == 2


# --- limits ---


async def test_critical_notifications_have_limits_of_their_own(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", rate_limit=RateLimit(count=2, seconds=60))
        notifier.add(telling(*(notice(number) for number in range(1, 6))))
        await stand.ended("limited", 3)
        notifier.add(telling(notice(6, severity=Severity.CRITICAL)))
        await stand.ended("sent", 3)
        stand.time += 60
        notifier.add(telling(notice(7, at=stand.time)))
        await stand.ended("sent", 4)
    held_back = "(this route's limits held back 3 before this) scaled from 4 to 6"
    assert sent.bodies == ["scaled from 4 to 1", "scaled from 4 to 2", held_back, "scaled from 4 to 7"]


async def test_one_policy_does_not_use_up_the_route_for_the_others(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", policy_rate_limit=RateLimit(count=1))
        notifier.add(telling(notice(1), notice(2)))
        notifier.add(telling(notice(3), key=Key("shop", "other")))
        await stand.ended("sent", 2)
        await stand.ended("limited")
    held_back = "(this route's limits held back 1 before this) scaled from 4 to 3"
    assert sent.bodies == ["scaled from 4 to 1", held_back]


async def test_the_same_message_is_not_sent_again_for_five_minutes(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.add(telling(notice(1), notice(1)))
        await stand.ended("repeated")
        stand.time += 301
        notifier.add(telling(notice(1, at=stand.time)))
        await stand.ended("sent", 2)
    assert len(sent.all) == 2


async def test_only_the_last_message_about_a_policy_counts_as_repeated(stand: Stand) -> None:
    sent = Sent()
    lost, back = notice(1, topic=Topic.DATA_LOST, text="lost"), notice(2, topic=Topic.DATA_RECOVERED, text="back")
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.add(telling(lost, back, lost, back))
        await stand.ended("sent", 4)
    assert sent.bodies == ["lost", "back", "lost", "back"]


async def test_a_full_queue_drops_and_counts_notifications(stand: Stand) -> None:
    gate = threading.Event()

    def waits(*_told: object) -> bool:
        return gate.wait(10)

    async with notifying(stand, waits) as notifier:
        stand.route("json://a", queue=3)
        notifier.add(telling(notice(1)))
        await in_threads(1)
        notifier.add(telling(*(notice(number) for number in range(2, 8))))
        await stand.ended("overflow", 3)
        gate.set()
        await stand.ended("sent", 4)


async def test_a_full_inbox_drops_and_counts_notifications(stand: Stand) -> None:
    made = Notifier(cast(Any, stand), cast(Any, stand), lambda: stand.settings, stand.metrics)
    for _ in range(1001):
        made.add(telling())
    assert stand.count("overflow", "") == 1


async def test_an_old_notification_is_dropped(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.add(telling(notice(at=NOW - MAX_AGE_SECONDS - 1)))
        await stand.ended("stale")
    assert sent.all == []


# --- leaders ---


async def test_a_former_leader_sends_nothing_more(stand: Stand) -> None:
    sent = Sent()
    stand.leads = False
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.add(telling())
        await stand.ended("lostLease")
    assert sent.all == []


async def test_an_attempt_after_the_lease_was_lost_is_not_made(stand: Stand) -> None:
    def refuses_and_deposes(*_told: object) -> bool:
        stand.leads = False
        return False

    async with notifying(stand, refuses_and_deposes) as notifier:
        stand.route("json://a", attempts=3)
        notifier.add(telling())
        await stand.ended("lostLease")


class Wavering:
    """A Lease that is in doubt at the first look, as it is where the API server was slow to renew it."""

    looks = 0

    @property
    def leads(self) -> bool:
        self.looks += 1
        return self.looks > 1


async def test_a_lease_in_doubt_for_a_moment_loses_no_notification(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent, lease=Wavering()) as notifier:
        stand.route("json://a")
        notifier.add(telling())
        await stand.ended("sent")
    assert len(sent.all) == 1


# --- addresses ---


async def test_addresses_are_read_from_the_file_as_it_is_at_the_time(stand: Stand, tmp_path: Path) -> None:
    sent, file = Sent(), tmp_path / "oncall"
    file.write_text("# the team\njson://one\n\n  json://two  \n")
    async with notifying(stand, sent) as notifier:
        stand.route(url_file=str(file))
        notifier.add(telling())
        await stand.ended("sent")
        file.write_text("json://three")
        notifier.add(telling(notice(2)))
        await stand.ended("sent", 2)
    assert sorted(url for url, *_ in sent.all) == ["json://one", "json://three", "json://two"]


async def test_an_invalid_file_name_stops_nothing_else(stand: Stand) -> None:
    async with notifying(stand, Sent()) as notifier:
        good = NotificationRoute(name="good", default=True, namespaces=("*",), urls=("json://a",))
        stand.configure(
            NotificationRoute(name="oncall", default=True, namespaces=("*",), url_file="\0", attempts=1), good
        )
        notifier.add(telling())
        await stand.ended("noAddress")
        notifier.add(telling(notice(2)))
        await stand.ended("sent", 2, "good")


@pytest.mark.parametrize("content", [None, "", "# nobody yet\n", "\xff"])
async def test_a_file_without_addresses_is_a_failure_and_named(
    stand: Stand, tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "oncall"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route(url_file=str(file))
        notifier.add(telling())
        await stand.ended("noAddress")
    assert sent.all == []
    assert f"{file} cannot be read, or has no address" in capsys.readouterr().out


async def test_a_route_that_the_settings_drop_gets_nothing_more(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.add(telling())
        await stand.ended("sent")
        stand.configure(NotificationRoute(name="new", default=True, namespaces=("*",), urls=("json://b",)))
        notifier.add(telling(notice(2)))
        await stand.ended("sent", route="new")
    assert [url for url, *_ in sent.all] == ["json://a", "json://b"]


async def test_a_failing_route_is_logged_once_and_so_is_its_recovery(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    works = False
    async with notifying(stand, Sent(lambda _url: works)) as notifier:
        stand.route("json://a", attempts=1)
        notifier.add(telling(notice(1), notice(2)))
        await stand.ended("failed", 2)
        works = True
        notifier.add(telling(notice(3)))
        await stand.ended("sent")
    said = capsys.readouterr().out
    assert said.count("notifications are not delivered") == 1
    assert said.count("notifications are delivered again") == 1
