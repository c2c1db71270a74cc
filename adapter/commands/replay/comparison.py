"""A comparison: one history replayed for the stock HPA on the raw and on the effective average, and for policies."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, islice
from math import ceil

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.hpas import (
    HIGHEST,
    highest_level,
    hpa_following,
    judge_of,
    scaled_targets,
    stock_hpa_for,
)
from adapter.commands.replay.levels import highest_safe, risk_of, search_levels
from adapter.commands.replay.service import Autoscaler, History, Judge, OpenHistory, Run, Setup, Summary, Tick
from adapter.commands.replay.simulation import simulate
from adapter.load.quantity import percent_text
from adapter.load.spec import Policy
from adapter.policy.hpa import DEFAULT_TOLERANCE, Hpa
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.runtime.times import format_time

RAW, EFFECTIVE = "stock HPA, raw average", "stock HPA, effective average"
SUBJECT = 2
"""The place of the policy's own run among the runs of a comparison."""
_PROBED = 20
"""Ticks at the beginning of a history that may tell the count."""
_SHARES = tuple(Fraction(percent, 100) for percent in (40, 65, 90, 115, 140))
"""The shares of its target at which the stock HPA is played first."""
_AIM_ROUNDS = 4
LONGEST_GAP = 31 * 86_400.0
"""Seconds without a tick. A time in another unit makes thousands of years, and every sync of them is played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared: a policy with its HPA, the stock HPA, and perhaps others.

    `totals` are the metrics that are one number for the service. `price` is that of a pod for an hour; None where
    nobody said. `is_given`: the stock HPA is one that somebody has, and `stock_is` says how it is aimed.
    """

    policy: Policy
    hpa: Hpa
    stock: Hpa
    setup: Setup
    judge: Judge
    totals: frozenset[str] = frozenset()
    others: Sequence[Autoscaler] = ()
    price: Fraction | None = None
    is_given: bool = False
    stock_is: str = "aimed at the high watermark"

    def autoscalers(self) -> list[Autoscaler]:
        """All autoscalers in their order; they remember, so each replay needs new ones."""
        mine = PolicyAutoscaler(self.policy, self.hpa, f"policy {self.policy.name}", self.totals)
        return [*stock_pair(self.stock), mine, *self.others]

    def play(self, history: OpenHistory, autoscalers: Sequence[Autoscaler]) -> list[Run]:
        """The runs of other autoscalers with the same pods, judged alike."""
        with history() as ticks:
            return simulate(ticks, self.setup, autoscalers, self.judge)


def stock_pair(stock: Hpa) -> list[Autoscaler]:
    """A stock HPA on the raw and on the effective average."""
    return [HpaAutoscaler(stock, RAW), HpaAutoscaler(stock, EFFECTIVE, effective=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came out of a comparison. `begin` and `end` are those of the history (seconds), `ticks` their number."""

    comparison: Comparison
    begin: float
    end: float
    ticks: int
    runs: Sequence[Run]


def compare(
    policy: Policy,
    hpa: Hpa | None,
    setup: Setup,
    *,
    totals: Collection[str] = (),
    stock: Hpa | None = None,
    others: Sequence[Autoscaler] = (),
    price: Fraction | None = None,
) -> Comparison:
    """The comparison of a policy with the stock HPA: `stock` where it is given, else one on the high watermarks."""
    native = hpa_following(policy, hpa)
    return Comparison(
        policy=policy,
        hpa=native,
        stock=stock or stock_hpa_for(policy, native, setup, totals),
        setup=setup,
        judge=judge_of(policy, setup, native.bounds.minimum),
        totals=frozenset(totals),
        others=others,
        price=price,
        is_given=stock is not None,
        stock_is="the HPA as it is today" if stock is not None else "aimed at the high watermark",
    )


def replay(comparison: Comparison, history: History) -> Result:
    """Replay the history, which has ticks, for every autoscaler, in one pass."""
    ticks = iter(history)
    first, count = next(ticks), 0

    def counted() -> Iterator[Tick]:
        nonlocal count
        for tick in chain([first], ticks):
            count += 1
            yield tick

    runs = simulate(counted(), comparison.setup, comparison.autoscalers(), comparison.judge)
    end = first.at + runs[0].summary.seconds
    return Result(comparison=comparison, begin=first.at, end=end, ticks=count, runs=runs)


def aimed_fairly(result: Result, history: OpenHistory) -> Result:
    """The result with the stock HPA aimed to have the policy's risk.

    An HPA that was given stays as it is. So does one without a target, or where nothing says what is too much.
    """
    compared = result.comparison
    if compared.is_given or not compared.stock.metrics or not (compared.setup.capacity or compared.judge.high):
        return result

    def play(shares: Sequence[Fraction]) -> list[Summary]:
        autoscalers = [HpaAutoscaler(scaled_targets(compared.stock, share)) for share in shares]
        return [run.summary for run in compared.play(history, autoscalers)]

    high = compared.judge.high.items()
    most = min((highest_level(compared.setup, name, DEFAULT_TOLERANCE, mark) for name, mark in high), default=HIGHEST)
    wanted = risk_of(result.runs[SUBJECT].summary)
    shares = sorted({min(most, share) for share in _SHARES})
    safe = highest_safe(search_levels(play, wanted, shares, _AIM_ROUNDS), wanted)
    share = shares[0] if safe is None else safe
    stock = scaled_targets(compared.stock, share)
    runs = compared.play(history, stock_pair(stock))
    what = "shortfall" if compared.setup.capacity else "time over the high watermark"
    verdict = "at most" if safe is not None else "still above"
    said = f"aimed at {percent_text(round(share, 3))} of the high watermark, where its {what} is {verdict} the policy's"
    return replace(
        result, comparison=replace(compared, stock=stock, stock_is=said), runs=[*runs, *result.runs[SUBJECT:]]
    )


def probed(history: Iterable[Tick]) -> tuple[list[Tick], Iterator[Tick]]:
    """The first ticks of a history, and the whole history, those included."""
    ticks = iter(history)
    first = list(islice(ticks, _PROBED))
    return first, chain(first, ticks)


def first_count(first: Sequence[Tick], hpa: Hpa, judge: Judge) -> int:
    """The count at the beginning: the recorded one, else what the high watermarks ask for."""
    bounds = hpa.bounds
    recorded = next((tick.replicas for tick in first if tick.replicas), None)
    if recorded is not None:
        return recorded
    loads: Mapping[str, int] = next((tick.load for tick in first if tick.load), {})
    needed = [ceil(loads[name] / high) for name, high in judge.high.items() if name in loads]
    pulled_out = first[0].pulled_out if first else 0
    return max(1, bounds.minimum, min(bounds.maximum, max(needed, default=1) + pulled_out))


def within(history: History, begin: float | None, end: float | None) -> Iterator[Tick]:
    """The ticks from the first with a load from `begin` until before `end` (seconds; None: no limit).

    Reads no further than that. Raises FaultyDocument for a gap that is too long to be lived through.
    """
    before: float | None = None
    for tick in history:
        if end is not None and tick.at >= end:
            return
        if (begin is not None and tick.at < begin) or (before is None and not tick.load):
            continue
        if before is not None and tick.at - before > LONGEST_GAP:
            gap = f"{format_time(before)} to {format_time(tick.at)}"
            advice = "has no line for more than 31 days; replay what is before and after it apart (--from, --to)"
            raise FaultyDocument([Fault("the history", gap, advice)], "this cannot be replayed")
        before = tick.at
        yield tick
