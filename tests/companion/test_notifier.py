"""Telling people: over real connections, and never in anybody's way."""

import asyncio
import contextlib
import html
import importlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
import requests

from adapter.companion import delivery
from adapter.companion.actions import Notify
from adapter.companion.delivery import Delivery, NoLibraryError
from adapter.companion.messages import Message
from adapter.companion.notifier import STALE_SECONDS, Notifier
from adapter.companion.remembered import Notice
from adapter.kube.errors import Unreachable
from adapter.settings import Companion
from adapter.settings_notifications import Notifications, Production, RateLimit, Route, Severity, Topic
from adapter.snapshot import Key
from adapter.telemetry.metrics import Metrics
from tests.companion.receivers import hook, mailbox
from tests.load.world import NOW

# The library's own, at its import.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

KEY = Key("shop", "web")


class Stand:
    """A notifier among stand-ins: the API server's clock and namespaces, and the Lease."""

    def __init__(self) -> None:
        self.time = NOW
        self.leads = True
        self.labels: dict[str, str] | None = {}
        self.asked = 0
        self.metrics = Metrics()
        self.settings = Companion()
        self.counts: dict[tuple[str, str], float] = {}
        self._ended = asyncio.Event()

    def now(self) -> float:
        return self.time

    async def get(self, path: str, **_options: Any) -> bytes:
        self.asked += 1
        assert path == "/api/v1/namespaces/shop"
        if self.labels is None:
            raise Unreachable("no answer")
        pairs = ",".join(f'"{key}":"{value}"' for key, value in self.labels.items())
        return f'{{"metadata":{{"labels":{{{pairs}}}}}}}'.encode()

    def route(self, *urls: str, production: Production | None = None, queue: int = 200, **changes: Any) -> None:
        """One route for all policies; in a hurry, unless told otherwise."""
        route = Route(**{"name": "oncall", "default": True, "urls": urls, "attempts": 2, **changes})
        self.configure(route, production=production, queue=queue)

    def configure(self, *routes: Route, production: Production | None = None, queue: int = 200) -> None:
        notifications = Notifications(cluster="north", routes=routes, queue=queue)
        self.settings = Companion(notifications=notifications, production=production or Production())

    def count(self, result: str, route: str = "oncall") -> float:
        """How many notifications of a route ended so."""
        value = self.metrics.registry.get_sample_value(
            "effective_load_notifications_total", {"route": route, "result": result}
        )
        return value or 0.0

    async def ended(self, result: str, count: int = 1, route: str = "oncall") -> None:
        """Wait until so many ended so."""
        async with asyncio.timeout(10):
            while self.count(result, route) < count:  # noqa: ASYNC110  a counter tells nobody
                await asyncio.sleep(0.005)


@pytest.fixture
def stand() -> Stand:
    return Stand()


@contextlib.asynccontextmanager
async def notifying(
    stand: Stand, send: delivery.Send = delivery.deliver, wait: float = 0.01, lease: object = None
) -> AsyncIterator[Notifier]:
    made = Notifier(cast(Any, stand), cast(Any, lease or stand), lambda: stand.settings, stand.metrics, send, wait)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def notice(number: int = 1, topic: Topic = Topic.SCALED, **changes: Any) -> Notice:
    fields = {"from": "4", "to": str(number), "why": "cpu is high"} if topic is Topic.SCALED else {}
    given = {
        "number": number,
        "topic": topic,
        "severity": Severity.INFO,
        "at": NOW,
        "target": "Deployment web",
        "text": f"scaled from 4 to {number}",
        "fields": fields,
    }
    return Notice(**{**given, **changes})


def telling(*notices: Notice, routes: Iterable[str] = (), key: Key = KEY) -> Notify:
    return Notify(key=key, notices=notices or (notice(),), routes=tuple(routes))


class Sent:
    """Takes everything, and notes it."""

    def __init__(self, answers: Callable[[str], bool] = lambda _url: True) -> None:
        self.all: list[tuple[str, str, str, Severity]] = []
        self._answers = answers

    def __call__(self, url: str, title: str, body: str, severity: Severity) -> bool:
        self.all.append((url, title, body, severity))
        return self._answers(url)

    @property
    def bodies(self) -> list[str]:
        return [body for _, _, body, _ in self.all]


async def in_threads(count: int) -> None:
    """Wait until so many attempts are being made."""
    async with asyncio.timeout(10):
        while sum(thread.name == "notification" for thread in threading.enumerate()) != count:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.005)


