"""A comparison: one history for the stock HPA on the raw and on the effective average, and for policies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.loop import play, stretches
from adapter.commands.replay.model import TITLE, Autoscaler, Run, Setup, Stretch, Tick
from adapter.commands.replay.stock import hpa_following, judged_by, scaled_targets, stock_hpa_for
from adapter.load.quantity import percent_text
from adapter.load.spec import Policy
from adapter.policy.hpa import DEFAULT_TOLERANCE, Hpa
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.times import format_time

RAW, EFFECTIVE = "stock HPA, raw average", "stock HPA, effective average"
SUBJECT = 2
"""The place of the policy's own run among the runs of a comparison."""
LONGEST_GAP = 31 * 86_400.0
"""Seconds without a tick. A time in another unit makes thousands of years, and every sync of them is played."""
_BISECTIONS = 6
_LOWEST, _HIGHEST = 0.4, 1.4
"""The targets that are tried, as shares of the high watermark."""
_SLACK = 1.01
"""Risks within 1 % are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service to replay: its policy and HPA, and how its pods behave.

    `stock` is the HPA that runs today, None where the comparison derives one; `against` is a second policy with its
    HPA. `totals` are the metrics that are one number for the service. `price` is that of a pod for an hour.
    """

    policy: Policy
    setup: Setup
    hpa: Hpa | None = None
    stock: Hpa | None = None
    against: tuple[Policy, Hpa | None] | None = None
    totals: frozenset[str] = frozenset()
    price: Fraction | None = None

    @property
    def minimum(self) -> int:
        """The pods that the HPA keeps in any case."""
        return hpa_following(self.policy, self.hpa).bounds.minimum


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
    service = replace(service, setup=replace(service.setup, replicas=_first_count(service, ticks)))
    history = stretches(ticks, service.setup)
    judge = Judge(service, history)
    ours = judge.play(PolicyAutoscaler(service.policy, service.hpa, f"policy {service.policy.name}", service.totals))
    stock, stock_is, raw = service.stock, "the HPA as it is today", None
    if stock is None:
        stock, stock_is, raw = _aimed(judge, ours)
    raw = raw or judge.play(HpaAutoscaler(stock, RAW))
    runs = [raw, judge.play(HpaAutoscaler(stock, EFFECTIVE, effective=True)), ours]
    if service.against is not None:
        policy, hpa = service.against
        runs.append(judge.play(PolicyAutoscaler(policy, hpa, f"policy {policy.name}, --against", service.totals)))
    return Result(service=service, history=history, ticks=len(ticks), runs=runs, stock_is=stock_is)


class Judge:
    """Plays autoscalers of a service through a history, all judged by its policy's high watermarks."""

    def __init__(self, service: Service, history: Sequence[Stretch]) -> None:
        self.service, self.history = service, history
        self.high = judged_by(service.policy, service.setup)
        self._minimum = service.minimum

    def play(self, autoscaler: Autoscaler) -> Run:
        """The run of this autoscaler, which remembers nothing yet."""
        return play(self.history, self.service.setup, autoscaler, self.high, self._minimum)


def _aimed(judge: Judge, ours: Run) -> tuple[Hpa, str, Run | None]:
    """The stock HPA whose targets are the highest with at most the policy's risk, a sentence on its aim, its run.

    Bisection, within 2 % of the high watermarks.
    """
    service = judge.service
    stock = stock_hpa_for(service.policy, service.hpa, service.setup, service.totals)
    if not stock.metrics or not (service.setup.capacity or judge.high):
        return stock, "aimed at the high watermark", None
    wanted = ours.summary.risk * _SLACK
    # A target that samples cannot pass by the tolerance, since pods are throttled below it, would never scale up.
    throttles, high = service.setup.throttles, judge.high
    passable = [throttles[name] / (1 + float(DEFAULT_TOLERANCE)) / high[name] for name in high.keys() & throttles]
    low, most, best = _LOWEST, min([_HIGHEST, *passable]), None
    for _ in range(_BISECTIONS):
        middle = (low + most) / 2
        run = judge.play(HpaAutoscaler(scaled_targets(stock, middle), RAW))
        if run.summary.risk <= wanted:
            low, best = middle, run
        else:
            most = middle
    what = "shortfall" if service.setup.capacity else "time over the high watermark"
    share = percent_text(Fraction(round(low * 1000), 1000))
    verdict = "at most" if best else "still above"
    sentence = f"aimed at {share} of the high watermark, where its {what} is {verdict} the policy's"
    return scaled_targets(stock, low), sentence, best


def _first_count(service: Service, ticks: Sequence[Tick]) -> int:
    """The count at the beginning: the first recorded one, else what the high watermarks need."""
    recorded = next((tick.replicas for tick in ticks[:20] if tick.replicas), None)
    if recorded is not None:
        return recorded
    bounds, first = hpa_following(service.policy, service.hpa).bounds, ticks[0]
    high = judged_by(service.policy, service.setup)
    needed = [ceil(first.load[name] / mark) for name, mark in high.items() if name in first.load]
    return max(1, bounds.minimum, min(bounds.maximum, max(needed, default=1) + first.pulled_out))


def within(ticks: Sequence[Tick], begin: float | None, end: float | None) -> list[Tick]:
    """The ticks from the first with a load from `begin` until before `end` (seconds; None: no limit).

    Raises FaultyDocument for a gap of more than LONGEST_GAP.
    """
    kept: list[Tick] = []
    for tick in ticks:
        if (end is not None and tick.at >= end) or (begin is not None and tick.at < begin):
            continue
        if not kept and not tick.load:
            continue
        if kept and tick.at - kept[-1].at > LONGEST_GAP:
            gap = f"{format_time(kept[-1].at)} to {format_time(tick.at)}"
            advice = "has no line for more than 31 days; replay the parts separately (--from, --to)"
            raise FaultyDocument([Fault("the history", gap, advice)], TITLE)
        kept.append(tick)
    return kept
