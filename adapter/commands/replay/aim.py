"""A fair comparison: the stock HPA is aimed so that it is as safe as the policy; then their pods are compared."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from adapter.commands.replay.autoscalers import HpaAutoscaler
from adapter.commands.replay.comparison import EFFECTIVE, RAW, SUBJECT, Result
from adapter.commands.replay.hpas import scaled_targets
from adapter.commands.replay.service import History, Summary
from adapter.commands.replay.simulation import simulate
from adapter.load.quantity import percent_text

OpenHistory = Callable[[], AbstractContextManager[History]]
"""Opens the history anew, from its beginning; it is pickled, so it is a module's function or a partial of one."""

_LEAST, _MOST = Fraction(40, 100), Fraction(140, 100)
_PASSES, _PARTS = 3, 4
_SLACK = 1.01
"""Risks within 1 % are the same."""


class Aim(NamedTuple):
    """The share of its targets at which an autoscaler is as safe as wanted, and what it does there."""

    share: Fraction
    summary: Summary


def risk(summary: Summary) -> float:
    """The share of the load beyond the capacity; without a capacity, the share of the time over the high watermark."""
    if summary.shortfall is not None:
        return summary.shortfall
    return summary.over_high / summary.seconds if summary.seconds else 0.0


def highest_share(
    play: Callable[[Sequence[Fraction]], Sequence[Summary]],
    wanted: float,
    least: Fraction = _LEAST,
    most: Fraction = _MOST,
    passes: int = _PASSES,
) -> Aim | None:
    """The highest share of its targets at which an autoscaler's risk is at most `wanted`; None where none is so safe.

    `play` plays several shares in one pass. Each pass divides what is left by four, so three find it within 2 %.
    """
    known: dict[Fraction, Summary] = {}
    fits: list[Fraction] = []
    for _ in range(passes):
        shares = [least + (most - least) * part / _PARTS for part in range(_PARTS + 1)]
        new = [share for share in shares if share not in known]
        known |= dict(zip(new, play(new), strict=True))
        fits = [share for share in sorted(known) if risk(known[share]) <= wanted * _SLACK]
        if not fits or fits[-1] == max(known):
            break
        least, most = next(pair for pair in pairwise(sorted(known)) if pair[0] == fits[-1])
    return Aim(fits[-1], known[fits[-1]]) if fits else None


def aimed_fairly(result: Result, history: OpenHistory) -> Result:
    """The result with the stock HPA aimed to have the policy's risk, found by bisection.

    An HPA that was given stays as it is. So does one without a target, or where nothing says what is too much.
    """
    compared = result.comparison
    if compared.is_given or not compared.stock.metrics or not (compared.setup.capacity or compared.judge.high):
        return result

    def play(shares: Sequence[Fraction]) -> list[Summary]:
        autoscalers = [HpaAutoscaler(scaled_targets(compared.stock, share)) for share in shares]
        with history() as ticks:
            return [run.summary for run in simulate(ticks, compared.setup, autoscalers, compared.judge)]

    aim = highest_share(play, risk(result.runs[SUBJECT].summary))
    share = _LEAST if aim is None else aim.share
    stock = scaled_targets(compared.stock, share)
    with history() as ticks:
        pair = HpaAutoscaler(stock, RAW), HpaAutoscaler(stock, EFFECTIVE, effective=True)
        runs = simulate(ticks, compared.setup, pair, compared.judge)
    what = "shortfall" if compared.setup.capacity else "time over the high watermark"
    verdict = "at most" if aim is not None else "still above"
    said = f"aimed at {percent_text(round(share, 3))} of the high watermark, where its {what} is {verdict} the policy's"
    return replace(
        result, comparison=replace(compared, stock=stock, stock_is=said), runs=[*runs, *result.runs[SUBJECT:]]
    )
