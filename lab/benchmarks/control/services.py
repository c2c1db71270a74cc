"""Three synthetic services from a seed, with the statistics of real ones, and how their pods behave."""

import math
import random
from collections.abc import Callable, Iterator
from itertools import islice

from adapter.commands.replay.service import Setup, Tick
from adapter.load.quantity import NANO

STEP = 15.0
WEEK = 7 * 86_400.0
BEGAN = 1_767_571_200.0
"""A Monday, 0:00 UTC."""
CAPACITY = 3 * NANO // 2
"""What a pod can carry, which is its CPU limit (nano-units)."""
MINIMUM, MAXIMUM, FIRST_REPLICAS = 2, 500, 10
"""Of the HPA, and the count at the beginning."""

_DAY = 86_400.0


def setup(replicas: int) -> Setup:
    """Pods that start in 30 s, samples of 15 s that are 5 s old, a sync each 15 s: what `replay` takes by default."""
    return Setup(
        replicas=replicas,
        delay=5.0,
        window=15.0,
        capacity={"cpu": CAPACITY},
        requests={"cpu": NANO},
        limits={"cpu": CAPACITY},
        throttles={"cpu": CAPACITY},
    )


def loads(name: str, seed: int) -> Iterator[float]:
    """The load of a service in pods' capacities at every `STEP` from a Monday on, without an end."""
    return SERVICES[name](random.Random(f"{name} {seed}"))


def ticks(name: str, seed: int, begin: float = 0.0, seconds: float = WEEK) -> Iterator[Tick]:
    """A part of the history of a service, `begin` seconds after its start."""
    first, count = int(begin / STEP), int(seconds / STEP)
    for index, load in enumerate(islice(loads(name, seed), first, first + count), first):
        yield Tick(BEGAN + index * STEP, {"cpu": int(load * CAPACITY)})


def _tide(index: int) -> float:
    """People: low at four in the morning, highest in the afternoon, a third less at the weekend."""
    at = index * STEP
    day = 1 - 0.6 * math.cos(2 * math.pi * (at / _DAY - 4 / 24))
    return day * (1.0 if at // _DAY % 7 < 5 else 0.7)


def _tidal(rng: random.Random) -> Iterator[float]:
    """Waves of day and week, noise of 2 %, no jumps."""
    index = 0
    while True:
        yield 16 * _tide(index) * rng.gauss(1, 0.02)
        index += 1


def _spiky(rng: random.Random) -> Iterator[float]:
    """19 rises by half and more a day, each within a step; one in ten is fourfold or more. They sink in minutes."""
    index, above, sinks = 0, 0.0, 1.0
    while True:
        if rng.random() < 19 * STEP / _DAY:
            times = min(8.0, 1.5 * rng.random() ** (-1 / 2.35))
            above = (1 + above) * times - 1
            sinks = math.exp(-STEP / rng.uniform(120, 480))
        yield 6 * _tide(index) * (1 + above) * rng.gauss(1, 0.05)
        above *= sinks
        index += 1


def _grainy(rng: random.Random) -> Iterator[float]:
    """Few and heavy requests: noise of 30 % at every step, and three bursts of five minutes a day."""
    index, burst = 0, 0
    while True:
        if not burst and rng.random() < 3 * STEP / _DAY:
            burst = int(300 / STEP)
        yield 8 * _tide(index) * (1.8 if burst else 1.0) * max(0.0, rng.gauss(1, 0.3))
        burst = max(0, burst - 1)
        index += 1


SERVICES: dict[str, Callable[[random.Random], Iterator[float]]] = {"tidal": _tidal, "spiky": _spiky, "grainy": _grainy}
