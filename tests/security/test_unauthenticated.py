"""Requests without credentials get a 401, and nothing of them is parsed or cached."""

import asyncio
import statistics
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme
from multidict import CIMultiDict, CIMultiDictProxy

from adapter.apiserver import handler as handler_module
from adapter.apiserver import request_info
from adapter.apiserver.handler import Handler
from adapter.apiserver.request_info import parse_target
from adapter.kube import selectors
from tests.apiserver.cluster import TOKENS
from tests.apiserver.conftest import Answer, Service, as_user
from tests.apiserver.metric_requests import CUSTOM
from tests.security.raw_requests import METRIC

PODS = f"{CUSTOM}/pods/%2A/effective_cpu"
LONG = 60_000


def many(number: int) -> str:
    """A selector unique to this number, as long as a request line may be."""
    return ",".join(f"l{number}-{index}" for index in range(LONG // 8))[:LONG]


TARGETS = {
    "a selector": lambda number: f"{PODS}?labelSelector={many(number)}",
    "values": lambda number: f"{PODS}?labelSelector=k{number}+in+({many(number)})",
    "parameters": lambda number: f"{PODS}?" + f"a{number}&" * (LONG // 8),
    "a path": lambda number: f"/apis/{number}" + "/a" * (LONG // 2),
    "escapes": lambda number: f"/apis/{number}/" + "%61" * (LONG // 3),
    "junk behind health": lambda number: f"/livez/{number}" + "/a" * (LONG // 2),
    "a query behind health": lambda number: f"/livez?{number}" + "&a" * (LONG // 2),
}


@dataclass
class Request:
    """The parts of a request that the handler reads."""

    raw_path: str
    fields: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"
    protocol: object = None

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        return CIMultiDictProxy(CIMultiDict(self.fields))

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        return tuple((name.encode(), value.encode()) for name, value in self.fields.items())


@pytest.fixture
def handler(service: Service) -> Handler:
    """The server's handler, called without a network."""
    handle: Any = service.server._connections.request_handler
    [found] = [cell.cell_contents for cell in handle.__closure__ if isinstance(cell.cell_contents, Handler)]
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The targets and selectors that were parsed."""
    found: list[str] = []
    segments, reader = request_info._segments, selectors._Reader.__init__

    def spied_path(path: str) -> tuple[str, ...]:
        found.append(path)
        return segments(path)

    def spied_selector(self: Any, text: str) -> None:
        found.append(text)
        reader(self, text)

    monkeypatch.setattr(request_info, "_segments", spied_path)
    monkeypatch.setattr(selectors._Reader, "__init__", spied_selector)
    return found


async def cost(handler: Handler, request: Any) -> float:
    """Milliseconds of processor time."""
    before = time.process_time()
    answer = await handler(request)
    assert answer.status == 401
    return 1000 * (time.process_time() - before)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
async def test_the_target_of_an_unauthenticated_request_is_not_parsed(
    service: Service, read: list[str], target: Any
) -> None:
    for method in ("GET", "POST"):
        answer = await service.ask(target(1), method=method)
        assert (answer.status, answer.json()["reason"]) == (401, "Unauthorized")
    assert read == []


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
async def test_the_cost_of_an_unauthenticated_request_does_not_depend_on_its_target(
    handler: Handler, target: Any
) -> None:
    found = [await cost(handler, Request(target(number))) for number in range(15)]
    assert statistics.median(found) < 0.25  # ms; a selector took 35


async def test_any_number_of_header_names_is_cheap_and_not_cached(handler: Handler, service: Service) -> None:
    requests = [Request("/", {f"X-A-{number}-{index}": "v" for index in range(2000)}) for number in range(15)]
    built = [Plain(one) for one in requests]
    assert statistics.median([await cost(handler, one) for one in built]) < 0.25  # ms; 1.2 before
    assert service.server._authenticator._identity_headers._known_names == {}


class Plain:
    """A request with prepared headers, as from a parser."""

    def __init__(self, request: Request) -> None:
        self.raw_path, self.method, self.protocol = request.raw_path, request.method, None
        self.headers, self.raw_headers = request.headers, request.raw_headers


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
async def test_unauthenticated_requests_leave_nothing_in_memory(handler: Handler, target: Any) -> None:
    await handler(Request(target(0)))  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1, 21):
            await handler(Request(target(number)))  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[0] - before < 200_000  # bytes; one selector alone kept 1.5 MB
    finally:
        tracemalloc.stop()


async def test_every_401_has_the_same_body(service: Service) -> None:
    asked: list[dict[str, Any]] = [
        {"target": METRIC},
        {"target": "/nowhere"},
        {"target": f"{PODS}?labelSelector={many(1)}"},
        {"target": "/livez/nope"},
        {"target": "/readyz/caches/more"},
        {"target": METRIC, "method": "PUT"},
        {"target": METRIC, "headers": as_user("admin", "system:masters")},
        {"target": METRIC, "headers": {"Authorization": "Bearer bad"}},
        {"target": METRIC, "headers": {"Authorization": "Basic Z29vZA=="}},
        {"target": METRIC, "headers": {"Authorization": "Bearer " + "x" * 40_000}},
        {"target": "/registries/platform/checkout", "method": "PUT"},
    ]
    answers = [await service.ask(**one) for one in asked]
    assert {told(answer) for answer in answers} == {told(answers[0])}


def told(answer: Answer) -> tuple[int, bytes, frozenset[tuple[str, str]]]:
    return answer.status, answer.body, frozenset(item for item in answer.headers.items() if item[0] != "Date")


# --- who is known has bounds as well


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        (f"{PODS}?labelSelector={many(1)[:40_000]}", 414, "at most 32768"),
        (f"{PODS}?labelSelector={many(1)[:20_000]}", 400, "at most 16384"),
        (f"{PODS}/{'a' * 3000}", 414, "at most 2048"),
    ],
)
async def test_an_authorized_request_is_answered_with_the_limit_that_it_exceeds(
    service: Service, proxy: trustme.LeafCert, target: str, code: int, says: str
) -> None:
    answer = await service.ask(target, leaf=proxy, headers=as_user())
    assert (answer.status, says in answer.message) == (code, True)


async def test_a_selector_is_read_only_for_those_with_the_right_to_the_metric(
    service: Service, proxy: trustme.LeafCert, read: list[str]
) -> None:
    service.cluster.may = lambda _: False
    answer = await service.ask(f"{PODS}?labelSelector=app%3Dweb%2Ctier%3Dunheard-of", leaf=proxy, headers=as_user())
    assert answer.status == 403
    assert not [one for one in read if "unheard-of" in one]


async def test_long_targets_of_authorized_requests_are_answered_and_not_cached(
    service: Service, proxy: trustme.LeafCert, handler: Handler
) -> None:
    written = handler._provider._bodies
    selector = "%2C".join(f"l{number}%21%3Dv" for number in range(100))
    long = f"{METRIC}?metricLabelSelector={selector}"
    for target, is_kept in ((long, False), (f"{METRIC}?metricLabelSelector=a%21%3Db", True)):
        before = len(written)
        assert (await service.ask(target, leaf=proxy, headers=as_user())).status == 200
        assert (target in request_info._cache, len(written) - before) == (is_kept, int(is_kept))


def test_the_cache_of_targets_is_bounded_and_holds_small_ones_only() -> None:
    for number in range(9000):
        parse_target(f"{PODS}?labelSelector=app%3Dweb-{number}")
    assert len(request_info._cache) <= 8192
    assert max(map(len, request_info._cache)) <= 512


def test_targets_that_differ_only_in_their_selectors_differ_in_their_hash() -> None:
    """4,096 targets with one hash made each look-up 4,096 comparisons."""
    found = {hash(parse_target(f"{METRIC}?metricLabelSelector=l%3D{number}")) for number in range(1000)}
    assert len(found) > 990


async def test_a_long_accept_header_is_parsed_and_not_cached(service: Service, proxy: trustme.LeafCert) -> None:
    accept = ",".join(f"text/x-{number}" for number in range(500)) + ",*/*"
    kept = handler_module._accepts_json_cached.cache_info().currsize
    answer = await service.ask(METRIC, leaf=proxy, headers={**as_user(), "Accept": accept})
    assert (answer.status, handler_module._accepts_json_cached.cache_info().currsize) == (200, kept)


# --- tokens


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def reviews(service: Service) -> int:
    return service.cluster.asked[f"POST {TOKENS}"]


async def test_a_token_that_is_too_long_is_not_reviewed(service: Service) -> None:
    for length in (16 * 1024, 30_000):
        assert (await service.ask(METRIC, headers=bearer("x" * length))).status == 401
    assert reviews(service) == 0


async def test_invalid_tokens_evict_no_valid_token_from_the_cache(service: Service) -> None:
    service.cluster.tokens["good"] = {"username": "bob"}
    assert (await service.ask(METRIC, headers=bearer("good"))).status == 200
    for first in range(0, 1100, 50):
        await asyncio.gather(*(service.ask(METRIC, headers=bearer(f"bad-{first + n}")) for n in range(50)))
    seen = reviews(service)
    assert (await service.ask(METRIC, headers=bearer("good"))).status == 200
    assert reviews(service) == seen


async def test_a_recently_valid_token_does_not_wait_for_unknown_ones(service: Service) -> None:
    service.cluster.tokens["good"] = {"username": "bob"}
    assert (await service.ask(METRIC, headers=bearer("good"))).status == 200
    service.monotonic.now += 11  # it has to be reviewed again
    service.cluster.faults[TOKENS] = hold = asyncio.Event()
    seen = reviews(service)
    strangers = [asyncio.create_task(service.ask(METRIC, headers=bearer(f"bad-{n}"))) for n in range(12)]
    await service.cluster.until(lambda: reviews(service) >= seen + 4)
    known = asyncio.create_task(service.ask(METRIC, headers=bearer("good")))
    async with asyncio.timeout(30):
        while reviews(service) < seen + 5:  # noqa: ASYNC110  a request that is held back tells nobody
            await asyncio.sleep(0.001)
    assert not any(task.done() for task in strangers)
    hold.set()
    assert (await known).status == 200
    await asyncio.gather(*strangers)


async def test_a_bounded_number_of_unknown_tokens_waits_for_review(service: Service) -> None:
    service.cluster.faults[TOKENS] = hold = asyncio.Event()
    strangers = [asyncio.create_task(service.ask(METRIC, headers=bearer(f"bad-{n}"))) for n in range(70)]
    done, _ = await asyncio.wait(strangers, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    refused = done.pop().result()
    assert (refused.status, "wait for reviews already" in refused.message) == (429, True)
    hold.set()
    codes = [answer.status for answer in await asyncio.gather(*strangers)]
    assert (codes.count(429), codes.count(401)) == (2, 68)


async def test_the_error_of_a_token_review_is_logged_and_not_answered(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.cluster.faults[TOKENS] = 500
    for number in range(3):
        answer = await service.ask(METRIC, headers=bearer(f"any-{number}"))
        assert (answer.status, "made to fail" in answer.message) == (503, False)
    assert capsys.readouterr().out.count("made to fail") == 1


async def test_a_user_in_the_group_of_the_unauthenticated_is_not_made_an_authenticated_one(service: Service) -> None:
    service.cluster.tokens["odd"] = {"username": "odd", "groups": ["system:unauthenticated"]}
    assert (await service.ask(METRIC, headers=bearer("odd"))).status == 200
    [spec] = [body["spec"] for _, body in service.cluster.bodies if "user" in body.get("spec", {})]
    assert spec["groups"] == ["system:unauthenticated"]
