"""A target and its registry over time, one list of instances after the other."""

from dataclasses import replace

from adapter.load.matching import canonical_ip, registrations
from adapter.load.memory import Memory, after_instances, after_states
from adapter.load.pods import Pod, PodAssessment, PodState
from adapter.load.roster import Roster
from adapter.load.spec import Policy
from adapter.load.states import classify, registry_problem, service_registry
from tests.load.kit import NOW, REGISTRY, pod, policy, roster

REGISTERED = policy(registry=REGISTRY)


def classify_with(
    rule: Policy, pods: list[Pod], listed: Roster | None = None, memory: Memory | None = None, now: float = NOW
) -> dict[str, PodAssessment]:
    """The states once this list counted, by UID."""
    registry = service_registry(rule)
    found = registrations(pods, listed, registry) if registry and listed and listed.valid else {}
    after = after_instances(memory or Memory(), pods, listed, found, now)
    return {each.pod.uid: each for each in classify(rule, pods, after, listed, found, now)}


def states(membership: dict[str, PodAssessment]) -> dict[str, PodState]:
    return {uid.removeprefix("uid-"): classification.state for uid, classification in membership.items()}


class Registering:
    """A target and its registry over time: each answer is one list, remembered as `assess` would."""

    def __init__(self, rule: Policy, pods: list[Pod], now: float = NOW) -> None:
        self.rule, self.pods, self.now, self.memory = rule, pods, now, Memory()
        self.latest: Roster | None = None
        self.membership: dict[str, PodAssessment] = {}

    def answer(self, *absent: str, after: float = 10.0, **changes: object) -> dict[str, PodState]:
        """The states after the next list, which has all pods but the absent."""
        self.now += after
        ips = [canonical_ip(p.ips[0]) for p in self.pods if p.name not in absent]
        return self.hear(replace(roster(*ips, at=self.now), **changes))  # type: ignore[arg-type]

    def hear(self, listed: Roster | None) -> dict[str, PodState]:
        self.latest = listed or self.latest
        registry = service_registry(self.rule)
        found = registrations(self.pods, self.latest, registry) if registry and self.latest else {}
        self.memory = after_instances(self.memory, self.pods, self.latest, found, self.now)
        assessed = classify(self.rule, self.pods, self.memory, self.latest, found, self.now)
        self.memory = after_states(self.memory, assessed, self.now, 60.0)
        self.membership = {each.pod.uid: each for each in assessed}
        return states(self.membership)

    def wait(self, seconds: float) -> dict[str, PodState]:
        """The states after some silence."""
        self.now += seconds
        return self.hear(None)

    def absent(self, *names: str, rounds: int = 4, after: float = 15.0) -> dict[str, PodState]:
        """The states after `rounds` lists without these pods."""
        found: dict[str, PodState] = {}
        for _ in range(rounds):
            found = self.answer(*names, after=after)
        return found

    def reason(self, name: str) -> str:
        """Why this pod has its state."""
        return self.membership[f"uid-{name}"].reason

    @property
    def problem(self) -> str:
        """What is wrong with the registry."""
        return registry_problem(self.rule, self.pods, self.memory, self.latest, self.now)


def service(count: int = 10, rule: Policy = REGISTERED) -> Registering:
    """So many pods that are registered."""
    made = Registering(rule, [pod(f"p{index}", ip=f"10.0.0.{index}") for index in range(count)])
    made.answer()
    return made


def names_in_state(found: dict[str, PodState], wanted: PodState) -> list[str]:
    return sorted(name for name, classification in found.items() if classification is wanted)
