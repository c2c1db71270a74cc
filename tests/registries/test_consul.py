"""Consul's answers and how they are followed, against a Consul whose answers a test writes."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from blockbuster import blockbuster_ctx
from multidict import CIMultiDict

from adapter.load.pods import PodState
from adapter.load.roster import Instance
from adapter.registries.consul import source as source_module
from adapter.registries.consul import wire
from adapter.runtime.outbound import Reply
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, SourceFailing, WrongRegistryAnswer
from tests.load.kit import pod
from tests.registries.consul_kit import Followed, following
from tests.registries.kit import running

Document = dict[str, Any]


def check(status: str, name: str = "service:a") -> Document:
    return {"CheckID": name, "Status": status, "Output": "", "ServiceID": "a"}


def entry(ip: str = "10.0.0.10", *checks: Document, node: str = "n1", **service: Any) -> Document:
    """An entry of the health endpoint; `service` are further fields of its service."""
    return {
        "Node": {"ID": node, "Node": "node", "Address": "192.0.2.1", "Meta": None},
        "Service": {"ID": ip, "Service": "web", "Address": ip, "Port": 8080, "Meta": None, **service},
        "Checks": [check("passing", "serfHealth"), *checks],
    }


def four(*statuses: str) -> list[Document]:
    """The four pods of `Followed`, with a check of this status each; the others' passes."""
    kept = [*statuses, *[""] * (4 - len(statuses))]
    return [entry(f"10.0.0.{10 + n}", check(status or "passing")) for n, status in enumerate(kept)]


def replace_first_pod(followed: Followed) -> None:
    """Let the pod web-0 end, and a new one have its name and address a minute later."""
    followed.clock.jump(60)
    followed.pods.pods[0] = pod("web-0", uid="next", ip="10.0.0.10", age=1, ready_for=1, now=followed.clock())


