"""What a process remembers of a policy, and what survives it."""

from adapter.load.memory import Memory
from adapter.load.spec import PulledOut
from adapter.policy.status_memory import from_status, to_status
from tests.load.kit import NOW, assess_and_decide, cpu, out, policy, queue, same, total, usage

BAND = policy(cpu("1200m", "400m"))


def test_metrics_that_a_policy_no_longer_has_leave_nothing_behind() -> None:
    pods, loads = same(3, "800m")
    first, _ = assess_and_decide(policy(cpu(), queue("85")), pods, usage(loads))
    assert set(first.memory.metrics) == {"cpu", "queue"}
    second, _ = assess_and_decide(policy(queue("85")), pods, total("3"), memory=first.memory, now=NOW + 1)
    assert set(second.memory.metrics) == {"queue"}


def test_pods_that_left_are_forgotten_once_no_window_reaches_back_to_them() -> None:
    pods, loads = same(3, "800m")
    memory = assess_and_decide(BAND, pods, usage(loads))[0].memory
    for later, known in ((10, {"uid-web-2"}), (310, {"uid-web-2"}), (320, set())):
        assessment, _ = assess_and_decide(BAND, pods[:2], usage(loads, at=NOW + later), memory=memory, now=NOW + later)
        memory = assessment.memory
        assert set(memory.departed) == known


def test_a_replica_that_starts_knows_since_when_pods_are_away_and_that_they_were_registered() -> None:
    rule = policy(cpu("1200m", "400m"), pulled_out=PulledOut(replace_after=60.0))
    pods, loads = same(7, "1440m")
    away = [out(f"out-{i}") for i in range(3)]
    memory = assess_and_decide(rule, [*pods, *away], usage(loads))[0].memory
    fresh = from_status(to_status(memory)).of([*pods, *away])
    assert {uid: pod.since for uid, pod in fresh.pods.items()} == {f"uid-out-{i}": NOW for i in range(3)}
    assert all(pod.registered for pod in fresh.pods.values())
    later = usage(loads, at=NOW + 50)
    assert assess_and_decide(rule, [*pods, *away], later, memory=fresh, now=NOW + 60)[1].desired == 12
    assert assess_and_decide(rule, [*pods, *away], later, memory=Memory(), now=NOW + 60)[1].desired == 10
