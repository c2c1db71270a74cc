"""Plays scenarios: one closed loop for each autoscaler, and what became of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.scenarios.scenario import BEGAN, MILLI, Contender, ShippedScenario
from adapter.commands.replay.service import Autoscaler, Judge, Summary, View
from adapter.commands.replay.simulation import ServiceLoop
from adapter.load.pods import Pod
from adapter.load.roster import Instance, Roster
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy

_PORT = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """What one autoscaler did. `counts` are (seconds since the beginning, count), the first one at 0.

    `reached_goal`: whether the serving pods were not overloaded at the end. `asked` and `lost` are load times seconds
    (nano-units): all of it, and what was beyond the pods' capacity.
    """

    name: str
    summary: Summary
    counts: tuple[tuple[int, int], ...]
    reached_goal: bool
    asked: int

    @property
    def seconds_to_goal(self) -> float | None:
        """The longest time in a row with overloaded pods; None where it had no end."""
        return self.summary.recovery if self.reached_goal else None

    @property
    def throughput(self) -> float:
        """The load that was carried, on average (nano-units)."""
        return (self.asked - self.summary.lost) / self.summary.seconds


def play(scenario: ShippedScenario) -> list[ScenarioResult]:
    """Play a scenario with each of its contenders."""
    return [_played(scenario, contender) for contender in scenario.contenders]


def _played(scenario: ShippedScenario, contender: Contender) -> ScenarioResult:
    high = {name: Fraction(value * MILLI) for name, value in scenario.high.items()}
    autoscaler = _autoscaler(scenario, contender)
    minimum = contender.hpa["spec"]["minReplicas"]
    first = scenario.tick(0)
    # A rolling update changes pods from outside of the loop, which must not leave a sync out because nothing changed.
    loop = ServiceLoop(scenario.setup, autoscaler, Judge(high, minimum), first, skip=not scenario.rollouts)
    asked = 0
    judged = next(iter(scenario.setup.capacity))
    for at in range(0, scenario.seconds, scenario.step):
        if at in scenario.rollouts:
            loop.pods.roll(scenario.surge, BEGAN + at)
        tick = scenario.tick(at)
        asked += tick.load[judged] * scenario.step
        loop.step(tick, BEGAN + at + scenario.step)
    run = loop.run()
    counts = ((0, scenario.setup.replicas), *((round(one.at - BEGAN), one.after) for one in run.changes))
    return ScenarioResult(
        name=contender.name,
        summary=run.summary,
        counts=counts,
        reached_goal=not loop.score.is_over_high,
        asked=asked,
    )


def _autoscaler(scenario: ShippedScenario, contender: Contender) -> Autoscaler:
    hpa = parse_hpa(contender.hpa)
    if contender.policy is None:
        return HpaAutoscaler(hpa, contender.name, effective=contender.effective)
    policy = parse_policy(contender.policy)
    if policy.registry is None:
        return PolicyAutoscaler(policy, hpa, contender.name, scenario.totals)
    return _WithRegistry(PolicyAutoscaler(policy, hpa, contender.name, keeps_registry=True), scenario)


class _WithRegistry:
    """A policy that learns from a registry which pods are pulled out, and not by their annotation."""

    def __init__(self, inner: PolicyAutoscaler, scenario: ShippedScenario) -> None:
        self.name = inner.name
        self._inner = inner
        self._scenario = scenario

    def sync(self, view: View) -> int:
        """A sync of the policy, after the registry's answer, if it gives one."""
        if not self._scenario.silent(view.now - BEGAN):
            self._inner.roster = Roster(at=view.now, instances=tuple(_registered(view)))
        return self._inner.sync(view._replace(pods=tuple(_shown(pod) for pod in view.pods)))

    def watch(self, view: View) -> None:
        """The pods changed; the registry has not answered since."""
        self._inner.watch(view._replace(pods=tuple(_shown(pod) for pod in view.pods)))


def _registered(view: View) -> Iterator[Instance]:
    """A registration of each Ready pod; whoever pulls a pod out disables its instance."""
    for pod in view.pods:
        if pod.is_ready and not pod.deleting:
            yield Instance(ip=_address(pod), port=_PORT, enabled=not pod.pulled_out_annotation)


def _shown(pod: Pod) -> Pod:
    return replace(pod, pulled_out_annotation=False, ips=(_address(pod),))


def _address(pod: Pod) -> str:
    number = int(pod.name.rpartition("-")[2])
    return f"10.0.{number // 250}.{number % 250 + 1}"
