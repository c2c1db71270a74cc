"""Every client may ask whether the server is healthy; reasons require a right, and go to the log."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import trustme

from adapter.apiserver.health import Health
from harness import snapshots
from tests.apiserver.cluster import REVIEWS, TOKENS
from tests.apiserver.conftest import Clock, Service, as_user

REASON = "the Kubernetes caches are still being filled: pods"
WARNING = "made to fail; apply ClusterRoleBinding"


@pytest.fixture
async def ill(service: Service) -> AsyncIterator[Service]:
    """A server that is not ready, with a reason."""
    service.cluster.tokens.update(reader={"username": "reader"}, other={"username": "other"})
    service.cluster.may = lambda spec: spec["user"] == "reader"
    service.snapshot_store.swap(snapshots.snapshot(synced=False))
    return service


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("target", ["/readyz", "/readyz?verbose", "/readyz/caches", "/readyz/caches?verbose=1"])
async def test_unauthenticated_clients_see_failed_checks_without_reasons(ill: Service, target: str) -> None:
    answer = await ill.ask(target)
    assert answer.status == 500
    assert b"[-]caches failed: reason withheld\n" in answer.body
    assert REASON.encode() not in answer.body
    assert ill.cluster.reviews() == ill.cluster.asked[f"POST {TOKENS}"] == 0  # a kubelet waits for nobody


@pytest.mark.parametrize("target", ["/readyz", "/readyz?verbose", "/readyz/caches"])
async def test_users_with_the_right_see_reasons(ill: Service, proxy: trustme.LeafCert, target: str) -> None:
    for leaf, headers in ((None, bearer("reader")), (proxy, as_user("reader"))):
        answer = await ill.ask(target, leaf=leaf, headers=headers)
        assert (answer.status, f"[-]caches failed: {REASON}\n".encode() in answer.body) == (500, True)
    asked = [body["spec"]["nonResourceAttributes"] for path, body in ill.cluster.bodies if path == REVIEWS]
    # Everybody may get /readyz itself, by Kubernetes' own roles.
    assert {(one["verb"], one["path"]) for one in asked} == {("get", "/readyz/*")}


@pytest.mark.parametrize(
    "headers",
    [bearer("other"), bearer("unknown"), as_user("reader"), {"Authorization": "Basic eA=="}],
    ids=["no right", "a bad token", "headers alone", "another scheme"],
)
async def test_users_without_the_right_see_no_reasons(ill: Service, headers: dict[str, str]) -> None:
    answer = await ill.ask("/readyz?verbose", headers=headers)
    assert (answer.status, REASON.encode() in answer.body) == (500, False)


async def test_a_failed_review_shows_no_reasons(ill: Service) -> None:
    for path in (TOKENS, REVIEWS):
        ill.cluster.faults[path] = 500
        answer = await ill.ask("/readyz?verbose", headers=bearer("reader"))
        assert (answer.status, REASON.encode() in answer.body) == (500, False)


async def test_the_text_of_a_warning_is_withheld_too(service: Service, proxy: trustme.LeafCert) -> None:
    service.cluster.faults[REVIEWS] = 403
    assert (await service.ask("/version", leaf=proxy, headers=as_user())).status == 503
    stranger = await service.ask("/readyz?verbose")
    assert (stranger.status, b"[!]authorization: reason withheld\n" in stranger.body) == (200, True)
    admin = await service.ask("/readyz?verbose", leaf=proxy, headers=as_user("admin", "system:masters"))
    assert f"[!]authorization: {WARNING}".encode() in admin.body


@pytest.mark.parametrize(
    "target", ["/livez/nope", "/livez/ping/more", "/livez/", "/livez?", "/livez?a=b", "//livez", "/livez/caches"]
)
async def test_only_existing_health_paths_need_no_authentication(service: Service, target: str) -> None:
    answer = await service.ask(target)
    assert answer.status == (200 if target in {"/livez/", "/livez?", "/livez?a=b"} else 401)


async def test_only_get_and_head_are_health_requests(service: Service) -> None:
    assert (await service.ask("/livez", method="HEAD")).status == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert (await service.ask("/livez", method=method)).status == 401


async def test_a_probe_is_answered_at_once_while_the_api_server_hangs(ill: Service) -> None:
    for path in (TOKENS, REVIEWS):
        ill.cluster.faults[path] = asyncio.Event()
    async with asyncio.timeout(1):
        assert (await ill.ask("/readyz")).status == 500
        assert (await ill.ask("/livez")).status == 200


def test_a_failed_check_is_logged_once_a_minute_and_when_it_fails_again(capsys: pytest.CaptureFixture[str]) -> None:
    clock, why = Clock(0.0), [REASON]
    health = Health({}, {"caches": lambda: why[0]}, {"caches": lambda: WARNING}, clock=clock)

    def logged() -> int:
        capsys.readouterr()
        for _ in range(3):
            health.report(("readyz",), verbose=False)
        out = capsys.readouterr().out
        return out.count(REASON) * 10 + out.count(WARNING)

    assert logged() == 10
    clock.now += 59
    assert logged() == 0
    clock.now += 1
    assert logged() == 10
    why[0] = ""
    assert logged() == 1
    assert logged() == 0
    why[0] = REASON
    assert logged() == 10
