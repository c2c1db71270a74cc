"""Requests of users whom the API server has authenticated are bounded as well."""

import pytest
import trustme

from tests.apiserver.conftest import Service, as_user
from tests.apiserver.metric_requests import CUSTOM
from tests.security.raw_requests import METRIC

PODS = f"{CUSTOM}/pods/%2A/effective_cpu"
LONG = 60_000


def many(number: int) -> str:
    """A selector unique to this number, as long as a request line may be."""
    return ",".join(f"l{number}-{index}" for index in range(LONG // 8))[:LONG]


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        (f"{PODS}?labelSelector={many(1)[:40_000]}", 414, "at most 32768"),
        (f"{PODS}?labelSelector={many(1)[:20_000]}", 400, "at most 16384"),
        (f"{PODS}?labelSelector={','.join(f'l{number}' for number in range(33))}", 400, "more than 32 requirements"),
        (f"{PODS}?{'&'.join(f'a{number}=b' for number in range(33))}", 400, "too many parameters"),
    ],
)
async def test_an_authorized_request_is_answered_with_the_limit_that_it_exceeds(
    service: Service, proxy: trustme.LeafCert, target: str, code: int, says: str
) -> None:
    answer = await service.ask(target, leaf=proxy, headers=as_user())
    assert (answer.status, says in answer.message) == (code, True)


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