def read(document: object, *, pod_name_key: str = "", warning_is_out: bool = False) -> tuple[Instance, ...]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    reading = wire.registrations(body, "http://consul", pod_name_key=pod_name_key, warning_is_out=warning_is_out)
    return tuple(one.instance for one in asyncio.run(reading))


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
    def test_the_worst_check_is_the_status_and_maintenance_beats_all(self, checks: list[Document], status: str) -> None:
        assert [one.status for one in read([entry("10.0.0.10", *checks)])] == [status]

    @pytest.mark.parametrize(
        ("status", "warning_is_out", "healthy"),
        [("passing", True, True), ("warning", False, True), ("warning", True, False), ("critical", False, False)],
    )
    def test_a_warning_is_health_or_not_as_the_settings_say(
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
    def test_the_weight_is_that_of_the_status_and_a_warning_weight_that_nobody_gave_is_none(
        self, weights: Document, status: str, weight: float | None
    ) -> None:
        assert read([entry("10.0.0.10", check(status), Weights=weights)])[0].weight == weight

    @pytest.mark.parametrize(("key", "name"), [("", "web-1"), ("pod", "web-2")])
    def test_an_entry_names_its_pod(self, key: str, name: str) -> None:
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
    def test_the_addresses_of_an_entry(self, listed: Document, places: list[tuple[str, int | None]]) -> None:
        assert [(one.ip, one.port) for one in read([listed])] == places

    @pytest.mark.parametrize(
        "body", [b"", b"null", b"{}", b"[1]", b"no service here", b"\xff\xfe", b'[{"Node": {}}]', b'{"Nodes": []}']
    )
    def test_what_is_no_list_of_entries_is_an_error_that_names_the_server(self, body: bytes) -> None:
        with pytest.raises(WrongRegistryAnswer, match="http://consul: the answer is not what"):
            read(body)


class TestHeaders:
    @pytest.mark.parametrize(("index", "revision"), [("88", 88), ("", 0), ("-1", 0), ("x", 0), ("0", 0)])
    def test_an_answer_says_how_new_it_is_or_0(self, index: str, revision: int) -> None:
        assert wire.headers(reply(200, index=index), "http://consul") == wire.Headers(revision, False, False)

    def test_a_server_that_knows_no_leader_is_no_witness(self) -> None:
        with pytest.raises(SourceFailing, match="knows no leader"):
            wire.headers(reply(200, knownleader="false", backend="blocking-query"), "http://consul")

    def test_what_is_streamed_knows_none_and_is_believed(self) -> None:
        streamed = reply(200, index="3", knownleader="false", backend="streaming")
        assert wire.headers(streamed, "http://consul").revision == 3

    @pytest.mark.parametrize(
        ("status", "body", "error", "words"),
        [
            (403, b"ACL not found", NotAuthenticated, "tokenFile"),
            (403, b"Permission denied", NotAllowed, "service:read"),
            (401, b"no", NotAllowed, "service:read"),
            (429, b"too many", SourceFailing, "http_max_conns_per_client"),
            (500, b"No cluster leader", SourceFailing, "http://consul: HTTP 500: No cluster leader"),
            (400, b"Invalid query", WrongRegistryAnswer, "HTTP 400"),
            (301, b"", WrongRegistryAnswer, "HTTP 301"),
        ],
    )
    def test_a_refusal_names_the_server_and_what_to_do(
        self, status: int, body: bytes, error: type[SourceError], words: str
    ) -> None:
        with pytest.raises(error) as caught:
            wire.headers(reply(status, body), "http://consul")
        assert words in str(caught.value)
        assert str(caught.value).startswith("http://consul: ")


def reply(status: int, body: bytes = b"[]", *, index: str = "", knownleader: str = "", backend: str = "") -> Reply:
    found = {"X-Consul-Index": index, "X-Consul-Knownleader": knownleader, "X-Consul-Query-Backend": backend}
    return Reply(status, CIMultiDict({name: value for name, value in found.items() if value}), body)


class FakeConsul:
    """Answers as Consul does, waiting queries too. `lists` and `indexes` are by service; `tell` makes news of them."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Document]] = {"consul": [entry(node="n1")], "web": four()}
        self.indexes: dict[str, int] = {}
        self.fault: dict[str, web.Response] = {}
        self.more: dict[str, str] = {}
        """Further headers."""
        self.ahead = 0
        """How much newer waiting queries say that they are."""
        self.stuck = False
        """Whether waiting queries never end."""
        self.silent: set[str] = set()
        """Services whose lists are never answered."""
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
        elif service in self.silent:
            await asyncio.Event().wait()
        if service in self.fault:
            fault = self.fault[service]
            return web.Response(status=fault.status, text=fault.text, headers=fault.headers)
        index = self.index(service) + (self.ahead if asked else 0)
        headers = {"X-Consul-Index": str(index), "X-Consul-KnownLeader": "true", **self.more}
        return web.json_response(self.lists.get(service, []), headers=headers)

    async def _hold(self, service: str, asked: int, seconds: float) -> None:
        """Consul's rule: until the index is higher than asked, or the wait is over; a lower one is waited for too."""
        self.ended = False
        self.waiting[service] = self.waiting.get(service, 0) + 1
        self.came.set()
        try:
            async with asyncio.timeout(None if self.stuck else seconds), self._news:
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


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "GAP_SECONDS", 0.01)


class TestAsking:
    async def test_the_whole_list_is_asked_for_and_then_what_is_newer(self, fake: FakeConsul) -> None:
        async with following([fake.url], "web", wait_seconds=20) as followed:
            await followed.until_listed(4)
            await fake.until_waiting()
        first, second = fake.of("web")
        assert dict(first.query) == {}
        assert second.query["index"] == "10"
        assert 15_000 <= float(second.query["wait"].removesuffix("ms")) <= 20_000
        assert "passing" not in second.query

    async def test_a_service_is_asked_for_where_it_is(self, fake: FakeConsul, tmp_path: Path) -> None:
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

    async def test_a_policys_namespace_beats_that_of_the_settings(self, fake: FakeConsul) -> None:
        async with following([fake.url], "web", namespace="shop", place={"namespace": "own"}) as followed:
            await followed.until_listed(4)
        assert fake.of("web")[0].query["ns"] == "own"

    async def test_a_group_is_what_consul_does_not_know(self, fake: FakeConsul) -> None:
        async with following([fake.url], "web", place={"group": "BLUE"}) as followed:
            await followed.until_error("no groups; take group 'BLUE' out of the policy")
        assert not fake.of("web")

    async def test_a_new_one_is_asked_for_at_once(self, fake: FakeConsul, monkeypatch: pytest.MonkeyPatch) -> None:
        async with following([fake.url], "web") as followed:
            await fake.until_waiting()
            api = followed.key._replace(service="api")
            followed.follow([api, followed.key])
            await followed.until(lambda: followed.book.roster(api))

    async def test_a_source_that_ended_can_be_run_again(self, fake: FakeConsul) -> None:
        followed = Followed([fake.url], "web")
        for _ in range(2):
            asked = len(fake.of("web"))
            async with running(followed):
                await fake.until_waiting(since=asked)


