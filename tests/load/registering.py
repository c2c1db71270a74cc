"""A target and its registry over time, one list of instances after the other."""

from adapter.load.memory import Memory
from adapter.load.pods import Pod, PodAssessment, PodState
from adapter.load.roster import Roster, canonical_ip
from adapter.load.samples import Samples
from adapter.load.spec import Policy
from tests.load.kit import NOW, REGISTRY, assess_and_decide, pod, policy, roster

REGISTERED = policy(registry=REGISTRY)


def classified(
    rule: Policy, pods: list[Pod], listed: Roster | None = None, memory: Memory | None = None
) -> dict[str, PodAssessment]:
    """The pods by name once this list counted."""
    assessment, _ = assess_and_decide(rule, pods, Samples(), listed=listed, memory=memory)
    return {each.pod.name: each for each in assessment.pods}


class Registering:
    """A target and its registry over time: each answer is one list."""

    def __init__(self, rule: Policy, pods: list[Pod], now: float = NOW) -> None:
        self.rule, self.pods, self.now, self.memory = rule, pods, now, Memory()
        self.latest: Roster | None = None
        self.found: dict[str, PodAssessment] = {}
        self.problem = ""

    def answer(self, *absent: str, after: float = 10.0) -> dict[str, PodState]:
        """The states after the next list, which has all pods but the absent."""
        ips = [canonical_ip(p.ips[0]) for p in self.pods if p.name not in absent]
        self.latest = roster(*ips, at=self.now + after)
        return self.wait(after)

    def wait(self, seconds: float) -> dict[str, PodState]:
        """The states after some silence."""
        self.now += seconds
        assessment, _ = assess_and_decide(
            self.rule, self.pods, Samples(), listed=self.latest, memory=self.memory, now=self.now
        )
        self.memory, self.found = assessment.memory, {each.pod.name: each for each in assessment.pods}
        self.problem = assessment.conditions.get("RegistryDataValid", "")
        return {name: each.state for name, each in self.found.items()}

    def absent(self, *names: str, rounds: int = 4, after: float = 15.0) -> dict[str, PodState]:
        """The states after `rounds` lists without these pods."""
        return [self.answer(*names, after=after) for _ in range(rounds)][-1]


def service(count: int = 10, rule: Policy = REGISTERED) -> Registering:
    """So many pods that are registered."""
    made = Registering(rule, [pod(f"p{index}", ip=f"10.0.0.{index}") for index in range(count)])
    made.answer()
    return made


def in_state(found: dict[str, PodState], wanted: PodState) -> list[str]:
    """The names of the pods in a state."""
    return sorted(name for name, state in found.items() if state is wanted)
