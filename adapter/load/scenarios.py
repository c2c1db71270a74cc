"""The scenarios of one metric: with every doubtful pod out, then with the most loaded ones in, one after the other."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from adapter.load.assessment import Scenario, Verdict
from adapter.load.ratio import recommend as recommend_by_ratio
from adapter.load.recount import Recommendation
from adapter.load.scenario_list import Candidate
from adapter.load.spec import Average, Converge, Policy, Strategy
from adapter.load.step import recommend as recommend_step
from adapter.load.steps import AT_ONCE, Steps, collected, mapped
from adapter.load.totals import Band, DoubtfulPod, Rational, Totals
from adapter.load.watermark import recommend as recommend_by_watermarks

_SKETCHED_AT_ONCE = 128
"""Scenarios that are computed in one step."""
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


class ScenarioSketch(NamedTuple):
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
) -> Steps[list[Candidate]]:
    """The scenarios that win at some replica count, by the number of doubtful pods in.

    The pods come in in this order. `totals` begin without them and end with all of them.
    """
    steps = yield from collected(_sketches(policy, band, away, totals, order), _SKETCHED_AT_ONCE)
    kept = yield from _that_may_win(steps, policy.multiple_of)
    yield
    if _has_delay(policy):
        kept = _with_every_verdict(kept, steps)
    make = maker_of(band, totals)
    return (yield from mapped(lambda inside: make.candidate(inside, steps[inside]), kept))


def held_with_all_in(policy: Policy, band: Band, away: AwayPods, totals: Totals, doubtful: int) -> Candidate | None:
    """The scenario with all doubtful pods in (`totals`) if it wins at every count, given that none is above the band.

    It wins where it holds: no other one proposes more. Delays need the verdicts of the others, and steps inside the
    band are more than a hold.
    """
    if policy.converge_towards is not None or _has_delay(policy):
        return None
    all_in = only_scenario(policy, band, away, totals, doubtful)
    recommended = all_in.recommended
    return all_in if recommended.needed is None and recommended.shrink is None else None


def only_scenario(policy: Policy, band: Band, away: AwayPods, totals: Totals, doubtful: int = 0) -> Candidate:
    """The scenario with so many doubtful pods in, all that there are."""
    step = sketch(recommendation_of(policy, band, totals), totals, away.replaceable, away.reserved, away.out)
    return maker_of(band, totals).candidate(doubtful, step)


def maker_of(band: Band, totals: Totals) -> "ScenarioMaker":
    """The maker of the scenarios that begin with these totals."""
    return ScenarioMaker(is_average=band.average is Average.PER_POD, unit=totals.unit, departed=len(totals.departed))


def _has_delay(policy: Policy) -> bool:
    return any(metric.delay.up or metric.delay.down for metric in policy.metrics)


def recommendation_of(policy: Policy, band: Band, totals: Totals) -> Recommendation:
    """What the strategy asks for at these totals."""
    return _RECOMMEND[policy.strategy](totals, band, policy.converge_towards) if totals.n else _INCOMPARABLE


def sketch(recommended: Recommendation, totals: Totals, replaceable: int, reserved: int, out: int) -> ScenarioSketch:
    """The sketch of the scenario with these totals."""
    return ScenarioSketch(
        recommended, totals.usage, totals.weight, totals.n, totals.missing, totals.young, replaceable, reserved, out
    )


def _sketches(
    policy: Policy, band: Band, away: AwayPods, totals: Totals, order: Sequence[DoubtfulPod]
) -> Iterator[ScenarioSketch]:
    replaceable = away.replaceable + sum(1 for pod in order if pod.is_replaceable)
    reserved = away.reserved + sum(1 for pod in order if not pod.is_long)
    out = away.out + len(order)
    yield sketch(recommendation_of(policy, band, totals), totals, replaceable, reserved, out)
    for pod in order:
        totals.add(pod)
        replaceable -= pod.is_replaceable
        reserved -= not pod.is_long
        out -= 1
        yield sketch(recommendation_of(policy, band, totals), totals, replaceable, reserved, out)


def _that_may_win(steps: Sequence[ScenarioSketch], multiple_of: int) -> Steps[list[int]]:
    """The indices of the scenarios that no others beat at every replica count.

    At any count a scenario above the band proposes at least that count, one that holds proposes it, and one below the
    band at most that count. On a tie the scenario with more pods in wins. Of two steps down the one proposes no less
    that can spare no more pods; none spares more than it takes. Of steps inside the band the one proposes no less that
    needs no fewer pods at its edge, with its replacements. A service that needs no pod at all (`zero`) may propose 0.
    """
    kept: list[int] = []
    above, upwards, downwards = _Offers(), _Offers(), -math.inf
    is_held = False
    most: dict[bool, float] = {False: -1, True: -1}
    spare: dict[bool, float] = {False: math.inf, True: math.inf}
    for inside in range(len(steps) - 1, -1, -1):
        if inside % AT_ONCE == AT_ONCE - 1:
            yield
        step = steps[inside]
        recommended = step.recommended
        may_win, may_fall = not kept, not (is_held or above)
        if recommended.drift > 0:
            may_win = upwards.add(inside, _offer(step, recommended.edge)) or may_win
            is_held = True
        elif recommended.drift < 0:
            rank = math.inf if recommended.edge is None else recommended.edge + step.out
            may_win = may_win or (may_fall and rank > downwards)
            downwards = max(downwards, rank)
        elif recommended.needed is None and recommended.shrink is None:
            may_win = may_win or may_fall
            is_held = True
        elif recommended.verdict is Verdict.ABOVE:
            may_win = above.add(inside, _offer(step, recommended.needed)) or may_win
        elif recommended.shrink is not None:
            can_spare = _spare(step)
            may_win = may_win or (may_fall and can_spare < spare[recommended.zero])
            spare[recommended.zero] = min(spare[recommended.zero], can_spare)
        elif recommended.needed is not None:
            may_win = may_win or (may_fall and recommended.needed + step.out > most[recommended.zero])
            most[recommended.zero] = max(most[recommended.zero], recommended.needed + step.out)
        if may_win:
            kept.append(inside)
    beaten = above.beaten(multiple_of)
    return [inside for inside in reversed(kept) if inside not in beaten]


def _spare(step: ScenarioSketch) -> int:
    """How many pods a step down can spare, at most as many as it takes."""
    shrink = step.recommended.shrink
    return 0 if shrink is None else max(0, min(step.n - shrink.fewest, shrink.by))


def _with_every_verdict(kept: Iterable[int], steps: Sequence[ScenarioSketch]) -> list[int]:
    """These indices, and one of each verdict that none of them has: delays ask for the verdicts of all scenarios."""
    first = {step.recommended.verdict: inside for inside, step in enumerate(steps)}
    missing = first.keys() - {steps[inside].recommended.verdict for inside in kept}
    return sorted({*kept, *(first[verdict] for verdict in missing)})


class _Offer(NamedTuple):
    """What a scenario proposes to grow to at a count c: min(most, max(least, line + c)), and at least c.

    `least` pods are needed; those that are out are replaced as far as there is room, all of them from `most` on.
    """

    least: int
    line: int
    most: int

    def beats(self, other: "_Offer") -> bool:
        """Whether it is no less than another one at every count."""
        covers = self.line >= other.line or self.least >= other.most
        return covers and self.least >= other.least and self.most >= other.most


def _offer(step: ScenarioSketch, needed: int | None) -> _Offer:
    """The offer of a scenario that needs so many pods; None: one pod more than now, whatever the count."""
    if needed is None:
        return _ALWAYS
    return _Offer(needed, needed - step.n - step.missing - step.reserved, needed + step.replaceable)


class _Offers:
    """The offers of an order's scenarios, from the one with the most doubtful pods in on."""

    def __init__(self) -> None:
        self._offers: list[tuple[int, _Offer]] = []
        self._best: dict[str, _Offer] = {}

    def __bool__(self) -> bool:
        return bool(self._offers)

    def add(self, inside: int, offer: _Offer) -> bool:
        """Add the next scenario; False where one with more pods in beats it."""
        if any(rival.beats(offer) for rival in self._best.values()):
            return False
        self._offers.append((inside, offer))
        for name in _Offer._fields:
            best = self._best.get(name)
            if best is None or getattr(offer, name) >= getattr(best, name):
                self._best[name] = offer
        return True

    def beaten(self, multiple_of: int) -> set[int]:
        """The scenarios between one with more pods in and one with fewer, of which one wins wherever they would.

        Where the one with more pods in offers less, the other one must offer more even when both are rounded.
        """
        beaten: set[int] = set()
        if len(self._offers) < 3:
            return beaten
        more_in = list(accumulate((offer.least for _, offer in self._offers), max))
        best = self._offers[-1][1]
        for place in range(len(self._offers) - 2, 0, -1):
            inside, offer = self._offers[place]
            is_less = offer.line + multiple_of <= best.line and offer.most + multiple_of <= best.most
            if is_less and offer.least <= more_in[place - 1]:
                beaten.add(inside)
            elif offer.line > best.line:
                best = offer
        return beaten


