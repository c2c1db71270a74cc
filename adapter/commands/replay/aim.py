"""A fair comparison: the stock HPA is aimed so that it is as safe as the policy; then their pods are compared."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction

from adapter.commands.replay.autoscalers import HpaAutoscaler
from adapter.commands.replay.comparison import EFFECTIVE, RAW, SUBJECT, Result
from adapter.commands.replay.hpas import HIGHEST, highest_level, scaled_targets
from adapter.commands.replay.levels import highest_safe, risk_of, search_levels
from adapter.commands.replay.service import History, Summary
from adapter.commands.replay.simulation import simulate
from adapter.load.quantity import percent_text
from adapter.policy.hpa import DEFAULT_TOLERANCE

OpenHistory = Callable[[], AbstractContextManager[History]]
"""Opens the history anew, from its beginning; it is pickled, so it is a module's function or a partial of one."""

_SHARES = tuple(Fraction(percent, 100) for percent in (40, 65, 90, 115, 140))
"""The shares of its target at which the stock HPA is played first."""
_ROUNDS = 4


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

    high = compared.judge.high.items()
    most = min((highest_level(compared.setup, name, DEFAULT_TOLERANCE, mark) for name, mark in high), default=HIGHEST)
    wanted = risk_of(result.runs[SUBJECT].summary)
    shares = sorted({min(most, share) for share in _SHARES})
    safe = highest_safe(search_levels(play, [wanted], shares, _ROUNDS), wanted)
    share = shares[0] if safe is None else safe
    stock = scaled_targets(compared.stock, share)
    with history() as ticks:
        pair = HpaAutoscaler(stock, RAW), HpaAutoscaler(stock, EFFECTIVE, effective=True)
        runs = simulate(ticks, compared.setup, pair, compared.judge)
    what = "shortfall" if compared.setup.capacity else "time over the high watermark"
    verdict = "at most" if safe is not None else "still above"
    said = f"aimed at {percent_text(round(share, 3))} of the high watermark, where its {what} is {verdict} the policy's"
    return replace(
        result, comparison=replace(compared, stock=stock, stock_is=said), runs=[*runs, *result.runs[SUBJECT:]]
    )
