"""Which route is told what, how often, by whom, and from which addresses."""

import threading
from pathlib import Path
from typing import Any

import pytest

from adapter.companion.notifier import MAX_AGE_SECONDS, Message, Notifier
from adapter.settings.companion import RateLimit, Severity, Topic
from tests.companion.telling import Sent, Stand, notice, notifying, routed, telling
from tests.load.kit import NOW

# --- who is told what ---


async def test_templates_put_in_what_is_known_and_execute_nothing(stand: Stand, sent: Sent, notifier: Notifier) -> None:
    stand.route(
        "json://a",
        title="$cluster $$5 {0.__class__} %s",
        template="$event $severity $namespace $policy $target $at $from $to $why ${text}!",
    )
    notifier.add(*telling(notice(7, text="$policy {policy}")))
    await stand.ended("sent")
    ((_, title, body, _),) = sent.all
    assert title == "north $5 {0.__class__} %s"
    assert body == "scaled info shop web Deployment web 2026-01-01T12:00:00Z 4 7 cpu is high $policy {policy}!"


@pytest.mark.parametrize(
    ("route", "told"),
    [
        ({}, True),
        ({"default": False}, False),
        ({"default": False, "name": "team"}, True),
        ({"namespaces": ("sh*",)}, True),
        ({"namespaces": ("prod-*",)}, False),
        ({"events": (Topic.SCALED,)}, True),
        ({"events": (Topic.DATA_LOST,)}, False),
        ({"severities": (Severity.INFO,)}, True),
        ({"severities": (Severity.CRITICAL,)}, False),
    ],
)
async def test_a_route_gets_the_notifications_that_it_selects(
    stand: Stand, sent: Sent, notifier: Notifier, route: dict[str, Any], told: bool
) -> None:
    stand.configure(routed("json://it", **route), routed("json://all", name="all"))
    notifier.add(*telling(routes=["team"]))
    await stand.ended("sent", route="all")
    if told:
        await stand.ended("sent", route=route.get("name", "oncall"))
    assert ("json://it" in [url for url, *_ in sent.all]) is told


# --- limits ---


async def test_a_route_is_rate_limited(stand: Stand, sent: Sent, notifier: Notifier) -> None:
    stand.route("json://a", rate_limit=RateLimit(count=2, seconds=60))
    notifier.add(*telling(*(notice(number) for number in range(1, 6))))
    await stand.ended("limited", 3)
    stand.time += 60
    notifier.add(*telling(notice(7, at=stand.time)))
    await stand.ended("sent", 3)
    assert sent.bodies == ["from 4 to 1", "from 4 to 2", "from 4 to 7"]


async def test_a_route_that_hangs_delays_no_other(stand: Stand) -> None:
    gate, sent = threading.Event(), Sent()

    def hangs(url: str, message: Message, seconds: float) -> bool:
        return sent(url, message, seconds) if url == "json://works" else gate.wait(60)

    async with notifying(stand, hangs) as notifier:
        stand.configure(routed("json://hangs", name="stuck"), routed("json://works", name="working"))
        notifier.add(*telling(notice(1), notice(2)))
        await stand.ended("sent", 2, route="working")
        assert stand.count("sent", "stuck") == 0
        gate.set()


async def test_an_old_notification_is_not_sent(stand: Stand, sent: Sent, notifier: Notifier) -> None:
    notifier.add(*telling(notice(at=NOW - MAX_AGE_SECONDS - 1)))
    await stand.ended("stale")
    assert sent.all == []


async def test_a_leader_that_was_frozen_sends_nothing_when_it_wakes(
    stand: Stand, sent: Sent, notifier: Notifier
) -> None:
    """Another one has led, and told it."""
    stand.leads = False
    notifier.add(*telling(notice(1)))
    await stand.ended("stale")
    stand.leads = True
    notifier.add(*telling(notice(2)))
    await stand.ended("sent")
    assert sent.bodies == ["from 4 to 2"]


# --- addresses ---


async def test_addresses_are_read_from_the_file_as_it_is_at_the_time(
    stand: Stand, sent: Sent, notifier: Notifier, tmp_path: Path
) -> None:
    file = tmp_path / "oncall"
    file.write_text("# the team\njson://one\n\n  json://two  \n")
    stand.route(url_file=str(file))
    notifier.add(*telling())
    await stand.ended("sent")
    file.write_text("json://three")
    notifier.add(*telling(notice(2)))
    await stand.ended("sent", 2)
    assert sorted(url for url, *_ in sent.all) == ["json://one", "json://three", "json://two"]


@pytest.mark.parametrize("content", [None, "", "# nobody yet\n", "\xff"])
async def test_a_file_without_addresses_is_a_failure_and_named(
    stand: Stand,
    sent: Sent,
    notifier: Notifier,
    tmp_path: Path,
    content: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "oncall"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    stand.route(url_file=str(file))
    notifier.add(*telling())
    await stand.ended("failed")
    assert sent.all == []
    assert f"{file} cannot be read, or has no address" in capsys.readouterr().out


async def test_a_failing_route_is_logged_once_and_so_is_its_recovery(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    works = False
    async with notifying(stand, Sent(lambda _url: works)) as notifier:
        stand.route("json://a", attempts=1)
        notifier.add(*telling(notice(1), notice(2)))
        await stand.ended("failed", 2)
        works = True
        notifier.add(*telling(notice(3)))
        await stand.ended("sent")
    said = capsys.readouterr().out
    assert said.count("notifications_failing") == 1
    assert said.count("notifications_recovered") == 1
