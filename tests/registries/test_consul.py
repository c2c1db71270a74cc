"""Consul's answers and how they are followed, against a Consul whose answers a test writes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from blockbuster import blockbuster_ctx

from adapter.load.roster import Instance
from adapter.registries.consul import read_entries
from adapter.runtime.source_errors import WrongAnswer
from tests.registries.consul_kit import Followed, following

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
    """The four pods of `Followed`."""
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
    """Answers as Consul does, waiting queries too. `lists` and `indexes` are by service; `tell` makes news of them."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Document]] = {"web": four()}
        self.indexes: dict[str, int] = {}
        self.fault: dict[str, web.Response] = {}
        self.more: dict[str, str] = {}
        """Further headers."""
        self.uncommitted = 0
        """How many plain queries are still answered as before the last change."""
        self._before: dict[str, tuple[list[Document], int]] = {}
        self.ahead = 0
        """How much newer waiting queries say that they are."""
        self.asked: list[web.Request] = []
        self.waiting: dict[str, int] = {}
        self._news = asyncio.Condition()
        self.came = asyncio.Event()
        application = web.Application()
        application.router.add_get("/v1/health/service/{name:.*}", self._answer)
        self.server = TestServer(application)

    async def __aenter__(self) -> Self:
        await self.server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tell(end=True)
        await self.server.close()

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    async def tell(self, service: str = "", *entries: Document, index: int | None = None, end: bool = False) -> None:
        """A service is these entries from now on; the index grows by itself, or becomes this one."""
        if service:
            self._before[service] = self.lists.get(service, []), self.index(service)
            self.lists[service] = list(entries)
            self.indexes[service] = self.index(service) + 1 if index is None else index
        self.ended = end
        async with self._news:
            self._news.notify_all()

    def index(self, service: str) -> int:
        return self.indexes.get(service, 10)

    def of(self, service: str) -> list[web.Request]:
        return [one for one in self.asked if one.match_info["name"] == service]

    async def until_waiting(self, service: str = "web", since: int = 0) -> None:
        """Return once a query about the service waits, and more than `since` were asked."""
        await self.until(lambda: self.waiting.get(service, 0) > 0 and len(self.of(service)) > since)

    async def until(self, holds: Any) -> None:
        """Return once it holds; looked at after each question."""
        async with asyncio.timeout(20):
            while not holds():
                self.came.clear()
                await self.came.wait()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        service = request.match_info["name"]
        self.asked.append(request)
        self.came.set()
        asked = int(request.query.get("index", 0))
        if asked:
            await self._hold(service, asked, float(request.query["wait"].removesuffix("ms")) / 1000)
        if service in self.fault:
            fault = self.fault[service]
            return web.Response(status=fault.status, text=fault.text, headers=fault.headers)
        listed, index = self.lists.get(service, []), self.index(service) + (self.ahead if asked else 0)
        if self.uncommitted and not asked and service in self._before:
            self.uncommitted -= 1
            listed, index = self._before[service]
        headers = {"X-Consul-Index": str(index), "X-Consul-KnownLeader": "true", **self.more}
        return web.json_response(listed, headers=headers)

    async def _hold(self, service: str, asked: int, seconds: float) -> None:
        """Consul's rule: until the index is higher than asked, or the wait is over; a lower one is waited for too."""
        self.ended = False
        self.waiting[service] = self.waiting.get(service, 0) + 1
        self.came.set()
        try:
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(
                    lambda: self.index(service) + self.ahead > asked or service in self.fault or self.ended
                )
        except TimeoutError:
            pass
        finally:
            self.waiting[service] -= 1


@pytest.fixture
async def fake() -> AsyncIterator[FakeConsul]:
    async with FakeConsul() as consul:
        yield consul


@pytest.fixture
async def followed(fake: FakeConsul) -> AsyncIterator[Followed]:
    """The service `web`, for whose next change a query waits."""
    async with following([fake.url], "web") as service:
        await fake.until_waiting()
        yield service


