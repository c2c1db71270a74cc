"""Concurrent reviews are limited, and no user's requests delay others'."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from adapter.apiserver.fair_gate import FairGate

from adapter.apiserver.authentication import Identity
from adapter.apiserver.authorization import MAX_KEY_SIZE, MAX_REVIEWS, Authorizer
from adapter.apiserver.request_info import Attributes
from adapter.apiserver.status import StatusError
from adapter.telemetry.metrics import Metrics
from tests.apiserver.conftest import HPA, Clock
from tests.security.review_api import Reviewer, begun, cancelled, ended

CONTROLLER = Identity(HPA, "", ("system:serviceaccounts", "system:authenticated"))
QUESTION = Attributes("get", "custom.metrics.k8s.io", "v1beta2", "watermarkpolicies", "desired_replicas", "web", "shop")


def tenant(account: str = "flood", namespace: str = "tenant", **extra: str) -> Identity:
    """The identity of a service account's token with these extras."""
    told = tuple((key, (value,)) for key, value in extra.items())
    return Identity(f"system:serviceaccount:{namespace}:{account}", "", ("system:authenticated",), told)


def question(number: int) -> Attributes:
    return QUESTION._replace(subresource=f"m{number}", namespace="tenant")


def asking(authorizer: Authorizer, identity: Identity, attributes: Attributes = QUESTION) -> "asyncio.Task[None]":
    return asyncio.create_task(authorizer.check(identity, attributes))


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
async def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
async def authorizer(reviewer: Reviewer, clock: Clock) -> AsyncIterator[Authorizer]:
    made = Authorizer(reviewer.client, Metrics(), clock)
    yield made
    await made.close()


def is_tenants(spec: Any) -> bool:
    return ":tenant" in spec["user"]


# --- SubjectAccessReviews ---


async def test_one_user_has_eight_reviews_in_flight_and_the_hpa_does_not_wait(
    authorizer: Authorizer, reviewer: Reviewer
) -> None:
    reviewer.slow = is_tenants
    flood = [asking(authorizer, tenant(), question(number)) for number in range(200)]
    await begun(*flood)
    await ended(asking(authorizer, CONTROLLER))
    assert (reviewer.by_user()[tenant().user], reviewer.by_user()[HPA]) == (8, 1)
    reviewer.go.set()
    await ended(*flood)


async def test_accounts_and_tokens_of_one_namespace_share_its_bound(authorizer: Authorizer, reviewer: Reviewer) -> None:
    reviewer.slow = is_tenants
    flood = [asking(authorizer, tenant(f"a{number}"), question(number)) for number in range(50)]
    flood += [asking(authorizer, tenant(**{"credential-id": f"JTI={number}"}), QUESTION) for number in range(50)]
    await begun(*flood)
    assert reviewer.under_way == 8
    await cancelled(*flood)


async def test_all_users_together_have_thirty_two_reviews_in_flight_and_wait_in_turns(
    authorizer: Authorizer, reviewer: Reviewer
) -> None:
    reviewer.slow = is_tenants
    flood = [asking(authorizer, tenant(namespace=f"tenant-{number % 10}"), question(number)) for number in range(1000)]
    await begun(*flood)
    assert reviewer.under_way == 32
    hpa = [asking(authorizer, CONTROLLER, QUESTION._replace(name=f"web-{number}")) for number in range(3)]
    await begun(*hpa)
    reviewer.go.set()
    await ended(*hpa)
    order = [spec["user"] == HPA for spec in reviewer.asked]
    # In every round of the eleven that wait it has its turn.
    assert [index for index, is_hpa in enumerate(order) if is_hpa][-1] < 32 + 3 * 11
    assert reviewer.most_under_way == 32
    await ended(*flood)


async def test_a_request_beyond_the_queue_is_a_429_at_once(authorizer: Authorizer, reviewer: Reviewer) -> None:
    reviewer.slow = is_tenants
    flood = [asking(authorizer, tenant(), question(number)) for number in range(300)]
    await begun(*flood)
    refused = [error for task in flood if task.done() and isinstance(error := task.exception(), StatusError)]
    assert [(error.code, error.reason) for error in refused] == [(429, "TooManyRequests")] * (300 - 8 - 256)
    assert "256 requests of system:serviceaccount:tenant wait for reviews already" in refused[0].message
    reviewer.go.set()
    assert (await ended(*flood)).count(None) == 8 + 256


