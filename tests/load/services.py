"""Random services for property tests: pods, a registry's list, samples; and what a theorem changes in them."""

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from adapter.load.assessment import Decision
from adapter.load.memory import Memory
from adapter.load.pods import Pod
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Policy
from tests.load.kit import NOW, REGISTRY, assess_and_decide, cpu, pod, policy, usage


@dataclass(frozen=True)
class Service:
    """A service at one moment: pods by name, their loads (milli-units; None: no sample), and who is listed as what."""

    rule: Policy
    pods: dict[str, Pod]
    loads: dict[str, int | None]
    listed: dict[str, bool]  # True: enabled, False: disabled; absent: not in the list
    current: int
    memory: Memory = field(default_factory=Memory)
    now: float = NOW

    def decide(self) -> Decision:
        """The decision at this moment."""
        return self.step()[1]

    def step(self) -> tuple[Memory, Decision]:
        """The memory after this moment, and the decision."""
        loads = {name: f"{load}m" for name, load in self.loads.items() if load is not None and name in self.pods}
        instances = tuple(Instance(ip=self.ip(name), port=80, enabled=on) for name, on in self.listed.items())
        assessment, decision = assess_and_decide(
            self.rule,
            list(self.pods.values()),
            usage(loads, at=self.now - 10),
            current=self.current,
            listed=Roster(at=self.now - 1, instances=instances),
            memory=self.memory,
            now=self.now,
        )
        return assessment.memory, decision

    def ip(self, name: str) -> str:
        """The address of a pod, which may be gone."""
        return f"10.0.0.{name.rpartition('-')[2]}"

    def count(self) -> int:
        """The count asked for; the current one where there is an error, since the HPA holds then."""
        desired = self.decide().desired
        return self.current if desired is None else desired


@st.composite
def calm_services(draw: st.DrawFn) -> Service:
    """Services whose registry lists all pods as serving, each pod with a sample; many of them may shrink."""
    n = draw(st.integers(1, 14))
    base = draw(st.sampled_from([60, 100, 300, 390, 800]))
    pods = {f"web-{i}": pod(f"web-{i}", ip=f"10.0.0.{i}") for i in range(n)}
    loads: dict[str, int | None] = {name: round(base * draw(st.integers(20, 180)) / 100) for name in pods}
    low = draw(st.sampled_from(["240m", "400m", "600m"]))
    strategy = {"registry": REGISTRY, "min_serving_percent": 0}
    rule = policy(cpu("1200m", low), replaces=False, **strategy)
    more = draw(st.sampled_from([0, 0, 1, 3]))
    return Service(rule, pods, loads, dict.fromkeys(pods, True), n + more)


def without_sample(service: Service, name: str) -> Service:
    """The service as it loses the sample of a pod that had one a poll ago."""
    memory, _ = service.step()
    later = replace(service, memory=memory, now=service.now + 15)
    return replace(later, loads=later.loads | {name: None})