class TestQuestions:
    async def test_whole_list_is_read_and_then_a_newer_one_is_waited_for(self, fake: FakeConsul) -> None:
        async with following([fake.url], "web", wait_seconds=20) as followed:
            await followed.until_listed(4)
            await fake.until_waiting()
        first, second = fake.of("web")
        assert dict(first.query) == {}
        assert second.query["index"] == "10"
        assert 15_000 <= float(second.query["wait"].removesuffix("ms")) <= 20_000
        assert "passing" not in second.query

    async def test_service_is_asked_for_at_its_place_with_the_token(self, fake: FakeConsul, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("hush\n")
        settings = {"datacenter": "east", "namespace": "shop", "partition": "p1", "token_file": str(tmp_path / "token")}
        fake.lists["a/b c"] = [entry()]
        async with following([fake.url], "a/b c", **settings) as followed:
            with blockbuster_ctx("adapter"):
                await followed.until_listed(1)
        [first, *_] = fake.of("a/b c")
        assert first.rel_url.raw_path == "/v1/health/service/a%2Fb%20c"
        assert dict(first.query) == {"dc": "east", "ns": "shop", "partition": "p1"}
        assert {one.headers["X-Consul-Token"] for one in fake.asked} == {"hush"}

    async def test_namespace_of_the_policy_beats_that_of_the_settings(self, fake: FakeConsul) -> None:
        async with following([fake.url], "web", namespace="shop", place={"namespace": "own"}) as followed:
            await followed.until_listed(4)
        assert fake.of("web")[0].query["ns"] == "own"

    async def test_group_is_an_error_and_never_asked_for(self, fake: FakeConsul) -> None:
        async with following([fake.url], "web", place={"group": "BLUE"}) as followed:
            await followed.until_error("no groups; take group 'BLUE' out of the policy")
        assert not fake.of("web")


class TestIndex:
    async def test_wait_without_news_confirms_the_list(self, fake: FakeConsul, followed: Followed) -> None:
        changes, at, asked = len(followed.changes.received), followed.listing.at, len(fake.of("web"))
        await fake.tell(end=True)
        await fake.until_waiting(since=asked + 1)
        assert followed.listed == 4
        assert followed.listing.at > at
        assert len(followed.changes.received) == changes
        assert [one.query.get("index") for one in fake.of("web")[asked:]] == [None, "10"]

    async def test_change_that_a_stream_missed_is_seen_after_the_wait(
        self, fake: FakeConsul, followed: Followed
    ) -> None:
        fake.lists["web"] = four()[:2]
        await fake.tell(end=True)
        await followed.until_listed(2)

    async def test_list_with_an_older_index_is_taken(self, fake: FakeConsul, followed: Followed) -> None:
        await fake.tell("web", *four()[:2], index=3)
        await fake.tell(end=True)
        await followed.until_listed(2)
        await fake.until(lambda: fake.of("web")[-1].query.get("index") == "3")

    @pytest.mark.parametrize("index", [0, -1])
    async def test_answer_without_a_valid_index_is_an_error(
        self, fake: FakeConsul, followed: Followed, index: int
    ) -> None:
        await fake.tell("web", index=index)
        await fake.tell(end=True)
        await followed.until_error("no X-Consul-Index")
        assert followed.listed == 4

    async def test_change_that_is_streamed_before_its_commit_is_seen(
        self, fake: FakeConsul, followed: Followed
    ) -> None:
        """Consul's servers stream a change before they commit it: a list that is read in between lacks it."""
        fake.uncommitted = 3
        await fake.tell("web", *four()[:2])
        await followed.until_listed(2)
        assert fake.uncommitted == 0
        await fake.until_waiting()

    async def test_stream_that_stays_ahead_is_waited_for_from_there(self, fake: FakeConsul) -> None:
        fake.ahead = 5
        async with following([fake.url], "web") as followed:
            await fake.until(lambda: fake.of("web")[-1:] and fake.of("web")[-1].query.get("index") == "15")
            await fake.until_waiting()
            await fake.tell("web", *four()[:2])
            await followed.until_listed(2)


class TestFailures:
    @pytest.mark.parametrize(
        ("status", "body", "words"),
        [
            (403, "ACL not found", "Consul does not know the token in tokenFile"),
            (403, "Permission denied", "give the token service:read"),
            (401, "no", "give the token service:read"),
            (429, "too many", "http_max_conns_per_client"),
            (500, "rpc error", "HTTP 500: rpc error"),
            (400, "Invalid query", "HTTP 400"),
            (301, "", "HTTP 301"),
        ],
    )
    async def test_refusal_names_the_server_and_what_to_do_and_ends(
        self, fake: FakeConsul, followed: Followed, status: int, body: str, words: str
    ) -> None:
        with followed.pods.nothing_changes():
            fake.fault["web"] = web.Response(status=status, text=body)
            await fake.tell()
            await followed.until_error(words)
            assert followed.error.startswith(f"{fake.url}: ")
            await followed.until_failed_again()
        fake.fault.clear()
        await followed.until_listed(4)

    async def test_server_without_a_leader_is_an_error(self, fake: FakeConsul, followed: Followed) -> None:
        fake.more = {"X-Consul-KnownLeader": "false", "X-Consul-Query-Backend": "blocking-query"}
        await fake.tell(end=True)
        await followed.until_error("knows no leader")

    async def test_streamed_answer_never_knows_a_leader_and_is_valid(self, fake: FakeConsul) -> None:
        fake.more = {"X-Consul-KnownLeader": "false", "X-Consul-Query-Backend": "streaming"}
        async with following([fake.url], "web") as followed:
            await followed.until_listed(4)

    async def test_empty_list_under_an_acl_policy_is_valid_with_a_token(self, fake: FakeConsul, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("hush")
        fake.more = {"X-Consul-Default-ACL-Policy": "deny"}
        async with following([fake.url], "web", token_file=str(tmp_path / "token")) as followed:
            await fake.until_waiting()
            await fake.tell("web")
            await followed.until_listed(0)
