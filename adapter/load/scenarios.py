"""The scenarios of one metric: with every doubtful pod out, then with the most loaded ones in, one after the other."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from adapter.load.assessment import Scenario, Verdict
from adapter.load.ratio import recommend as recommend_by_ratio
from adapter.load.recount import Recommendation
from adapter.load.spec import Average, Converge, Policy, Strategy
from adapter.load.step import recommend as recommend_step
from adapter.load.steps import Steps, collected
from adapter.load.totals import Band, DoubtfulPod, Rational, Totals
from adapter.load.watermark import recommend as recommend_by_watermarks

_RIVALS_COMPARED = 4
"""A scenario above the band is compared with at most this many of those already kept."""
_INCOMPARABLE = Recommendation(Verdict.ERROR)
_RECOMMEND: Mapping[Strategy, Callable[[Totals, Band, Converge | None], Recommendation]] = {
    Strategy.WATERMARK: recommend_by_watermarks,
    Strategy.RATIO: lambda totals, band, _: recommend_by_ratio(totals, band),
    Strategy.STEP: lambda totals, band, _: recommend_step(totals, band),
}


class AwayPods(NamedTuple):
    """How many pods are out in every scenario; a scenario adds its own doubtful ones.

    `out` are kept in the count on the way down; `replaceable` may be replaced on the way up; `reserved` (starting)
    already count as replacements.
    """

    out: int
    replaceable: int
    reserved: int


class _Step(NamedTuple):
    """A scenario before it is known whether it may win; usage and weight as in its totals."""

    recommended: Recommendation
    usage: int
    weight: Rational
    n: int
    missing: int
    young: int
    replaceable: int
    reserved: int
    out: int


def scenarios_of(
    policy: Policy, band: Band, away: AwayPods, totals: Totals, order: Sequence[DoubtfulPod]
) -> Steps[list[Scenario]]:
    """The scenarios that win at some replica count, by the number of doubtful pods in.

    The pods come in in this order. `totals` begin without them and end with all of them.
    """
    steps = yield from collected(_steps(policy, band, away, totals, order))
    kept = _that_may_win(steps)
    if _has_delay(policy):
        kept = _with_every_verdict(kept, steps)
    return [_scenario(inside, steps[inside], band, totals) for inside in kept]


def held_with_all_in(policy: Policy, band: Band, away: AwayPods, totals: Totals, doubtful: int) -> Scenario | None:
    """The scenario with all doubtful pods in (`totals`) if it wins at every count, given that none is above the band.

    It wins where it holds: no other one proposes more. Delays need the verdicts of the others, and steps inside the
    band are more than a hold.
    """
    if policy.converge_towards is not None or _has_delay(policy):
        return None
    recommended = _recommended(policy, band, totals)
    if recommended.needed is not None or recommended.shrink is not None:
        return None
    return _scenario(doubtful, _step(recommended, totals, away.replaceable, away.reserved, away.out), band, totals)


def _has_delay(policy: Policy) -> bool:
    return any(metric.delay.up or metric.delay.down for metric in policy.metrics)


def _recommended(policy: Policy, band: Band, totals: Totals) -> Recommendation:
    return _RECOMMEND[policy.strategy](totals, band, policy.converge_towards) if totals.n else _INCOMPARABLE


def _step(recommended: Recommendation, totals: Totals, replaceable: int, reserved: int, out: int) -> _Step:
    return _Step(
        recommended, totals.usage, totals.weight, totals.n, totals.missing, totals.young, replaceable, reserved, out
    )


def _steps(policy: Policy, band: Band, away: AwayPods, totals: Totals, order: Sequence[DoubtfulPod]) -> Iterator[_Step]:
    replaceable = away.replaceable + sum(1 for pod in order if pod.is_replaceable)
    reserved = away.reserved + sum(1 for pod in order if not pod.is_long)
    out = away.out + len(order)
    yield _step(_recommended(policy, band, totals), totals, replaceable, reserved, out)
    for pod in order:
        totals.add(pod)
        replaceable -= pod.is_replaceable
        reserved -= not pod.is_long
        out -= 1
        yield _step(_recommended(policy, band, totals), totals, replaceable, reserved, out)


def _that_may_win(steps: Sequence[_Step]) -> list[int]:
    """The indices of the scenarios that no scenario with more doubtful pods in beats at every replica count.

    At any count a scenario above the band proposes at least that count, one that holds proposes it, and one below the
    band at most that count. On a tie the scenario with more pods in wins. Of two steps down the one proposes no less
    that can spare no more pods; none spares more than it takes.
    """
    kept: list[int] = []
    above: list[_Step] = []
    most, spare, is_held = -1, math.inf, False
    for inside in range(len(steps) - 1, -1, -1):
        step = steps[inside]
        recommended = step.recommended
        may_win = bool(recommended.drift) or not kept
        if recommended.needed is None and recommended.shrink is None:
            may_win = may_win or not (is_held or above)
            is_held = is_held or not recommended.drift
        elif recommended.verdict is Verdict.ABOVE:
            if not any(_beats(rival, step) for rival in above[-_RIVALS_COMPARED:]):
                may_win = True
                above.append(step)
        elif recommended.shrink is not None:
            can_spare = max(0, min(step.n - recommended.shrink.fewest, recommended.shrink.by))
            may_win = may_win or (not (is_held or above) and can_spare < spare)
            # A service that needs no pod at all may propose 0.
            spare = spare if recommended.zero else min(spare, can_spare)
        elif recommended.needed is not None:
            may_win = may_win or (not (is_held or above) and recommended.needed + step.out > most)
            # A service that needs no pod at all may propose 0.
            most = most if recommended.zero else max(most, recommended.needed + step.out)
        if may_win:
            kept.append(inside)
    return kept[::-1]


def _with_every_verdict(kept: Iterable[int], steps: Sequence[_Step]) -> list[int]:
    """These indices, and one of each verdict that none of them has: delays ask for the verdicts of all scenarios."""
    first = {step.recommended.verdict: inside for inside, step in enumerate(steps)}
    missing = first.keys() - {steps[inside].recommended.verdict for inside in kept}
    return sorted({*kept, *(first[verdict] for verdict in missing)})


def _beats(one: _Step, other: _Step) -> bool:
    """Whether a scenario above the band, with more pods in, proposes at least as much at every replica count.

    A pod that comes in is no longer replaceable and takes room from replacements; with no less room than the other
    scenario it has all of its replacements.
    """
    no_less_room = one.n + one.missing + one.reserved <= other.n + other.missing + other.reserved
    return no_less_room and (one.recommended.needed or 0) >= (other.recommended.needed or 0)


def _scenario(inside: int, step: _Step, band: Band, totals: Totals) -> Scenario:
    recommended = step.recommended
    if recommended is _INCOMPARABLE:
        return Scenario(inside=inside, verdict=Verdict.ERROR, missing=step.missing, out=step.out)
    is_average = band.average is Average.PER_POD
    return Scenario(
        inside=inside,
        verdict=recommended.verdict,
        usage=Fraction(step.usage * totals.unit) / step.weight if is_average else Fraction(step.usage),
        n=step.n,
        missing=step.missing,
        young=step.young,
        departed=len(totals.departed),
        needed=recommended.needed,
        held=recommended.held,
        replaceable=step.replaceable,
        reserved=step.reserved,
        out=step.out,
        drift=recommended.drift,
        edge=recommended.edge,
        zero=recommended.zero,
        shrink=recommended.shrink,
        extreme=recommended.extreme,
    )
