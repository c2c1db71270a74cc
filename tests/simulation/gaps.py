"""Random closed loops in which scrapes are missed and samples lost.

An unchanged load never asks for fewer pods than before. A true fall is followed within a window, two polls and 15 s
after the last gap; while targets are flaky within two windows, as long as most of their windows hold enough.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from adapter.load.spec import Bounds
from tests.simulation.closed_loop import ClosedLoop, LoopPod, below_the_truth, rule_of
from tests.simulation.scrapes import Missed, ScrapedSource, Store
from tests.simulation.services import HIGH, LOW, restart
from tests.simulation.sources import Kind
from tests.simulation.stock_hpa import StockHpa

LOAD, FALLEN = 430, 110
"""So little above the low watermark that a rate of a tenth less shrinks the service; and such that no number of pods is
just at it, where the rounding of a rate decides."""
PAIRS = [(5, 5, 20), (15, 5, 60), (15, 15, 60), (15, 15, 120), (30, 15, 120), (30, 30, 300), (60, 15, 240)]
"""Intervals of scrapes and polls, and windows, in seconds."""

Trouble = Callable[["GapLoop"], None]


@dataclass
class GapLoop:
    """A service whose counters are scraped; `begin` is when its trouble begins, `end` when it has ended for good."""

    seed: int
    kind: Kind
    scrape: int
    poll: int
    window: int
    pods: int = 10
    trouble: str = ""
    begin: int = 0
    end: int = 0
    fall: int = 10**9
    rng: random.Random = field(default_factory=random.Random)
    loop: ClosedLoop = field(init=False)
    source: ScrapedSource = field(init=False)

    def __post_init__(self) -> None:
        self.source = ScrapedSource(
            self.kind,
            refresh=self.poll,
            window=self.window,
            max_age=max(90.0, 2.0 * self.window),
            scrape=self.scrape,
            stores=[Store(self.scrape)],
        )
        hpa = StockHpa(bounds=Bounds(minimum=1, maximum=200), sync=3, down_window=0)
        self.loop = ClosedLoop(self.pods, self._demand, rule_of(self.kind, HIGH, LOW), self.source, hpa)

    def _demand(self, now: int) -> int:
        return self.pods * (LOAD if now < self.fall else FALLEN)

    @property
    def missed_scrapes(self) -> int:
        """Seconds of one to ten missed scrapes."""
        return self.rng.randint(1, 10) * self.scrape

    @property
    def some(self) -> Callable[[str], bool]:
        """All pods, one, or a share of them."""
        share, salt = self.rng.choice([1.0, 1.0, 0.5, 0.1]), self.seed
        return lambda pod: random.Random(f"{pod} {salt}").random() < share

    def stores(self, *, shards: bool) -> None:
        """Two servers: shards behind a querier, or replicas that answer by turns."""
        self.source.stores, self.source.shards = [Store(self.scrape), Store(self.scrape)], shards

    def later(self, at: int, event: Callable[[], None]) -> None:
        self.loop.at(at, lambda _: event())

    def restart(self, at: int) -> None:
        """The adapter restarts then."""

        def again() -> None:
            self.source.restart()
            restart(self.loop)

        self.later(at, again)
        self.end = max(self.end, at)


def missed(one: GapLoop) -> None:
    """A run of missed scrapes."""
    one.end = one.begin + one.missed_scrapes
    one.source.missed = _between(one.begin, one.end, one.some)


def periodic(one: GapLoop) -> None:
    """Every few scrapes a few are missed."""
    every = one.rng.randint(2, 12)
    lost, some = one.rng.randint(1, max(1, every // 3)), one.some
    one.end = one.begin + 6 * one.window
    one.source.missed = lambda pod, now: one.begin <= now < one.end and some(pod) and now // one.scrape % every < lost


def flaky(one: GapLoop) -> None:
    """Scrapes fail by chance."""
    share, some = one.rng.uniform(0.1, 0.5), one.some
    one.end = one.begin + 6 * one.window
    one.source.missed = lambda pod, now: (
        one.begin <= now < one.end and some(pod) and random.Random(f"{pod} {now} {one.seed}").random() < share
    )


def at_start(one: GapLoop) -> None:
    """The adapter starts while windows refill."""
    one.rng.choice([missed, periodic, flaky])(one)
    one.restart(one.rng.randint(one.begin, one.end + one.window))


def at_birth(one: GapLoop) -> None:
    """Pods are replaced while nothing, or not everything, is scraped."""
    one.rng.choice([missed, flaky])(one)
    moments = iter(sorted(one.rng.randint(one.begin, one.end + one.window) for _ in range(one.pods)))
    for pod in one.loop.living[: one.rng.randint(1, one.pods)]:
        at = next(moments)
        one.later(at, _deletion(one, pod))
        one.end = max(one.end, at + one.loop.habits.starts + one.loop.habits.leaves)


def wiped(one: GapLoop) -> None:
    """A server loses its data, perhaps as the adapter starts or scrapes are missed."""
    if one.rng.random() < 0.5:
        missed(one)
    at = one.end = max(one.end, one.begin) + one.rng.randint(0, one.window)
    store = one.source.stores[-1]
    one.later(at, store.samples.clear)
    if one.rng.random() < 0.5:
        one.restart(at + one.rng.randint(0, one.window))


def two_shards(one: GapLoop) -> None:
    """Of two shards behind a querier one is wiped, or misses scrapes."""
    one.stores(shards=True)
    one.rng.choice([wiped, missed, flaky])(one)


def two_replicas(one: GapLoop) -> None:
    """Of two replicas that answer by turns one is wiped, or misses scrapes."""
    one.stores(shards=False)
    one.rng.choice([wiped, missed, flaky])(one)


TROUBLES: dict[str, Trouble] = {
    one.__name__: one for one in (missed, periodic, flaky, at_start, at_birth, wiped, two_shards, two_replicas)
}


def _between(begin: int, end: int, pods: Callable[[str], bool]) -> Missed:
    return lambda pod, now: begin <= now < end and pods(pod)


def _deletion(one: GapLoop, pod: LoopPod) -> Callable[[], None]:
    return lambda: one.loop.delete(pod)


def gap_loop(seed: int) -> GapLoop:
    """A loop determined by its seed."""
    rng = random.Random(seed)
    scrape, poll, window = rng.choice(PAIRS)
    kind = rng.choice([Kind.QUERY, Kind.QUERY, Kind.TOTAL])
    one = GapLoop(seed, kind, scrape, poll, window, pods=rng.choice([3, 10, 10, 20]), rng=rng)
    one.trouble = rng.choice([*TROUBLES])
    one.begin = one.end = 3 * window + rng.randint(0, window)
    TROUBLES[one.trouble](one)
    if rng.random() < 0.5:  # in a gap, or after it
        one.fall = rng.choice([rng.randint(one.begin, one.end), one.end + rng.randint(0, 3 * window)])
    return one


def fault(one: GapLoop) -> str:
    """What went wrong in a loop that is run to its end; empty if nothing did."""
    loop, is_fallen = one.loop, one.fall < 10**9
    last = max(one.end, one.fall if is_fallen else 0)
    # A window that a gap reaches into ends a window after it; what was learned of intervals may need one more.
    due = last + one.scrape + one.window + 2 * one.poll + 15
    loop.run(due + 1 if is_fallen else last + 4 * one.window)
    shrunk = [step for step in loop.steps if step.after < step.before]
    early = [step for step in shrunk if step.at < one.fall]
    if early:
        return f"shrinks to {early[0].after} at {early[0].at}"
    if below_the_truth(loop) > 0:
        return f"below the truth by {below_the_truth(loop)}"
    if is_fallen and not shrunk:
        return f"fell at {one.fall}, and is not followed by {due}"
    return ""


def faults(seeds: Iterable[int]) -> dict[int, str]:
    """By seed, what went wrong."""
    found = {}
    for seed in seeds:
        one = gap_loop(seed)
        if what := fault(one):
            found[seed] = f"{one.trouble}, {one.kind}, {one.scrape}/{one.poll}/{one.window}: {what}"
    return found