async def test_a_request_that_waits_too_long_for_a_slot_is_a_503(reviewer: Reviewer, clock: Clock) -> None:
    reviewer.slow = is_tenants
    authorizer = Authorizer(reviewer.client, Metrics(), clock, deadline=0.05)
    flood = [asking(authorizer, tenant(), question(number)) for number in range(9)]
    with pytest.raises(StatusError) as caught:
        await flood[-1]
    assert (caught.value.code, caught.value.message) == (503, "other reviews took all of 0.05 s")
    await cancelled(*flood)
    await authorizer.close()


@pytest.mark.parametrize("allowed", [True, False])
async def test_results_of_ever_new_requests_evict_no_other_users(
    authorizer: Authorizer, reviewer: Reviewer, clock: Clock, allowed: bool
) -> None:
    await authorizer.check(CONTROLLER, QUESTION)
    reviewer.allows = lambda spec: allowed or not is_tenants(spec)
    for number in range(MAX_REVIEWS + 1):
        with contextlib.suppress(StatusError):
            await authorizer.check(tenant(), question(number))
    clock.now += 61
    reviewer.fails = True
    await authorizer.check(CONTROLLER, QUESTION)
    assert reviewer.by_user()[HPA] == 1


async def test_a_review_of_thousands_of_characters_is_not_cached(authorizer: Authorizer, reviewer: Reviewer) -> None:
    for attributes in [question(1)._replace(subresource="m" * MAX_KEY_SIZE), Attributes(path="/" + "a" * MAX_KEY_SIZE)]:
        for _ in range(2):
            await authorizer.check(tenant(), attributes)
    assert len(reviewer.asked) == 4


async def test_renewals_of_one_user_delay_no_other_users(
    authorizer: Authorizer, reviewer: Reviewer, clock: Clock
) -> None:
    for number in range(100):
        await authorizer.check(tenant(), question(number))
    await authorizer.check(CONTROLLER, QUESTION)
    reviewer.slow = is_tenants
    clock.now += 61
    for number in range(100):
        await authorizer.check(tenant(), question(number))
    await authorizer.check(CONTROLLER, QUESTION)
    await reviewer.until(lambda: reviewer.by_user()[HPA] == 2)
    assert reviewer.by_user()[tenant().user] == 100 + 4


# --- the gate ---


class Visits:
    """Tasks that stay in a slot of a gate until they may leave it."""

    def __init__(self, gate: FairGate) -> None:
        self.gate, self.leave = gate, asyncio.Semaphore(0)
        self.order: list[str] = []

    def enter(self, flow: str, name: str = "") -> "asyncio.Task[None]":
        async def visit() -> None:
            async with self.gate.slot(flow, 30):
                self.order.append(name or flow)
                await self.leave.acquire()

        return asyncio.create_task(visit())


async def test_a_cancelled_waiter_leaves_no_slot_taken() -> None:
    visits = Visits(FairGate(2, 1, 10))
    tasks = [visits.enter("one", name) for name in "abc"]
    await begun(*tasks)
    visits.leave.release()
    tasks[1].cancel()  # in the moment in which its place comes free
    await begun(*tasks)
    assert visits.order == ["a", "c"]
    visits.leave.release()
    await ended(*tasks)
    async with asyncio.timeout(5), visits.gate.slot("one", 5), visits.gate.slot("other", 5):
        pass


async def test_a_flow_that_holds_nothing_is_before_those_that_hold_slots_and_wait_for_more() -> None:
    visits = Visits(FairGate(4, 2, 10))
    tasks = [visits.enter(flow) for flow in 4 * ("eve", "bob") + ("hpa", "hpa")]
    await begun(*tasks)
    visits.leave.release()
    await begun(*tasks)
    assert visits.order[4:] == ["hpa"]
    for _ in tasks:
        visits.leave.release()
    await ended(*tasks)


async def test_a_slot_granted_to_a_cancelled_waiter_is_passed_on() -> None:
    visits = Visits(FairGate(1, 1, 10))
    first = visits.enter("one")
    await begun(first)
    waiting = visits.enter("one")
    await begun(waiting)
    first.cancel()
    await asyncio.sleep(0)
    waiting.cancel()
    await ended(first, waiting)
    async with asyncio.timeout(5), visits.gate.slot("other", 5):
        pass
