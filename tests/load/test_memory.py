"""What a process remembers of a policy, and for how long."""

from tests.load.kit import NOW, assess_and_decide, cpu, policy, queue, same, total, usage

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