class TestIndex:
    async def test_a_return_without_news_is_no_change(self, fake: FakeConsul, followed: Followed) -> None:
        heard, asked = len(followed.changes.received), len(fake.of("web"))
        await fake.tell(end=True)
        await fake.until_waiting(since=asked + 1)
        assert followed.listed == 4
        assert len(followed.changes.received) == heard
        assert [one.query.get("index") for one in fake.of("web")[asked:]] == [None, "10"]

    async def test_what_a_stream_missed_is_seen_when_the_wait_is_over(
        self, fake: FakeConsul, followed: Followed
    ) -> None:
        fake.lists["web"] = four()[:2]
        await fake.tell(end=True)
        await followed.until_listed(2)

    async def test_a_list_with_an_older_index_is_taken(self, fake: FakeConsul, followed: Followed) -> None:
        await fake.tell("web", *four()[:2], index=3)
        await fake.tell(end=True)
        await followed.until_listed(2)
        await fake.until(lambda: fake.of("web")[-1].query.get("index") == "3")

    async def test_an_answer_without_an_index_is_an_error(self, fake: FakeConsul, followed: Followed) -> None:
        await fake.tell("web", index=0)
        await fake.tell(end=True)
        await followed.until_error("no X-Consul-Index")
        assert followed.listed == 4

    async def test_a_stream_that_is_ahead_is_waited_for_from_there(self, fake: FakeConsul) -> None:
        fake.ahead = 5
        async with following([fake.url], "web") as followed:
            await fake.until(lambda: [one.query.get("index") for one in fake.of("web")] == [None, "10", None, "15"])
            await fake.until_waiting()
            await fake.tell("web", *four()[:2])
            await followed.until_listed(2)


class TestProof:
    async def test_each_wait_confirms_the_list_and_a_failure_does_not(self, fake: FakeConsul) -> None:
        async with following([fake.url], "web", wait_seconds=1) as followed:
            await followed.until_listed(4)
            followed.clock.jump(500)
            await followed.until(lambda: followed.clock() - followed.roster.at < 60)
            fake.fault["web"] = web.Response(status=500, text="rpc error")
            await fake.tell()
            await followed.until_error("HTTP 500: rpc error")
            followed.clock.jump(500)
            await followed.until_failed_again()
            assert followed.listed == 4
            assert followed.clock() - followed.roster.at >= 500
            del fake.fault["web"]
            await followed.until(lambda: not followed.error)
            assert followed.clock() - followed.roster.at < 60

    async def test_one_service_that_fails_leaves_the_others_alone(self, fake: FakeConsul, followed: Followed) -> None:
        fake.fault["api"] = web.Response(status=500, text="rpc error")
        api = followed.key._replace(service="api")
        followed.follow([api, followed.key])
        await followed.until(lambda: followed.book.roster(api))
        await followed.until_listed(4)

    async def test_a_list_that_does_not_come_after_a_wait_is_an_error_of_its_service_alone(
        self, fake: FakeConsul
    ) -> None:
        async with following([fake.url], "web", timeout_seconds=1) as followed:
            api = followed.key._replace(service="api")
            followed.follow([api, followed.key])
            await followed.until_listed(4)
            await followed.until_listed(0, api)
            await fake.until_waiting("api")
            fake.silent = {"api"}
            await fake.tell("api", entry())
            await followed.until(lambda: "no answer within" in followed.error_of(api))
            assert not followed.error
            fake.silent.clear()
            await followed.until_listed(1, api)

    async def test_a_wait_outlasts_the_deadline_of_a_request_but_not_its_own(self, fake: FakeConsul) -> None:
        fake.stuck = True
        async with following([fake.url], "web", wait_seconds=6, timeout_seconds=1) as followed:
            await fake.until_waiting()
            assert not followed.error
            await followed.until_error("/web: no answer within")
            await followed.until(lambda: not followed.error)


