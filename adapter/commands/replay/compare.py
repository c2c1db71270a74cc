"""A comparison: one history for the stock HPA on the raw and on the effective average, and for a policy."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler, judged_by, stock_hpa_for
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
SLACK = 1.01
"""Risks within 1 % are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service to replay: its policy, and how its pods behave.

    `hpa` follows the policy and gives bounds and behavior. `stock` is the HPA that runs today, with bounds of its own;
    None where the comparison derives one. `totals` are the metrics that are one number for the service.
    """

    policy: Policy
    setup: Setup
    hpa: Hpa
    stock: Hpa | None = None
    totals: frozenset[str] = frozenset()

    @property
    def high(self) -> dict[str, float]:
        """The high watermarks by which every run is judged (nano-units of a pod's plain usage)."""
        return judged_by(self.policy, self.setup)

    def follower(self, policy: Policy) -> PolicyAutoscaler:
        """The policy, or another one in its place, with its HPA."""
        return PolicyAutoscaler(policy, self.hpa, f"policy {policy.name}", self.totals)

    def play(self, history: Sequence[Stretch], autoscaler: Autoscaler) -> Run:
        """The run of this autoscaler, which remembers nothing yet."""
        return play(history, self.setup, autoscaler, self.high, self.hpa.bounds.minimum)


class Result(NamedTuple):
    """What a comparison found. `stock_is` says how the stock HPA is aimed; `begin` and `end` are epoch seconds."""

    service: Service
    history: Sequence[Stretch]
    runs: Sequence[Run]
    stock_is: str
    ticks: int
    begin: float
    end: float


def compare(service: Service, ticks: Sequence[Tick]) -> Result:
    """Replay these ticks, of which the first has a load, for every autoscaler. Raises FaultyDocument."""
    first, bounds = ticks[0], service.hpa.bounds
    # At first there are as many pods as the high watermarks need, beside the pulled-out ones.
    needed = [ceil(first.load[name] / mark) for name, mark in service.high.items() if name in first.load]
    count = max(1, bounds.minimum, min(bounds.maximum, max(needed, default=1) + first.pulled_out))
    service = replace(service, setup=replace(service.setup, replicas=count))
    history = stretches(ticks, service.setup)
    ours = service.play(history, service.follower(service.policy))
    if service.stock is None:
        stock, stock_is = _aimed(service, history, ours.summary.risk)
    else:
        stock, stock_is = service.stock, "the HPA as it is today"
    raw = service.play(history, HpaAutoscaler(stock, RAW))
    effective = raw._replace(name=EFFECTIVE)  # the same unless pods are pulled out
    if any(stretch.pulled_out for stretch in history):
        effective = service.play(history, HpaAutoscaler(stock, EFFECTIVE, effective=True))
    runs = [raw, effective, ours]
    return Result(service, history, runs, stock_is, len(ticks), history[0].at, history[-1].end)


def _aimed(service: Service, history: Sequence[Stretch], risk: float) -> tuple[Hpa, str]:
    """The stock HPA whose targets are the highest with at most this risk, and a sentence on its aim.

    Bisection, within 2 % of the high watermarks.
    """
    stock = functools.partial(stock_hpa_for, service.policy, service.hpa, service.setup, service.totals)
    if not stock().metrics or not (service.setup.capacity or service.high):
        return stock(), "aimed at the high watermark"
    # A target that samples cannot pass by the tolerance, since pods are throttled below it, would never scale up.
    throttles, high = service.setup.throttles, service.high
    passable = [throttles[name] / (1 + float(DEFAULT_TOLERANCE)) / high[name] for name in high.keys() & throttles]
    low, most, verdict = _LOWEST, min([_HIGHEST, *passable]), "still above"
    for _ in range(_BISECTIONS):
        middle = (low + most) / 2
        if service.play(history, HpaAutoscaler(stock(middle))).summary.risk <= risk * SLACK:
            low, verdict = middle, "at most"
        else:
            most = middle
    what = "shortfall" if service.setup.capacity else "time over the high watermark"
    share = percent_text(Fraction(round(low * 1000), 1000))
    return stock(low), f"aimed at {share} of the high watermark, where its {what} is {verdict} the policy's"
