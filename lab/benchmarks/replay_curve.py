"""The load of the closed-loop check: stretches of load and pull-outs whose counts depend on no instant of a sync.

Pure. Loads are in units of which one pod carries at most HIGH and at least LOW before the count changes.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

HIGH, LOW = 100, 50
FIRST_LOAD, FIRST_COUNT = 401, 5
UP_SECONDS, DOWN_SECONDS = 9.0, 25.0
"""A ramp takes this long for each pod that it asks for or releases: each count is seen at several syncs."""
_LEAST, _MOST = 250, 2100
_RAMPS = (-200, -150, 200, 300, 400)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The load moves to `load` within `ramp` seconds (0: at once), and `pulled_out` pods are pulled out."""

    load: int
    ramp: float = 0.0
    pulled_out: int = 0


def stretches(seed: int) -> Iterator[Stretch]:
    """Endless stretches: jumps, ramps and pull-outs in random order, none that hides another."""
    source, load, pulled_out = random.Random(seed), FIRST_LOAD, 0
    while True:
        kind = source.choice(("jump", "jump", "ramp", "pull out"))
        if kind == "pull out":
            pulled_out = 0 if pulled_out else source.randint(1, max(1, load // HIGH // 3))
            yield Stretch(load, 0.0, pulled_out)
            continue
        change = source.choice(_RAMPS) if kind == "ramp" else source.randint(_LEAST, _MOST) - load
        wanted = min(max(load + change, _LEAST), _MOST) // 10 * 10 + 3  # at no whole number of pods
        yield Stretch(wanted, _seconds(load, wanted) if kind == "ramp" else 0.0, pulled_out)
        load = wanted


def _seconds(load: int, wanted: int) -> float:
    if wanted > load:
        return (wanted - load) / HIGH * UP_SECONDS
    return (load - wanted) / LOW * DOWN_SECONDS
