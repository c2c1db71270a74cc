"""Random closed loops, and their figures."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

from adapter.load.spec import Bounds, Cooldown, Metric, Policy, PulledOut, Strategy, ToleranceIn, Trigger, Velocity
from adapter.load.spec import Step as SpecStep
from adapter.policy.hpa import ScalingPolicy
from tests.load.kit import REGISTRY
from tests.simulation.closed_loop import (
    ClosedLoop,
    Demand,
    Habits,
    below_the_truth,
    beyond_the_truth,
    down_to_the_truth,
    rule_of,
    up_to_the_truth,
)
from tests.simulation.sources import Kind, Source
from tests.simulation.stock_hpa import PERCENT, PODS, StockHpa

MINUTE = 60
LONGEST = 150 * MINUTE
MOST_PODS = 40

Alter = Callable[[ClosedLoop], None]


def random_loop(seed: int) -> ClosedLoop:
    """A random loop of 2 to 40 pods, determined by its seed."""
    rng = random.Random(seed)
    high = rng.choice([500, 1200, 2000])
    low = round(high * rng.choice([0.2, 1 / 3, 0.45]))
    kind = rng.choice(list(Kind))
    source = Source(
        kind,
        refresh=rng.choice([10, 15, 20, 30, 45, 60]),
        window=rng.choice([0, 10, 15, 30, 60, 90, 120]),
        delay=rng.randint(0, 15),
        phase=rng.randint(0, 59),
        jitter=rng.choice([0, 0, 3]),
        own_life=rng.random() < 0.5,
    )
    hpa = _hpa(rng)
    rule = _paced(rng, rule_of(kind, high, low, registry=REGISTRY if rng.random() < 0.2 else None), hpa)
    habits = Habits(
        starts=rng.choice([3, 10, 30, 60, 110]),
        registers=rng.randint(0, 20) if rule.registry else 0,
        leaves=rng.choice([1, 10, 30]),
        weights=rng.choice([(1,), (1,), (1, 2, 3)]),
        burn=rng.choice([0, 0, high]) if kind is Kind.RESOURCE else 0,
        oldest_first=rng.random() < 0.3,
    )
    demand, peak = _demand(rng, high, low)
    start = max(2, min(MOST_PODS, rng.choice([-(-peak // high), peak // low, 2 * peak // low, rng.randint(2, 40)])))
    loop = ClosedLoop(start, demand, rule, source, hpa, habits, eager=rng.random() < 0.3)
    _trouble(rng, loop)
    if rng.random() < 0.2 and not hpa.up:
        loop.rule = replace(rule, fast_scale_up=True)
        loop.companion = replace(source, delay=0, _coming=[])
        source.delay += rng.choice([0, 10])
    return loop


def _trouble(rng: random.Random, loop: ClosedLoop) -> None:
    """Adds trouble to some loops: manual scaling, evictions, unready pods, a silent registry, a faulty source."""
    moments = iter(rng.sample(range(MINUTE, 20 * MINUTE), 12))
    for _ in range(3):
        match rng.randrange(20):
            case 0 | 1:
                loop.events[next(moments)] = partial(_scale, to=rng.randint(2, MOST_PODS))
            case 2 | 3:
                loop.events[next(moments)] = partial(_evict, share=rng.random() / 2)
            case 4:
                loop.events[next(moments)] = partial(_fall_ill, seconds=rng.choice([20, 60, 400]))
    if loop.rule.registry is not None and rng.random() < 0.6:
        begin = next(moments)
        loop.events[begin] = loop.events[begin + rng.choice([40, 150, 280])] = _silence
    begin = next(moments)
    match rng.randrange(12):
        case 0:
            loop.events[begin] = loop.events[begin + rng.choice([60, 150, 400])] = _freeze
            loop.source.freezes = True
            loop.source.moves = rng.random() < 0.5
            if rng.random() < 0.3:  # then only its arrival bounds a sample's age
                loop.source.ahead, loop.source.delay, loop.source.jitter = 3600, 0, 0
        case 1:
            loop.events[begin] = partial(_report_zero, share=rng.random())
            loop.events[begin + rng.choice([30, 150, 200])] = partial(_report_zero, share=0)
        case 2:
            loop.source.lost = rng.choice([lambda name: name.endswith("3"), lambda _: rng.random() < 0.05])
            loop.events[20 * MINUTE] = _find


def _scale(loop: ClosedLoop, to: int) -> None:
    loop.scale(to)


def _evict(loop: ClosedLoop, share: float) -> None:
    for pod in loop.living[: int(len(loop.living) * share)]:
        loop.delete(pod)


def _fall_ill(loop: ClosedLoop, seconds: int) -> None:
    for pod in loop.living[:1]:
        if pod.serves(loop.now):
            loop.ail(pod, seconds)


def _silence(loop: ClosedLoop) -> None:
    loop.registry.mode = "ok" if loop.registry.mode == "silent" else "silent"


def _freeze(loop: ClosedLoop) -> None:
    loop.source.frozen = not loop.source.frozen


def _find(loop: ClosedLoop) -> None:
    loop.source.lost = lambda _: False


def _report_zero(loop: ClosedLoop, share: float) -> None:
    """Reports zero for a share of the pods with a long history of samples."""
    old = [pod.measured.name for pod in loop.living if pod.serves(loop.now) and pod.ready_at < loop.now - 5 * MINUTE]
    loop.source.zeros = set(old[: int(len(old) * share)])


def _demand(rng: random.Random, high: int, low: int) -> tuple[Demand, int]:
    """A demand that becomes constant within 20 minutes, and its largest value."""

    def load() -> int:
        return rng.randint(low, rng.randint(2, MOST_PODS) * high)

    first, last = load(), load()
    begin = rng.randint(MINUTE, 10 * MINUTE)
    end = begin + rng.randint(MINUTE, 10 * MINUTE)
    match rng.randrange(5):
        case 0:
            return (lambda _: first), first
        case 1:
            return (lambda now: first if now < begin else last), max(first, last)
        case 2:
            middle = load()
            return (lambda now: first if now < begin else middle if now < end else last), max(first, middle, last)
        case 3:
            return _ramp(first, last, begin, end), max(first, last)
        case _:
            return _ramp(max(first, last), min(first, last), begin, end), max(first, last)


def _ramp(first: int, last: int, begin: int, end: int) -> Demand:
    return lambda now: first + (last - first) * max(0, min(now, end) - begin) // (end - begin)


def _hpa(rng: random.Random) -> StockHpa:
    sync = rng.choice([3, 15])
    period = rng.choice([15, 30, 60])
    rates = [
        (),
        (),
        (ScalingPolicy(PODS, rng.choice([1, 2, 4]), period),),
        (ScalingPolicy(PERCENT, rng.choice([10, 20, 50, 100]), period), ScalingPolicy(PODS, 1, period)),
    ]
    return StockHpa(
        bounds=Bounds(minimum=rng.choice([1, 1, 2]), maximum=200),
        sync=sync,
        down_window=rng.choice([0, 0, 15, 60, 120, 300]),
        up=rng.choice(rates),
        down=rng.choice(rates),
    )


def _paced(rng: random.Random, rule: Policy, hpa: StockHpa) -> Policy:
    if hpa.down_window > MINUTE:  # each step would wait for a whole window
        return rule
    if rng.random() < 0.2:
        rule = replace(rule, velocity=Velocity(up=rng.choice([None, 50]), down=rng.choice([10, 30])))
    if rng.random() < 0.2:
        rule = replace(rule, cooldown=Cooldown(up=rng.choice([0, 30]), down=rng.choice([30, 90])))
    return rule


def by_ratio(loop: ClosedLoop) -> None:
    """Gives the loop strategy Ratio, with the high watermark as its target."""
    rng = random.Random(loop.replicas)
    tolerance = Fraction(rng.choice([0, 5, 10, 10, 30]), 100)
    loop.rule = replace(loop.rule, strategy=Strategy.RATIO, tolerance=tolerance, metrics=(_aimed(loop),))


def by_steps(loop: ClosedLoop) -> None:
    """Gives the loop strategy Step, with the high watermark as its target.

    Pods of different weights never agree on a trigger; they have the average.
    """
    rng = random.Random(loop.replicas)
    is_even = len(set(loop.habits.weights)) == 1
    step = SpecStep(
        tolerance=rng.choice([10, 15, 30]),
        tolerance_in=ToleranceIn.RATIO,
        trigger=rng.choice([*Trigger]) if is_even else Trigger.AVERAGE,
        up=rng.choice([0, 1, 2, 2]),
        down=rng.choice([1, 2, 2, 4]),
        min_pods=rng.choice([1, 2, 2, 3]),
    )
    loop.rule = replace(loop.rule, strategy=Strategy.STEP, step=step, metrics=(_aimed(loop),))
    if loop.hpa.down_window > MINUTE:  # each step waits for a whole window: one pod at a time would outlast the loop
        loop.rule = replace(loop.rule, step=replace(step, down=4))
    elif rng.random() < 0.5 and not loop.hpa.down:
        loop.rule = replace(loop.rule, step=replace(step, down=4), cooldown=Cooldown(up=180, down=300))


def _aimed(loop: ClosedLoop) -> Metric:
    return replace(loop.metric, high=None, low=None, target=loop.metric.high)


def come_and_go(loop: ClosedLoop) -> None:
    """Lets groups of pods turn unready, or be pulled out, and return: once or several times, for seconds or minutes.

    Pods that are out are not replaced: the loop is about those that return.
    """
    rng = random.Random(loop.replicas * 7919 + loop.source.refresh)
    loop.rule = replace(loop.rule, pulled_out=PulledOut(replace=False))

    def leave(running: ClosedLoop, share: float, seconds: int, *, is_pulled_out: bool) -> None:
        serving = [pod for pod in running.living if pod.serves(running.now)]
        for pod in serving[: min(len(serving) - 1, max(1, int(len(serving) * share)))]:
            if is_pulled_out:
                running.pull_out(pod, seconds)
            else:
                running.ail(pod, seconds)

    for at in rng.sample(range(MINUTE, 19 * MINUTE, 7), rng.choice([1, 2, 3])):
        seconds, is_pulled_out = rng.choice([10, 40, 120, 400, 700]), rng.random() < 0.6
        event = partial(leave, share=rng.random() * 0.6, seconds=seconds, is_pulled_out=is_pulled_out)
        loop.events.setdefault(at, event)


STRATEGIES: dict[str, Alter] = {"Watermark": lambda _: None, "Ratio": by_ratio, "Step": by_steps}


def run(loop: ClosedLoop) -> ClosedLoop:
    """Runs until nothing has changed for longer than any sample age, window or time limit."""
    patience = 2 * (loop.source.lag + loop.habits.starts) + 2 * MINUTE + loop.hpa.down_window
    patience += round(max(loop.rule.cooldown.up, loop.rule.cooldown.down))
    loop.run(20 * MINUTE)
    while loop.now < LONGEST:
        loop.run(MINUTE)
        last = loop.steps[-1].at if loop.steps else 0
        quiet = loop.now - max(last, 20 * MINUTE)
        settled = down_to_the_truth(loop) and up_to_the_truth(loop)
        if (settled and quiet >= patience) or quiet >= patience + 20 * MINUTE:
            break
    return loop


@dataclass
class Figures:
    """How many loops went wrong, by seed: by how many pods, or at which count they ended."""

    loops: int = 0
    steps: int = 0
    below: dict[int, int] = field(default_factory=dict)
    beyond: dict[int, int] = field(default_factory=dict)
    not_down: dict[int, int] = field(default_factory=dict)
    not_up: dict[int, int] = field(default_factory=dict)
    restless: dict[int, int] = field(default_factory=dict)

    def add(self, seed: int, loop: ClosedLoop) -> None:
        """Adds the result of a finished loop."""
        self.loops += 1
        self.steps += len(loop.steps)
        for found, pods, is_wrong in (
            (self.below, below_the_truth(loop), below_the_truth(loop) > 0),
            (self.beyond, beyond_the_truth(loop), beyond_the_truth(loop) > 0),
            (self.not_down, loop.replicas, not down_to_the_truth(loop)),
            (self.not_up, loop.replicas, not up_to_the_truth(loop)),
            (self.restless, loop.replicas, loop.now >= LONGEST),
        ):
            if is_wrong:
                found[seed] = pods


def figures(seeds: Iterable[int], alter: Alter = lambda _: None) -> Figures:
    """Runs the loops of these seeds; `alter` changes each before it begins."""
    counted = Figures()
    for seed in seeds:
        loop = random_loop(seed)
        alter(loop)
        counted.add(seed, run(loop))
    return counted
