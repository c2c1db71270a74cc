"""Consul's answers and how they are followed, against a Consul whose answers a test writes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapter.load.roster import Instance
from adapter.registries import consul
from adapter.registries.consul import read_entries
from adapter.runtime.source_errors import WrongAnswer
from tests.registries.kit import FollowedService, follow, served
from tests.waiting import eventually

following = partial(follow, "Consul")
Document = dict[str, Any]


def check(status: str, name: str = "service:a") -> Document:
    return {"CheckID": name, "Status": status, "Output": "", "ServiceID": "a"}


def entry(ip: str = "10.0.0.10", *checks: Document, **service: Any) -> Document:
    """An entry of the health endpoint; `service` are further fields of its service."""
    return {
        "Node": {"ID": "n1", "Node": "node", "Address": "192.0.2.1", "Meta": None},
        "Service": {"ID": ip, "Service": "web", "Address": ip, "Port": 8080, "Meta": None, **service},
        "Checks": [check("passing", "serfHealth"), *checks],
    }


def four() -> list[Document]:
    """The four pods of `FollowedService`."""
    return [entry(f"10.0.0.{10 + n}", check("passing")) for n in range(4)]


def read(document: object, *, pod_name_key: str = "", warning_is_out: bool = False) -> tuple[Instance, ...]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_entries(body, pod_name_key, warning_is_out).instances


class TestEntries:
    @pytest.mark.parametrize(
        ("checks", "status"),
        [
            ([], "PASSING"),
            ([check("passing")], "PASSING"),
            ([check("passing"), check("warning")], "WARNING"),
            ([check("warning"), check("critical"), check("passing")], "CRITICAL"),
            ([check("critical", "serfHealth")], "CRITICAL"),
            ([check("critical", "_service_maintenance:a")], "MAINTENANCE"),
            ([check("critical"), check("critical", "_node_maintenance")], "MAINTENANCE"),
            ([check("passing", "my_node_maintenance")], "PASSING"),
        ],
    )
    def test_worst_check_is_the_status_and_maintenance_beats_all(self, checks: list[Document], status: str) -> None:
        assert [one.status for one in read([entry("10.0.0.10", *checks)])] == [status]

    @pytest.mark.parametrize(
        ("status", "warning_is_out", "healthy"),
        [("passing", True, True), ("warning", False, True), ("warning", True, False), ("critical", False, False)],
    )
    def test_warning_is_healthy_unless_the_settings_say_otherwise(
        self, status: str, warning_is_out: bool, healthy: bool
    ) -> None:
        [one] = read([entry("10.0.0.10", check(status))], warning_is_out=warning_is_out)
        assert one.healthy is healthy

    @pytest.mark.parametrize(
        ("weights", "status", "weight"),
        [
            ({"Passing": 7, "Warning": 3}, "passing", 7),
            ({"Passing": 7, "Warning": 3}, "warning", 3),
            ({"Passing": 7, "Warning": 0}, "warning", None),
        ],
    )
    def test_weight_is_that_of_the_status_and_warning_weight_0_is_none(
        self, weights: Document, status: str, weight: float | None
    ) -> None:
        assert read([entry("10.0.0.10", check(status), Weights=weights)])[0].weight == weight

    @pytest.mark.parametrize(("key", "name"), [("", "web-1"), ("pod", "web-2")])
    def test_entry_names_its_pod(self, key: str, name: str) -> None:
        meta = {"pod-name": "web-1", "pod-uid": "u1", "k8s-namespace": "shop", "pod": "web-2"}
        [one] = read([entry(Meta=meta)], pod_name_key=key)
        assert (one.pod_name, one.pod_uid, one.pod_namespace, one.metadata) == (name, "u1", "shop", meta)

    @pytest.mark.parametrize(
        ("listed", "places"),
        [
            (entry(), [("10.0.0.10", 8080)]),
            (entry("", Port=0), [("192.0.2.1", None)]),
            (
                entry(
                    TaggedAddresses={
                        "lan_ipv4": {"Address": "10.0.0.10", "Port": 8080},
                        "lan_ipv6": {"Address": "fd00::10", "Port": 8081},
                        "wan_ipv4": {"Address": "203.0.113.1", "Port": 1},
                        "virtual": {"Address": "240.0.0.1", "Port": 1},
                    }
                ),
                [("10.0.0.10", 8080), ("fd00::10", 8081)],
            ),
            (entry(TaggedAddresses={"lan_ipv6": {"Address": "fd00::10"}}), [("10.0.0.10", 8080), ("fd00::10", 8080)]),
        ],
        ids=["its own", "its node's", "its LAN addresses", "a LAN address with the service's port"],
    )
    def test_entry_has_its_own_and_its_lan_addresses(
        self, listed: Document, places: list[tuple[str, int | None]]
    ) -> None:
        assert [(one.ip, one.port) for one in read([listed])] == places

    @pytest.mark.parametrize(
        "body", [b"", b"null", b"{}", b"[1]", b"no service here", b"\xff\xfe", b'[{"Node": {}}]', b'{"Nodes": []}']
    )
    def test_body_that_is_not_a_list_of_entries_is_an_error(self, body: bytes) -> None:
        with pytest.raises(WrongAnswer, match="not an answer of Consul's health endpoint"):
            read(body)


class FakeConsul:
    """Answers about every service with `listed`, as Consul does, waiting queries too; `tell` makes news."""

    def __init__(self) -> None:
        self.listed, self.index = four(), 10
        self.ahead = self.uncommitted = 0
        """How much newer waiting queries say that they are; how many plain ones are answered as before the change."""
        self.streamed: list[Document] | None = None  # what waiting queries answer, where that is not the list
        self.headers: dict[str, str] = {}
        self.asked: list[web.Request] = []
        self.waiting = 0
        self._before, self._ended, self._news = (self.listed, self.index), False, asyncio.Condition()
        self.url = ""

    async def tell(self, *entries: Document, index: int | None = None) -> None:
        """The service is these entries from now on; the index grows by itself, or becomes this one."""
        self._before = self.listed, self.index
        self.listed, self.index = list(entries), self.index + 1 if index is None else index
        async with self._news:
            self._news.notify_all()

    async def end_waits(self) -> None:
        """The waits that are under way are over without news."""
        self._ended = True
        async with self._news:
            self._news.notify_all()

    async def until_waiting(self, since: int = 0) -> None:
        """Return once a query waits, and more than `since` were asked."""
        await eventually(lambda: self.waiting > 0 and len(self.asked) > since)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if asked := int(request.query.get("index", 0)):
            await self._hold(asked, float(request.query["wait"].removesuffix("ms")) / 1000)
        listed, index = self.listed, self.index + (self.ahead if asked else 0)
        if asked and self.streamed is not None:
            listed = self.streamed
        if self.uncommitted and not asked:
            self.uncommitted -= 1
            listed, index = self._before
        headers = {"X-Consul-Index": str(index), "X-Consul-KnownLeader": "true", **self.headers}
        return web.json_response(listed, headers=headers)

    async def _hold(self, asked: int, seconds: float) -> None:
        """Consul's rule: until the index is higher than asked, or the wait is over; a lower one is waited for too."""
        self._ended, self.waiting = False, self.waiting + 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(lambda: self.index + self.ahead > asked or self._ended)
        self.waiting -= 1


