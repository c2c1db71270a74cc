"""Every way to see the doubtful pods of one metric, from all out to all in, the most loaded ones in first."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from adapter.load.assessment import Scenario, Verdict
from adapter.load.spec import Average, Policy
from adapter.load.totals import Band, DoubtfulPod, Rational, Totals
from adapter.load.watermark import Recommendation, recommend

_REMEMBERED_RIVALS = 4
"""Against so many of the scenarios above the band that are kept another one is held."""
_NEVER = Recommendation(Verdict.ERROR)


class AwayPods(NamedTuple):
    """What the pods that surely do not serve are worth to a scenario, and all doubtful ones that it has out besides.

    `out` are kept in the count on the way down; `replaceable` may be replaced on the way up, and `reserved` (starting)
    already stand in for somebody.
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
    policy: Policy, band: Band, worth: AwayPods, totals: Totals, order: Sequence[DoubtfulPod]
) -> list[Scenario]:
    """The scenarios that may win at some replica count, from all doubtful out to all in. Uses the totals up."""
    steps = list(_steps(policy, band, worth, totals, order))
    return [_scenario(inside, steps[inside], band, totals) for inside in _that_may_win(steps)]


def _steps(
    policy: Policy, band: Band, worth: AwayPods, totals: Totals, order: Sequence[DoubtfulPod]
) -> Iterator[_Step]:
    replaceable = worth.replaceable + sum(1 for doubt in order if doubt.is_replaceable)
    reserved = worth.reserved + sum(1 for doubt in order if not doubt.is_old)
    out, converge = worth.out + len(order), policy.converge_towards
    for doubt in (None, *order):
        if doubt is not None:
            totals.add(doubt)
            replaceable -= doubt.is_replaceable
            reserved -= not doubt.is_old
            out -= 1
        recommended = recommend(totals, band, converge) if totals.n else _NEVER
        yield _Step(
            recommended, totals.usage, totals.weight, totals.n, totals.missing, totals.young, replaceable, reserved,
            out,
        )  # fmt: skip


def _that_may_win(steps: Sequence[_Step]) -> list[int]:
    """The scenarios, by how many doubtful are in, that none with more of them in beats at every replica count.

    Whatever the count is, one above the band proposes no less than it, one that holds proposes it, and one below the
    band no more; on a tie the scenario with more in wins.
    """
    kept: list[int] = []
    above: list[_Step] = []
    most, is_held = -1, False
    for inside in range(len(steps) - 1, -1, -1):
        step = steps[inside]
        recommended = step.recommended
        may_win = bool(recommended.drift) or not kept
        if recommended.needed is None:
            may_win = may_win or not (is_held or above)
            is_held = is_held or not recommended.drift
        elif recommended.verdict is Verdict.ABOVE:
            if not any(_beats(rival, step) for rival in above[-_REMEMBERED_RIVALS:]):
                may_win = True
                above.append(step)
        else:
            may_win = may_win or (not (is_held or above) and recommended.needed + step.out > most)
            # A service that needs no pod at all may propose none.
            most = most if recommended.zero else max(most, recommended.needed + step.out)
        if may_win:
            kept.append(inside)
    return kept[::-1]


def _beats(one: _Step, other: _Step) -> bool:
    """Whether one scenario above the band, with more in, proposes no less than another at every replica count.

    With as much room for replacements it has all of them: who is in and might have been replaced takes room.
    """
    no_less_room = one.n + one.missing + one.reserved <= other.n + other.missing + other.reserved
    return no_less_room and (one.recommended.needed or 0) >= (other.recommended.needed or 0)


def _scenario(inside: int, step: _Step, band: Band, totals: Totals) -> Scenario:
    recommended = step.recommended
    if recommended is _NEVER:
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
    )
