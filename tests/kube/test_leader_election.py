"""One of several leads, whatever the network does; another one leads soon after it is gone."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kube.leader_election import BELIEVED_SECONDS, DURATION_SECONDS, RETRY_SECONDS
from tests.kube.lease_kit import Candidate, Server, in_own_time, leader, moment, one_and_another, overlaps, unlucky

FAILOVER_SECONDS = 15.0


def cut_off(server: Server, name: str) -> None:
    """From now on no request of this candidate arrives."""
    server.trouble = lambda who: (-0.01, 0.0) if who == name else (0.01, 0.01)


@pytest.mark.parametrize("after", [30.0, 31.3])
@in_own_time
async def test_when_the_leader_is_killed_another_one_acts_within_15_s(after: float) -> None:
    first, second = await one_and_another(Server())
    await asyncio.sleep(after)
    await first.kill()
    killed = moment()
    await asyncio.sleep(FAILOVER_SECONDS)
    assert second.acts
    assert DURATION_SECONDS - RETRY_SECONDS <= second.acts[0][0] - killed < FAILOVER_SECONDS


@in_own_time
async def test_a_leader_that_ends_in_order_hands_over_at_once() -> None:
    server = Server()
    first, second = await one_and_another(server)
    await asyncio.sleep(30)
    await first.stop()
    assert server.holder is None
    ended = moment()
    await asyncio.sleep(RETRY_SECONDS + 1)
    assert second.acts
    assert second.acts[0][0] - ended <= RETRY_SECONDS + 0.1


@in_own_time
async def test_a_leader_that_reaches_nobody_stops_acting_before_another_one_begins() -> None:
    server = Server()
    first, second = await one_and_another(server, acting=2.0)
    await asyncio.sleep(20)
    cut_off(server, "first")
    begun = moment()
    await asyncio.sleep(FAILOVER_SECONDS)
    assert max(begin for begin, _ in first.acts) - begun <= BELIEVED_SECONDS
    assert second.acts
    assert not first.lease.leads
    cut_off(server, "nobody")
    await asyncio.sleep(30)
    assert overlaps([first, second]) == []
    assert not first.lease.leads  # and it does not take the lease back from whoever holds it


@in_own_time
async def test_a_leader_acts_no_longer_where_the_answers_to_its_renewals_are_slow() -> None:
    one, server = await leader(20)
    server.trouble = lambda _: (0.01, 1.8)
    await asyncio.sleep(20)
    cut_off(server, "one")
    await asyncio.sleep(FAILOVER_SECONDS)
    assert max(begin for begin, _ in one.acts) - server.writes[-1][0] <= BELIEVED_SECONDS


@in_own_time
async def test_a_lease_is_taken_after_its_holders_duration_where_that_is_the_longer_one() -> None:
    """As in an upgrade that brings another `leaseSeconds`."""
    server = Server()
    first, second = Candidate("first", server, duration=4 * DURATION_SECONDS), Candidate("second", server)
    await first.start(20)
    await second.start(20)
    cut_off(server, "first")
    await asyncio.sleep(4 * FAILOVER_SECONDS)
    assert second.acts
    assert overlaps([first, second]) == []


@in_own_time
async def test_an_answer_that_is_not_the_written_lease_grants_nothing() -> None:
    class Proxy(Server):
        async def ask(self, method: str, path: str, body: bytes | None, who: str) -> bytes:
            return b"{}"

    candidate = Candidate("a", Proxy())
    await candidate.start(60)
    assert not candidate.acts


@in_own_time
async def test_where_there_is_no_lease_whoever_comes_waits_for_a_holder_that_may_be_about() -> None:
    server = Server()
    first, newcomer = Candidate("first", server, acting=lambda: 2.0), Candidate("newcomer", server)
    await first.start(20)
    server.lease = None
    cut_off(server, "first")
    await newcomer.start(FAILOVER_SECONDS)
    assert newcomer.acts
    assert overlaps([first, newcomer]) == []


@in_own_time
async def test_a_lease_granted_without_an_answer_is_its_candidates_at_once() -> None:
    ways = iter([(0.01, 0.01), (0.01, -0.01)])  # the answer to its write is lost
    server = Server(trouble=lambda _: next(ways, (0.01, 0.01)))
    one = Candidate("one", server)
    await one.start(RETRY_SECONDS / 2)
    assert (server.holder, one.acts) == ("one", [])
    await asyncio.sleep(RETRY_SECONDS)
    assert one.acts


@in_own_time
async def test_a_leader_whose_lease_another_one_holds_writes_no_more() -> None:
    one, server = await leader(5)
    assert server.lease is not None
    stolen = {**server.lease["spec"], "holderIdentity": "other"}
    server.version += 1
    metadata = {**server.lease["metadata"], "resourceVersion": str(server.version)}
    server.lease = {**server.lease, "metadata": metadata, "spec": stolen}
    taken = moment()
    await asyncio.sleep(8)
    assert one.acts[-1][0] - taken <= RETRY_SECONDS + 0.2
    assert not one.lease.leads


@in_own_time
async def test_work_that_breaks_ends_the_candidate_with_its_error_and_gives_the_lease_back() -> None:
    async def broken() -> None:
        await asyncio.sleep(1)
        raise RuntimeError("it broke")

    server = Server()
    one = Candidate("one", server, work=broken)
    await one.start()
    with pytest.raises(RuntimeError, match="it broke"):
        await one.task
    assert server.holder is None


@in_own_time
async def test_work_is_cancelled_when_the_lease_is_lost_and_begun_anew_when_it_is_won_again() -> None:
    one, server = await leader(5)
    server.forbids = {"GET", "PUT"}
    await asyncio.sleep(20)
    assert one.spells == 1
    assert moment() - one.acts[-1][0] > RETRY_SECONDS
    server.forbids = set()
    await asyncio.sleep(5)
    assert one.spells == 2


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(2, 4),
    lost=st.sampled_from([0.0, 0.05, 0.3]),
    slow=st.sampled_from([0.0, 0.1, 0.5]),
)
@in_own_time
async def test_no_two_act_at_once_whatever_is_slow_lost_or_killed(
    seed: int, count: int, lost: float, slow: float
) -> None:
    luck = random.Random(seed)
    deleted = luck.randrange(12)  # every second time, once: who deletes it twice within 10 s gets what he asked for
    server = Server(trouble=unlucky(seed, lost=lost, slow=slow))
    everyone = [
        Candidate(f"c{n}", server, rate=luck.uniform(0.97, 1.03), acting=lambda: luck.uniform(0, 2.0))
        for n in range(count)
    ]
    for one in everyone:
        await one.start(luck.uniform(0, 3))
    for n in range(6):
        await asyncio.sleep(luck.uniform(0, 40))
        if n == deleted:
            server.lease = None
        gone = luck.choice(everyone)
        await (gone.stop if luck.random() < 0.3 else gone.kill)()
        server.trouble = unlucky(seed + n, lost=lost, slow=slow)
        everyone.append(Candidate(f"n{n}", server, rate=luck.uniform(0.97, 1.03), acting=gone.acting))
        await everyone[-1].start()
    await asyncio.sleep(30)
    assert overlaps(everyone) == []
    if not lost and not slow:
        assert any(begin > moment() - FAILOVER_SECONDS for one in everyone for begin, _ in one.acts)
    for one in everyone:
        await one.stop()
