"""A comparison: one history for the stock HPA on the raw and on the effective average, and for policies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from adapter.commands.replay.autoscalers import (
    HpaAutoscaler,
    PolicyAutoscaler,
    hpa_following,
    judged_by,
    scaled_targets,
    stock_hpa_for,
)
from adapter.commands.replay.history import Stretch, Tick, stretches
from adapter.commands.replay.loop import play
from adapter.commands.replay.model import Autoscaler, Setup
from adapter.commands.replay.score import Run
from adapter.load.quantity import percent_text
from adapter.load.spec import Policy
from adapter.policy.hpa import DEFAULT_TOLERANCE, Hpa

RAW, EFFECTIVE = "stock HPA, raw average", "stock HPA, effective average"
SUBJECT = 2
"""The place of the policy's own run among the runs of a comparison."""
_BISECTIONS = 6
_LOWEST, _HIGHEST = 0.4, 1.4
"""The targets that are tried, as shares of the high watermark."""
_SLACK = 1.01
"""Risks within 1 % are the same."""


class Contender(NamedTuple):
    """A policy that is replayed, with its HPA; `name` is how reports call it."""

    name: str
    policy: Policy
    hpa: Hpa | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service to replay: its policy and others to compare with, and how its pods behave.

    `stock` is the HPA that runs today, None where the comparison derives one. `totals` are the metrics that are one
    number for the service.
    """

    contenders: Sequence[Contender]
    setup: Setup
    stock: Hpa | None = None
    totals: frozenset[str] = frozenset()

    @property
    def policy(self) -> Policy:
        """The policy that the replay is about."""
        return self.contenders[0].policy

    @property
    def hpa(self) -> Hpa | None:
        """Its HPA, which gives bounds and behavior; None where a default takes its place."""
        return self.contenders[0].hpa

    @property
    def high(self) -> dict[str, float]:
        """The high watermarks by which every run is judged (nano-units of a pod's plain usage)."""
        return judged_by(self.policy, self.setup)

    def play(self, history: Sequence[Stretch], autoscaler: Autoscaler) -> Run:
        """The run of this autoscaler, which remembers nothing yet."""
        minimum = hpa_following(self.policy, self.hpa).bounds.minimum
        return play(history, self.setup, autoscaler, self.high, minimum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a comparison found. `ticks` is their number; `stock_is` says how the stock HPA is aimed."""

    service: Service
    history: Sequence[Stretch]
    ticks: int
    runs: Sequence[Run]
    stock_is: str

    @property
    def begin(self) -> float:
        """The beginning of the history (seconds since the epoch)."""
        return self.history[0].at

    @property
    def end(self) -> float:
        """Its end."""
        return self.history[-1].end


def compare(service: Service, ticks: Sequence[Tick]) -> Result:
    """Replay these ticks, of which the first has a load, for every autoscaler. Raises FaultyDocument."""
    service = replace(service, setup=replace(service.setup, replicas=_first_count(service, ticks[0])))
    history = stretches(ticks, service.setup)
    policies = [
        service.play(history, PolicyAutoscaler(policy, hpa, name, service.totals))
        for name, policy, hpa in service.contenders
    ]
    stock, stock_is, raw = service.stock, "the HPA as it is today", None
    if stock is None:
        stock, stock_is, raw = _aimed(service, history, policies[0].summary.risk)
    raw = raw or service.play(history, HpaAutoscaler(stock, RAW))
    effective = replace(raw, name=EFFECTIVE)  # the same unless pods are pulled out
    if any(stretch.pulled_out for stretch in history):
        effective = service.play(history, HpaAutoscaler(stock, EFFECTIVE, effective=True))
    runs = [raw, effective, *policies]
    return Result(service=service, history=history, ticks=len(ticks), runs=runs, stock_is=stock_is)


def _aimed(service: Service, history: Sequence[Stretch], risk: float) -> tuple[Hpa, str, Run | None]:
    """The stock HPA whose targets are the highest with at most this risk, a sentence on its aim, its run.

    Bisection, within 2 % of the high watermarks.
    """
    stock = stock_hpa_for(service.policy, service.hpa, service.setup, service.totals)
    if not stock.metrics or not (service.setup.capacity or service.high):
        return stock, "aimed at the high watermark", None
    # A target that samples cannot pass by the tolerance, since pods are throttled below it, would never scale up.
    throttles, high = service.setup.throttles, service.high
    passable = [throttles[name] / (1 + float(DEFAULT_TOLERANCE)) / high[name] for name in high.keys() & throttles]
    low, most, best = _LOWEST, min([_HIGHEST, *passable]), None
    for _ in range(_BISECTIONS):
        middle = (low + most) / 2
        run = service.play(history, HpaAutoscaler(scaled_targets(stock, middle), RAW))
        if run.summary.risk <= risk * _SLACK:
            low, best = middle, run
        else:
            most = middle
    what = "shortfall" if service.setup.capacity else "time over the high watermark"
    share = percent_text(Fraction(round(low * 1000), 1000))
    verdict = "at most" if best else "still above"
    sentence = f"aimed at {share} of the high watermark, where its {what} is {verdict} the policy's"
    return scaled_targets(stock, low), sentence, best


def _first_count(service: Service, first: Tick) -> int:
    """The count at the beginning: what the high watermarks need, beside the pulled-out pods."""
    bounds = hpa_following(service.policy, service.hpa).bounds
    needed = [ceil(first.load[name] / mark) for name, mark in service.high.items() if name in first.load]
    return max(1, bounds.minimum, min(bounds.maximum, max(needed, default=1) + first.pulled_out))