# --- over real connections ---


@pytest.mark.integration
async def test_a_web_hook_is_told(stand: Stand) -> None:
    async with hook() as receiver, notifying(stand) as notifier:
        stand.route(receiver.url)
        notifier.take(telling())
        (got,) = await receiver.told(1)
        await stand.ended("sent")
    assert (got["title"], got["message"], got["type"]) == (
        "[info] shop/web: scaled", "scaled from 4 to 1", "info"
    )  # fmt: skip


@pytest.mark.integration
async def test_a_mail_is_sent(stand: Stand) -> None:
    async with mailbox() as receiver, notifying(stand) as notifier:
        stand.route(f"mailto://127.0.0.1:{receiver.port}?from=adapter@shop.test&to=team@shop.test&mode=insecure")
        notifier.take(telling(notice(severity=Severity.CRITICAL, topic=Topic.MASS_PULL_OUT, text="äußerst schlecht")))
        sender, recipients, mail = await receiver.next()
        await stand.ended("sent")
    assert (sender, recipients) == ("adapter@shop.test", ["team@shop.test"])
    assert mail["Subject"] == "[critical] shop/web: massPullOut"
    payload = mail.get_payload(decode=True) if not mail.is_multipart() else mail.get_payload(0).get_payload(decode=True)  # type: ignore[union-attr]
    assert "äußerst schlecht" in cast(bytes, payload).decode()


@pytest.mark.integration
async def test_a_receiver_that_hangs_holds_up_neither_the_loop_nor_another_route(stand: Stand) -> None:
    async with hook() as silent, hook() as other, notifying(stand) as notifier:
        silent.answers.clear()
        hanging = Route(name="hanging", default=True, urls=(silent.url,), timeout_seconds=1, attempts=1)
        stand.configure(hanging, Route(name="oncall", default=True, urls=(other.url,)))
        notifier.take(telling())
        await silent.told(1)
        notifier.take(telling(notice(2)))
        assert len(await other.told(2)) == 2
        await stand.ended("sent", 2)
        assert stand.count("failed", "hanging") == 0
        await stand.ended("failed", 2, "hanging")
        assert len(silent.taken) == 1


@pytest.mark.integration
async def test_a_mail_server_that_says_nothing_is_given_up(stand: Stand) -> None:
    async with mailbox(silent=True) as receiver, notifying(stand) as notifier:
        url = f"mailto://127.0.0.1:{receiver.port}?from=a@shop.test&to=b@shop.test&mode=insecure&rto=2&cto=2"
        stand.route(url, timeout_seconds=1, attempts=1)
        notifier.take(telling())
        await receiver.connected.wait()
        await stand.ended("failed")