class ScenarioMaker(NamedTuple):
    """Makes the scenarios of a metric."""

    is_average: bool
    unit: int
    departed: int

    def candidate(self, inside: int, step: ScenarioSketch) -> Candidate:
        """The scenario with so many doubtful pods in, to be made when it is asked for."""
        return Candidate(step.recommended, step.out, _spare(step), partial(self.scenario, inside, step))

    def scenario(self, inside: int, step: ScenarioSketch) -> Scenario:
        """The scenario with so many doubtful pods in."""
        recommended = step.recommended
        if recommended is _INCOMPARABLE:
            return Scenario(inside=inside, verdict=Verdict.ERROR, missing=step.missing, out=step.out)
        usage = Fraction(step.usage * self.unit, step.weight) if self.is_average else Fraction(step.usage)
        verdict, needed, held, drift, edge, zero, shrink, extreme = recommended
        return Scenario(  # by position, which is faster: a decision may make a dozen
            inside,
            verdict,
            usage,
            step.n,
            step.missing,
            step.young,
            self.departed,
            needed,
            held,
            step.replaceable,
            step.reserved,
            step.out,
            drift,
            edge,
            zero,
            shrink,
            extreme,
        )


_ALWAYS = _Offer(1 << 62, 1 << 62, 1 << 62)
