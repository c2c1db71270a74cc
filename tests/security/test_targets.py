"""Requests of users whom the API server has authenticated are bounded as well."""

from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from adapter.apiserver import request_info
from adapter.apiserver.request_info import parse_target
from adapter.kube import selectors
from tests.apiserver.conftest import Service, as_user
from tests.apiserver.metric_requests import CUSTOM
from tests.security.raw_requests import METRIC

PODS = f"{CUSTOM}/pods/%2A/effective_cpu"
LONG = 60_000


def many(number: int) -> str:
    """A selector unique to this number, as long as a request line may be."""
    return ",".join(f"l{number}-{index}" for index in range(LONG // 8))[:LONG]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The targets and selectors that were parsed."""
    found: list[str] = []
    segments, reader = request_info._decode, selectors._Reader.__init__  # noqa: SLF001  what is never parsed shows only here

    def spied_path(path: str) -> tuple[str, ...]:
        found.append(path)
        return segments(path)

    def spied_selector(self: Any, text: str) -> None:
        found.append(text)
        reader(self, text)

    monkeypatch.setattr(request_info, "_decode", spied_path)
    monkeypatch.setattr(selectors._Reader, "__init__", spied_selector)  # noqa: SLF001
    return found


# --- who is known has bounds as well


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        (f"{PODS}?labelSelector={many(1)[:40_000]}", 414, "at most 32768"),
        (f"{PODS}?labelSelector={many(1)[:20_000]}", 400, "at most 16384"),
        (f"{PODS}/{'a' * 3000}", 414, "at most 2048"),
        (f"{PODS}?labelSelector={','.join(f'l{number}' for number in range(33))}", 400, "more than 32 requirements"),
        (f"{PODS}?{'&'.join(f'a{number}=b' for number in range(33))}", 400, "too many parameters"),
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
    service: Service, proxy: trustme.LeafCert
) -> None:
    kept = service.server.handler.provider.bodies
    selector = "%2C".join(f"{'l' * 60}{number}%21%3Dv" for number in range(32))
    long = f"{METRIC}?metricLabelSelector={selector}"
    for target, is_kept in ((long, False), (f"{METRIC}?metricLabelSelector=a%21%3Db", True)):
        assert (await service.ask(target, leaf=proxy, headers=as_user())).status == 200
        assert (target in request_info.CACHE, target in kept) == (is_kept, is_kept)


def test_the_cache_of_targets_is_bounded_and_holds_small_ones_only() -> None:
    for number in range(9000):
        parse_target(f"{PODS}?labelSelector=app%3Dweb-{number}")
    assert len(request_info.CACHE) <= 8192
    assert max(map(len, request_info.CACHE)) <= 512


async def test_a_long_accept_header_is_read(service: Service, proxy: trustme.LeafCert) -> None:
    accept = ",".join(f"text/x-{number}" for number in range(500))
    for header, code in ((accept, 406), (f"{accept},*/*", 200)):
        answer = await service.ask(METRIC, leaf=proxy, headers={**as_user(), "Accept": header})
        assert answer.status == code


async def test_a_user_in_the_group_of_the_unauthenticated_is_not_made_an_authenticated_one(
    service: Service, proxy: trustme.LeafCert
) -> None:
    assert (await service.ask(METRIC, leaf=proxy, headers=as_user("odd", "system:unauthenticated"))).status == 200
    [spec] = [body["spec"] for _, body in service.cluster.bodies if "user" in body.get("spec", {})]
    assert spec["groups"] == ["system:unauthenticated"]