@pytest.mark.integration
async def test_a_receiver_that_refuses_is_tried_again_and_then_given_up(
    stand: Stand, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async with hook() as receiver, notifying(stand) as notifier:
        receiver.status = 503
        stand.route(f"{receiver.url}?token=hush", attempts=3)
        notifier.take(telling())
        await stand.ended("failed")
        assert len(receiver.taken) == 3
        receiver.status = 200
        notifier.take(telling(notice(2)))
        await stand.ended("sent")
    assert not [record for record in caplog.records if record.name.startswith("apprise")]
    said = capsys.readouterr()
    assert "notifications are not delivered" in said.out
    assert "hush" not in caplog.text + said.out + said.err


@pytest.mark.integration
async def test_tokens_in_addresses_are_not_logged_even_where_all_is_logged(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with hook() as receiver, notifying(stand) as notifier:
        stand.route(f"{receiver.url}?-token=hush")
        notifier.take(telling())
        await stand.ended("sent")
    assert receiver.paths == ["/hook?token=hush"]
    # The stand-in's own record of what it was asked aside.
    assert [one.name for one in caplog.records if "hush" in one.getMessage()] == ["aiohttp.access"]


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("json://hooks.shop.test/scaling", "http://hooks.shop.test/scaling"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#oncall", "https://hooks.slack.com/services/T1JJ3T3L2/"),
        ("dingtalk://secret@token", "https://oapi.dingtalk.com/robot/send?access_token=token"),
        ("feishu://token", "https://open.feishu.cn/open-apis/bot/v2/hook/token"),
        ("wecombot://bot-key", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=bot-key"),
    ],
)
async def test_the_services_that_are_named_get_title_and_text(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, url: str, place: str
) -> None:
    asked: list[requests.PreparedRequest] = []

    def takes(_session: requests.Session, request: requests.PreparedRequest, **_options: Any) -> requests.Response:
        asked.append(request)
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"ok"
        return answer

    monkeypatch.setattr(requests.Session, "send", takes)
    async with notifying(stand) as notifier:
        stand.route(url, title="the title", attempts=1)
        notifier.take(telling(notice(text="5 < 6 & *7*")))
        await stand.ended("sent")
    (request,) = asked
    assert str(request.url).startswith(place)
    body = request.body.decode() if isinstance(request.body, bytes) else str(request.body)
    assert "the title" in body
    assert "5 < 6 & *7*" in html.unescape(body)


async def test_nobody_at_all_is_no_trouble_for_anybody_else(stand: Stand) -> None:
    async with notifying(stand) as notifier:
        stand.route("json://127.0.0.1:9/hook", attempts=1)
        notifier.take(telling())
        await stand.ended("failed")


@pytest.mark.parametrize("url", ["nonsense", "json://", "unknown://a/b"])
async def test_an_address_that_is_none_is_a_failure(stand: Stand, url: str) -> None:
    async with notifying(stand) as notifier:
        stand.route(url, attempts=1)
        notifier.take(telling())
        await stand.ended("failed")


# --- who is told what ---


async def test_templates_put_in_what_is_known_and_execute_nothing(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route(
            "json://a",
            title="$cluster $$5 {0.__class__} %s",
            template="$event $severity $namespace $policy $target $at $from $to $why ${text}!",
        )
        notifier.take(telling(notice(7, text="$policy {policy}")))
        await stand.ended("sent")
    ((_, title, body, _),) = sent.all
    assert title == "north $5 {0.__class__} %s"
    assert body == "scaled info shop web Deployment web 2026-01-01T12:00:00Z 4 7 cpu is high $policy {policy}!"


async def test_a_title_is_one_line_whatever_is_put_in(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", title="$policy:\n $text")
        notifier.take(telling(notice(text="refused\r\nBcc: all@shop.test")))
        await stand.ended("sent")
    assert sent.all[0][1] == "web: refused Bcc: all@shop.test"


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
async def test_a_route_is_told_of_what_is_its_business(stand: Stand, route: dict[str, Any], told: bool) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        made = Route(**{"name": "oncall", "default": True, "urls": ("json://it",), **route})
        stand.configure(made, Route(name="all", default=True, urls=("json://all",)))
        notifier.take(telling(routes=["team"]))
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
        notifier.take(telling(mismatch, notice(2)))
        await stand.ended("sent", 2)
    assert [one[3] for one in sent.all] == [severity, Severity.INFO]


async def test_a_label_that_cannot_be_read_just_now_is_what_it_was(stand: Stand) -> None:
    sent, stand.labels = Sent(), {"production": "yes"}
    mismatch = notice(topic=Topic.VERSION_MISMATCH, severity=Severity.WARNING, severity_in_production=Severity.CRITICAL)
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", production=Production(label="production"))
        notifier.take(telling(mismatch))
        await stand.ended("sent")
        stand.time, stand.labels = stand.time + 301, None
        notifier.take(telling(mismatch))
        await stand.ended("sent", 2)
    assert stand.asked == 2
    assert [one[3] for one in sent.all] == [Severity.CRITICAL, Severity.CRITICAL]


async def test_a_namespace_is_asked_for_its_label_now_and_then_only(stand: Stand) -> None:
    sent, made = Sent(), Production(label="production")
    stand.route("json://a", production=made)
    async with notifying(stand, sent) as notifier:
        for number in range(1, 4):
            notifier.take(telling(notice(number, severity_in_production=Severity.CRITICAL)))
            await stand.ended("sent", number)
        assert stand.asked == 1
        stand.time += 301
        notifier.take(telling(notice(9, severity_in_production=Severity.CRITICAL)))
        await stand.ended("sent", 4)
    assert stand.asked == 2


# --- limits ---


async def test_a_route_gets_so_many_and_no_more_but_what_is_critical(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", rate_limit=RateLimit(count=2, seconds=60))
        notifier.take(telling(*(notice(number) for number in range(1, 6))))
        await stand.ended("limited", 3)
        notifier.take(telling(notice(6, severity=Severity.CRITICAL)))
        await stand.ended("sent", 3)
        stand.time += 60
        notifier.take(telling(notice(7, at=stand.time)))
        await stand.ended("sent", 4)
    assert sent.bodies == [f"scaled from 4 to {n}" for n in (1, 2, 6, 7)]


async def test_one_policy_does_not_use_up_the_route_for_the_others(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a", policy_rate_limit=RateLimit(count=1))
        notifier.take(telling(notice(1), notice(2)))
        notifier.take(telling(notice(3), key=Key("shop", "other")))
        await stand.ended("sent", 2)
        await stand.ended("limited")
    assert sent.bodies == ["scaled from 4 to 1", "scaled from 4 to 3"]


async def test_the_same_words_are_not_sent_again_for_a_while(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.take(telling(notice(1), notice(1)))
        await stand.ended("repeated")
        stand.time += 301
        notifier.take(telling(notice(1, at=stand.time)))
        await stand.ended("sent", 2)
    assert len(sent.all) == 2


async def test_the_last_word_that_is_told_is_the_one_that_holds(stand: Stand) -> None:
    sent = Sent()
    lost, back = notice(1, topic=Topic.DATA_LOST, text="lost"), notice(2, topic=Topic.DATA_RECOVERED, text="back")
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.take(telling(lost, back, lost, back))
        await stand.ended("sent", 4)
    assert sent.bodies == ["lost", "back", "lost", "back"]


async def test_a_queue_has_an_end(stand: Stand) -> None:
    gate = threading.Event()

    def waits(*_told: object) -> bool:
        return gate.wait(10)

    async with notifying(stand, waits) as notifier:
        stand.route("json://a", queue=3)
        notifier.take(telling(notice(1)))
        await in_threads(1)
        notifier.take(telling(*(notice(number) for number in range(2, 8))))
        await stand.ended("overflow", 3)
        gate.set()
        await stand.ended("sent", 4)


async def test_more_than_can_be_spread_is_dropped_and_counted(stand: Stand) -> None:
    made = Notifier(cast(Any, stand), cast(Any, stand), lambda: stand.settings, stand.metrics)
    for _ in range(1001):
        made.take(telling())
    assert stand.count("overflow", "") == 1


# --- attempts ---


async def test_only_those_that_did_not_take_it_are_tried_again(stand: Stand) -> None:
    tries: list[str] = []

    def answers(url: str) -> bool:
        tries.append(url)
        return url == "json://good" or tries.count(url) > 1

    async with notifying(stand, Sent(answers)) as notifier:
        stand.route("json://good", "json://bad")
        notifier.take(telling())
        await stand.ended("sent")
    assert sorted(tries) == ["json://bad", "json://bad", "json://good"]


async def test_an_attempt_that_still_hangs_is_not_begun_anew_beside_itself(stand: Stand) -> None:
    gate, began = threading.Event(), []

    def waits(*told: Any) -> bool:
        began.append(told)
        return gate.wait(10)

    async with notifying(stand, waits) as notifier:
        stand.route("json://a", timeout_seconds=1, attempts=2)
        notifier.take(telling())
        await stand.ended("failed")
        assert len(began) == 1
        gate.set()
        await in_threads(0)
        notifier.take(telling(notice(2)))
        await stand.ended("sent")


TOLD = Message(key=KEY, severity=Severity.INFO, at=NOW, title="", body="")


async def test_an_attempt_that_ends_well_after_its_time_is_waited_for_by_the_next_one() -> None:
    gate, began = threading.Event(), []

    def waits(*told: Any) -> bool:
        began.append(told)
        return gate.wait(10)

    made = Delivery(waits)
    assert await made.tried(["json://a"], TOLD, 0.05) == ("json://a",)
    again = asyncio.create_task(made.tried(["json://a"], TOLD, 10))
    await asyncio.sleep(0)
    gate.set()
    assert await again == ()
    assert len(began) == 1


async def test_an_attempt_that_ended_well_after_its_time_is_not_made_again() -> None:
    gate, began = threading.Event(), []

    def waits(*told: Any) -> bool:
        began.append(told)
        return gate.wait(10)

    made = Delivery(waits)
    assert await made.tried(["json://a"], TOLD, 0.05) == ("json://a",)
    gate.set()
    await in_threads(0)
    assert await made.tried(["json://a"], TOLD, 10) == ()
    assert len(began) == 1


async def test_an_error_in_the_library_is_a_failure_and_its_words_stay_inside(
    stand: Stand, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(url: str, *_told: object) -> bool:
        raise ValueError(f"cannot reach {url}")

    async with notifying(stand, fails) as notifier:
        stand.route("json://user:hush@a", attempts=1)
        notifier.take(telling())
        await stand.ended("failed")
    said = capsys.readouterr()
    assert "notifications are not delivered" in said.out
    assert "hush" not in caplog.text + said.out + said.err


async def test_where_no_thread_can_be_had_it_is_a_failure_and_tried_again(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, starts = Sent(), []
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        starts.append(thread)
        if len(starts) == 1:
            raise RuntimeError("can't start new thread")
        begin(thread)

    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        await asyncio.to_thread(int)  # the loop's own pool has its thread from here on
        monkeypatch.setattr(threading.Thread, "start", start)
        notifier.take(telling())
        await stand.ended("sent")
    assert len(starts) >= 2


async def test_without_the_library_it_is_said_and_nothing_else_happens(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(NoLibraryError):
        delivery.deliver("json://a", "", "", Severity.INFO)
    async with notifying(stand) as notifier:
        stand.route("json://a")
        notifier.take(telling())
        await stand.ended("noLibrary")


async def test_what_is_too_old_is_not_told(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.take(telling(notice(at=NOW - STALE_SECONDS - 1)))
        await stand.ended("stale")
    assert sent.all == []


# --- leaders ---


async def test_who_no_longer_leads_tells_nothing_more(stand: Stand) -> None:
    sent = Sent()
    stand.leads = False
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.take(telling())
        await stand.ended("lostLease")
    assert sent.all == []


async def test_an_attempt_after_the_lease_was_lost_is_not_made(stand: Stand) -> None:
    def refuses_and_deposes(*_told: object) -> bool:
        stand.leads = False
        return False

    async with notifying(stand, refuses_and_deposes) as notifier:
        stand.route("json://a", attempts=3)
        notifier.take(telling())
        await stand.ended("lostLease")


class Wavering:
    """A Lease that is in doubt at the first look, as it is where the API server was slow to renew it."""

    looks = 0

    @property
    def leads(self) -> bool:
        self.looks += 1
        return self.looks > 1


async def test_a_lease_that_is_in_doubt_for_a_moment_costs_no_notification(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent, lease=Wavering()) as notifier:
        stand.route("json://a")
        notifier.take(telling())
        await stand.ended("sent")
    assert len(sent.all) == 1


# --- addresses ---


async def test_addresses_are_read_from_the_file_as_it_is_at_the_time(stand: Stand, tmp_path: Path) -> None:
    sent, file = Sent(), tmp_path / "oncall"
    file.write_text("# the team\njson://one\n\n  json://two  \n")
    async with notifying(stand, sent) as notifier:
        stand.route(url_file=str(file))
        notifier.take(telling())
        await stand.ended("sent")
        file.write_text("json://three")
        notifier.take(telling(notice(2)))
        await stand.ended("sent", 2)
    assert sorted(url for url, *_ in sent.all) == ["json://one", "json://three", "json://two"]


async def test_a_file_name_that_is_none_stops_nothing_else(stand: Stand) -> None:
    async with notifying(stand, Sent()) as notifier:
        good = Route(name="good", default=True, urls=("json://a",))
        stand.configure(Route(name="oncall", default=True, url_file="\0", attempts=1), good)
        notifier.take(telling())
        await stand.ended("noAddress")
        notifier.take(telling(notice(2)))
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
        notifier.take(telling())
        await stand.ended("noAddress")
    assert sent.all == []
    assert f"{file} cannot be read, or holds no address" in capsys.readouterr().out


async def test_a_route_that_the_settings_drop_is_told_nothing_more(stand: Stand) -> None:
    sent = Sent()
    async with notifying(stand, sent) as notifier:
        stand.route("json://a")
        notifier.take(telling())
        await stand.ended("sent")
        stand.configure(Route(name="new", default=True, urls=("json://b",)))
        notifier.take(telling(notice(2)))
        await stand.ended("sent", route="new")
    assert [url for url, *_ in sent.all] == ["json://a", "json://b"]


async def test_that_a_route_fails_is_said_once_and_that_it_works_again(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    works = False
    async with notifying(stand, Sent(lambda _url: works)) as notifier:
        stand.route("json://a", attempts=1)
        notifier.take(telling(notice(1), notice(2)))
        await stand.ended("failed", 2)
        works = True
        notifier.take(telling(notice(3)))
        await stand.ended("sent")
    said = capsys.readouterr().out
    assert said.count("notifications are not delivered") == 1
    assert said.count("notifications are delivered again") == 1
