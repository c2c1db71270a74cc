"""A target and its registry over time, one roster after the other."""

from dataclasses import replace

from adapter.load.assessment import PodAssessment
from adapter.load.matching import canonical_ip
from adapter.load.memory import Memory
from adapter.load.pods import Pod, PodState
from adapter.load.remembering import after_roster, after_states
from adapter.load.roster import Roster
from adapter.load.spec import Policy
from adapter.load.states import classify, registry_problem
from tests.load.kit import NOW, REGISTRY, pod, policy, roster

REGISTERED = policy(registry=REGISTRY)


def classify_with(
    rule: Policy, pods: list[Pod], listed: Roster | None = None, memory: Memory | None = None, now: float = NOW
) -> dict[str, PodAssessment]:
    """The states once this roster counted."""
    return classify(rule, pods, after_roster(memory or Memory(), rule, pods, listed, now), now)


def registry_problem_after(shop: "Registering", after: float = 0.0) -> str:
    """What is wrong with the registry by then."""
    return registry_problem(shop.rule, shop.pods, shop.memory, shop.now + after)


def states(membership: dict[str, PodAssessment]) -> dict[str, PodState]:
    return {uid.removeprefix("uid-"): classification.state for uid, classification in membership.items()}


class Registering:
    """A target and its registry over time: each answer is one roster, remembered as `assess` would."""

    def __init__(self, rule: Policy, pods: list[Pod], now: float = NOW) -> None:
        self.rule, self.pods, self.now, self.memory = rule, pods, now, Memory()

    def answer(self, *absent: str, after: float = 10.0, **changes: object) -> dict[str, PodState]:
        """The states after the next roster, which lists all pods but the absent."""
        self.now += after
        ips = [canonical_ip(p.ips[0]) for p in self.pods if p.name not in absent]
        return self.hear(replace(roster(*ips, at=self.now), **changes))  # type: ignore[arg-type]

    def hear(self, listed: Roster | None) -> dict[str, PodState]:
        self.memory = after_roster(self.memory, self.rule, self.pods, listed, self.now)
        membership = classify(self.rule, self.pods, self.memory, self.now)
        self.memory = after_states(self.memory, membership, self.now)
        return states(membership)

    def wait(self, seconds: float) -> dict[str, PodState]:
        """The states after some silence."""
        self.now += seconds
        return self.hear(None)

    def absent(self, *names: str, rounds: int = 4, after: float = 15.0) -> dict[str, PodState]:
        """The states after `rounds` rosters without these pods."""
        found: dict[str, PodState] = {}
        for _ in range(rounds):
            found = self.answer(*names, after=after)
        return found

    def reason(self, name: str) -> str:
        """Why this pod has its state."""
        return classify(self.rule, self.pods, self.memory, self.now)[f"uid-{name}"].reason


def service(count: int = 10, rule: Policy = REGISTERED) -> Registering:
    """So many pods that are registered."""
    made = Registering(rule, [pod(f"p{index}", ip=f"10.0.0.{index}") for index in range(count)])
    made.answer()
    return made


def names_in_state(found: dict[str, PodState], wanted: PodState) -> list[str]:
    return sorted(name for name, classification in found.items() if classification is wanted)