class TestRestart:
    """An agent calls its checks critical from its start until they ran."""

    @pytest.mark.parametrize(
        ("kind", "output"),
        [
            ("http", "HTTP GET http://10.0.0.10:8080/health: 200 OK Output: up"),
            ("http", "HTTP GET http://10.0.0.10:8080/health: 429 Too Many Requests Output: "),
            ("tcp", "TCP connect 10.0.0.10:8080: Success"),
            ("udp", "UDP connect 10.0.0.10:8080: Success"),
            ("grpc", "gRPC check 10.0.0.10:8080: success"),
            ("h2ping", "HTTP2 ping was successful"),
            ("alias", "All checks passing."),
        ],
    )
    async def test_a_critical_check_with_the_output_of_a_run_that_did_not_fail_has_not_run_since_its_agent_started(
        self, fake: FakeConsul, followed: Followed, kind: str, output: str
    ) -> None:
        """Registering a service again writes its check's output to the agent's disk, and the agent begins with it."""
        stale = check("critical") | {"Type": kind, "Output": output}
        await fake.tell("web", *(entry(f"10.0.0.{10 + n}", stale) for n in range(3)), four()[3])
        await followed.until(lambda: "CRITICAL" in {one.status for one in followed.roster.instances})
        followed.clock.jump(600)
        followed.book.confirm()
        assert followed.states() == [*[PodState.DOUBTFUL] * 3, PodState.SERVING]
        failed = stale | {"Output": "HTTP GET http://10.0.0.10:8080/health: 503 Service Unavailable Output: 200 OK"}
        await fake.tell("web", entry("10.0.0.10", failed), *four()[1:])
        await followed.until_out("web-0")

    @pytest.mark.parametrize("kind", ["script", "docker", "ttl"])
    async def test_a_check_that_fails_in_silence_takes_a_pod_out(self, fake: FakeConsul, kind: str) -> None:
        """A script, or a service that reports by itself, need not say anything."""
        passing = check("passing") | {"Type": kind}
        fake.lists["web"] = [entry("10.0.0.10", passing), *four()[1:]]
        async with following([fake.url], "web") as followed:
            await fake.until_waiting()
            await fake.tell("web", entry("10.0.0.10", passing | {"Status": "critical"}), *four()[1:])
            await followed.until_out("web-0")

    async def test_an_ended_pods_critical_registration_is_no_evidence_beside_that_of_the_next_pod_at_its_address(
        self, fake: FakeConsul, followed: Followed
    ) -> None:
        left, policy = entry("10.0.0.10", check("critical"), ID="old"), followed.pods.policy
        assert policy.registry is not None
        followed.pods.policy = replace(policy, registry=replace(policy.registry, any_instance_out=True))
        await fake.tell("web", left, *four()[1:])
        await followed.until_out("web-0")
        replace_first_pod(followed)
        for turn in ("0", "1", "2"):
            passing = entry("10.0.0.10", check("passing"), ID="new", Meta={"turn": turn})
            await fake.tell("web", left, passing, *four()[1:])
            await followed.until(
                lambda turn=turn: turn in {one.metadata.get("turn") for one in followed.roster.instances}
            )
            assert followed.states() == [PodState.SERVING] * 4

    async def test_an_ended_pods_maintenance_is_none_for_the_next_pod_at_its_address(
        self, fake: FakeConsul, followed: Followed
    ) -> None:
        maintained = entry("10.0.0.10", check("critical", "_service_maintenance:a"))
        await fake.tell("web", maintained, *four()[1:])
        await followed.until_out("web-0")
        replace_first_pod(followed)
        followed.book.confirm()
        assert followed.states() == [PodState.STARTING, *[PodState.SERVING] * 3]
        await fake.tell("web", *four())
        await followed.until(lambda: followed.states() == [PodState.SERVING] * 4)
        await fake.tell("web", maintained, *four()[1:])
        await followed.until_out("web-0")

    async def test_a_critical_pod_that_is_put_into_maintenance_is_so_since_then(
        self, fake: FakeConsul, followed: Followed
    ) -> None:
        await fake.tell("web", *four("critical"))
        await followed.until_out("web-0")
        replace_first_pod(followed)
        await fake.tell("web", entry("10.0.0.10", check("critical", "_node_maintenance")), *four()[1:])
        await followed.until_out("web-0")


class TestAccessRights:
    async def test_an_empty_list_under_an_acl_policy_is_believed_with_a_token(
        self, fake: FakeConsul, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text("hush")
        fake.more = {"X-Consul-Default-ACL-Policy": "deny"}
        async with following([fake.url], "web", token_file=str(tmp_path / "token")) as followed:
            await fake.until_waiting()
            await fake.tell("web")
            await followed.until_listed(0)
