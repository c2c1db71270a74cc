"""Plays the plans of a search on two parts of a history, on several cores where it is long."""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import repeat
from multiprocessing import get_context

from adapter.commands.replay.autoscalers import PolicyAutoscaler
from adapter.commands.replay.comparison import Comparison, Result, first_count, probed, within
from adapter.commands.replay.hpas import shared_amount
from adapter.commands.replay.service import Judge, OpenHistory, Setup, Summary
from adapter.commands.replay.simulation import simulate
from adapter.commands.replay.suggest import (
    BUDGET,
    Part,
    Plan,
    Progress,
    SuggestError,
    Suggestions,
    Yardstick,
    suggest,
    yardstick,
)
from adapter.load.quantity import NANO
from adapter.load.spec import Average, Metric
from adapter.policy.hpa import Hpa

_CHECKED_FROM_DAYS = 3
_DAY = 86_400.0
_LEARNED_SHARE = 2 / 3
_SHORT_TICKS = 4_000
"""Up to so many ticks a search is faster in one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """Plays plans with the HPA and the pods of a comparison, judged by `judge` alone.

    The history from `begin` is learned on until `split` (seconds), and checked on from there until `end`; without a
    split, all of it is learned on.
    """

    comparison: Comparison
    history: OpenHistory
    judge: Judge
    begin: float
    split: float | None
    end: float

    def play(self, plans: Sequence[Plan], part: Part) -> list[Summary | None]:
        """The figures of the plans on a part, in one pass; None where the history has no such part."""
        if part is Part.CHECK and self.split is None:
            return [None] * len(plans)
        begin, end = (self.begin, self.split or self.end) if part is Part.LEARN else (self.split, self.end)
        with self.history() as history:
            first, ticks = probed(within(history, begin, end))
            if not first:
                return [None] * len(plans)
            compared = self.comparison
            setup = compared.setup
            if part is Part.CHECK:
                setup = replace(setup, replicas=first_count(first, compared.hpa, compared.judge))
            autoscalers = [
                PolicyAutoscaler(plan.policy, paced(compared.hpa, plan), "", compared.totals) for plan in plans
            ]
            return [run.summary for run in simulate(ticks, setup, autoscalers, self.judge)]


def suggest_for(
    result: Result,
    history: OpenHistory,
    progress: Progress | None = None,
    cores: int | None = None,
    budget: int = BUDGET,
    aim: float | None = None,
) -> Suggestions:
    """Suggestions for the policy of a comparison, from the history it was replayed on. Raises SuggestError.

    `aim` is the shortfall that is accepted (0 to 1); None: what the present policy has.
    """
    compared = result.comparison
    policy = compared.policy
    measure = _yardstick(compared)
    if aim is not None:
        capacity_of(compared)
    name, unit = policy.metrics[0].name, _capacity_unit(policy.metrics[0], compared.setup)
    split = result.begin + (result.end - result.begin) * _LEARNED_SHARE
    player = Player(
        comparison=replace(compared, others=()),
        history=history,
        judge=Judge({**compared.judge.high, name: measure.load * unit}, compared.judge.minimum),
        begin=result.begin,
        split=split if result.end - result.begin >= _CHECKED_FROM_DAYS * _DAY else None,
        end=result.end,
    )
    clipped = compared.setup.throttles.get(name)
    limit = None if clipped is None else clipped / unit
    search = partial(suggest, Plan(policy), compared.hpa.bounds.minimum, measure)
    search = partial(search, aim=aim, limit=limit, budget=budget, progress=progress)
    cores = cores or ((os.cpu_count() or 1) if result.ticks > _SHORT_TICKS else 1)
    if cores == 1:
        return search(player.play)
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:

        def play(plans: Sequence[Plan], part: Part) -> list[Summary | None]:
            figures: list[Summary | None] = [None] * len(plans)
            shares = [plans[first::cores] for first in range(min(cores, len(plans)))]
            for first, share in enumerate(pool.map(player.play, shares, repeat(part))):
                figures[first::cores] = share
            return figures

        return search(play)


def paced(hpa: Hpa, plan: Plan) -> Hpa:
    """The HPA with a plan's behavior, and its own tolerances."""
    if plan.down is not None:
        down = replace(plan.down, tolerance=hpa.scale_down.tolerance)
        hpa = replace(hpa, scale_down=down, has_behavior=True)
    if plan.up is not None:
        hpa = replace(hpa, scale_up=replace(hpa.scale_up, stabilization=plan.up), has_behavior=True)
    return hpa


def _yardstick(compared: Comparison) -> Yardstick:
    policy = compared.policy
    metric = policy.metrics[0]
    if policy.average is Average.TOTAL or metric.name in compared.totals:
        raise SuggestError(f"metric {metric.name} is a total of the service; suggestions are for the load of a pod")
    unit = _capacity_unit(metric, compared.setup)
    capacity = compared.setup.capacity.get(metric.name)
    return yardstick(policy, None if capacity is None else capacity / unit)


def capacity_of(compared: Comparison) -> Fraction:
    """What a pod carries of the first metric, in the unit of its watermarks. Raises SuggestError where nobody said."""
    measure = _yardstick(compared)
    if not measure.is_capacity:
        raise SuggestError("a shortfall needs what one pod can carry; say it with --capacity")
    return measure.load


def _capacity_unit(metric: Metric, setup: Setup) -> Fraction:
    """What one nano-unit of a metric's watermarks is in nano-units of plain usage."""
    if metric.of is None:
        return Fraction(1)
    amount = shared_amount(metric, setup)
    if not amount:
        raise SuggestError(
            f"metric {metric.name} needs the pod's {metric.of.lower()}; give it with --{metric.of.lower()}"
        )
    return Fraction(amount, NANO)