@pytest.fixture
async def fake() -> AsyncIterator[FakeConsul]:
    fake = FakeConsul()
    async with served(fake.answer) as fake.url:
        yield fake
        await fake.end_waits()


@pytest.fixture
async def followed(fake: FakeConsul) -> AsyncIterator[FollowedService]:
    """The service `web`, for whose next change a query waits."""
    async with following(fake.url, "web", wait_seconds=20) as service:
        await fake.until_waiting()
        yield service


class TestQuestions:
    async def test_service_is_asked_for_at_its_place_with_the_token(self, fake: FakeConsul, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("hush\n")
        settings = {"datacenter": "east", "namespace": "shop", "partition": "p1", "token_file": str(tmp_path / "token")}
        async with following(fake.url, "a/b c", **settings) as followed:
            await followed.until_listed(4)
        first = fake.asked[0]
        assert first.rel_url.raw_path == "/v1/health/service/a%2Fb%20c"
        assert dict(first.query) == {"dc": "east", "ns": "shop", "partition": "p1"}
        assert {one.headers["X-Consul-Token"] for one in fake.asked} == {"hush"}
        fake.asked.clear()
        async with following(fake.url, "web", namespace="shop", place={"namespace": "own"}) as followed:
            await followed.until_listed(4)
        assert fake.asked[0].query["ns"] == "own", "the policy's namespace beats that of the settings"

    @pytest.mark.parametrize("lack", ["KnownLeader: false", "Results-Filtered-By-ACLs: true"])
    async def test_list_without_a_leader_or_that_acls_filter_is_an_error(self, fake: FakeConsul, lack: str) -> None:
        fake.headers = dict([f"X-Consul-{lack}".split(": ")])
        async with following(fake.url, "web") as followed:
            await followed.until_error("knows no leader" if "Leader" in lack else "may not")
            assert followed.listed == -1


class TestIndex:
    async def test_wait_without_news_confirms_the_list(self, fake: FakeConsul, followed: FollowedService) -> None:
        changes, at, asked = len(followed.changes), followed.listing.at, len(fake.asked)
        await fake.end_waits()
        await fake.until_waiting(since=asked + 1)
        assert followed.listed == 4
        assert followed.listing.at > at
        assert len(followed.changes) == changes
        assert [one.query.get("index") for one in fake.asked[asked:]] == [None, "10"]

    async def test_change_that_a_stream_missed_is_seen_after_the_wait(
        self, fake: FakeConsul, followed: FollowedService
    ) -> None:
        fake.listed = four()[:2]
        await fake.end_waits()
        await followed.until_listed(2)

    async def test_list_is_read_again_after_a_minute_of_equal_streamed_answers(
        self, fake: FakeConsul, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A stream never reports that ACLs filter it, so it does not confirm a list for ever."""
        monkeypatch.setattr(consul, "LIST_SECONDS", 0.0)
        fake.streamed = four()
        async with following(fake.url, "web", wait_seconds=1) as followed:
            await eventually(lambda: len([one for one in fake.asked if "index" in one.query]) > 2)
            fake.listed = four()[:2]
            await followed.until_listed(2)

    async def test_list_with_an_older_index_is_taken(self, fake: FakeConsul, followed: FollowedService) -> None:
        await fake.tell(*four()[:2], index=3)
        await fake.end_waits()
        await followed.until_listed(2)
        await eventually(lambda: fake.asked[-1].query.get("index") == "3")

    async def test_change_that_is_streamed_before_its_commit_is_seen(
        self, fake: FakeConsul, followed: FollowedService
    ) -> None:
        """Consul's servers stream a change before they commit it: a list that is read in between lacks it."""
        fake.uncommitted = 3
        await fake.tell(*four()[:2])
        await followed.until_listed(2)
        assert fake.uncommitted == 0
        await fake.until_waiting()

    async def test_stream_that_stays_ahead_is_waited_for_from_there(self, fake: FakeConsul) -> None:
        fake.ahead = 5
        async with following(fake.url, "web") as followed:
            await eventually(lambda: fake.asked[-1:] and fake.asked[-1].query.get("index") == "15")
            await fake.until_waiting()
            await fake.tell(*four()[:2])
            await followed.until_listed(2)
